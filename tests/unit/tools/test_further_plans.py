"""Further runs to train on: none has the structure of a run of the corpus."""

import sys
from collections import Counter

import pytest

_SIZES = {"width", "batch", "heads", "time", "vocabulary", "expansion", "nodes", "degree"}


@pytest.fixture
def plan(repository):
    sys.path.insert(0, str(repository / "data" / "collect"))
    try:
        import plan
    finally:
        sys.path.pop(0)
    return plan


def structure(run) -> tuple[object, ...]:
    knobs = {k: v for k, v in run.hyper.items() if k not in _SIZES | {"parallel"}}
    return (run.family, run.strategy, run.phase, *sorted(knobs.items()))


def test_no_structure_occurs_twice(plan):
    corpus, further = plan.corpus_plan(), plan.further_plans(times=1)
    assert not {run.run for run in corpus} & {run.run for run in further}
    known = {structure(run) for run in corpus}
    assert not known & {structure(run) for run in further}


def test_families_and_strategies_keep_their_shares(plan):
    def shares(runs) -> Counter:
        return Counter((run.family, run.strategy, run.world_size, run.phase) for run in runs)

    corpus, further = shares(plan.corpus_plan()), shares(plan.further_plans(times=2))
    assert further == {kind: 2 * count for kind, count in corpus.items()}


def test_the_corpus_is_planned_as_before(plan):
    assert plan.corpus_plan()[1012].run == "1012_dlrm_a2a_ws2"
    assert plan.corpus_plan() == plan.corpus_plan()
