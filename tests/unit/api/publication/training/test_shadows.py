"""Shadow models go the way of the target, and what they found survives a stop."""

from dataclasses import replace

import numpy as np
import pytest

from layerdag.api.publication import SHADOWS, ReleaseSettings, Work
from layerdag.api.publication.training import (
    RealGraphs,
    _shadows,
    shadow_losses,
    student_data,
    trained_student,
)
from layerdag.datasets import GraphDataset
from layerdag.errors import DataError
from layerdag.evaluation.privacy import graph_losses
from layerdag.sampling import GeneratedGraph
from layerdag.training import LoadedCheckpoint


@pytest.fixture
def samples(kept: list[GeneratedGraph]) -> GraphDataset:
    return student_data(kept, seed=0)


@pytest.fixture
def student(settings: ReleaseSettings, samples: GraphDataset, work: Work) -> LoadedCheckpoint:
    return trained_student(settings, samples, work, 60.0)


def test_losses_are_those_of_the_model_for_each_real_graph(
    real: RealGraphs, student: LoadedCheckpoint, samples: GraphDataset
) -> None:
    loss_K = real.losses_under(student.model, samples.schema)
    assert loss_K.shape == (24,)
    one = samples.schema.encode(real.graphs[5])
    assert loss_K[5] == pytest.approx(graph_losses(student.model, samples.schema, [one])[0])


def test_a_graph_with_a_word_of_no_sample_has_no_loss(
    real: RealGraphs, student: LoadedCheckpoint, samples: GraphDataset
) -> None:
    strange = replace(real.graphs[0], categories={"kind": ["z"] * real.graphs[0].num_nodes})
    changed = replace(real, graphs=(strange, *real.graphs[1:]))
    loss_K = changed.losses_under(student.model, samples.schema)
    assert np.isnan(loss_K[0])
    assert np.isfinite(loss_K[1:]).all()


@pytest.mark.usefixtures("drawn")
def test_a_stopped_audit_goes_on_and_runs_stay_together(
    settings: ReleaseSettings,
    real: RealGraphs,
    student: LoadedCheckpoint,
    samples: GraphDataset,
    work: Work,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = shadow_losses(settings, real, student, samples, work, 60.0)
    assert found.loss_SG.shape == found.member_SG.shape == (4, 24)
    assert (found.member_SG.sum(axis=0) == 2).all()
    assert (found.member_SG[:, 0::2] == found.member_SG[:, 1::2]).all()  # two graphs of one run
    assert np.isfinite(found.loss_SG).all()
    assert len({tuple(row) for row in found.loss_SG.tolist()}) == 4
    files = sorted((work.path / SHADOWS).glob("*.npz"))
    assert len(files) == 4
    assert not list((work.path / SHADOWS).glob("*.run"))  # no weights are kept
    with monkeypatch.context() as patch:
        patch.setattr(_shadows, "train_or_resume", None)  # no call any more
        again = shadow_losses(settings, real, student, samples, work, 60.0)
    assert (again.loss_SG == found.loss_SG).all()
    files[2].write_bytes(b"cut off")
    mended = shadow_losses(settings, real, student, samples, work, 60.0)
    assert mended.loss_SG == pytest.approx(found.loss_SG)


def test_losses_for_another_student_are_discarded(
    settings: ReleaseSettings, samples: GraphDataset, work: Work
) -> None:
    folder = work.path / SHADOWS
    _shadows._start_anew_if_other(folder, settings, samples)
    (folder / "00000.npz").write_bytes(b"losses")
    _shadows._start_anew_if_other(folder, settings, samples)
    assert (folder / "00000.npz").is_file()
    _shadows._start_anew_if_other(folder, replace(settings, shadows=32), samples)
    assert not (folder / "00000.npz").exists()


def test_a_shadow_without_samples_says_so(
    settings: ReleaseSettings,
    real: RealGraphs,
    student: LoadedCheckpoint,
    samples: GraphDataset,
    work: Work,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_shadows, "published_graphs", lambda _: iter(()))
    with pytest.raises(DataError, match="drew 0 samples that can be written"):
        shadow_losses(settings, real, student, samples, work, 60.0)
