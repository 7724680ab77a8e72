"""Which nodes have two large numbers: fractions by hand."""

import pytest
import torch

from layerdag.evaluation import SimilarityRow, compare
from layerdag.evaluation.metrics import AttributeView
from layerdag.evaluation.metrics.local import JointTails
from layerdag.graph import DAG

VIEWS = (
    AttributeView("op"),
    *(AttributeView(name, ordered=True) for name in ("flops", "bytes", "duration")),
)


def graph(rows: list[tuple[int, int, int]]) -> DAG:
    """A graph without edges whose nodes have codes of FLOPs, bytes and duration."""
    x_NA = torch.tensor([(0, *row) for row in rows])
    u_NA = torch.full(x_NA.shape, 0.5, dtype=torch.float64)
    return DAG.build(x_NA, torch.zeros((2, 0), dtype=torch.int64), u_NA=u_NA)


CODES = range(1, 21)
TOGETHER = graph([(code, code, code) for code in CODES])
"""Of twenty nodes two have all three numbers among the largest tenth, and none one alone."""
APART = graph([(code, 21 - code, code) for code in CODES])
"""Bytes are largest where FLOPs and durations are least."""


def rows(test: list[DAG], made: list[DAG]) -> dict[str, SimilarityRow]:
    report = compare([TOGETHER], test, made, VIEWS, metrics=[JointTails()], replicates=3)
    return {row.metric.name.partition(":")[2]: row for row in report.rows}


def test_numbers_that_are_large_apart_are_told_by_pair() -> None:
    found = rows([TOGETHER], [APART])
    values = {name: (row.generated.value, row.reference.value) for name, row in found.items()}
    assert values == {
        "flops x bytes": (0.0, 1.0),
        "flops x duration": (1.0, 1.0),
        "bytes x duration": (0.0, 1.0),
    }


def test_nodes_with_both_are_counted_beside_those_with_one() -> None:
    # FLOPs are largest at 19 and 20, durations at 20 and 1.
    half = graph([(code, code, 21 if code == 1 else code) for code in CODES])
    assert rows([TOGETHER], [half])["flops x duration"].generated.value == pytest.approx(1 / 3)


def test_only_the_order_of_numbers_counts() -> None:
    slower = graph([(code, code, code + 7) for code in CODES])
    assert {row.generated.value for row in rows([TOGETHER], [slower]).values()} == {1.0}


def test_nodes_that_lack_a_number_are_left_out() -> None:
    lacking = graph([(code, code, code) for code in CODES] + [(0, 40, 0), (40, 0, 40)])
    found = rows([TOGETHER], [lacking])
    assert found["flops x bytes"].generated.value == 1.0
    none = rows([TOGETHER], [graph([(0, code, code) for code in CODES])])
    assert "no node with both numbers" in none["flops x bytes"].generated.error
    assert none["bytes x duration"].generated.value == 1.0


def test_graphs_with_the_pairs_are_resampled_whole() -> None:
    mixed = [TOGETHER, APART] * 4
    found = rows(mixed, mixed)["flops x bytes"]
    assert found.ratio == pytest.approx(1.0)
    assert found.generated.interval is not None
    assert found.generated.interval.low < found.generated.value < found.generated.interval.high


def test_one_number_has_no_joint_tail() -> None:
    assert JointTails().of(VIEWS[:2]) == ()
    [metric] = JointTails().of((VIEWS[0], VIEWS[3], VIEWS[1]))
    assert (metric.name, metric.columns) == ("joint_tails:flops x duration", (2, 1))
