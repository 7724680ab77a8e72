"""Every descriptor of two small graphs, counted by hand."""

import numpy as np
import pytest
import torch

from layerdag.dag.dag import DAG
from layerdag.dag.graph_set import GraphSet
from layerdag.evaluation.metrics.base import AttributeView, Goal
from layerdag.evaluation.metrics.descriptor_metrics import DescriptorMetric, descriptors

ATTRIBUTES = (AttributeView("op"), AttributeView("size", ordered=True), AttributeView("place"))
# Layers {0, 1}, {2, 3}, {4}; edge 0 -> 4 descends two layers.
EDGES = [(0, 2), (1, 2), (1, 3), (2, 4), (0, 4)]
CODES = [[0, 0, 1], [1, 1, 0], [0, 2, 0], [1, 0, 0], [2, 1, 1]]
PAIR = 2**31


@pytest.fixture
def graphs() -> GraphSet:
    first = DAG.build(
        torch.tensor(CODES), torch.tensor(EDGES).T, edge_type_E=torch.tensor([0, 1, 0, 0, 1])
    )
    lone = DAG.build(torch.tensor([[1, 2, 0]]), torch.zeros(2, 0, dtype=torch.int64))
    return GraphSet.from_dags([first, lone])


EXPECTED = {
    "nodes": ([5, 1], [0, 1]),
    "edges": ([5, 0], [0, 1]),
    "layers": ([3, 1], [0, 1]),
    "mean_width": ([5 / 3, 1], [0, 1]),
    "width": ([2, 2, 1, 1], [0, 0, 0, 1]),
    "in_degree": ([0, 0, 2, 1, 2, 0], [0, 0, 0, 0, 0, 1]),
    "out_degree": ([2, 2, 1, 0, 0, 0], [0, 0, 0, 0, 0, 1]),
    "edge_span": ([1, 1, 1, 1, 2], [0] * 5),
    "depth_profile": ([0, 0, 3, 3, 6, 0], [0, 0, 0, 0, 0, 1]),
    "edge_types": ([0, 1, 0, 0, 1], [0] * 5),
    "edge_bigrams": ([0, PAIR, PAIR + 1, 2, 2], [0] * 5),
    "attribute:op": ([0, 1, 0, 1, 2, 1], [0, 0, 0, 0, 0, 1]),
    "attribute:size": ([0, 1, 2, 0, 1, 2], [0, 0, 0, 0, 0, 1]),
    "attribute:place": ([1, 0, 0, 0, 1, 0], [0, 0, 0, 0, 0, 1]),
}


def by_name() -> dict[str, DescriptorMetric]:
    return {descriptor.name: descriptor for descriptor in descriptors(ATTRIBUTES)}


@pytest.mark.parametrize("name", EXPECTED)
def test_items_of_a_descriptor_are_those_counted_by_hand(name, graphs):
    (items,) = by_name()[name].items(graphs)
    found = sorted(zip(items.graph.tolist(), items.value.tolist(), strict=True))
    values, owners = EXPECTED[name]
    np.testing.assert_allclose(found, sorted(zip(owners, values, strict=True)), rtol=1e-12)
    assert items.part == ""


def test_pairs_of_attributes_are_parts(graphs):
    parts = {items.part: items.value for items in by_name()["attribute_pairs"].items(graphs)}
    assert parts.keys() == {"op x size", "op x place", "size x place"}
    codes = np.array([*CODES, [1, 2, 0]])
    np.testing.assert_array_equal(parts["size x place"], codes[:, 1] * PAIR + codes[:, 2])


def test_all_descriptors_are_listed_and_know_what_they_compare():
    known = by_name()
    assert known.keys() == {*EXPECTED, "attribute_pairs"}
    named = {"depth_profile", "edge_types", "edge_bigrams", "attribute:op", "attribute:place",
             "attribute_pairs"}  # fmt: skip
    for name, descriptor in known.items():
        assert descriptor.ordered == (name not in named)
        assert descriptor.goal is Goal.MINIMIZE
        assert (descriptor.upper == 1.0) == (name in named)
    assert "attribute_pairs" not in {d.name for d in descriptors(ATTRIBUTES[:1])}
