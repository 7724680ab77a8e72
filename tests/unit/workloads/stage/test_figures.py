"""What is counted of a program, worked out by hand on a program of a few nodes."""

import pytest

from layerdag.traces import CollectiveType, NodeType, Trace, Wire
from layerdag.traces.chakra import NodeColumns
from layerdag.workloads.stage._figures import Communication, StageFigures


class Program:
    """A program that is written node by node."""

    def __init__(self) -> None:
        self.columns = NodeColumns("by hand")
        self.count = 0

    def _add(self, kind: NodeType, after: tuple[int, ...]) -> None:
        self.columns.add(self.count, f"n{self.count}", kind, (after, ()), (0, 0))
        self.count += 1

    def compute(self, kind: str, operations: int, size: int, *after: int) -> None:
        self.columns.attribute("num_ops", Wire.INT64, operations)
        self.columns.attribute("tensor_size", Wire.UINT64, size)
        self.columns.attribute("op_type", Wire.STRING, self.columns.text(kind))
        self._add(NodeType.COMP, after)

    def collective(self, kind: CollectiveType, degree: str, size: int, *after: int) -> None:
        self.columns.attribute("comm_size", Wire.INT64, size)
        self.columns.attribute("comm_type", Wire.INT64, kind)
        self.columns.attribute("pg_name", Wire.STRING, self.columns.text(degree))
        self._add(NodeType.COMM_COLL, after)

    def message(self, end: str, stage: int, size: int, *after: int) -> None:
        self.columns.attribute("comm_size", Wire.INT64, size)
        self.columns.attribute(end, Wire.INT32, stage)
        self._add(NodeType.COMM_SEND if end == "comm_dst" else NodeType.COMM_RECV, after)

    def trace(self) -> Trace:
        return self.columns.trace()


@pytest.fixture(scope="module")
def figures() -> StageFigures:
    """Receive, two products, a sum, two all-reduces of dp, one gather of tp, send."""
    program = Program()
    program.message("comm_src", 0, 40)
    program.compute("M", 1000, 50, 0)
    program.compute("M", 300, 20, 0, 1)
    program.compute("A", 70, 70, 1, 2)
    program.collective(CollectiveType.ALL_REDUCE, "dp", 50, 1)
    program.collective(CollectiveType.ALL_REDUCE, "dp", 20, 2)
    program.collective(CollectiveType.ALL_GATHER, "tp", 9, 3)
    program.message("comm_dst", 2, 70, 3, 6)
    return StageFigures.of(program.trace())


def test_nodes_are_counted_by_what_they_do(figures: StageFigures) -> None:
    assert figures.operators["nodes"] == 8
    assert figures.operators["types"] == {"RECV": 1, "COMP": 3, "COLL": 3, "SEND": 1}
    assert figures.operators["data_deps"] == 1 + 2 + 2 + 1 + 1 + 1 + 2


def test_operations_add_up_by_operator(figures: StageFigures) -> None:
    assert figures.operators["comp_by_op_type"] == {"M": 2, "A": 1}
    assert figures.operators["num_ops_by_op_type"] == {"M": 1300, "A": 70}
    assert figures.operators["num_ops"] == 1370
    assert figures.operators["tensor_size_elems"] == 50 + 20 + 70


def test_communication_is_summed_by_kind_and_partner(figures: StageFigures) -> None:
    assert figures.communication == [
        Communication("RECV<-", 0, 1, 40),
        Communication("ALL_REDUCE@pg", "dp", 2, 70),
        Communication("ALL_GATHER@pg", "tp", 1, 9),
        Communication("SEND->", 2, 1, 70),
    ]


def test_a_rank_puts_its_own_groups_and_peers_in_place(figures: StageFigures) -> None:
    found = figures.of_rank({"dp": "4", "tp": "9"}, [1, 5, 13])
    assert found["comm_count"] == {
        "RECV<-1": 1, "ALL_REDUCE@pg4": 2, "ALL_GATHER@pg9": 1, "SEND->13": 1,
    }  # fmt: skip
    assert found["comm_elems"] == {
        "RECV<-1": 40, "ALL_REDUCE@pg4": 70, "ALL_GATHER@pg9": 9, "SEND->13": 70,
    }  # fmt: skip
    assert found["num_ops"] == figures.operators["num_ops"]


def test_figures_of_a_stage_stay_as_they_are_when_a_rank_is_asked_for(
    figures: StageFigures,
) -> None:
    before = dict(figures.operators)
    figures.of_rank({"dp": "1", "tp": "2"}, [0, 1, 2])
    assert figures.operators == before
    assert "comm_count" not in figures.operators


def test_operations_beyond_64_bits_in_sum_are_exact() -> None:
    program = Program()
    program.compute("M", 2**62, 1)
    program.compute("M", 2**62, 1)
    program.compute("E", 2**62 + 1, 1)
    found = StageFigures.of(program.trace()).operators
    assert found["num_ops_by_op_type"] == {"M": 2**63, "E": 2**62 + 1}
    assert found["num_ops"] == 3 * 2**62 + 1


def test_a_program_of_communication_alone_has_no_operators() -> None:
    program = Program()
    program.collective(CollectiveType.ALL_TO_ALL, "ep", 12)
    found = StageFigures.of(program.trace())
    assert found.operators["comp_by_op_type"] == {}
    assert found.operators["num_ops"] == 0
    assert found.operators["data_deps"] == 0
    assert found.of_rank({"ep": "3"}, [])["comm_elems"] == {"ALL_TO_ALL@pg3": 12}


def test_kinds_of_collectives_are_kept_apart_in_one_group() -> None:
    program = Program()
    for kind in (CollectiveType.ALL_REDUCE, CollectiveType.REDUCE_SCATTER):
        program.collective(kind, "dp", 5)
    found = StageFigures.of(program.trace()).of_rank({"dp": "1"}, [])
    assert found["comm_count"] == {"ALL_REDUCE@pg1": 1, "REDUCE_SCATTER@pg1": 1}
