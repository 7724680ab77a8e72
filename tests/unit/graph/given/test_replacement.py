"""Kept later nodes get new parents in the place of removed ones."""

import numpy as np
import pytest
import torch
from gaps import EDGE_TYPES, KINDS, begun, random_gap

from layerdag.graph import DAG, Gap, GraphSizes, GraphStatistics, Prefix, Replacement

SIZES = GraphSizes((KINDS, 3), edge_types=EDGE_TYPES)


def replacement(gap: Gap) -> Replacement:
    return Replacement(GraphStatistics.measure([gap.dag], SIZES))


def joined(gap: Gap, first: DAG, seed: int = 0, spread: float = 1.0) -> DAG:
    rng = np.random.default_rng(seed)
    return gap.filled(first, replacement(gap).parents(gap, first, rng, spread))


def in_degrees(dag: DAG) -> torch.Tensor:
    return torch.bincount(dag.edge_index_2E[1], minlength=dag.num_nodes)


def kept_edges(gap: Gap, dag: DAG) -> set[tuple[int, int, int]]:
    """Return the edges of a filled graph between given nodes, counted as in the given graph."""
    shift = dag.num_nodes - gap.dag.num_nodes
    number = {node: node for node in range(gap.start)}
    number |= {node + shift: node for node in range(gap.end, gap.dag.num_nodes)}
    rows = zip(*dag.edge_index_2E.tolist(), dag.edge_type_E.tolist(), strict=True)
    return {(number[s], number[t], kind) for s, t, kind in rows if s in number and t in number}


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("sizes", [(4, 5), (2, 3), (1, 1)])
def test_given_nodes_edges_and_layers_are_kept(seed: int, sizes: tuple[int, ...]) -> None:
    gap = random_gap(seed)
    first = begun(gap, sizes, seed)
    dag = joined(gap, first, seed).check()  # no cycle, no double edge, layers as the edges say
    assert dag.num_layers == gap.dag.num_layers
    assert torch.equal(dag.x_NA[: first.num_nodes], first.x_NA)
    assert torch.equal(dag.x_NA[first.num_nodes :], gap.dag.x_NA[gap.end :])
    assert kept_edges(gap, dag) == kept_edges(gap, gap.dag)
    found, wanted = in_degrees(dag)[first.num_nodes :], in_degrees(gap.dag)[gap.end :]
    open_N = torch.bincount(gap.dag.edge_index_2E[1, gap.open_P], minlength=gap.dag.num_nodes)
    lost = (open_N[gap.end :] - sum(sizes)).clamp(min=0)
    assert torch.equal(found, wanted - lost)


def test_the_removed_layers_are_their_own_nearest_replacement() -> None:
    gap = random_gap(3, (2, 3, 1, 1, 1, 3))
    same = joined(gap, Prefix.of(gap.dag, gap.end_layer).dag, spread=0.0)
    assert torch.equal(same.edge_index_2E, gap.dag.edge_index_2E)


def test_a_new_node_of_the_same_kind_comes_first() -> None:
    """Node 1 is removed, and nodes 1 and 2 are new: the second has its kind."""
    path = DAG.build(torch.tensor([[0, 0], [1, 0], [2, 0]]), torch.tensor([[0, 1], [1, 2]]))
    gap = Gap.of(path, 1, 1)
    first = DAG.build(torch.tensor([[0, 0], [3, 0], [1, 0]]), torch.tensor([[0, 0], [1, 2]]))
    dag = joined(gap, first, spread=0.0)
    assert dag.edge_index_2E.T.tolist() == [[0, 1], [0, 2], [2, 3]]


def test_the_generator_alone_decides() -> None:
    gap = random_gap(2)
    first = begun(gap, (4, 5))
    once, again = (joined(gap, first, 7, spread=9.0) for _ in range(2))
    assert torch.equal(once.edge_index_2E, again.edge_index_2E)
    others = [joined(gap, first, seed, spread=9.0) for seed in range(5)]
    assert len({tuple(dag.edge_index_2E.flatten().tolist()) for dag in others}) > 1
