"""Automata accept what is listed, in any order, and count the nodes that have something else."""

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from random_graphs import random_dag
from small_models import SIZES, collated, small_dags, small_model

from layerdag.dag.dag import DAG, DAGBatch, GraphSizes
from layerdag.dag.neighbors import MANY, edge_type_sets, neighbor_kinds
from layerdag.dag.statistics import GraphStatistics
from layerdag.models.config import ConstraintConfig, FastConfig
from layerdag.models.fast.degree_constraints import DegreeConstraints
from layerdag.models.fast.edge_type_sets import EdgeTypeSets
from layerdag.models.fast.model import FastLayerDAG
from layerdag.models.fast.neighbor_kinds import (
    NATS_PER_VIOLATION,
    UNCONSTRAINED,
    UNSEEN,
    KindAutomaton,
    NeighborKinds,
)
from layerdag.models.layers import CountEncoder


def test_codes_that_no_training_node_has_are_ruled_out():
    statistics = GraphStatistics(
        graphs=1,
        attributes=((2, 1), (3, 0), (0, 1, 2)),
        edge_types=(1,),
        in_degrees=(((0, 2),), ((1, 1),)),
        out_degrees=(((0, 1), (1, 1)), ((0, 1),)),
        layer_sizes=((1, 1), (2, 1)),
        layer_counts=((2, 1),),
    )
    constraints = DegreeConstraints(statistics)
    assert constraints.limit_attributes(torch.zeros(1, 2), 0).tolist() == [[0.0, -torch.inf]]
    assert constraints.limit_attributes(torch.zeros(1, 3), 1).tolist() == [[-torch.inf, 0.0, 0.0]]


def test_a_kind_starts_a_graph_and_has_parents_only_as_in_training():
    sizes = GraphSizes((4,))
    chain = DAG.build(torch.tensor([[0], [1], [2], [2]]), torch.tensor([[0, 0, 1], [1, 2, 2]]))
    constraints = DegreeConstraints(GraphStatistics.measure([chain], sizes))
    limited = constraints.limit_kinds(torch.zeros(3, 4), torch.tensor([0, 1, 2]))
    # Kinds 0 and 2 start; kind 1 has one parent, kind 2 two; kind 3 does not occur.
    assert limited.isfinite().tolist() == [
        [True, False, True, False],
        [False, True, False, False],
        [False, True, True, False],
    ]


def fork(children: int, kinds: tuple[int, int] = (0, 1)) -> DAG:
    """A root with so many children."""
    edges_2E = torch.stack([torch.zeros(children, dtype=torch.int64), torch.arange(children) + 1])
    return DAG.build(torch.tensor([[kinds[0]], *[[kinds[1]]] * children]), edges_2E)


def test_nodes_with_more_or_fewer_children_than_any_of_their_kind_are_violations():
    sizes = GraphSizes(attributes=(4,), edge_types=1)
    constraints = DegreeConstraints(GraphStatistics.measure([fork(2), fork(3)], sizes))
    dags = [fork(2), fork(3), fork(1), fork(4), fork(2, kinds=(0, 0)), fork(5, kinds=(2, 3))]
    batch = DAGBatch.from_dags(
        dags, torch.zeros(len(dags), 0), torch.zeros(len(dags), 0, dtype=torch.int64)
    )
    # Roots of one and of four children; two leaves of a kind that has two; kinds never seen.
    assert constraints.violations(batch).tolist() == [0.0, 0.0, 1.0, 1.0, 2.0, 0.0]


def test_the_capacity_is_bounded_by_the_predicted_out_degree_and_by_the_kind():
    constraints = DegreeConstraints(GraphStatistics.measure([fork(3)], GraphSizes((3,))))
    kind, out_degree = torch.tensor([0, 0, 1]), torch.tensor([2, 5, 4])
    assert constraints.capacity(kind, None).tolist() == [3, 3, 0]
    assert constraints.capacity(kind, out_degree).tolist() == [2, 3, 0]


def test_where_no_kind_fits_none_is_ruled_out():
    """Here every node beyond layer 0 has two parents, and only one node exists."""
    two = DAG.build(torch.tensor([[0], [0], [1]]), torch.tensor([[0, 1], [2, 2]]))
    constraints = DegreeConstraints(GraphStatistics.measure([two], GraphSizes((3,))))
    found = constraints.limit_kinds(torch.zeros(2, 3), torch.tensor([1, 2]))
    assert found.isfinite().tolist() == [[True, True, True], [False, True, False]]


def three_parents() -> DegreeConstraints:
    """Kind 1 has two or three parents, kind 2 one; kind 3 does not occur."""
    dag = DAG.build(
        torch.tensor([[0], [0], [0], [1], [1], [2]]),
        torch.tensor([[0, 1, 2, 0, 1, 0], [3, 3, 3, 4, 4, 5]]),
    )
    return DegreeConstraints(GraphStatistics.measure([dag], GraphSizes((4,))))


