"""Laws of the metrics of local structure."""

from collections.abc import Sequence

import numpy as np
import torch
from hypothesis import given, strategies as st
from laws import tried
from random_graphs import random_dag

from layerdag.dag.dag import DAG
from layerdag.evaluation.metrics.base import AttributeView, SimilarityRow
from layerdag.evaluation.similarity import LOCAL_METRICS, compare
from layerdag.schema.attributes import CategoryAttribute, NumericAttribute

WORDS = ("aten::mm", "aten::silu", "aten::silu_backward", "aten::addcdiv_")
SIZES = tuple((float(size),) * 5 for size in (64, 128, 192, 193, 255))
VIEWS = (
    AttributeView("op", attribute=CategoryAttribute("op", WORDS)),
    *(
        AttributeView(name, ordered=True, attribute=NumericAttribute(name, name, SIZES))
        for name in ("flops", "bytes")
    ),
)
EXACT = [metric for metric in LOCAL_METRICS if getattr(metric, "name", "") != "node_classifier"]
SEEDS = st.integers(0, 2**32 - 1)


def graphs(seed: int, count: int = 5) -> list[DAG]:
    rng = np.random.default_rng(seed)
    return [
        random_dag(rng, rng.integers(1, 4, rng.integers(4, 9)).tolist(), [4, 6, 6])
        for _ in range(count)
    ]


def relabeled(dag: DAG, rng: np.random.Generator) -> DAG:
    """The same graph with its nodes and edges in another order."""
    position_N = torch.from_numpy(rng.permutation(dag.num_nodes))
    x_NA = torch.empty_like(dag.x_NA)
    x_NA[position_N] = dag.x_NA
    order_E = torch.from_numpy(rng.permutation(dag.num_edges))
    return DAG.build(x_NA, position_N[dag.edge_index_2E][:, order_E])


def found(
    train: list[DAG], test: list[DAG], made: list[DAG], metrics: Sequence = EXACT
) -> dict[str, SimilarityRow]:
    report = compare(train, test, made, VIEWS, metrics=metrics, replicates=2)
    return {row.metric.name: row for row in report.rows}


def figures(rows: dict[str, SimilarityRow]) -> dict[str, tuple[float | None, float | None]]:
    return {name: (row.generated.value, row.reference.value) for name, row in rows.items()}


@given(SEEDS)
@tried(12)
def test_the_order_of_nodes_and_edges_changes_nothing(seed):
    rng = np.random.default_rng(seed)
    sets = [graphs(seed + part) for part in range(3)]
    shuffled = [[relabeled(dag, rng) for dag in dags] for dags in sets]
    for (name, one), other in zip(
        figures(found(*sets)).items(), figures(found(*shuffled)).values(), strict=True
    ):
        assert one == tuple(other) or np.allclose(one, other), name


@given(SEEDS)
@tried(3)
def test_the_order_of_nodes_and_edges_changes_nothing_for_the_classifier(seed):
    rng = np.random.default_rng(seed)
    sets = [graphs(seed + part) for part in range(3)]
    shuffled = [[relabeled(dag, rng) for dag in dags] for dags in sets]
    metric = [LOCAL_METRICS[-1]]
    assert figures(found(*sets, metric)) == figures(found(*shuffled, metric))


@given(SEEDS)
@tried(12)
def test_a_set_compared_with_itself_is_no_different_and_has_nothing_new(seed):
    dags = graphs(seed)
    for name, (generated, real) in figures(found(dags, dags, dags)).items():
        assert generated == real, name
        if name.startswith(("path_", "type_hashes")):
            assert generated == 0.0, name


@given(SEEDS)
@tried(12)
def test_more_training_graphs_leave_less_that_is_new(seed):
    train, made = graphs(seed), graphs(seed + 1)
    few, many = figures(found(train[:2], made, made)), figures(found(train, made, made))
    for length in (2, 3, 4):
        assert many[f"path_novelty:{length}"][0] <= few[f"path_novelty:{length}"][0]


@given(SEEDS)
@tried(6)
def test_the_more_faults_are_planted_the_worse_the_figures(seed):
    rng = np.random.default_rng(seed)
    sound = [program([False] * COPIES) for _ in range(3)]
    rows = [
        figures(found(sound, sound, [program(rng.random(COPIES) < share) for _ in range(20)]))
        for share in (0.0, 0.3, 0.9)
    ]
    for name in (
        "type_hashes",
        "path_novelty:3",
        "path_frequencies:3",
        "backward_without_forward",
        "shape_violation:bytes",
        "shape_violation:flops",
    ):
        none, some, most = (row[name][0] for row in rows)
        assert none == 0.0 < some < most, name


@given(SEEDS)
@tried(6)
def test_blocks_that_are_no_longer_equal_repeat_less(seed):
    rng = np.random.default_rng(seed)
    inside = []
    for share in (0.0, 0.2, 0.9):
        made = [stack(rng.random(COPIES) < share, rng) for _ in range(20)]
        rows = found([stack([False] * COPIES, rng)], [stack([False] * COPIES, rng)], made)
        inside.append(rows["repeated_blocks:nodes"].generated.value)
        assert rows["repeated_blocks:count"].reference.value == COPIES
    assert inside[0] == 1.0 > inside[1] > inside[2]


def stack(faulty: Sequence[bool], rng: np.random.Generator) -> DAG:
    """Layers one after the other, of which the operators of the faulty ones are drawn at random."""
    ops = [op for wrong in faulty for op in (rng.integers(0, 4, 4) if wrong else (0, 1, 3, 2))]
    x_NA = torch.tensor([[int(op), 1, 1] for op in ops])
    nodes = torch.arange(len(ops))
    return DAG.build(x_NA, torch.stack([nodes[:-1], nodes[1:]]))


COPIES = 12


def program(faulty: Sequence[bool]) -> DAG:
    """Layers side by side, of which the faulty ones lack a forward operator; their numbers are odd.

    Side by side, so that no layer is an ancestor of another and hides what that lacks.
    """
    x_NA, edges = [], []
    for wrong in faulty:
        first = len(x_NA)
        numbers = [5, 5] if wrong else [1, 1]
        x_NA += [[op, *numbers] for op in ((0, 3, 2, 0) if wrong else (0, 1, 2, 0))]
        edges += [(first + at, first + at + 1) for at in range(3)]
    return DAG.build(torch.tensor(x_NA), torch.tensor(edges).T)
