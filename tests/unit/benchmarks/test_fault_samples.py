"""Faults of sets replace as many samples as asked for, by what they say."""

from collections import Counter

import numpy as np
import pytest
from benchmark_faults import DURATION, SCHEMA, declared, job, jobs, samples

from layerdag.dag.dag import DAG, graph_hash


@pytest.fixture
def drawn() -> samples.Drawn:
    return samples.Drawn.of(jobs(np.random.default_rng(0), 100), 20, np.random.default_rng(1))


def _hashes(dags: tuple[DAG, ...]) -> set[str]:
    return {graph_hash(dag) for dag in dags}


def test_a_draw_cuts_the_pool_into_parts_that_share_no_graph():
    pool = [job(np.random.default_rng(seed)) for seed in range(10)]
    drawn = samples.Drawn.of(pool, 3, np.random.default_rng(2))
    parts = (drawn.train, drawn.held_out, drawn.samples, drawn.spare)
    assert [len(part) for part in parts] == [3, 3, 3, 1]
    assert {id(dag) for part in parts for dag in part} == {id(dag) for dag in pool}


@pytest.mark.parametrize("name", [fault.name for fault in declared.FAULTS])
def test_no_fault_changes_anything_at_strength_0(name, drawn):
    planted = declared.faults_for(SCHEMA)[name](drawn, 0.0, np.random.default_rng(3))
    assert _hashes(planted) == _hashes(drawn.samples)
    assert [dag.conditions for dag in planted] == [dag.conditions for dag in drawn.samples]


@pytest.mark.parametrize(("strength", "copied"), [(0.05, 1), (0.5, 10), (1.0, 20)])
def test_copies_are_different_training_graphs(strength, copied, drawn):
    planted = samples.copies()(drawn, strength, np.random.default_rng(4))
    train = {id(dag) for dag in drawn.train}
    assert len({id(dag) for dag in planted} & train) == copied
    assert len(planted) == 20


def test_a_memorizer_repeats_no_training_graph_exactly(drawn):
    planted = samples.memorizer(0.1)(drawn, 1.0, np.random.default_rng(5))
    assert not _hashes(planted) & _hashes(drawn.train)
    sizes = Counter(dag.num_nodes for dag in drawn.train)
    assert Counter(dag.num_nodes for dag in planted) == sizes


def test_retimed_copies_are_training_graphs_but_for_durations(drawn):
    planted = declared.faults_for(SCHEMA)["memorizer_retimed"](drawn, 1.0, np.random.default_rng(6))
    assert not _hashes(planted) & _hashes(drawn.train)
    planted, train = (
        tuple(dag.without_columns([DURATION]) for dag in dags) for dags in (planted, drawn.train)
    )
    assert _hashes(planted) == _hashes(train)


def test_dropped_families_are_replaced_by_others(drawn):
    before = Counter(dag.conditions["family"] for dag in drawn.samples)
    planted = samples.families_dropped(drawn, 0.5, np.random.default_rng(7))
    after = Counter(dag.conditions["family"] for dag in planted)
    assert len(planted) == 20
    assert any(after[name] == 0 for name in before)
    assert sum(max(before[name] - after[name], 0) for name in before) == 10


def test_swapped_labels_are_the_same_labels_at_other_graphs(drawn):
    planted = samples.labels_swapped(drawn, 0.5, np.random.default_rng(8))
    before, after = ([dag.conditions["label"] for dag in dags] for dags in (drawn.samples, planted))
    assert sorted(before) == sorted(after)
    assert sum(one != other for one, other in zip(before, after, strict=True)) == 10
