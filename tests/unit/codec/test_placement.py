"""Many ranks of several classes: names with more digits, groups of several roles, lazy access."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, strategies as st
from laws import tried

from layerdag.codec.placement import RankTraces, _varint, missing_order_edges
from layerdag.traces.builder import NodeSpec, build_trace
from layerdag.traces.chakra.files import encode_trace, normalize
from layerdag.traces.trace import Attribute, NodeType, Trace, Wire

NONE_3, ALL_3 = [False] * 3, [True] * 3


def test_communication_that_is_ordered_already_needs_no_edge():
    assert missing_order_edges([[], [0], [1]], ALL_3, [True, False, True], NONE_3) == []


def test_independent_communication_is_chained_in_topological_order():
    assert missing_order_edges([[], [], []], ALL_3, ALL_3, NONE_3) == [(0, 1), (1, 2)]


def test_an_order_that_leads_through_another_class_does_not_count():
    # 0 -> 1 -> 2, but node 1 is run by another class of ranks.
    assert missing_order_edges([[], [0], [1]], [True, False, True], ALL_3, NONE_3) == [(0, 2)]


def test_prompt_sends_have_an_order_with_all_but_each_other():
    # Two sends that are received from the start, a collective, and another such send.
    parents, prompt = [[], [], [], []], [True, True, False, True]
    added = missing_order_edges(parents, [True] * 4, [True] * 4, prompt)
    assert added == [(1, 2), (0, 2), (2, 3)]


def test_an_edge_that_follows_from_others_is_not_added():
    # Of two prompt sends one depends on the other, so that the collective needs one edge.
    assert missing_order_edges([[], [0], []], ALL_3, ALL_3, [True, True, False]) == [(1, 2)]


def reaches(parents: list[list[int]], mine: list[bool]) -> list[set[int]]:
    """Return the ancestors of each node among the nodes of a class, by definition."""
    above: list[set[int]] = []
    for node, found in enumerate(parents):
        kept = [parent for parent in found if mine[parent]] if mine[node] else []
        above.append({*kept, *(far for parent in kept for far in above[parent])})
    return above


@tried(80)
@given(st.integers(1, 10), st.integers(0, 2**32 - 1))
def test_with_the_added_edges_all_that_hold_the_slot_are_in_order_but_prompt_pairs(size, seed):
    rng = np.random.default_rng(seed)
    parents = [[p for p in range(node) if rng.random() < 0.3] for node in range(size)]
    mine, holds, prompt = ((rng.random(size) < share).tolist() for share in (0.7, 0.6, 0.5))
    added = missing_order_edges(parents, mine, holds, prompt)
    holding = [node for node in range(size) if mine[node] and holds[node]]
    wanted = {(a, b) for a in holding for b in holding if a < b and not (prompt[a] and prompt[b])}

    def ordered(edges: list[tuple[int, int]]) -> list[set[int]]:
        found = [[*p, *(a for a, b in edges if b == node)] for node, p in enumerate(parents)]
        return reaches(found, mine)

    assert set(added) <= wanted
    after = ordered(added)
    assert all(a in after[b] for a, b in wanted)
    # No edge follows from the others.
    for a, b in added:
        assert a not in ordered([edge for edge in added if edge != (a, b)])[b]


@tried(40)
@given(st.integers(1, 10), st.integers(0, 2**32 - 1))
def test_where_no_send_is_prompt_each_edge_leads_to_the_next_in_order(size, seed):
    rng = np.random.default_rng(seed)
    parents = [[p for p in range(node) if rng.random() < 0.3] for node in range(size)]
    mine, holds = ((rng.random(size) < share).tolist() for share in (0.7, 0.6))
    chain = [node for node in range(size) if mine[node] and holds[node]]
    assert set(missing_order_edges(parents, mine, holds, [False] * size)) <= set(pairwise(chain))


def test_nothing_of_other_classes_is_chained():
    assert missing_order_edges([[], [], []], NONE_3, ALL_3, NONE_3) == []
    assert missing_order_edges([[], [], []], ALL_3, NONE_3, NONE_3) == []
    assert missing_order_edges([], [], [], []) == []


def collective(number: int, role: str) -> NodeSpec:
    words = (
        Attribute("comm_type", Wire.INT64, 0),
        Attribute("comm_size", Wire.INT64, 64 + number),
        Attribute("pg_name", Wire.STRING, role),
    )
    return NodeSpec(number, f"sum {number}", NodeType.COMM_COLL, attributes=words)


def message(number: int, end: str, peer: int) -> NodeSpec:
    kind = NodeType.COMM_SEND if end == "comm_dst" else NodeType.COMM_RECV
    words = (
        Attribute("comm_size", Wire.INT64, 8),
        Attribute(end, Wire.INT32, peer),
        Attribute("comm_tag", Wire.INT32, number),
    )
    return NodeSpec(number, f"message {number}", kind, attributes=words)


SENDER = build_trace([collective(0, "tensor"), message(1, "comm_dst", 0), collective(2, "data")])
RECEIVER = build_trace(
    [
        message(0, "comm_src", 1),
        collective(1, "data"),
        collective(2, "tensor"),
        collective(3, "data"),
    ]
)


def grid(ranks: int) -> RankTraces:
    """Return ranks in pairs (tensor) and in rows of one parity (data), in two stages of a ring."""
    rank_R = np.arange(ranks)
    half = ranks // 2
    members = {"tensor": rank_R.reshape(-1, 2), "data": rank_R.reshape(-1, 2).T}
    peers = [(rank_R + half) % ranks, (rank_R - half) % ranks]
    return RankTraces([SENDER, RECEIVER], (rank_R >= half).astype(int), members, peers)


def groups_of(trace: Trace) -> list[str]:
    texts, named_N = trace.texts("pg_name")
    return [texts[row] for row in np.flatnonzero(named_N).tolist()]


@pytest.mark.parametrize("ranks", [2, 4, 18, 20, 22, 200, 260])
def test_files_of_all_ranks_are_what_encoding_their_traces_gives(ranks):
    """Numbers of groups pass from 9 to 10 and 99 to 100, those of peers from 127 to 128."""
    traces = grid(ranks)
    written = dict(traces.files())
    assert sorted(written) == list(range(ranks))
    for rank, data in written.items():
        assert data == encode_trace(normalize(traces[rank])), rank


@pytest.mark.parametrize("ranks", [4, 24])
def test_each_rank_names_the_groups_that_hold_it(ranks):
    traces = grid(ranks)
    for rank, trace in enumerate(traces):
        named = groups_of(trace)
        assert all(rank in traces.groups[name] for name in named)
        sizes = [len(traces.groups[name]) for name in named]
        tensor, data = 2, ranks // 2
        assert sizes == ([tensor, data] if rank < ranks // 2 else [data, tensor, data])


def test_roles_are_numbered_one_after_the_other():
    assert grid(4).groups == {"1": (0, 1), "2": (2, 3), "3": (0, 2), "4": (1, 3)}


def test_a_number_that_is_given_moves_those_behind_it():
    members = {"tensor": np.array([[0, 1]]), "data": np.array([[0], [1]])}
    program = build_trace([collective(0, "tensor"), collective(1, "data")])
    made = RankTraces([program], np.zeros(2, int), members, [], {"tensor": 30})
    assert made.groups == {"30": (0, 1), "31": (0,), "32": (1,)}


def test_what_is_sent_is_received_by_the_other_end():
    traces = grid(12)
    for rank in range(6):
        target = int(traces[rank].integers("comm_dst")[0][1])
        assert int(traces[target].integers("comm_src")[0][0]) == rank


def test_ranks_of_a_class_share_what_does_not_differ():
    traces = grid(8)
    first, second = traces[0], traces[1]
    assert first.type_N is second.type_N
    assert first is traces[0]
    assert groups_of(first) != groups_of(second)


def test_ranks_are_counted_from_the_end_and_cut_as_in_a_list():
    traces = grid(6)
    assert len(traces) == 6
    assert traces[-1] is traces[5]
    assert [id(trace) for trace in traces[4:]] == [id(traces[4]), id(traces[5])]
    assert traces[9:] == ()
    with pytest.raises(IndexError):
        traces[6]


def test_the_programs_of_the_classes_stay_as_they_were():
    before = SENDER.strings
    traces = grid(4)
    assert groups_of(traces[0]) == ["1", "3"]
    assert before == SENDER.strings
    assert groups_of(SENDER) == ["tensor", "data"]


@tried(100)
@given(st.integers(0, 2**63 - 1))
def test_numbers_are_written_in_base_128_lowest_digit_first(value):
    data = _varint(value)
    assert sum((byte & 0x7F) << 7 * place for place, byte in enumerate(data)) == value
    assert [byte >> 7 for byte in data] == [1] * (len(data) - 1) + [0]
    assert len(data) == max(1, -(-value.bit_length() // 7))


def program() -> RankTraces:
    """Return four ranks in two groups, each sending to the next."""

    def attributes(**words: int | str) -> tuple[Attribute, ...]:
        return tuple(
            Attribute(name, Wire.STRING if isinstance(word, str) else Wire.INT32, word)
            for name, word in words.items()
        )

    nodes = [
        NodeSpec(
            0, "sum", NodeType.COMM_COLL,
            attributes=attributes(comm_type=0, comm_size=8, pg_name="role 0"),
        ),
        NodeSpec(
            1, "send", NodeType.COMM_SEND,
            attributes=attributes(comm_dst=0, comm_tag=1, comm_size=8),
        ),
    ]  # fmt: skip
    groups = {"role 0": np.array([[0, 2], [1, 3]])}
    return RankTraces(
        [build_trace(nodes)], np.zeros(4, int), groups, [np.array([1, 2, 3, 0])], {"role 0": 9}
    )