def test_in_degrees_stay_within_those_of_the_kind_and_the_nodes_there_are():
    kind, first = torch.tensor([1, 1, 1, 2, 3, 0]), torch.tensor([5, 2, 1, 5, 5, 0])
    constraints = three_parents()
    low = constraints.clamp(torch.zeros(6, dtype=torch.int64), kind, first)
    high = constraints.clamp(torch.full((6,), 99), kind, first)
    assert low.tolist() == [2, 2, 1, 1, 1, 0]
    assert high.tolist() == [3, 2, 1, 1, 1, 0]
    inside = torch.tensor([3, 2, 1, 1, 1, 0])
    assert torch.equal(constraints.clamp(inside, kind, first), inside)


@pytest.mark.parametrize("exact", [1, 2, 8])
def test_a_code_of_in_degrees_is_allowed_if_one_of_its_counts_is(exact):
    counter, constraints = CountEncoder(exact, 9), three_parents()
    kind, first = torch.tensor([1, 1, 2, 3]), torch.tensor([5, 2, 4, 1])
    zeros = torch.zeros(4, counter.num_codes)
    found = constraints.limit_degrees(zeros, counter, kind, first).isfinite()
    for row, allowed in enumerate([{2, 3}, {2}, {1}, {1}]):
        codes = {int(counter.encode(torch.tensor(degree))) for degree in allowed}
        assert found[row].nonzero()[:, 0].tolist() == sorted(codes)


def test_any_number_of_children_is_allowed_if_they_are_unlimited():
    statistics = GraphStatistics.measure([fork(3)], GraphSizes((3,)))
    free = DegreeConstraints(statistics, ConstraintConfig("unlimited"))
    many = free.capacity(torch.tensor([0, 1, 2]), torch.tensor([1, 0, 5]))
    assert (many > 10**9).all()
    dag = fork(9)
    none = (torch.zeros(1, 0), torch.zeros(1, 0, dtype=torch.int64))
    batch = DAGBatch.from_dags([dag], *none)
    assert free.violations(batch).tolist() == [0.0]
    assert DegreeConstraints(statistics).violations(batch).tolist() == [1.0]


def test_training_graphs_break_no_constraint():
    sizes = GraphSizes((3, 2))
    rng = np.random.default_rng(4)
    dags = [random_dag(rng, [2, 3, 2, 1], [3, 2], extra_edges=1.0) for _ in range(6)]
    constraints = DegreeConstraints(GraphStatistics.measure(dags, sizes))
    none = (torch.zeros(6, 0), torch.zeros(6, 0, dtype=torch.int64))
    batch = DAGBatch.from_dags(dags, *none)
    assert not constraints.violations(batch).any()
    degree = torch.bincount(batch.edge_index_2E[1], minlength=batch.num_nodes)
    first = torch.full_like(degree, 99).masked_fill(batch.layer_N == 0, 0)
    assert torch.equal(constraints.clamp(degree, batch.x_NA[:, 0], first), degree)
    kinds = constraints.limit_kinds(torch.zeros(batch.num_nodes, 3), first)
    assert kinds.gather(1, batch.x_NA[:, :1]).isfinite().all()
    others = constraints.limit_attributes(torch.zeros(batch.num_nodes, 2), 0)
    assert others.gather(1, batch.x_NA[:, 1:]).isfinite().all()


KINDS = SIZES.attributes[0]
multisets = st.lists(st.integers(0, 2), max_size=5).map(sorted).map(tuple)


def capped(multiset: tuple[int, ...]) -> tuple[int, ...]:
    counts = Counter(multiset)
    return tuple(kind for kind in sorted(counts) for _ in range(min(counts[kind], MANY)))


def after(automaton: KindAutomaton, kind: int, read: list[int]) -> int:
    state = automaton.start_K[[kind]]
    for neighbor in read:
        state = automaton.read(state, torch.tensor([neighbor]))
    return int(state)


@given(st.sets(multisets, min_size=1, max_size=4), st.permutations([0, 0, 1, 1, 1, 1, 2]))
def test_a_multiset_is_accepted_in_any_order_exactly_if_it_is_listed(listed, order):
    listed = tuple(sorted({capped(multiset) for multiset in listed}))
    automaton = KindAutomaton((listed, (), ()))
    for length in range(len(order) + 1):
        read = order[:length]
        expected = capped(tuple(sorted(read))) in listed
        assert bool(automaton.final_R[after(automaton, 0, read)]) == expected


@given(st.sets(multisets, min_size=1, max_size=4), multisets)
def test_a_state_is_unseen_as_soon_as_no_listed_multiset_contains_what_was_read(listed, read):
    listed = {capped(multiset) for multiset in listed}
    automaton = KindAutomaton((tuple(sorted(listed)), (), ()))
    contained = any(not Counter(capped(read)) - Counter(multiset) for multiset in listed)
    assert (after(automaton, 0, list(read)) == UNSEEN) == (not contained)


