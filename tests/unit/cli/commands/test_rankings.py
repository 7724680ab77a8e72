"""``layerdag rankings`` on a tiny corpus whose training jobs pose as samples."""

import json
from pathlib import Path

import pytest
from tiny_corpus import write_corpus

from layerdag.cli.main import main
from layerdag.datasets.loading import read_dataset
from layerdag.graph.attributed_graph import write_json


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    counts = {"train": 6, "val": 1, "test": 5}
    return write_corpus(tmp_path_factory.mktemp("rankings") / "corpus", counts)


def write_samples(corpus: Path, folder: Path, **manifest: object) -> Path:
    """Write the training jobs of a corpus as ``layerdag sample`` writes samples."""
    folder.mkdir()
    data = read_dataset(corpus)
    entries = []
    for i, dag in enumerate(data.graphs["train"]):
        write_json(folder / f"{i}.json", data.schema.decode(dag))
        entries.append(
            {
                "name": f"sample-{i:05d}",
                "seed": i,
                "file": f"{i}.json",
                "conditions": dict(dag.conditions),
            }
        )
    content = {"samples": entries, "split": data.split.to_dict(), **manifest}
    (folder / "manifest.json").write_text(json.dumps(content))
    return folder


def test_training_jobs_that_pose_as_samples_rank_as_training_jobs_do(corpus, tmp_path, capsys):
    samples = write_samples(corpus, tmp_path / "samples")
    assert main(["rankings", str(corpus), str(samples), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["tested_on"] == 5
    assert (told["counts"]["training jobs"], told["counts"]["samples"]) == (6, 6)
    found = {(r["jobs"], r["order"], r["target"]): r["value"] for r in told["rows"]}
    for order in ("clusters", "jobs"):
        real, sampled = (found[name, order, "makespan"] for name in ("training jobs", "samples"))
        assert sampled == pytest.approx(real, abs=0.02)
    assert found["messages at random", "clusters, difference", "makespan"] > 0.3


def test_the_text_has_every_set_and_what_tells_it_from_training_jobs(corpus, tmp_path, capsys):
    folders = [str(write_samples(corpus, tmp_path / name)) for name in ("one", "two")]
    assert main(["rankings", str(corpus), *folders, "--jobs", "2", "--speedup", "1000"]) == 0
    told = capsys.readouterr().out
    assert told.startswith("5 real test jobs on 16 clusters")
    assert "samples (2)" in told
    assert "training jobs (2)" in told
    assert "messages at random: " in told
    assert told.count("messages at random") >= 3


def test_samples_of_another_split_are_refused(corpus, tmp_path, capsys):
    good = write_samples(corpus, tmp_path / "good")
    split = {**read_dataset(corpus).split.to_dict(), "test": "0" * 32}
    other = write_samples(corpus, tmp_path / "other", split=split)
    assert main(["rankings", str(corpus), str(good), str(other)]) == 2
    assert "the test graphs differ" in capsys.readouterr().err


@pytest.mark.parametrize(("flag", "value"), [("--jobs", "0"), ("--speedup", "-1")])
def test_impossible_numbers_are_refused(corpus, flag, value, capsys):
    assert main(["rankings", str(corpus), "samples", flag, value]) == 2
    assert "must be positive" in capsys.readouterr().err
