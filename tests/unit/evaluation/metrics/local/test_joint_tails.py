"""Which of a node's numbers are large: patterns by hand."""

import numpy as np
import pytest
import torch

from layerdag.evaluation import SimilarityRow, compare
from layerdag.evaluation.metrics import AttributeView
from layerdag.evaluation.metrics.local import NodeTails
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


TOGETHER = [(code, code, code) for code in range(1, 21)]
APART = [(code, 21 - code, 1) for code in range(1, 21)]


def row(train: list[DAG], test: list[DAG], made: list[DAG]) -> SimilarityRow:
    return compare(train, test, made, VIEWS, metrics=[NodeTails()], replicates=3).rows[0]


def test_numbers_that_are_large_together_are_told_from_those_that_are_large_apart() -> None:
    real = [graph(TOGETHER)]
    found = row(real, real, [graph(APART)])
    # Real: one node of twenty has all three. Made: one has FLOPs, one bytes, none all three.
    assert found.generated.value == pytest.approx(0.1)
    assert found.reference.value == 0.0


def test_a_tail_that_is_too_heavy_counts_though_the_numbers_go_together() -> None:
    real = [graph(TOGETHER)]
    heavy = [graph(TOGETHER[:16] + [(20, 20, 20)] * 4)]
    assert row(real, real, heavy).generated.value == pytest.approx(0.15)


def test_the_tail_begins_where_that_of_the_training_graphs_does() -> None:
    low = [graph([(code, code, code) for code in range(1, 11)] * 2)]
    found = row([graph(TOGETHER)], low, [graph(TOGETHER)])
    assert found.generated.value == pytest.approx(0.05)
    assert found.reference.value == pytest.approx(0.05)


def test_absent_numbers_are_in_no_tail_and_nodes_without_any_are_left_out() -> None:
    real = [graph(TOGETHER)]
    halved = [graph([(0, code, code) for code in range(1, 21)] + [(0, 0, 0)] * 100)]
    assert row(real, real, halved).generated.value == pytest.approx(0.05)


def test_one_number_has_no_joint_tail() -> None:
    assert NodeTails().of(VIEWS[:2]) == ()
    [metric] = NodeTails().of((VIEWS[0], VIEWS[3], VIEWS[1]))
    assert metric.columns == (2, 1)


def test_a_set_without_numbers_is_told(rng: np.random.Generator) -> None:
    empty = [graph([(0, 0, 0)] * 3)]
    found = row(empty, empty, empty)
    assert "no numbers" in found.generated.error
