"""What is told of the models behind samples: traits of the nearest jobs, and of the whole set."""

import numpy as np
import pytest
import torch

from layerdag.evaluation.metrics import Interval
from layerdag.evaluation.privacy import Inference, Verdict, succeeds_among_all
from layerdag.evaluation.privacy.attacks import (
    Pool,
    identified_traits,
    inferred_properties,
    traits_of,
)
from layerdag.graph import DAG, random_dag


def job(rng: np.random.Generator) -> DAG:
    """Return a graph whose family can be seen from its first codes, and its size from others."""
    family = int(rng.integers(3))
    dag = random_dag(rng, rng.integers(1, 5, rng.integers(3, 9)).tolist(), [2, 12])
    x_NA = dag.x_NA.clone()
    x_NA[:, 0] += 2 * family
    return dag.with_columns(x_NA).with_conditions({"family": f"f{family}", "label": 1.5})


def jobs(rng: np.random.Generator, count: int) -> list[DAG]:
    return [job(rng) for _ in range(count)]


def read(pool: Pool) -> dict[str, Inference]:
    found = identified_traits(pool, traits_of(pool, 0), pool.roles, 0)
    return {each.name: each for each in found}


@pytest.fixture(scope="module")
def real() -> tuple[list[DAG], list[DAG], list[DAG]]:
    rng = np.random.default_rng(0)
    return jobs(rng, 100), jobs(rng, 100), jobs(rng, 100)


def test_traits_are_conditions_that_are_words_and_what_can_be_seen(
    real: tuple[list[DAG], list[DAG], list[DAG]],
) -> None:
    train, held_out, made = real
    asked = [dag.with_conditions({}) for dag in made]
    traits = {t.name: t for t in traits_of(Pool(train, held_out, asked, numeric=(1,)), 0)}
    assert list(traits) == ["family", "depth", "width", "size"]
    truth = [int(dag.conditions["family"][1:]) for dag in made]
    assert (traits["family"].code_P[200:] == truth).mean() > 0.95  # read, for it is not stated
    assert set(traits["family"].stated_P[200:]) == {-1}
    assert traits["depth"].code_P.tolist() == [dag.num_layers for dag in (*train, *held_out, *made)]


def test_copies_betray_the_models_of_training_jobs_and_real_jobs_do_not(
    real: tuple[list[DAG], list[DAG], list[DAG]],
) -> None:
    train, held_out, made = real
    copied = read(Pool(train, held_out, train, numeric=(1,)))
    for name in ("model:depth", "model:width", "model:size"):
        assert copied[name].of_training == 1.0
        assert copied[name].advantage > 0.2
        assert copied[name].leaks
        assert copied[name].in_words() == "says more of training graphs"
    honest = read(Pool(train, held_out, made, numeric=(1,)))
    for each in honest.values():
        assert not each.leaks
        assert each.interval.low <= 0 <= each.interval.high


def test_what_was_asked_for_is_chance(real: tuple[list[DAG], list[DAG], list[DAG]]) -> None:
    train, held_out, made = real
    asked = read(Pool(train, held_out, made))["model:family"]
    silent = read(Pool(train, held_out, [dag.with_conditions({}) for dag in made]))["model:family"]
    assert asked.by_chance > 0.95
    assert 0.2 < silent.by_chance < 0.5


def test_what_never_happens_among_few_is_not_called_chance() -> None:
    rng = np.random.default_rng(1)
    pool = Pool(jobs(rng, 8), jobs(rng, 8), jobs(rng, 8))
    verdicts = {each.verdict for each in read(pool).values()}
    assert Verdict.CHANCE not in verdicts


def test_the_properties_of_a_set_are_followed_all_the_way_by_itself_and_not_by_others(
    real: tuple[list[DAG], list[DAG], list[DAG]],
) -> None:
    train, held_out, made = real
    slopes = {}
    for name, samples in (("copied", train), ("honest", made), ("reversed", held_out)):
        pool = Pool(train, held_out, samples, numeric=(1,))
        found = inferred_properties(pool, traits_of(pool, 0), pool.roles, 0)
        assert found is not None
        assert found.interval.low <= found.advantage <= found.interval.high
        slopes[name] = found
    assert slopes["copied"].advantage == pytest.approx(1.0, abs=0.1)
    assert slopes["copied"].leaks
    assert slopes["honest"].interval.low < 0 < slopes["honest"].interval.high
    assert slopes["reversed"].advantage == pytest.approx(-1.0, abs=0.1)
    assert slopes["copied"].of_training > slopes["copied"].of_held_out > slopes["copied"].by_chance


def test_no_properties_of_too_few_graphs() -> None:
    dag = DAG.build(torch.zeros((2, 1), dtype=torch.int64), torch.tensor([[0], [1]]))
    for train, held_out in (([dag], [dag, dag]), ([dag, dag], [dag]), ([dag] * 4, [dag] * 4)):
        pool = Pool(train, held_out, [dag])
        assert inferred_properties(pool, traits_of(pool, 0), pool.roles, 0) is None


def outcome(value: float, half: float) -> Inference:
    return Inference.of(
        "properties", "it", (0.9, 0.8, 0.5), (value, half), margin=0.5, samples=9, held_out=20
    )


@pytest.mark.parametrize(
    ("value", "half", "verdict"),
    [
        (0.6, 0.5, Verdict.LEAKS),
        (0.1, 0.3, Verdict.CHANCE),
        (0.1, 0.6, Verdict.TOO_FEW),
        (-0.9, 0.5, Verdict.REVERSED),
    ],
)
def test_verdicts_follow_from_interval_and_margin(
    value: float, half: float, verdict: Verdict
) -> None:
    found = outcome(value, half)
    assert found.verdict is verdict
    assert (found.need is None) == (verdict is not Verdict.TOO_FEW)
    assert found.interval == Interval(value - half, value + half)


def test_among_several_attacks_more_evidence_is_asked_for() -> None:
    assert outcome(0.6, 0.5).leaks
    assert not succeeds_among_all(outcome(0.6, 0.5))
    assert succeeds_among_all(outcome(0.7, 0.5))
    assert not succeeds_among_all(outcome(0.1, 0.6))
