"""The card tells what the weights learned from and what attacks found."""

from dataclasses import replace

import pytest

from layerdag.api.publication import Outcome, ReleaseSettings, Work
from layerdag.api.publication.training import (
    AuditedWeights,
    WeightsAudit,
    WeightsVerdict,
    model_card,
    student_data,
    trained_student,
)
from layerdag.evaluation.privacy import attack_by_scores
from layerdag.sampling import GeneratedGraph


@pytest.fixture
def audited(settings: ReleaseSettings, kept: list[GeneratedGraph], work: Work) -> AuditedWeights:
    import numpy as np

    attack = attack_by_scores("likelihood", "how likely it is", [(np.zeros(3), np.ones(3))], 0)
    audit = WeightsAudit((attack,), 16, (0.5, 0.52), 512, 3, 128, 0, 2, 1.12, 60.0, 1.31)
    student = trained_student(settings, student_data(kept, seed=0), work, 60.0)
    return AuditedWeights(student, audit, WeightsVerdict(Outcome.YES, (), ("nothing was found",)))


def test_it_has_verdict_source_and_figures(
    audited: AuditedWeights, settings: ReleaseSettings
) -> None:
    card = model_card(audited, replace(settings, license="CC-BY-4.0"))
    for words in (
        "The weights may be published: nothing was found.",
        "| learned from | the samples in `samples` of this folder, and from nothing else |",
        "| started from | random weights |",
        "| license | CC-BY-4.0 |",
        "512 real graphs, 16 shadow models",
        "Each shadow model attacked by the others: a mean area of 0.51",
        "| how likely it is | 0 [",
        "TPR at 1% FPR cannot be told",
        "128 graphs drawn from the weights 0 are copies",
        "1.1 times that of",
        "1.3 times in the mean",
        "layerdag sample checkpoint=weights num=100 out=more best_of=1 temperature=1`",
    ):
        assert words in card, words


def test_public_graphs_are_named_but_not_where_they_lie(
    audited: AuditedWeights, settings: ReleaseSettings
) -> None:
    beside = settings.traces.with_name("acme-public")
    beside.mkdir()
    card = model_card(audited, replace(settings, public=beside))
    assert "samples in `samples` of this folder, from public graphs, and from nothing" in card
    assert "acme" not in card


def test_it_says_nothing_of_a_ratio_that_is_unknown(
    audited: AuditedWeights, settings: ReleaseSettings
) -> None:
    assert audited.audit is not None
    unknown = replace(audited, audit=replace(audited.audit, ratio=None))
    assert "distance to held-out" not in model_card(unknown, settings)
