"""A gap: layers of a graph between given ones."""

import numpy as np
import pytest
import torch
from gaps import EDGE_TYPES, KINDS, begun, random_gap

from layerdag.dag.dag import DAG, GraphSizes
from layerdag.dag.partial import Gap, Prefix, Replacement
from layerdag.dag.statistics import GraphStatistics
from layerdag.errors import UsageError

SEEDS = range(5)


@pytest.mark.parametrize("seed", SEEDS)
def test_removed_layers_put_back_make_the_graph(seed):
    gap = random_gap(seed)
    again = gap.filled(
        Prefix.from_dag(gap.dag, gap.end_layer).dag, gap.dag.edge_index_2E[0, gap.open_P]
    )
    for name in ("x_NA", "u_NA", "edge_index_2E", "edge_type_E", "layer_N"):
        assert torch.equal(getattr(again, name), getattr(gap.dag, name)), name


def test_an_edge_without_a_new_parent_is_left_out():
    gap = random_gap(0)
    first = begun(gap, (2, 2))
    whole = gap.filled(first, torch.full((len(gap.open_P),), first.num_nodes - 1))
    fewer = gap.filled(first, torch.full((len(gap.open_P),), -1))
    assert whole.num_edges - fewer.num_edges == len(gap.open_P) > 0


def test_children_after_the_gap_are_reserved():
    gap = random_gap(1)
    source_E, target_E = gap.dag.edge_index_2E
    later = [int(((source_E == node) & (target_E >= gap.end)).sum()) for node in range(gap.start)]
    assert list(gap.prefix.reserved) == later
    assert gap.prefix.out_degrees == Prefix.from_dag(gap.dag, 2).out_degrees


@pytest.mark.parametrize(("first", "last"), [(3, 3), (5, 1), (2, 9), (2, 0)])
def test_a_gap_of_no_layer_is_refused(first, last):
    said = f"Of the 6 layers of this graph the first {first} and the last {last} are to be kept"
    with pytest.raises(UsageError, match=said):
        Gap.from_dag(random_gap(0).dag, first, last)


def diamond() -> DAG:
    """Three layers of one, two and one nodes, not in layer order."""
    edges = torch.tensor([[3, 3, 1, 2], [1, 2, 0, 0]])
    return DAG.build(torch.arange(4)[:, None], edges, edge_type_E=torch.tensor([0, 1, 0, 1]))


def test_a_prefix_has_the_first_nodes_their_parents_and_all_their_children():
    prefix = Prefix.from_dag(diamond(), 2)
    assert (prefix.num_nodes, prefix.num_layers) == (3, 2)
    assert prefix.layer_sizes == (1, 2)
    assert prefix.dag.x_NA[:, 0].tolist() == [3, 1, 2]
    assert Prefix.from_dag(diamond(), 2).parents == ((), ((0, 0),), ((0, 1),))
    assert Prefix.from_dag(diamond(), 3).parents[3] == ((2, 1), (1, 0))
    assert Prefix.from_dag(diamond(), 2).out_degrees == (2, 1, 1)


@pytest.mark.parametrize("layers", [0, 4, -1])
def test_more_layers_than_there_are_and_none_are_refused(layers):
    with pytest.raises(UsageError, match=f"has from 1 to 3 layers, found {layers}"):
        Prefix.from_dag(diamond(), layers)


def test_limits_that_leave_nothing_to_complete_are_refused():
    prefix = Prefix.from_dag(diamond(), 2)
    prefix.require_room(4, 3)
    for nodes, layers in ((3, 3), (4, 2)):
        with pytest.raises(UsageError, match="nothing is left to complete"):
            prefix.require_room(nodes, layers)


def test_given_nodes_keep_their_positions_in_bins():
    dag = diamond().in_layer_order()
    own, drawn = (dag.with_columns(dag.x_NA, torch.full((4, 1), u)) for u in (0.25, 0.75))
    assert Prefix.from_dag(own, 2).kept_in(drawn).u_NA[:, 0].tolist() == [0.25, 0.25, 0.25, 0.75]


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
def test_given_nodes_edges_and_layers_are_kept(seed, sizes):
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


def test_the_removed_layers_are_their_own_nearest_replacement():
    gap = random_gap(3, (2, 3, 1, 1, 1, 3))
    same = joined(gap, Prefix.from_dag(gap.dag, gap.end_layer).dag, spread=0.0)
    assert torch.equal(same.edge_index_2E, gap.dag.edge_index_2E)


def test_a_new_node_of_the_same_kind_comes_first():
    """Node 1 is removed, and nodes 1 and 2 are new: the second has its kind."""
    path = DAG.build(torch.tensor([[0, 0], [1, 0], [2, 0]]), torch.tensor([[0, 1], [1, 2]]))
    gap = Gap.from_dag(path, 1, 1)
    first = DAG.build(torch.tensor([[0, 0], [3, 0], [1, 0]]), torch.tensor([[0, 0], [1, 2]]))
    dag = joined(gap, first, spread=0.0)
    assert dag.edge_index_2E.T.tolist() == [[0, 1], [0, 2], [2, 3]]


def test_the_generator_alone_decides():
    gap = random_gap(2)
    first = begun(gap, (4, 5))
    once, again = (joined(gap, first, 7, spread=9.0) for _ in range(2))
    assert torch.equal(once.edge_index_2E, again.edge_index_2E)
    others = [joined(gap, first, seed, spread=9.0) for seed in range(5)]
    assert len({tuple(dag.edge_index_2E.flatten().tolist()) for dag in others}) > 1
