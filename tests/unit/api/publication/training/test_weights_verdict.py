"""When weights may go out: stricter than for samples."""

from dataclasses import replace

import pytest

from layerdag.api.publication import Outcome, ReleaseSettings, Work
from layerdag.api.publication.training import (
    RealGraphs,
    WeightsAudit,
    _weights_verdict,
    audited_student,
    verdict_on_weights,
)
from layerdag.datasets import GraphDataset
from layerdag.errors import DataError
from layerdag.evaluation.metrics import Interval
from layerdag.evaluation.privacy import DetectionRate, Verdict
from layerdag.evaluation.privacy._membership import Attack
from layerdag.sampling import GeneratedGraph
from layerdag.training import LoadedCheckpoint


def attack(low: float, high: float, name: str = "likelihood_ratio") -> Attack:
    import numpy as np

    from layerdag.evaluation.privacy import attack_by_scores

    made = attack_by_scores(name, "a score", [(np.zeros(3), np.zeros(3))], 0)
    between = Interval(low, high)
    return replace(made, auc=(low + high) / 2, interval=between, verdict=Verdict.of(between))


def audit(*attacks: Attack, copied: int = 0) -> WeightsAudit:
    return WeightsAudit(attacks, 16, (0.5, 0.52), 512, 3, 128, copied, 2, 1.1, 60.0)


def test_weights_at_chance_may_be_published() -> None:
    found = verdict_on_weights(audit(attack(0.46, 0.54)), 200)
    assert found.outcome is Outcome.YES
    assert found.line.startswith("The weights may be published: a model of the 200 published")
    assert "16 shadow models" in found.line


def test_an_attack_within_the_limit_is_a_reserve() -> None:
    found = verdict_on_weights(audit(attack(0.46, 0.54), attack(0.48, 0.58, "likelihood")), 200)
    assert found.outcome is Outcome.RESERVED
    assert "But “Likelihood, by the weights” cannot be told from chance" in found.line


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (audit(attack(0.51, 0.55)), "tells which graphs were trained on"),
        (audit(attack(0.4, 0.62)), "too few graphs to rule out"),
        (audit(attack(0.46, 0.54), copied=1), "1 of 128 graphs drawn from them copy a real graph"),
    ],
)
def test_whatever_leaks_or_cannot_be_ruled_out_keeps_them(found: WeightsAudit, words: str) -> None:
    verdict = verdict_on_weights(found, 200)
    assert verdict.outcome is Outcome.NO
    assert words in verdict.line
    assert verdict.line.startswith("The weights must not be published")
    assert any("--num 100" in remedy for remedy in verdict.remedies)


def test_an_attack_that_is_sure_of_a_few_graphs_keeps_them() -> None:
    rate = DetectionRate(0.01, 0.2, Interval(0.15, 0.25), 1e-9, None)
    sure = replace(attack(0.46, 0.54), rates=(rate,))
    verdict = verdict_on_weights(audit(sure), 200)
    assert verdict.outcome is Outcome.NO
    assert "is sure of some training graphs (TPR at 1% FPR 20.0% [15.0, 25.0])" in verdict.line


def test_too_few_samples_for_a_student_are_a_verdict_and_no_error(
    settings: ReleaseSettings,
    data: GraphDataset,
    real: RealGraphs,
    kept: list[GeneratedGraph],
    work: Work,
) -> None:
    found = audited_student(settings, data, real, kept[:3], work, 60.0)
    assert not found.released
    assert found.checkpoint is None
    assert "3 samples are published" in found.verdict.line


def test_an_audit_that_fails_keeps_the_weights_and_not_the_samples(
    settings: ReleaseSettings,
    data: GraphDataset,
    real: RealGraphs,
    kept: list[GeneratedGraph],
    work: Work,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def failing(*_: object) -> WeightsAudit:
        raise DataError("A shadow model drew no sample.")

    monkeypatch.setattr(_weights_verdict, "audited_weights", failing)
    found = audited_student(settings, data, real, kept, work, 60.0)
    assert not found.released
    assert "could not be audited: A shadow model drew no sample." in found.verdict.line


def test_the_student_of_the_samples_is_audited(
    settings: ReleaseSettings,
    data: GraphDataset,
    real: RealGraphs,
    kept: list[GeneratedGraph],
    work: Work,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[LoadedCheckpoint] = []

    def audited(*arguments: object) -> WeightsAudit:
        seen.append(arguments[3])
        return audit(attack(0.46, 0.54))

    monkeypatch.setattr(_weights_verdict, "audited_weights", audited)
    found = audited_student(settings, data, real, kept, work, 60.0)
    assert found.released
    assert found.checkpoint is seen[0]
    assert f"{len(kept)} published samples" in found.verdict.line
