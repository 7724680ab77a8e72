import json
from pathlib import Path

import numpy as np
import pytest
from tile_files import write_tile, write_training_graphs_as_samples

from layerdag.cli.main import main


@pytest.fixture
def tile(tmp_path: Path, rng: np.random.Generator) -> Path:
    counts = {"train": 30, "val": 4, "test": 12}
    return write_tile(tmp_path / "tile", rng, counts, layers=4, codes=3)


@pytest.fixture
def samples(tile: Path, tmp_path: Path) -> Path:
    return write_training_graphs_as_samples(tile, tmp_path / "samples")


def test_a_fitted_surrogate_predicts_for_files(
    tile: Path, samples: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = str(tmp_path / "model")
    assert main(["surrogate", "fit", str(tile), "--out", model, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["train"], told["test"]) == (30, 12)
    assert told["scores"]["pearson"] > 0.8
    graph = str(samples / "0.graphml")
    assert main(["surrogate", "predict", model, graph, "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["path"] == graph
    assert 3 < row["label"] < 13


def test_training_on_the_real_graphs_themselves_reaches_the_ceiling(
    tile: Path, samples: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["surrogate", "tstr", str(tile), str(samples), "--family", "boosting", "--seeds", "1"]
    assert main([*words, "--json"]) == 0
    rows = {row["condition"]: row for row in json.loads(capsys.readouterr().out)["rows"]}
    real, synthetic = (rows[name]["scores"]["mae"]["mean"] for name in ("real", "synthetic"))
    assert synthetic == pytest.approx(real, rel=0.5)
    assert main(words) == 0
    assert "real, shuffled targets" in capsys.readouterr().out


def test_wrong_use_and_wrong_data_are_told_apart(
    tile: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["surrogate", "fit", str(tmp_path), "--out", str(tmp_path / "m")]) == 2
    assert main(["surrogate", "predict", str(tmp_path / "none"), "x.et"]) == 1
    hidden = ["surrogate", "fit", str(tile), "--out", str(tmp_path / "m"), "--hide", "colour"]
    assert main(hidden) == 2
    assert "no attribute 'colour'" in capsys.readouterr().err
    assert not (tmp_path / "m").exists()
