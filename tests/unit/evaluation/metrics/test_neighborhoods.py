"""New and repeated neighborhoods of small graphs, counted by hand."""

import numpy as np
import pytest
import torch

from layerdag.errors import GraphError
from layerdag.evaluation import SimilarityRow, compare
from layerdag.evaluation.metrics import (
    NEIGHBORHOOD_METRICS,
    AttributeView,
    Goal,
    NeighborhoodNovelty,
    NeighborhoodRepetition,
)
from layerdag.graph import DAG

OP = (AttributeView("op"), AttributeView("size", ordered=True))
NO_EDGES = torch.zeros((2, 0), dtype=torch.int64)


def path(ops: str, sizes: int = 0) -> DAG:
    """A path whose operators are the letters."""
    x_NA = torch.tensor([[ord(op) - ord("a"), sizes] for op in ops])
    return DAG.build(x_NA, torch.stack([torch.arange(len(ops) - 1), torch.arange(1, len(ops))]))


def rows(
    train: list[DAG], test: list[DAG], generated: list[DAG], replicates: int = 5
) -> dict[str, SimilarityRow]:
    report = compare(
        train, test, generated, OP, metrics=NEIGHBORHOOD_METRICS, replicates=replicates
    )
    assert not report.failures
    return {row.metric.name.removeprefix("neighborhood_"): row for row in report.rows}


def values(found: dict[str, SimilarityRow], kind: str) -> list[float]:
    return [found[f"{kind}:{radius}"].generated.value for radius in (1, 2, 3)]


def test_a_changed_operator_is_new_to_all_who_see_it() -> None:
    # Within r steps of the x are 2 r + 1 nodes; the path is long enough for all of them.
    found = rows([path("abcdefghij")], [path("abcdefghij")], [path("abcdexghij")])
    assert values(found, "novelty") == pytest.approx([0.3, 0.5, 0.7])
    assert found["novelty:1"].reference.value == 0.0


def test_novelty_is_told_of_real_test_graphs_too() -> None:
    found = rows([path("abcd")], [path("abcx"), path("abcd")], [path("abcd")])
    assert values(found, "novelty") == [0.0, 0.0, 0.0]
    assert found["novelty:1"].reference.value == pytest.approx(0.25)
    assert found["novelty:3"].reference.value == pytest.approx(0.5)


def test_a_motif_repeats_but_for_its_ends() -> None:
    # Of abcabcabc, the inner nodes see the same at radius 1 as their twins, the outer a and c not.
    found = rows([path("a")], [path("aa")], [path("abcabcabc")])
    assert values(found, "repetition") == pytest.approx([7 / 9, 4 / 9, 0.0])
    assert found["repetition:1"].reference.value == 0.0


def test_repetition_is_inside_a_graph_and_means_are_over_graphs() -> None:
    twins = [path("ab"), path("ab")]
    assert values(rows(twins, twins, twins), "repetition") == [0.0, 0.0, 0.0]
    mixed = [path("abcabcabc"), path("ab")]
    assert values(rows(twins, twins, mixed), "repetition") == pytest.approx([7 / 18, 4 / 18, 0])


def test_parents_and_children_are_told_apart_and_other_attributes_are_not_seen() -> None:
    assert values(rows([path("ab")], [path("ab")], [path("ba")]), "novelty") == [1.0, 1.0, 1.0]
    resized = rows([path("abc")], [path("abc")], [path("abc", sizes=3)])
    assert values(resized, "novelty") == [0.0, 0.0, 0.0]


def test_edge_types_count_for_nothing() -> None:
    plain = path("abc")
    control = DAG.build(plain.x_NA, plain.edge_index_2E, edge_type_E=torch.tensor([1, 0]))
    assert values(rows([plain], [plain], [control]), "novelty") == [0.0, 0.0, 0.0]


def test_multiplicities_of_neighbors_are_seen() -> None:
    def fan(children: int) -> DAG:
        edges = torch.stack([torch.zeros(children, dtype=torch.int64), 1 + torch.arange(children)])
        return DAG.build(torch.zeros((1 + children, 2), dtype=torch.int64), edges)

    found = rows([fan(2)], [fan(2)], [fan(3)])
    assert found["novelty:1"].generated.value == pytest.approx(1 / 4)
    assert found["repetition:1"].generated.value == pytest.approx(3 / 4)


def test_a_graph_without_nodes_is_left_out() -> None:
    empty = DAG.build(torch.zeros((0, 2), dtype=torch.int64), NO_EDGES)
    found = rows([path("ab")], [path("ab")], [empty, path("ab")])
    assert values(found, "novelty") == [0.0, 0.0, 0.0]
    alone = compare([path("ab")], [path("ab")], [empty], OP, metrics=NEIGHBORHOOD_METRICS)
    assert {failure.metric for failure in alone.failures} == set(NEIGHBORHOOD_METRICS)


def test_intervals_are_those_of_resampled_graphs() -> None:
    half_new = [path("abcd")] * 20 + [path("xyzw")] * 20
    found = rows([path("abcd")], [path("abcd")], half_new, replicates=400)["novelty:2"].generated
    assert found.value == 0.5
    assert found.interval is not None
    assert found.interval.high - 0.5 == pytest.approx(1.96 * 0.5 / np.sqrt(40), rel=0.15)


def test_they_are_declared_by_radius_and_nearness_to_real() -> None:
    assert [metric.name for metric in NEIGHBORHOOD_METRICS] == [
        f"neighborhood_{kind}:{radius}"
        for kind in ("novelty", "repetition")
        for radius in (1, 2, 3)
    ]
    for metric in NEIGHBORHOOD_METRICS:
        assert isinstance(metric, NeighborhoodNovelty | NeighborhoodRepetition)
        assert metric.name.endswith(f":{metric.radius}")
        assert (metric.goal, metric.lower, metric.upper) == (Goal.MATCH_REAL, 0.0, 1.0)


def test_graphs_with_a_cycle_have_neighborhoods_but_no_layers() -> None:
    ring = DAG.build(torch.zeros((3, 2), dtype=torch.int64), torch.tensor([[0, 1, 2], [1, 2, 0]]))
    assert values(rows([path("a")], [path("aa")], [ring]), "repetition") == [1.0, 1.0, 1.0]
    with pytest.raises(GraphError, match="cycle"):
        compare([path("ab")], [path("ab")], [ring], OP, replicates=2)