def test_a_kind_without_a_list_may_have_anything():
    automaton = KindAutomaton((((1,),), ()))
    assert after(automaton, 1, [0, 1, 1]) == UNCONSTRAINED
    assert bool(automaton.final_R[UNCONSTRAINED])


def listed_by(dags: list[DAG]) -> NeighborKinds:
    parents, children = neighbor_kinds(dags, KINDS, 1)
    statistics = small_model(dags).statistics
    return NeighborKinds(replace(statistics, parents=parents, children=children))


def test_graphs_that_were_listed_violate_nothing():
    dags = small_dags(6)
    assert listed_by(dags).violations(collated(dags)).tolist() == [0.0] * 6


def test_violations_are_counted_as_by_hand():
    known, others = small_dags(3), small_dags(5, seed=7)
    parents, children = neighbor_kinds(known, KINDS, 1)

    def by_hand(dag: DAG) -> int:
        count = 0
        for node, kind in enumerate(dag.x_NA[:, 0].tolist()):
            source, target = dag.edge_index_2E
            for listed, mine, other in (
                (parents.multisets, target, source),
                (children.multisets, source, target),
            ):
                seen = capped(tuple(sorted(dag.x_NA[other[mine == node], 0].tolist())))
                count += bool(listed[kind]) and seen not in listed[kind]
        return count

    found = listed_by(known).violations(collated(others)).tolist()
    assert found == [by_hand(dag) for dag in others]
    assert sum(found) > 0


def test_without_lists_or_where_they_are_switched_off_nothing_violates():
    dags = small_dags(3)
    batch: DAGBatch = collated(small_dags(3, seed=9))
    model = small_model(dags)
    assert not model.neighbors.any_listed
    assert not model.neighbors.violations(batch).any()
    statistics = replace(model.statistics, children=neighbor_kinds(dags, KINDS, 1)[1])
    for choice, expected in (("observed", True), ("unlimited", False)):
        config = FastConfig(width=32, depth=1, constraints=ConstraintConfig(neighbors=choice))
        assert FastLayerDAG(SIZES, statistics, config).neighbors.any_listed == expected


def test_a_weight_is_one_in_the_mean_over_samples():
    """With the odds of unlisted neighbors as assumed, whatever share of the real nodes has them."""
    dags = small_dags(6)
    listed = neighbor_kinds(dags, KINDS, 1)[1]
    unlisted = tuple(0.1 * (kind + 1) for kind in range(KINDS))
    statistics = replace(small_model(dags).statistics, children=replace(listed, unlisted=unlisted))
    neighbors = NeighborKinds(statistics)
    fraction_K = torch.tensor(unlisted)
    odds_K = fraction_K / (1 - fraction_K) * math.exp(NATS_PER_VIOLATION)
    sampled_K = odds_K / (1 + odds_K)
    fits_K, other_K = neighbors.offset_K, neighbors.offset_K - NATS_PER_VIOLATION
    mean_K = (1 - sampled_K) * fits_K.exp() + sampled_K * other_K.exp()
    torch.testing.assert_close(mean_K, torch.ones(KINDS))


def binary(types: tuple[int, ...]) -> DAG:
    """Two sources and a node of kind 1 that takes them by edges of these types."""
    edges_2E = torch.tensor([[0, 1][: len(types)], [2, 2][: len(types)]])
    kinds = torch.tensor([[0], [0], [1]])
    return DAG.build(kinds, edges_2E, edge_type_E=torch.tensor(types))


def type_sets(*types: tuple[int, ...]) -> EdgeTypeSets:
    sizes = GraphSizes((2,), edge_types=3)
    dags = [binary(each) for each in types for _ in range(5)]
    statistics = replace(
        GraphStatistics.measure(dags, sizes), edge_type_sets=edge_type_sets(dags, sizes)
    )
    return EdgeTypeSets(sizes, GraphStatistics.from_dict(statistics.to_dict()).edge_type_sets)


def test_each_place_of_an_argument_is_taken_once():
    """Type 2 stands for both places at once, which one parent alone can take."""
    sets = type_sets((0, 1), (1, 0), (2,))
    kind = torch.tensor([1])
    two, one = sets.start(kind, torch.tensor([2])), sets.start(kind, torch.tensor([1]))
    assert sets.limit(torch.zeros(1, 3), two).isfinite().tolist() == [[True, True, False]]
    assert sets.limit(torch.zeros(1, 3), one).isfinite().tolist() == [[False, False, True]]
    after = sets.read(two, torch.tensor([0]))
    assert sets.limit(torch.zeros(1, 3), after).isfinite().tolist() == [[False, True, False]]


def test_in_degrees_that_no_set_of_types_has_are_ruled_out():
    counter = CountEncoder(4, 4)
    logits_BK, kind_B = torch.zeros(2, counter.num_codes), torch.tensor([1, 0])
    limited = type_sets((0, 1)).limit_degrees(logits_BK, counter, kind_B)
    allowed = [counter.lows_K1[:-1][row.isfinite()].tolist() for row in limited]
    assert allowed[0] == [2]
    assert allowed[1] == [0]
