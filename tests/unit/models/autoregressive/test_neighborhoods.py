"""Automata accept what is listed, in any order, and count the nodes that have something else."""

import math
from collections import Counter
from dataclasses import replace

import torch
from hypothesis import given, strategies as st

from layerdag.graph import DAG, MANY, DAGBatch, neighbor_kinds
from layerdag.models.autoregressive import (
    NATS_PER_VIOLATION,
    UNSEEN,
    ConstraintConfig,
    FastConfig,
    FastLayerDAG,
    NeighborKinds,
)
from layerdag.models.autoregressive._neighborhoods import UNCONSTRAINED, KindAutomaton
from tests.unit.models.autoregressive.small_models import SIZES, collated, small_dags, small_model

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
