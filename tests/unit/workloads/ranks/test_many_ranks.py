"""Many ranks of several classes: names with more digits, groups of several roles, lazy access."""

import numpy as np
import pytest
from hypothesis import given, strategies as st
from laws import tried

from layerdag.traces import Attribute, NodeType, Trace, Wire
from layerdag.traces.chakra import NodeSpec, build_trace, encode_trace, normalize
from layerdag.workloads.ranks import RankTraces
from layerdag.workloads.ranks._rank_traces import _varint


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
def test_files_of_all_ranks_are_what_encoding_their_traces_gives(ranks: int) -> None:
    """Numbers of groups pass from 9 to 10 and 99 to 100, those of peers from 127 to 128."""
    traces = grid(ranks)
    written = dict(traces.files())
    assert sorted(written) == list(range(ranks))
    for rank, data in written.items():
        assert data == encode_trace(normalize(traces[rank])), rank


@pytest.mark.parametrize("ranks", [4, 24])
def test_each_rank_names_the_groups_that_hold_it(ranks: int) -> None:
    traces = grid(ranks)
    for rank, trace in enumerate(traces):
        named = groups_of(trace)
        assert all(rank in traces.groups[name] for name in named)
        sizes = [len(traces.groups[name]) for name in named]
        tensor, data = 2, ranks // 2
        assert sizes == ([tensor, data] if rank < ranks // 2 else [data, tensor, data])


def test_roles_are_numbered_one_after_the_other() -> None:
    assert grid(4).groups == {"1": (0, 1), "2": (2, 3), "3": (0, 2), "4": (1, 3)}


def test_a_number_that_is_given_moves_those_behind_it() -> None:
    members = {"tensor": np.array([[0, 1]]), "data": np.array([[0], [1]])}
    program = build_trace([collective(0, "tensor"), collective(1, "data")])
    made = RankTraces([program], np.zeros(2, int), members, [], {"tensor": 30})
    assert made.groups == {"30": (0, 1), "31": (0,), "32": (1,)}


def test_what_is_sent_is_received_by_the_other_end() -> None:
    traces = grid(12)
    for rank in range(6):
        target = int(traces[rank].integers("comm_dst")[0][1])
        assert int(traces[target].integers("comm_src")[0][0]) == rank


def test_ranks_of_a_class_share_what_does_not_differ() -> None:
    traces = grid(8)
    first, second = traces[0], traces[1]
    assert first.type_N is second.type_N
    assert first is traces[0]
    assert groups_of(first) != groups_of(second)


def test_ranks_are_counted_from_the_end_and_cut_as_in_a_list() -> None:
    traces = grid(6)
    assert len(traces) == 6
    assert traces[-1] is traces[5]
    assert [id(trace) for trace in traces[4:]] == [id(traces[4]), id(traces[5])]
    assert traces[9:] == ()
    with pytest.raises(IndexError):
        traces[6]


def test_the_programs_of_the_classes_stay_as_they_were() -> None:
    before = SENDER.strings
    traces = grid(4)
    assert groups_of(traces[0]) == ["1", "3"]
    assert before == SENDER.strings
    assert groups_of(SENDER) == ["tensor", "data"]


@tried(100)
@given(st.integers(0, 2**63 - 1))
def test_numbers_are_written_in_base_128_lowest_digit_first(value: int) -> None:
    data = _varint(value)
    assert sum((byte & 0x7F) << 7 * place for place, byte in enumerate(data)) == value
    assert [byte >> 7 for byte in data] == [1] * (len(data) - 1) + [0]
    assert len(data) == max(1, -(-value.bit_length() // 7))
