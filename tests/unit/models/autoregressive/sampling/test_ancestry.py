"""Ancestries: a node's kind with the kinds of its parents and of theirs."""

import pytest
import torch

from layerdag.graph import DAG
from layerdag.models.autoregressive.sampling._ancestry import Ancestries
from layerdag.models.autoregressive.sampling._candidates import NodeCandidates
from tests.unit.models.autoregressive.sampling.single_nodes import node_of
from tests.unit.models.autoregressive.small_models import collated, small_dags


def ancestry(dag: DAG, node: int, radius: int) -> tuple:
    """Return kind and parents' ancestries, written out."""
    source_E, target_E = dag.edge_index_2E
    parents = source_E[target_E == node].tolist() if radius else []
    return (int(dag.x_NA[node, 0]), *sorted(ancestry(dag, p, radius - 1) for p in parents))


@pytest.mark.parametrize("seed", range(4))
def test_an_ancestry_has_occurred_if_an_earlier_node_has_it(seed: int) -> None:
    (dag,) = small_dags(1, seed=seed)
    dag.x_NA[:, 0] %= 2
    batch, known = collated([dag]), Ancestries.start(1, torch.device("cpu"))
    before: set[tuple] = set()
    for node in range(batch.num_nodes):
        candidate = node_of(batch, node)
        expected = ancestry(dag, node, 2) in before
        assert known.occurred(candidate).tolist() == [expected]
        known.add_nodes(node + 1, candidate)
        before.add(ancestry(dag, node, 2))
    assert len(before) < batch.num_nodes  # something occurs twice, or nothing was tested


def test_candidates_are_compared_with_their_own_graph_alone() -> None:
    known = Ancestries.start(2, torch.device("cpu"))
    first, second = (roots(torch.tensor(kinds)) for kinds in ((3, 4), (3, 3)))
    known.add_nodes(1, first)
    assert known.occurred(second).tolist() == [True, False]
    known.select(torch.tensor([1, 0]))
    assert known.occurred(second).tolist() == [False, True]


def test_of_several_candidates_of_a_graph_each_is_looked_up() -> None:
    known = Ancestries.start(1, torch.device("cpu"))
    known.add_nodes(1, roots(torch.tensor([2])))
    three = roots(torch.tensor([1, 2, 0]), graphs=1)
    assert known.occurred(three).tolist() == [False, True, False]


def roots(kind_P: torch.Tensor, graphs: int | None = None) -> NodeCandidates:
    """Return candidates without parents, the same number for each graph."""
    count = kind_P.shape[0]
    none_P, states = torch.zeros(count, dtype=torch.int64), torch.zeros(0, 0)
    graph_P = torch.arange(count) // (count // (graphs or count))
    return NodeCandidates(graph_P, none_P, kind_P, none_P, (), states, states)
