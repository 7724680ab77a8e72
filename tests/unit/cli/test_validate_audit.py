import json
from pathlib import Path

import numpy as np
import pytest
from raw_graphs import chain
from tile_files import write_tile, write_training_graphs_as_samples

from layerdag.cli.main import main
from layerdag.cli.real_data import RealData
from layerdag.datasets.flow_files import write_json
from layerdag.datasets.folder import load_folder
from layerdag.errors import UsageError
from layerdag.graph.statistics import GraphStatistics
from layerdag.model.build import ModelSpec, build_model
from layerdag.surrogate.inputs import read_dataset
from layerdag.training.checkpoint import (
    CheckpointContents,
    CheckpointMeta,
    LoadedCheckpoint,
    save_checkpoint,
)


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
    assert "copies of training graphs            100%" in printed
    assert "tells training graphs apart" in printed
    assert "Membership attacks" in page.read_text()
    assert main([*command, "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["novelty"]["copied"] == 1.0
    assert [a["name"] for a in figures["attacks"]] == ["nearest_sample", "density_ratio"]
    assert figures["attacks"][0]["auc"] > 0.9
    assert json.loads(page.with_suffix(".json").read_text())["attacks"] == figures["attacks"]


def test_the_weights_are_attacked_where_a_checkpoint_is_given(
    tile: Path, copies: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    weights = checkpoint(tile, tmp_path / "run", read_dataset(tile).fingerprint)
    command = ["validate", str(copies), "--against", str(tile), "--checkpoint", str(weights)]
    assert main([*command, "--json"]) == 0
    attack = json.loads(capsys.readouterr().out)["attacks"][-1]
    assert attack["name"] == "likelihood"
    # Untrained weights know nothing.
    assert attack["interval"]["low"] < 0.5 < attack["interval"]["high"]


def test_a_checkpoint_of_other_data_is_refused(
    tile: Path, copies: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    weights = checkpoint(tile, tmp_path / "run", "0123456789abcdef")
    command = ["validate", str(copies), "--against", str(tile), "--checkpoint", str(weights)]
    assert main(command) == 2
    assert "fingerprint 0123456789abcdef" in capsys.readouterr().err


def labelled_run(folder: Path, labels: str) -> LoadedCheckpoint:
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
    run = labelled_run(folder, "costs.csv")
    assert RealData(str(folder)).beside_weights(run).schema.condition_names == ["label"]
    (folder / "costs.csv").rename(tmp_path / "moved.csv")
    with pytest.raises(UsageError, match="name it with --labels"):
        RealData(str(folder)).beside_weights(run)
    found = RealData(str(folder), str(tmp_path / "moved.csv")).beside_weights(run)
    assert found.fingerprint == run.meta.data_fingerprint


@pytest.mark.parametrize("words", [["a", "b", "--against", "c"], ["a", "--report", "page.html"]])
def test_flags_that_do_not_fit_are_wrong_use(words: list[str]) -> None:
    assert main(["validate", *words]) == 2
