"""Shadow models go the way of the target, and what they found survives a stop."""

import json
from dataclasses import replace

import numpy as np
import pytest

from layerdag.datasets.dataset import GraphDataset
from layerdag.errors import DataError
from layerdag.evaluation.metrics.base import Interval
from layerdag.privacy.membership import Attack, DetectionRate, Verdict, graph_losses
from layerdag.publication import weights_audit
from layerdag.publication.evaluation import ReleaseDecision
from layerdag.publication.settings import SHADOWS
from layerdag.publication.training import student_data, train_student
from layerdag.publication.weights_audit import (
    WeightsAudit,
    audited_student,
    audited_weights,
    real_graphs,
    shadow_losses,
    verdict_on_weights,
)
from layerdag.training.checkpoint import LoadedCheckpoint


@pytest.fixture
def samples(kept) -> GraphDataset:
    return student_data(kept, seed=0)


@pytest.fixture
def student(settings, samples, work) -> LoadedCheckpoint:
    return train_student(settings, samples, work, 60.0)


def test_losses_are_those_of_the_model_for_each_real_graph(real, student, samples):
    loss_K = real.losses_under(student.model, samples.schema)
    assert loss_K.shape == (24,)
    one = samples.schema.encode(real.graphs[5])
    assert loss_K[5] == pytest.approx(graph_losses(student.model, samples.schema, [one])[0])


def test_a_graph_with_a_word_of_no_sample_has_no_loss(real, student, samples):
    strange = replace(real.graphs[0], categories={"kind": ["z"] * real.graphs[0].num_nodes})
    changed = replace(real, graphs=(strange, *real.graphs[1:]))
    loss_K = changed.losses_under(student.model, samples.schema)
    assert np.isnan(loss_K[0])
    assert np.isfinite(loss_K[1:]).all()


@pytest.mark.usefixtures("drawn")
def test_a_stopped_audit_goes_on_and_its_shadows_tell_attacks_copies_and_worth(
    settings, data, real, student, samples, work, monkeypatch
):
    settings = replace(settings, shadows=6)
    found = shadow_losses(settings, real, student, samples, work, 60.0)
    assert found.loss_SG.shape == found.member_SG.shape == (6, 24)
    assert (found.member_SG.sum(axis=0) == 3).all()
    assert (found.member_SG[:, 0::2] == found.member_SG[:, 1::2]).all()  # two graphs of one run
    assert np.isfinite(found.loss_SG).all()
    assert len({tuple(row) for row in found.loss_SG.tolist()}) == 6
    files = sorted((work.path / SHADOWS).glob("*.npz"))
    assert len(files) == 6
    assert not list((work.path / SHADOWS).glob("*.run"))  # no weights are kept
    with monkeypatch.context() as patch:
        patch.setattr(weights_audit, "train_or_resume", None)  # no call any more
        again = shadow_losses(settings, real, student, samples, work, 60.0)
    assert (again.loss_SG == found.loss_SG).all()
    files[2].write_bytes(b"cut off")
    mended = shadow_losses(settings, real, student, samples, work, 60.0)
    assert mended.loss_SG == pytest.approx(found.loss_SG)
    monkeypatch.setattr(weights_audit, "SAMPLED", 6)
    audit = audited_weights(settings, data, real, student, samples, work, 60.0)
    names = [attack.name for attack in audit.attacks]
    assert names[:3] == ["likelihood", "likelihood_ratio_offline", "likelihood_ratio"]
    for attack in audit.attacks:
        assert (attack.members, attack.non_members) == (14, 10)
        assert 0 <= attack.auc <= 1
    assert all(attack.holdout for attack in audit.attacks[:3])  # on what the student started from
    assert audit.attacks[0].holdout != audit.attacks[0]
    assert (audit.shadows, audit.scored, audit.sampled) == (6, 24, 6)
    assert audit.inexpressible == 0
    assert len(audit.over_shadows) == 6
    assert 0 <= audit.copied <= 6
    assert audit.ratio is None  # six samples are too few to compare
    json.dumps(audit.to_dict(), allow_nan=False)


def test_losses_for_another_student_are_discarded(settings, samples, work):
    folder = work.path / SHADOWS
    weights_audit._start_anew_if_other(folder, settings, samples)
    (folder / "00000.npz").write_bytes(b"losses")
    weights_audit._start_anew_if_other(folder, settings, samples)
    assert (folder / "00000.npz").is_file()
    weights_audit._start_anew_if_other(folder, replace(settings, shadows=32), samples)
    assert not (folder / "00000.npz").exists()


