"""A checkpoint that learned its graphs by heart is caught, one that never saw them is not."""

from typing import Any

import pytest
from random_jobs import random_job

import layerdag as ld
from layerdag.api.auditing.shadows import ShadowSettings, shadow_attacks
from layerdag.datasets import GraphDataset
from layerdag.evaluation.privacy import Verdict
from layerdag.sampling import checkpoint_schema
from layerdag.training import OptimizerConfig


def test_a_memorizer_is_caught_beside_an_honest_holdout(memorizer: Any) -> None:
    told: list[str] = []
    settings = ShadowSettings(count=6)
    attacks, report = shadow_attacks(memorizer.checkpoint, memorizer.data, settings, told.append)
    assert [attack.name for attack in attacks] == ["likelihood_ratio_offline", "likelihood_ratio"]
    for attack in attacks:
        assert (attack.members, attack.non_members) == (12, 12)
        assert attack.auc > 0.75
        assert attack.verdict is Verdict.LEAKS
        assert attack.holdout is not None
        assert attack.holdout.interval.low < 0.5
        assert attack.rates[0].true_positive_rate is None  # 12 graphs resolve no 1 %
    assert [line.split(":")[0] for line in told] == [f"shadow model {i} of 6" for i in range(1, 7)]
    assert (report.models, report.runs, report.is_recorded) == (6, 24, True)
    assert report.steps == report.planned_steps == 20
    assert {each.name for each in report.as_targets} >= {"likelihood", "likelihood_ratio"}
    assert min(each.auc for each in report.as_targets) > 0.6
    assert "from random weights: 20 steps each, as many passes" in report.in_words()


def test_a_checkpoint_that_never_saw_the_graphs_is_not_accused(memorizer: Any) -> None:
    parts = {"train": memorizer.graphs[24:36], "test": memorizer.graphs[36:]}
    unseen = GraphDataset.with_schema("words", checkpoint_schema(memorizer.checkpoint), parts)
    settings = ShadowSettings(count=6, steps=2)
    attacks, report = shadow_attacks(memorizer.checkpoint, unseen, settings, lambda _: None)
    for attack in attacks:
        assert attack.verdict is not Verdict.LEAKS
        assert attack.interval.low < 0.5 < attack.interval.high
    assert report.fraction_of_passes == pytest.approx(0.1)
    assert "10% of the passes that the checkpoint made" in report.in_words()


@pytest.mark.slow
def test_sixteen_shadow_models_are_nearly_sure(memorizer: Any) -> None:
    data = memorizer.data
    settings = ld.TrainSettings(
        max_steps=100,
        evaluate_every=100,
        ema_decay=0.5,
        optimizer=OptimizerConfig(learning_rate=2e-2),
    )
    checkpoint = ld.train(data, settings=settings, width=32, depth=1)
    attacks, report = shadow_attacks(checkpoint, data, ShadowSettings(), lambda _: None)
    assert min(attack.auc for attack in attacks) > 0.9
    assert report.as_targets[0].interval.low > 0.8


def test_jobs_are_attacked_by_the_call_in_python_as_flow_graphs_are() -> None:
    jobs = [random_job(seed, 2, layers=3) for seed in range(12)]
    data = ld.GraphDataset.build("jobs", "trace", {"train": jobs[:6], "val": jobs[:2]}, num_bins=2)
    plan = ld.TrainSettings(max_steps=2, evaluate_every=2)
    checkpoint = ld.train(data, settings=plan, width=32, depth=1)
    found = ld.audit(
        train=jobs[:6],
        holdout=jobs[6:],
        synthetic=jobs[:1],
        checkpoint=checkpoint,
        shadows=ld.ShadowSettings(count=6),
        tell=lambda _: None,
    )
    assert [attack.name for attack in found.weights[:3]] == [
        "likelihood", "likelihood_ratio_offline", "likelihood_ratio",
    ]  # fmt: skip
    assert all(attack.holdout for attack in found.weights[1:3])
    assert found.shadows is not None
    assert found.shadows.runs == 12
    assert "6 shadow models of " in str(found)
    assert "  likelihood_ratio_offline: area" in str(found)
