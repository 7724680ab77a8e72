"""Which real graphs samples and weights are compared with, told by what lies in a folder."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from raw_graphs import chain
from tile_files import write_tile
from tiny_checkpoints import chain_checkpoint

from layerdag.api.reference_data import ReferenceData
from layerdag.datasets.folder import load_folder
from layerdag.datasets.latent_preferential import load_latent_preferential
from layerdag.datasets.settings import FolderConfig, LatentPreferentialConfig
from layerdag.errors import DataError, UsageError
from layerdag.graph.attributed_graph import write_json
from layerdag.traces.chakra.corpus import embedded_corpus
from layerdag.training.checkpoint import LoadedCheckpoint
from layerdag.training.run_file import run_record, write_run_file


@pytest.fixture
def graphs(tmp_path) -> Path:
    """Return a folder of flow graphs; its label file lies beside it."""
    folder = tmp_path / "graphs"
    folder.mkdir()
    rows = ["name,label"]
    for i in range(20):
        write_json(folder / f"g{i}.json", chain(f"g{i}", "ab" * (i + 1)))
        rows.append(f"g{i},{i + 1}")
    (tmp_path / "costs.csv").write_text("\n".join(rows))
    return folder


def reference(source: str, labels: str | None = None) -> ReferenceData:
    return ReferenceData(source, labels, warn=print)


def sampled(folder: Path, settings: object) -> str:
    """Write a manifest of no samples that records settings of a data set."""
    folder.mkdir()
    (folder / "manifest.json").write_text(json.dumps({"samples": [], "data": settings}))
    return str(folder)


def weights(tmp_path: Path, **run_config: object) -> LoadedCheckpoint:
    loaded = chain_checkpoint(tmp_path)
    return replace(loaded, run_config=run_config, meta=replace(loaded.meta, split=None))


def test_a_folder_by_itself_keeps_all_its_words(graphs, tmp_path):
    data = reference(str(graphs), str(tmp_path / "costs.csv")).load()
    assert not data.renamed
    assert (
        data.fingerprint
        == load_folder(
            FolderConfig(folder=graphs, labels=tmp_path / "costs.csv", public_words="all")
        ).fingerprint
    )


def test_recorded_settings_are_used_for_the_folder_that_is_named(tmp_path, rng, capsys):
    tile = write_tile(tmp_path / "tile", rng, {"train": 6, "val": 2, "test": 2}, layers=3, codes=2)
    samples = sampled(tmp_path / "samples", {"name": "tpu_tile", "folder": "/gone"})
    data = reference(str(tile)).load_for_samples(samples)
    assert [len(data.graphs[split]) for split in ("train", "val", "test")] == [6, 2, 2]
    assert "records no fingerprint of the training split" in capsys.readouterr().out


def test_a_recorded_label_file_is_found_in_the_folder_or_beside_it(graphs, tmp_path):
    samples = sampled(tmp_path / "samples", {"name": "folder", "labels": "/gone/costs.csv"})
    data = reference(str(graphs)).load_for_samples(samples)
    assert {dag.conditions["label"] for dag in data.graphs["train"]} <= set(
        map(float, range(1, 21))
    )
    (tmp_path / "costs.csv").rename(graphs / "costs.csv")
    assert reference(str(graphs)).load_for_samples(samples).fingerprint == data.fingerprint


def test_a_recorded_label_file_that_is_nowhere_is_asked_for(graphs, tmp_path):
    samples = sampled(tmp_path / "samples", {"name": "folder", "labels": "prices.csv"})
    with pytest.raises(UsageError, match=r"label file 'prices.csv', which is neither .* --labels"):
        reference(str(graphs)).load_for_samples(samples)
    named = reference(str(graphs), str(tmp_path / "costs.csv")).load_for_samples(samples)
    assert len(named.graphs["train"]) > 0


def test_generated_data_is_made_again_whatever_folder_is_named(tmp_path):
    settings = {"name": "latent_preferential", "num_train": 4, "num_val": 1, "num_test": 1}
    data = reference(str(tmp_path)).load_for_samples(sampled(tmp_path / "s", settings))
    expected = load_latent_preferential(
        LatentPreferentialConfig(num_train=4, num_val=1, num_test=1)
    )
    assert data.fingerprint == expected.fingerprint


def test_a_folder_that_is_not_the_corpus_of_the_samples_is_told(tmp_path):
    samples = sampled(tmp_path / "s", {"name": "corpus"})
    with pytest.raises(UsageError, match=r"is no corpus \(there is no index\.jsonl\), and these"):
        reference(str(tmp_path)).load_for_samples(samples)


def test_a_folder_without_the_programs_of_the_samples_is_told(tmp_path):
    samples = sampled(tmp_path / "s", {"name": "programs"})
    with pytest.raises(UsageError, match=r"holds no programs \(FAMILY\.jsonl\.xz\), and these"):
        reference(str(tmp_path)).load_for_samples(samples)


@pytest.mark.parametrize(
    "settings",
    [
        {"name": "latent_preferential", "num_train": "many"},
        {"name": "latent_preferential", "color": 1},
        {"name": "no_such_loader"},
    ],
)
def test_settings_that_no_loader_takes_are_bad_data(tmp_path, settings):
    with pytest.raises(DataError, match="the recorded settings of the data set cannot be used"):
        reference(str(tmp_path)).load_for_samples(sampled(tmp_path / "s", settings))


def test_weights_of_a_run_with_few_conditions_are_compared_on_these(tmp_path):
    data = {"name": "latent_preferential", "num_train": 4, "num_val": 1, "num_test": 1}
    generated = load_latent_preferential(
        LatentPreferentialConfig(num_train=4, num_val=1, num_test=1)
    )
    [*names] = generated.schema.condition_names
    loaded = weights(tmp_path, data=data, conditions=names[:1])
    wanted = generated.conditioned_on(names[:1])
    known = replace(loaded, meta=replace(loaded.meta, data_fingerprint=wanted.fingerprint))
    assert reference("x").load_for_checkpoint(known).fingerprint == wanted.fingerprint


def test_weights_of_other_graphs_are_refused_with_both_fingerprints(tmp_path):
    data = {"name": "latent_preferential", "num_train": 4, "num_val": 1, "num_test": 1}
    loaded = weights(tmp_path, data=data)
    with pytest.raises(UsageError) as caught:
        reference("here").load_for_checkpoint(loaded)
    found = load_latent_preferential(
        LatentPreferentialConfig(num_train=4, num_val=1, num_test=1)
    ).fingerprint
    assert loaded.meta.data_fingerprint in str(caught.value)
    assert f"those in here have {found}; give the data set" in str(caught.value)


def test_a_run_knows_its_data_and_a_label_file_may_still_be_named(graphs, tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    write_run_file(run, run_record(run, {"data": {"name": "folder", "folder": str(graphs)}}))
    data = reference(str(run), str(tmp_path / "costs.csv")).load()
    assert "label" in data.schema.condition_names
    assert "label" not in reference(str(run)).load().schema.condition_names


def test_a_checkpoint_that_was_handed_on_does_not_say_where_its_data_lies(tmp_path):
    folder = chain_checkpoint(tmp_path).path
    with pytest.raises(UsageError, match=r"it has no run.json\); give the data folder instead"):
        reference(str(folder)).load()


def test_what_is_embedded_has_a_name_unless_a_folder_is_called_so(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert reference("corpus").place == str(embedded_corpus())
    assert reference("programs").place == str(embedded_corpus() / "programs")
    assert reference("mine").place == "mine"
    (tmp_path / "programs").touch()
    assert reference("programs").place == str(embedded_corpus() / "programs")
    (tmp_path / "corpus").mkdir()
    assert reference("corpus").place == "corpus"