def test_a_shadow_without_samples_says_so(settings, real, student, samples, work, monkeypatch):
    monkeypatch.setattr(weights_audit, "published_graphs", lambda _: iter(()))
    with pytest.raises(DataError, match="drew 0 samples that can be written"):
        shadow_losses(settings, real, student, samples, work, 60.0)


def test_most_of_each_kind_are_scored_and_members_come_first(data, graphs, monkeypatch):
    monkeypatch.setattr(weights_audit, "MOST_SCORED", 6)
    by_name = {graph.name: graph for graph in graphs}
    found = real_graphs(data, by_name, {name: name for name in by_name}, seed=0)
    assert found.members == 14
    assert found.scored_members == 6
    assert len(found.scored) == 12
    assert (np.diff(found.scored) > 0).all()
    assert [graph.name for graph in found.graphs[:14]] == list(data.names["train"])


def attack(low: float, high: float, name: str = "likelihood_ratio") -> Attack:
    import numpy as np

    from layerdag.privacy.membership import attack_by_scores

    made = attack_by_scores(name, "a score", [(np.zeros(3), np.zeros(3))], 0)
    between = Interval(low, high)
    return replace(
        made, auc=(low + high) / 2, interval=between, verdict=Verdict.from_interval(between)
    )


def audit(*attacks: Attack, copied: int = 0) -> WeightsAudit:
    return WeightsAudit(attacks, 16, (0.5, 0.52), 512, 3, 128, copied, 2, 1.1, 60.0)


def test_weights_at_chance_may_be_published():
    found = verdict_on_weights(audit(attack(0.46, 0.54)), 200)
    assert found.outcome is ReleaseDecision.YES
    assert found.line.startswith("The weights may be published: a model of the 200 published")
    assert "16 shadow models" in found.line


def test_an_attack_within_the_limit_is_a_reserve():
    found = verdict_on_weights(audit(attack(0.46, 0.54), attack(0.48, 0.58, "likelihood")), 200)
    assert found.outcome is ReleaseDecision.RESERVED
    assert "But “Likelihood, by the weights” cannot be told from chance" in found.line


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (audit(attack(0.51, 0.55)), "tells which graphs were trained on"),
        (audit(attack(0.4, 0.62)), "too few graphs to rule out"),
        (audit(attack(0.46, 0.54), copied=1), "1 of 128 graphs drawn from them copy a real graph"),
    ],
)
def test_whatever_leaks_or_cannot_be_ruled_out_keeps_them(found, words):
    verdict = verdict_on_weights(found, 200)
    assert verdict.outcome is ReleaseDecision.NO
    assert words in verdict.line
    assert verdict.line.startswith("The weights must not be published")
    assert any("--num 100" in remedy for remedy in verdict.remedies)


def test_an_attack_that_is_sure_of_a_few_graphs_keeps_them():
    rate = DetectionRate(0.01, 0.2, Interval(0.15, 0.25), 1e-9, None)
    sure = replace(attack(0.46, 0.54), rates=(rate,))
    verdict = verdict_on_weights(audit(sure), 200)
    assert verdict.outcome is ReleaseDecision.NO
    assert "is sure of some training graphs (TPR at 1% FPR 20.0% [15.0, 25.0])" in verdict.line


def test_too_few_samples_for_a_student_are_a_verdict_and_no_error(settings, data, real, kept, work):
    found = audited_student(settings, data, real, kept[:3], work, 60.0)
    assert not found.released
    assert found.checkpoint is None
    assert "3 samples are published" in found.verdict.line


def test_an_audit_that_fails_keeps_the_weights_and_not_the_samples(
    settings, data, real, kept, work, monkeypatch
):
    def failing(*_: object) -> WeightsAudit:
        raise DataError("A shadow model drew no sample.")

    monkeypatch.setattr(weights_audit, "audited_weights", failing)
    found = audited_student(settings, data, real, kept, work, 60.0)
    assert not found.released
    assert "could not be audited: A shadow model drew no sample." in found.verdict.line


def test_the_student_of_the_samples_is_audited(settings, data, real, kept, work, monkeypatch):
    seen: list[LoadedCheckpoint] = []

    def audited(*arguments: object) -> WeightsAudit:
        seen.append(arguments[3])
        return audit(attack(0.46, 0.54))

    monkeypatch.setattr(weights_audit, "audited_weights", audited)
    found = audited_student(settings, data, real, kept, work, 60.0)
    assert found.released
    assert found.checkpoint is seen[0]
    assert f"{len(kept)} published samples" in found.verdict.line
