"""What the audit of a student reports."""

import json
from dataclasses import replace

import numpy as np
import pytest

from layerdag.api.publication import ReleaseSettings, Work
from layerdag.api.publication.training import (
    RealGraphs,
    _weights_audit,
    audited_weights,
    real_graphs,
    student_data,
    trained_student,
)
from layerdag.codec import AttributedGraph
from layerdag.datasets import GraphDataset
from layerdag.sampling import GeneratedGraph


@pytest.mark.usefixtures("drawn")
def test_attacks_copies_and_worth_are_found(
    settings: ReleaseSettings,
    data: GraphDataset,
    real: RealGraphs,
    kept: list[GeneratedGraph],
    work: Work,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_weights_audit, "SAMPLED", 6)
    settings = replace(settings, shadows=6)
    samples = student_data(kept, seed=0)
    student = trained_student(settings, samples, work, 60.0)
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


def test_most_of_each_kind_are_scored_and_members_come_first(
    data: GraphDataset, graphs: list[AttributedGraph], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_weights_audit, "MOST_SCORED", 6)
    by_name = {graph.name: graph for graph in graphs}
    found = real_graphs(data, by_name, {name: name for name in by_name}, seed=0)
    assert found.members == 14
    assert found.scored_members == 6
    assert len(found.scored) == 12
    assert (np.diff(found.scored) > 0).all()
    assert [graph.name for graph in found.graphs[:14]] == list(data.names["train"])
