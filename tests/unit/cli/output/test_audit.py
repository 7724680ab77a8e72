import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from raw_graphs import chain
from tile_files import write_tile, write_training_graphs_as_samples

from layerdag.cli import main
from layerdag.cli.settings import RealData, write_run_file
from layerdag.datasets import read_dataset
from layerdag.datasets.files import read_json, write_json
from layerdag.datasets.sources import load_folder
from layerdag.errors import UsageError
from layerdag.graph import GraphStatistics
from layerdag.models import ModelSpec, build_model
from layerdag.training import LoadedCheckpoint
from layerdag.training._checkpoint import CheckpointContents, CheckpointMeta, save_checkpoint


@pytest.fixture
def tile(tmp_path: Path, rng: np.random.Generator) -> Path:
    counts = {"train": 30, "val": 4, "test": 24}
    return write_tile(tmp_path / "tile", rng, counts, layers=5, codes=6)


@pytest.fixture
def copies(tile: Path, tmp_path: Path) -> Path:
    return write_training_graphs_as_samples(tile, tmp_path / "samples")


def checkpoint(tile: Path, folder: Path, fingerprint: str) -> Path:
    """Write an untrained model for the data set."""
    data = read_dataset(tile)
    sizes = data.schema.sizes()
    statistics = GraphStatistics.measure(data.graphs["train"], sizes)
    spec = ModelSpec("fast", sizes, statistics, {"width": 32})
    model = build_model(spec)
    meta = CheckpointMeta(0, 0, fingerprint, {})
    contents = CheckpointContents(spec, model.state_dict(), data.schema.to_dict(), {}, meta)
    save_checkpoint(folder, contents)
    return folder


