"""Ancestries: a node's kind, those of its parents and theirs, and the parents' earlier children."""

import pytest
import torch

from layerdag.graph import DAG
from layerdag.models.autoregressive.sampling._ancestry import Ancestries
from layerdag.models.autoregressive.sampling._candidates import EdgesToParents, NodeCandidates
from tests.unit.models.autoregressive.sampling.single_nodes import node_of
from tests.unit.models.autoregressive.small_models import collated, small_dags


def parents_of(dag: DAG, node: int) -> list[int]:
    source_E, target_E = dag.edge_index_2E
    return source_E[target_E == node].tolist()


def ancestry(dag: DAG, node: int) -> tuple:
    """Return kind, parents' kinds with those of their parents, and elder siblings, written out."""
    source_E, target_E = dag.edge_index_2E

    def kind(n: int) -> int:
        return int(dag.x_NA[n, 0])

    def parent(p: int) -> tuple:
        elder = target_E[(source_E == p) & (target_E < node)].tolist()
        above = sorted(map(kind, parents_of(dag, p)))
        return (kind(p), tuple(above), tuple(sorted(map(kind, elder))))

    return (kind(node), *sorted(parent(p) for p in parents_of(dag, node)))


@pytest.mark.parametrize("seed", range(4))
def test_an_ancestry_has_occurred_if_an_earlier_node_has_it(seed: int) -> None:
    (dag,) = small_dags(1, seed=seed)
    dag.x_NA[:, 0] %= 2
    batch, known = collated([dag]), Ancestries.start(1, torch.device("cpu"))
    before: set[tuple] = set()
    for node in range(batch.num_nodes):
        candidate = node_of(batch, node)
        expected = ancestry(dag, node) in before
        assert known.occurred(candidate).tolist() == [expected]
        known.add_nodes(node + 1, candidate)
        before.add(ancestry(dag, node))
    assert len(before) < batch.num_nodes  # something occurs twice, or nothing was tested


def test_a_second_child_is_in_a_new_place_unless_another_parent_had_two() -> None:
    known = Ancestries.start(1, torch.device("cpu"))
    found = []
    # Two roots of one kind; the first has two children of another kind, then the second has.
    for position, (kind, parent) in enumerate([(0, 0), (0, 0), (1, 1), (1, 1), (1, 2), (1, 2)], 1):
        node = child(kind, parent)
        found.append(known.occurred(node).item())
        known.add_nodes(position, node)
    assert found == [False, True, False, False, True, True]
    assert not known.occurred(child(1, 2)).item()


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


def child(kind: int, parent: int) -> NodeCandidates:
    """Return one candidate with one parent, or with none if its position is 0."""
    zero_P, states = torch.zeros(1, dtype=torch.int64), torch.zeros(0, 0)
    edges = (EdgesToParents(zero_P, zero_P + parent, zero_P),) if parent else ()
    return NodeCandidates(
        zero_P, zero_P + parent, zero_P + kind, zero_P + len(edges), edges, states, states
    )
