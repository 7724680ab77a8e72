"""The student knows what is published, and nothing else."""

from dataclasses import replace

import pytest

from layerdag.api.publication import STUDENT, ReleaseSettings, Work
from layerdag.api.publication.training import _recipe, student_data, trained_student
from layerdag.datasets import GraphDataset
from layerdag.errors import DataError
from layerdag.sampling import GeneratedGraph


def test_its_data_are_the_samples_with_a_schema_of_their_own(
    data: GraphDataset, kept: list[GeneratedGraph]
) -> None:
    samples = student_data(kept, seed=0)
    assert {name for part in samples.names.values() for name in part} == {s.name for s in kept}
    assert len(samples.graphs["val"]) == 2
    assert not samples.graphs["test"]
    table, real = samples.schema.condition_table, data.schema.condition_table
    assert repr(table) != repr(real)
    assert student_data(kept, seed=0).fingerprint == samples.fingerprint


def test_numbers_in_its_conditions_are_those_of_the_published_table(
    kept: list[GeneratedGraph],
) -> None:
    exact = [replace(s, dag=s.dag.with_conditions({"label": 1.23456 + i}))
             for i, s in enumerate(kept)]  # fmt: skip
    samples = student_data(exact, seed=0)
    found = sorted(float(str(dag.conditions["label"])) for part in samples.graphs.values()
                   for dag in part)  # fmt: skip
    assert found == [float(f"{1.23456 + i:.3g}") for i in range(len(kept))]


def test_too_few_samples_are_refused_with_what_to_do(kept: list[GeneratedGraph]) -> None:
    with pytest.raises(DataError, match=r"7 samples are published.*at least 8; .*--num"):
        student_data(kept[:7], seed=0)


def test_it_is_trained_once_and_anew_for_other_samples(
    settings: ReleaseSettings,
    kept: list[GeneratedGraph],
    work: Work,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    samples = student_data(kept, seed=0)
    first = trained_student(settings, samples, work, 60.0)
    assert work.stages["student"]["fingerprint"] == samples.fingerprint
    assert first.meta.data_fingerprint == samples.fingerprint
    other = student_data(kept[1:], seed=0)
    second = trained_student(settings, other, work, 60.0)
    assert second.meta.data_fingerprint == other.fingerprint
    monkeypatch.setattr(_recipe, "train", None)  # no call any more
    again = trained_student(settings, other, work, 60.0)
    assert again.meta.data_fingerprint == other.fingerprint
    assert (work.path / STUDENT / "best").is_dir()
