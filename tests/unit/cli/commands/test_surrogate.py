import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from raw_graphs import chain
from tile_files import write_tile, write_training_graphs_as_samples

from layerdag.cli.main import main
from layerdag.datasets.loading import read_dataset
from layerdag.graph.attributed_graph import write_json


@pytest.fixture
def tile(tmp_path, rng) -> Path:
    counts = {"train": 30, "val": 4, "test": 12}
    return write_tile(tmp_path / "tile", rng, counts, layers=4, codes=3)


@pytest.fixture
def samples(tile, tmp_path) -> Path:
    return write_training_graphs_as_samples(tile, tmp_path / "samples")


def write_chains(
    folder: Path, count: int, targets: str, costs: Callable[[int], str], period: int | None = None
) -> Path:
    """Write chains, each longer than the last within a period, with their costs as labels."""
    folder.mkdir()
    rows = [f"name,{targets}"]
    for i in range(count):
        write_json(folder / f"g{i}.json", chain(f"g{i}", "ab" * (1 + i % (period or count))))
        rows.append(f"g{i},{costs(i)}")
    (folder / "labels.csv").write_text("\n".join(rows))
    return folder


def test_a_fitted_surrogate_predicts_for_files(tile, samples, tmp_path, capsys):
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
    tile, samples, capsys, computed_once
):
    words = ["surrogate", "tstr", str(tile), str(samples), "--family", "boosting", "--seeds", "1"]
    words += ["--real", "5"]
    computed_once("layerdag.surrogates.tstr.evaluate_tstr")
    assert main([*words, "--json"]) == 0
    told = capsys.readouterr()
    assert "records no fingerprint of the training split" in told.err
    rows = {row["condition"]: row for row in json.loads(told.out)["rows"]}
    real, synthetic = (rows[name]["scores"]["mae"]["mean"] for name in ("real", "synthetic"))
    assert synthetic == pytest.approx(real, rel=0.5)
    assert main(words) == 0
    told = capsys.readouterr().out
    assert "real, shuffled targets" in told
    assert "5 real + synthetic: pearson" in told


def test_samples_of_another_split_teach_nothing_here(tile, samples, capsys):
    split = read_dataset(tile).split.to_dict()
    manifest = samples / "manifest.json"
    content = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({**content, "split": {**split, "test": "0" * 32}}))
    words = ["surrogate", "tstr", str(tile), str(samples), "--family", "boosting", "--seeds", "1"]
    assert main(words) == 2
    assert "the test graphs differ" in capsys.readouterr().err


