"""Traces of all ranks from the programs of classes."""

import numpy as np

from layerdag.traces import Attribute, NodeType, Wire
from layerdag.traces.chakra import NodeSpec, build_trace, encode_trace, normalize
from layerdag.workloads.ranks import RankTraces


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


def test_groups_and_peers_are_those_of_the_rank() -> None:
    traces = program()
    assert traces.groups == {"9": (0, 2), "10": (1, 3)}
    assert [traces[rank].texts("pg_name")[0][0] for rank in range(4)] == ["9", "10", "9", "10"]
    assert [int(traces[rank].integers("comm_dst")[0][1]) for rank in range(4)] == [1, 2, 3, 0]
    assert len(traces[1:3]) == 2


def test_files_are_those_of_the_traces() -> None:
    traces = program()
    for rank, data in traces.files():
        assert data == encode_trace(normalize(traces[rank]))
