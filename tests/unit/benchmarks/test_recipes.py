"""Recipes: occurrences of patterns are copied and removed whole, until the size is reached."""

import numpy as np
import torch
from benchmark_tables import recipes

from layerdag.dag.dag import DAG, graph_hash
from layerdag.datasets.dataset import GraphDataset
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


def test_an_occurrence_is_what_one_of_two_alike_nodes_has_for_itself() -> None:
    found = {tuple(part.tolist()) for part in recipes.occurrences(fan(3), rng())}
    kinds = fan(3).x_NA[:, 0].numpy()
    assert all(sorted(kinds[list(part)]) == [1, 2] for part in found)
    assert len(found) == 3


def test_branches_are_copied_until_the_size_is_reached() -> None:
    assert graph_hash(recipes.resized(fan(2), 12, rng())) == graph_hash(fan(5))


def test_branches_are_removed_until_the_size_is_reached() -> None:
    assert graph_hash(recipes.resized(fan(5), 6, rng())) == graph_hash(fan(2))


def test_the_last_of_a_kind_stays_and_no_part_is_cut() -> None:
    assert graph_hash(recipes.resized(fan(3), 1, rng())) == graph_hash(fan(1))
    assert recipes.resized(fan(2), 7, rng()).num_nodes == 6  # a branch has two nodes


def test_a_graph_in_which_nothing_repeats_stays_as_it_is() -> None:
    chain = DAG.build(torch.zeros(4, 1, dtype=torch.int64), torch.tensor([[0, 1, 2], [1, 2, 3]]))
    assert graph_hash(recipes.resized(chain, 9, rng())) == graph_hash(chain)


def test_samples_have_sizes_of_training_graphs_and_can_be_new() -> None:
    dags = tuple(fan(branches) for branches in (2, 2, 3, 6))
    kind = CategoryAttribute("kind", tuple("abcd"))
    schema = GraphSchema("flow", (kind,), ("edge",))
    parts = {"train": dags, "val": (), "test": ()}
    data = GraphDataset.of_splits("fans", schema, parts, {split: () for split in parts})
    samples = recipes.fit_recipes(data, 0, 0).sample(30, 0)
    assert {dag.num_nodes for dag in samples} == {6, 8, 14}
    assert all(dag.check() for dag in samples)
