"""Recipes: occurrences of patterns are copied and removed whole, until the size is reached."""

import numpy as np
import pytest
import torch
from benchmark_tables import recipes
from table_records import chain

from layerdag.dag.dag import DAG, graph_hash
from layerdag.datasets.dataset import GraphDataset
from layerdag.kinds.flow import FLOW
from layerdag.schema.attributes import CategoryAttribute
from layerdag.schema.schema import GraphSchema


def fan(branches: int) -> DAG:
    """Return a source, so many branches of two nodes, and a sink."""
    kinds = [0, *[1, 2] * branches, 3]
    last = len(kinds) - 1
    edges = [
        edge
        for first in range(1, last, 2)
        for edge in ((0, first), (first, first + 1), (first + 1, last))
    ]
    return DAG.build(torch.tensor(kinds)[:, None], torch.tensor(edges).T).in_layer_order()


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def test_an_occurrence_is_what_one_of_two_alike_nodes_has_for_itself():
    found = {tuple(part.tolist()) for part in recipes.occurrences(fan(3), rng())}
    kinds = fan(3).x_NA[:, 0].numpy()
    assert all(sorted(kinds[list(part)]) == [1, 2] for part in found)
    assert len(found) == 3


@pytest.mark.parametrize(
    ("branches", "size", "left"),
    [
        (2, 12, 5),
        (5, 6, 2),
        (3, 1, 1),  # the last of a kind stays
        (2, 7, 2),  # a branch has two nodes, and is not cut
    ],
)
def test_branches_are_copied_or_removed_until_the_size_is_reached(branches, size, left):
    assert graph_hash(recipes.resized(fan(branches), size, rng())) == graph_hash(fan(left))


def test_a_graph_in_which_nothing_repeats_stays_as_it_is():
    assert graph_hash(recipes.resized(chain(4), 9, rng())) == graph_hash(chain(4))


def test_samples_have_sizes_of_training_graphs_and_can_be_new():
    dags = tuple(fan(branches) for branches in (2, 2, 3, 6))
    kind = CategoryAttribute("kind", tuple("abcd"))
    schema = GraphSchema(FLOW, (kind,), ("edge",))
    parts = {"train": dags, "val": (), "test": ()}
    data = GraphDataset.of_splits("fans", schema, parts, {split: () for split in parts})
    samples = recipes.fit_recipes(data, 0, 0).sample(30, 0)
    assert {dag.num_nodes for dag in samples} == {6, 8, 14}
    assert all(dag.check() for dag in samples)