def test_labels_may_lie_elsewhere(tmp_path, capsys):
    folder = write_chains(tmp_path / "graphs", 20, "label", lambda i: f"{i + 1}")
    labels = (folder / "labels.csv").rename(tmp_path / "costs.csv")
    words = ["surrogate", "fit", str(folder), "--out", str(tmp_path / "model")]
    assert main(words) == 1
    assert "--labels" in capsys.readouterr().err
    assert main([*words, "--labels", str(labels), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["test"] == 4


def test_what_is_left_out_of_a_fit_is_told(tmp_path, capsys):
    folder = write_chains(tmp_path / "graphs", 20, "label", lambda i: f"{i + 1}" if i else "nan")
    first = sorted(path for path in folder.iterdir() if path.name != "labels.csv")[1]
    os.truncate(first, 60)
    assert main(["surrogate", "fit", str(folder), "--out", str(tmp_path / "model")]) == 0
    told = capsys.readouterr().err
    assert "left out: 1 graph, the first: " in told
    assert "label 'nan': no number" in told


def test_wrong_use_and_wrong_data_are_told_apart(tile, tmp_path, capsys):
    assert main(["surrogate", "fit", str(tmp_path), "--out", str(tmp_path / "m")]) == 2
    assert main(["surrogate", "predict", str(tmp_path / "none"), "x.et"]) == 1
    hidden = ["surrogate", "fit", str(tile), "--out", str(tmp_path / "m"), "--exclude", "color"]
    assert main(hidden) == 2
    assert "no attribute 'color'" in capsys.readouterr().err
    assert not (tmp_path / "m").exists()


@pytest.fixture(scope="module")
def fitted(tmp_path_factory) -> tuple[Path, Path]:
    """Return data with enough validation graphs for intervals, and a surrogate fitted to it."""
    folder = tmp_path_factory.mktemp("calibrated")
    counts = {"train": 30, "val": 12, "test": 12}
    data = write_tile(folder / "data", np.random.default_rng(1), counts, layers=4, codes=3)
    assert main(["surrogate", "fit", str(data), "--out", str(folder / "model"), "--json"]) == 0
    return data, folder / "model"


def test_predictions_have_intervals_of_the_wanted_level(fitted, samples, capsys):
    told = json.loads((fitted[1] / "surrogate.json").read_text())["notes"]
    assert told["evaluation"]["scores"]["mape"]["value"] == told["scores"]["mape"]
    words = ["surrogate", "predict", str(fitted[1]), str(samples / "0.graphml")]
    capsys.readouterr()
    assert main([*words, "--json", "--level", "0.8"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["low"] < row["label"] < row["high"]
    assert row["level"] == 0.8
    assert main(words) == 0
    assert "0.graphml: label " in (out := capsys.readouterr().out)
    assert "(90 % interval: " in out
    assert main([*words, "--level", "0.99"]) == 2
    assert "12 graphs that the surrogate was calibrated on" in capsys.readouterr().err
    assert main([*words, "--level", "1e9"]) == 2
    assert "--level is 1e+09; write a fraction between 0 and 1" in capsys.readouterr().err


def test_a_graph_unlike_those_of_the_fit_is_told(fitted, samples, tmp_path, capsys):
    model = shutil.copytree(fitted[1], tmp_path / "model")
    facts = json.loads((model / "surrogate.json").read_text())
    facts["notes"]["seen"] |= {"fewest": 500, "most": 900}
    (model / "surrogate.json").write_text(json.dumps(facts))
    assert main(["surrogate", "predict", str(model), str(samples / "0.graphml")]) == 0
    assert "nodes, fitted on 500 to 900" in capsys.readouterr().err


def test_an_evaluation_prints_scores_coverage_and_groups(fitted, capsys):
    data, model = map(str, fitted)
    capsys.readouterr()
    assert main(["surrogate", "eval", model, data, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert main(["surrogate", "eval", model, data, "--by", "famly"]) == 2
    assert "No graph of the test part has a condition 'famly'" in capsys.readouterr().err
    assert (found["split"], found["graphs"]) == ("test", 12)
    assert found["verdict"] == "too few to tell: 12 graphs, 20 are needed"
    assert found["verdict"] in (fitted[1] / "README.md").read_text()
    assert main(["surrogate", "eval", model, data]) == 0
    assert found["verdict"] in capsys.readouterr().out
    assert found["scores"]["spearman"]["interval"]["low"] <= found["scores"]["spearman"]["value"]
    assert [one["level"] for one in found["coverage"]] == [0.5, 0.8, 0.9]
    assert main(["surrogate", "eval", model, data, "--split", "train", "--by", "num_layers"]) == 0
    out, err = capsys.readouterr()
    assert "boosting for label on 30 train graphs" in out
    assert "within_10_percent" in out
    assert "90 % held" in out
    assert "too few" not in out
    assert err == ""


def test_data_that_is_split_otherwise_is_evaluated_with_a_warning(fitted, tile, capsys):
    assert main(["surrogate", "eval", str(fitted[1]), str(tile)]) == 0
    assert "is split in another way" in capsys.readouterr().err


def test_several_targets_are_columns_of_a_label_file(tmp_path, capsys):
    folder = write_chains(tmp_path / "graphs", 100, "time,memory", lambda i: f"{i + 1},{1000 + i}")
    words = ["surrogate", "fit", str(folder), "--target", "time", "--target", "memory"]
    assert main([*words, "--out", str(tmp_path / "m"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["target"] == "time"
    assert told["others"]["memory"]["scores"]["spearman"] > 0.8
    graph = str(folder / "g50.json")
    assert main(["surrogate", "predict", str(tmp_path / "m"), graph, "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert 20 < row["time"] < 80
    assert 1000 < row["others"]["memory"]["value"] < 1100
    assert row["others"]["memory"]["low"] < row["others"]["memory"]["high"]
    assert main(["surrogate", "predict", str(tmp_path / "m"), graph]) == 0
    assert [line.split()[1] for line in capsys.readouterr().out.splitlines()] == ["time", "memory"]
    assert main(["surrogate", "eval", str(tmp_path / "m"), str(folder), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["target"] == "time"
    assert found["others"]["memory"]["graphs"] == 10
    assert main(["surrogate", "eval", str(tmp_path / "m"), str(folder)]) == 0
    assert "boosting for memory on 10 test graphs" in capsys.readouterr().out


@pytest.fixture(scope="module")
def two_columns(tmp_path_factory) -> Path:
    """Return a folder of graphs with a label file of two targets, one of them with gaps."""
    folder = tmp_path_factory.mktemp("data") / "graphs"

    def costs(i: int) -> str:
        return f"{1 + i % 9},{1000 + i % 9 if i % 3 else ''}"

    return write_chains(folder, 50, "time,memory", costs, period=9)


def test_several_targets_share_a_network(two_columns, repository, tmp_path, capsys):
    model, graph = str(tmp_path / "m"), str(two_columns / "g40.json")
    words = ["surrogate", "fit", str(two_columns), "--target", "time", "--target", "memory"]
    words += ["--shared", "--out", model]
    assert main(words) == 2
    assert "'boosting' has no network that several targets could share" in capsys.readouterr().err
    assert main([*words, "--family", "message_passing", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["shared"] is True
    assert told["train"] > told["others"]["memory"]["train"] > 20
    assert len(list(Path(model).rglob("*.safetensors"))) == 1
    assert main(["surrogate", "predict", model, graph, "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert 1 < row["time"] < 10
    assert 900 < row["others"]["memory"]["value"] < 1100
    assert main(["surrogate", "eval", model, str(two_columns)]) == 0
    assert "message_passing for memory on" in capsys.readouterr().out
    job = str(repository / "data" / "examples" / "ddp_mlp")
    simulated = ["simulate", "--workload", job, "--preset", "small"]
    assert main([*simulated, "--compute", f"surrogate:{model}"]) == 2
    assert "predicts a number of a whole graph" in capsys.readouterr().err


def test_operators_of_a_workload_are_fitted_and_simulated(repository, tmp_path, capsys):
    job, model = str(repository / "data" / "examples" / "ddp_mlp"), str(tmp_path / "o")
    words = ["surrogate", "fit", job, "--per", "operator", "--out", model]
    assert main([*words, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["family"], told["train"]) == ("operators", 1)
    assert main([*words, "--overwrite"]) == 0
    assert "operators of 1 job fitted" in capsys.readouterr().out
    simulated = ["simulate", "--workload", job, "--preset", "small"]
    assert main([*simulated, "--compute", f"surrogate:{model}"]) == 0
    assert "makespan" in capsys.readouterr().out
    assert main([*words, "--overwrite", "--exclude", "duration"]) == 2
    assert "leave out --target" in capsys.readouterr().err