def test_copies_are_caught_in_table_json_and_page(
    tile: Path, copies: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "audit.html"
    command = ["validate", str(copies), "--against", str(tile)]
    assert main([*command, "--strict", "--report", str(page)]) == 1
    printed = capsys.readouterr().out
    assert "30 samples, 30 training and 28 held-out graphs" in printed
    assert "copies of training graphs            100%" in printed
    assert "tells training graphs apart" in printed
    assert "nearer to training graphs" in printed
    assert "Membership attacks" in page.read_text()
    assert main([*command, "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["novelty"]["copied"] == 1.0
    assert [a["name"] for a in figures["attacks"]] == [
        "nearest_sample", "density_ratio", "calibrated_classifier", "unique_motifs",
        "reconstruction",
    ]  # fmt: skip
    assert figures["attacks"][0]["auc"] > 0.9
    assert figures["attacks"][0]["verdict"] == "tells training graphs apart"
    assert figures["nearness"]["verdict"] == "tells training graphs apart"
    assert figures["passes"] is False
    (row,) = json.loads(page.with_suffix(".json").read_text())["leaks"]
    assert row["attacks"] == figures["attacks"]


def test_local_structure_stands_beside_that_of_held_out_graphs(
    tile: Path, copies: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "audit.html"
    command = ["validate", str(copies), "--against", str(tile)]
    assert main([*command, "--report", str(page)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert main([*command, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["local"]
    assert "repeated_blocks:number" in [row["generated"]["metric"]["name"] for row in rows]
    for row in rows:
        name = row["generated"]["metric"]["name"]
        told = [line.split() for line in lines if line.startswith(f"  {name} ")]
        assert bool(told) == (row["generated"]["value"] is not None)
        for words in told:
            assert float(words[1]) == pytest.approx(row["generated"]["value"], rel=0.01)
            assert name in page.read_text()


def test_neighborhoods_stand_beside_those_of_held_out_graphs(
    tile: Path, copies: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "audit.html"
    command = ["validate", str(copies), "--against", str(tile)]
    assert main([*command, "--report", str(page)]) == 0
    lines = capsys.readouterr().out.splitlines()
    head = next(i for i, line in enumerate(lines) if line.startswith("nodes whose neighborhood"))
    columns = [lines[head].index(word) for word in ("samples", "held-out")]
    assert main([*command, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["neighborhoods"]
    assert len(rows) == 6
    for row, line in zip(rows, lines[head + 1 :], strict=False):
        kind, radius = row["generated"]["metric"]["name"].split(":")
        assert ("no training" in line) == (kind == "neighborhood_novelty")
        assert f"radius {radius}" in line
        for side, column in zip(("generated", "reference"), columns, strict=True):
            percent = float(line[column:].split("%")[0])
            assert percent == pytest.approx(100 * row[side]["value"], abs=0.1)
            low = float(line[column:].split("[")[1].split("%")[0])
            assert low == pytest.approx(100 * row[side]["interval"]["low"], abs=0.5)
    # The samples are the training graphs.
    assert [row["generated"]["value"] for row in rows[:3]] == [0.0] * 3
    assert rows[0]["reference"]["value"] > 0
    assert "nodes whose neighborhood occurs in no training graph, radius 3" in page.read_text()


def test_the_weights_are_attacked_where_a_checkpoint_is_given(
    tile: Path, copies: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    weights = checkpoint(tile, tmp_path / "run", read_dataset(tile).fingerprint)
    command = ["validate", str(copies), "--against", str(tile), "--checkpoint", str(weights)]
    assert main([*command, "--json"]) == 0
    attacks = {a["name"]: a for a in json.loads(capsys.readouterr().out)["attacks"]}
    assert {"schema_lookup", "schema_density"} <= attacks.keys()
    attack = attacks["likelihood"]
    # Untrained weights know nothing.
    assert attack["interval"]["low"] < 0.5 < attack["interval"]["high"]


def test_a_checkpoint_of_other_data_is_refused(
    tile: Path, copies: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    weights = checkpoint(tile, tmp_path / "run", "0123456789abcdef")
    command = ["validate", str(copies), "--against", str(tile), "--checkpoint", str(weights)]
    assert main(command) == 2
    assert "fingerprint 0123456789abcdef" in capsys.readouterr().err


def labeled_run(folder: Path, labels: str) -> LoadedCheckpoint:
    """Return what an audit looks at of a run on a folder of graphs with a label file."""
    data = load_folder(folder, labels=folder / labels)
    run_config = {"data": {"name": "folder", "labels": labels}, "conditions": ["label"]}
    meta = CheckpointMeta(0, 0, data.conditioned_on(["label"]).fingerprint, {})
    sizes = data.schema.sizes()
    statistics = GraphStatistics.measure(data.graphs["train"], sizes)
    spec = ModelSpec("fast", sizes, statistics, {"width": 32, "depth": 1})
    return LoadedCheckpoint(build_model(spec), spec, {}, run_config, meta, Path("best"))


def test_the_label_file_of_a_run_is_found_by_its_name_or_asked_for(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    rows = ["name,label"]
    for i in range(12):
        write_json(folder / f"g{i}.json", chain(f"g{i}", "ab" * (i + 1)))
        rows.append(f"g{i},{i + 1}")
    (folder / "costs.csv").write_text("\n".join(rows))
    run = labeled_run(folder, "costs.csv")
    assert RealData(str(folder)).beside_weights(run).schema.condition_names == ["label"]
    (folder / "costs.csv").rename(tmp_path / "moved.csv")
    with pytest.raises(UsageError, match="name it with --labels"):
        RealData(str(folder)).beside_weights(run)
    found = RealData(str(folder), str(tmp_path / "moved.csv")).beside_weights(run)
    assert found.fingerprint == run.meta.data_fingerprint


def record(samples: Path, **entries: object) -> None:
    """Add entries to the manifest of samples."""
    manifest = samples / "manifest.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), **entries}))


def test_samples_of_the_same_split_are_compared_without_a_warning(
    tile: Path, copies: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record(copies, split=read_dataset(tile).split.to_dict())
    assert main(["validate", str(copies), "--against", str(tile)]) == 0
    assert "warning" not in capsys.readouterr().err


def test_samples_of_another_split_are_refused(
    tile: Path, copies: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    split = read_dataset(tile).split.to_dict()
    record(copies, split={**split, "train": split["test"]})
    assert main(["validate", str(copies), "--against", str(tile)]) == 2
    complaint = capsys.readouterr().err
    assert "another split" in complaint
    assert "the training graphs differ" in complaint


def test_samples_without_a_fingerprint_are_compared_with_a_warning(
    tile: Path, copies: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["validate", str(copies), "--against", str(tile)]) == 0
    assert "records no fingerprint of the training split" in capsys.readouterr().err


@dataclass(frozen=True)
class OwnRun:
    """A user's graphs, labels elsewhere, the run's own file, and samples of it."""

    folder: Path
    labels: Path
    run: Path
    samples: Path


@pytest.fixture
def own(tmp_path: Path) -> OwnRun:
    """26, 3 and 3 graphs by a label file that lies elsewhere; the samples are training graphs."""
    folder, labels, run = tmp_path / "graphs", tmp_path / "elsewhere" / "l.csv", tmp_path / "run"
    samples = tmp_path / "samples"
    for path in (folder, labels.parent, run, samples):
        path.mkdir()
    rows = ["name,label,split"]
    for i in range(32):
        write_json(folder / f"g{i}.json", chain(f"g{i}", f"{i:05b}".replace("0", "a") + "a" * i))
        rows.append(f"g{i},{i + 1},{'train' if i < 26 else 'val' if i < 29 else 'test'}")
    labels.write_text("\n".join(rows))
    data = load_folder(folder, labels=labels)
    write_run_file(run, {"data": {"name": "folder", "folder": str(folder), "labels": str(labels)}})
    entries = []
    for name in data.names["train"][:20]:
        write_json(samples / f"{name}.json", read_json(folder / f"{name}.json"))
        entries.append({"name": name, "file": f"{name}.json", "conditions": {}})
    manifest = {"samples": entries, "split": data.split.to_dict(), "data": {"name": "folder"}}
    (samples / "manifest.json").write_text(json.dumps(manifest))
    return OwnRun(folder, labels, run, samples)


def test_few_own_graphs_are_audited_and_not_an_error(
    own: OwnRun, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["validate", str(own.samples), "--against", str(own.folder)]
    assert main([*command, "--labels", str(own.labels)]) == 0
    printed = capsys.readouterr().out
    assert "20 samples, 26 training and 6 held-out graphs" in printed
    assert "copies of training graphs            100%" in printed
    assert "column 'split'" in printed
    assert "data.held_out" in printed
    assert "no better than chance" not in printed
    assert "safe" not in printed


def test_a_run_knows_its_data_labels_and_split(
    own: OwnRun, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["validate", str(own.samples), "--against", str(own.run)]) == 0
    assert "26 training and 6 held-out graphs" in capsys.readouterr().out


def test_the_folder_without_its_label_file_is_another_split(
    own: OwnRun, capsys: pytest.CaptureFixture[str]
) -> None:
    # Without the file graphs are split by content and seed, so that others are held out.
    assert main(["validate", str(own.samples), "--against", str(own.folder)]) == 2
    assert "the label file it was trained with" in capsys.readouterr().err


def test_a_checkpoint_that_was_handed_on_does_not_know_its_data(
    tile: Path, copies: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    weights = checkpoint(tile, tmp_path / "best", "abc")
    assert main(["validate", str(copies), "--against", str(weights)]) == 2
    assert "give the data folder instead" in capsys.readouterr().err


def test_without_held_out_graphs_copies_are_still_counted(
    tmp_path: Path, rng: np.random.Generator, capsys: pytest.CaptureFixture[str]
) -> None:
    tile = write_tile(tmp_path / "tile", rng, {"train": 6}, layers=5, codes=6)
    samples = write_training_graphs_as_samples(tile, tmp_path / "samples")
    command = ["validate", str(samples), "--against", str(tile)]
    assert main(command) == 0
    printed = capsys.readouterr().out
    assert "copies of training graphs            100%" in printed
    assert "no graph is held out" in printed
    assert main([*command, "--strict"]) == 1


@pytest.mark.parametrize("words", [["a", "b", "--against", "c"], ["a", "--report", "page.html"]])
def test_flags_that_do_not_fit_are_wrong_use(words: list[str]) -> None:
    assert main(["validate", *words]) == 2
