"""Kept data sets and statistics: the same as read anew, and only what is whole is believed."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from corpus_cut import cut_corpus

from layerdag.dag.dag import DAGBatch
from layerdag.dag.statistics import GraphStatistics
from layerdag.datasets import corpus
from layerdag.datasets.cache import kept_statistics
from layerdag.datasets.corpus import load_corpus
from layerdag.datasets.dataset import GraphDataset
from layerdag.datasets.settings import CorpusConfig
from layerdag.training.model_spec import spec_for


@pytest.fixture
def entries(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("LAYERDAG_CACHE", str(tmp_path / "entries"))
    return tmp_path / "entries"


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return cut_corpus(
        tmp_path_factory.mktemp("cut"), {"train": 8, "val": 2, "test": 2}, max_nodes=60
    )


@pytest.fixture
def as_embedded(tmp_path_factory, monkeypatch) -> None:
    """Every corpus of the tests counts as the embedded one."""
    monkeypatch.setattr(
        "layerdag.datasets.corpus.embedded_corpus", lambda: tmp_path_factory.getbasetemp()
    )


@pytest.fixture
def builds(monkeypatch) -> list[int]:
    """Grow by one whenever the corpus is read and encoded."""
    found: list[int] = []
    built: Callable[..., GraphDataset] = corpus._built

    def counted(*arguments: object) -> GraphDataset:
        found.append(1)
        return built(*arguments)

    monkeypatch.setattr(corpus, "_built", counted)
    return found


def _columns(batch: DAGBatch) -> list[torch.Tensor]:
    return [getattr(batch, name) for name in batch.__dataclass_fields__]


@pytest.mark.usefixtures("as_embedded")
def test_a_kept_data_set_is_the_one_that_was_read(entries, folder, builds):
    first, second = (
        load_corpus(CorpusConfig(folder=folder)),
        load_corpus(CorpusConfig(folder=folder)),
    )
    assert len(builds) == 1
    assert second.schema == first.schema
    assert second.fingerprint == first.fingerprint
    assert second.split == first.split
    for split in ("train", "val", "test"):
        assert second.names[split] == first.names[split]
        for one, other in zip(
            _columns(first.batch(split)), _columns(second.batch(split)), strict=True
        ):
            assert torch.equal(one.nan_to_num(), other.nan_to_num())
            assert one.dtype == other.dtype
    assert [job.name for job in second.jobs["train"]] == [job.name for job in first.jobs["train"]]
    assert spec_for(second, "fast", {}) == spec_for(first, "fast", {})


@pytest.mark.usefixtures("as_embedded")
def test_other_settings_files_and_damaged_entries_are_read_anew(entries, folder, builds, tmp_path):
    load_corpus(CorpusConfig(folder=folder))
    load_corpus(CorpusConfig(folder=folder, num_bins=8))
    assert len(builds) == 2
    for entry in entries.glob("*.npz"):
        entry.write_bytes(entry.read_bytes()[:-100])
    load_corpus(CorpusConfig(folder=folder))
    assert len(builds) == 3
    (tmp_path / "other").mkdir()
    load_corpus(
        CorpusConfig(folder=cut_corpus(tmp_path / "other", {"train": 7, "val": 2}, max_nodes=60))
    )
    assert len(builds) == 4
    assert all(entry.stat().st_mode & 0o077 == 0 for entry in entries.iterdir())


def test_statistics_are_kept_for_the_same_graphs_alone(entries, folder, monkeypatch):
    data = load_corpus(CorpusConfig(folder=folder))
    sizes, graphs = data.schema.sizes(), data.graphs["train"]
    found = kept_statistics(graphs, sizes)

    def never(*_: object) -> GraphStatistics:
        raise AssertionError("measured again")

    monkeypatch.setattr("layerdag.datasets.cache.shared_statistics", never)
    assert kept_statistics(graphs, sizes) == found
    with pytest.raises(AssertionError, match="measured again"):
        kept_statistics(graphs[1:], sizes)


def test_a_corpus_of_a_user_leaves_no_copy(folder, entries):
    load_corpus(CorpusConfig(folder=folder))
    assert not entries.exists()
