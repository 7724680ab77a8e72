"""Public graphs beside samples: as many of each, in the words of the samples."""

from dataclasses import replace
from pathlib import Path

import pytest
from raw_graphs import chain
from traced_jobs import write_jobs

from layerdag.api.publication import ReleaseSettings, Work
from layerdag.api.publication.training import (
    RealGraphs,
    _public,
    _shadows,
    public_graphs,
    shadow_losses,
    student_data,
    trained_student,
    with_public,
)
from layerdag.codec import AttributedGraph
from layerdag.datasets import GraphDataset
from layerdag.sampling import GeneratedGraph


@pytest.fixture
def samples(kept: list[GeneratedGraph]) -> GraphDataset:
    return student_data(kept, seed=0)


@pytest.fixture(scope="session")
def public() -> list[AttributedGraph]:
    return [chain(f"p{i:02d}", "abc" + "ab" * (i % 5), label=1.0) for i in range(17)]


def test_samples_are_repeated_until_they_are_as_many(
    samples: GraphDataset, public: list[AttributedGraph]
) -> None:
    mixed = with_public(samples, public)
    assert len(samples.graphs["train"]) == 8
    assert len(mixed.graphs["train"]) == 2 * 8 + 17
    assert mixed.names["train"][-17:] == tuple(graph.name for graph in public)
    assert mixed.graphs["val"] is samples.graphs["val"]  # selection is by samples alone
    assert mixed.schema is samples.schema
    assert mixed.fingerprint != samples.fingerprint
    assert mixed.split == samples.split


def test_public_graphs_with_other_words_are_left_out(samples: GraphDataset) -> None:
    strange = chain("strange", "xyz", label=1.0)
    assert with_public(samples, [strange]) is samples
    assert with_public(samples, []) is samples
    both = with_public(samples, [strange, chain("known", "abc", label=1.0)])
    assert both.names["train"][-1] == "known"


def test_of_a_large_folder_some_are_drawn(
    settings: ReleaseSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert public_graphs(settings) == ()
    asked = replace(settings, public=write_jobs(tmp_path / "public", 6), max_nodes=2000)
    assert len(public_graphs(asked)) == 6
    monkeypatch.setattr(_public, "MOST_PUBLIC", 2)
    names = [graph.name for graph in public_graphs(asked)]
    assert len(set(names)) == 2
    assert names == [graph.name for graph in public_graphs(asked)]


@pytest.mark.usefixtures("drawn")
def test_target_and_shadow_models_learn_them(
    settings: ReleaseSettings,
    real: RealGraphs,
    samples: GraphDataset,
    public: list[AttributedGraph],
    work: Work,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    target = trained_student(settings, samples, work, 60.0, public)
    assert target.meta.data_fingerprint == with_public(samples, public).fingerprint
    learned: list[int] = []

    def noted(samples: GraphDataset, public: list[AttributedGraph]) -> GraphDataset:
        learned.append(len(public))
        return with_public(samples, public)

    monkeypatch.setattr(_shadows, "with_public", noted)
    beside = replace(real, public=tuple(public))
    shadow_losses(settings, beside, target, samples, work, 60.0)
    assert learned == [17] * (1 + settings.shadows)
