"""``layerdag audit`` and ``ld.audit``: copies, attacks and private words in every form."""

import contextlib
import io
import json
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from raw_graphs import chain
from tile_files import write_tile, write_training_graphs_as_samples
from tiny_checkpoints import chain_checkpoint
from traced_jobs import write_jobs

import layerdag as ld
from layerdag.api.reference_data import ReferenceData
from layerdag.cli.main import main
from layerdag.dag.statistics import GraphStatistics
from layerdag.datasets.folder import load_folder
from layerdag.datasets.loading import read_dataset
from layerdag.datasets.settings import FolderConfig
from layerdag.errors import UsageError
from layerdag.graph.attributed_graph import read_json, write_json
from layerdag.graph.formats.graphml import write_graphml
from layerdag.models.spec import ModelSpec, build_model
from layerdag.privacy import shadows as _settings
from layerdag.training.checkpoint import (
    CheckpointMeta,
    LoadedCheckpoint,
    save_checkpoint,
)
from layerdag.training.run_file import run_record, write_run_file

COUNTS = {"train": 30, "val": 4, "test": 24}


@pytest.fixture
def tile(tmp_path, rng) -> Path:
    counts = {"train": 12, "val": 4, "test": 8}
    return write_tile(tmp_path / "tile", rng, counts, layers=5, codes=6)


@pytest.fixture
def copies(tile, tmp_path) -> Path:
    return write_training_graphs_as_samples(tile, tmp_path / "samples")


def checkpoint(tile: Path, folder: Path, fingerprint: str) -> Path:
    """Write an untrained model for the data set."""
    data = read_dataset(tile)
    sizes = data.schema.sizes()
    statistics = GraphStatistics.measure(data.graphs["train"], sizes)
    spec = ModelSpec("fast", sizes, statistics, {"width": 32})
    model = build_model(spec)
    meta = CheckpointMeta(0, 0, fingerprint, {})
    contents = (spec, model.state_dict(), data.schema.to_dict(), {}, meta)
    save_checkpoint(folder, *contents)
    return folder


@dataclass(frozen=True)
class Audited:
    """What an audit of copies says: as text with a page, and as JSON."""

    code: int
    text: str
    warnings: str
    page: Path
    figures: dict[str, Any]


@pytest.fixture(scope="module")
def audited(tmp_path_factory) -> Audited:
    folder = tmp_path_factory.mktemp("audited")
    tile = write_tile(folder / "tile", np.random.default_rng(20241), COUNTS, layers=5, codes=6)
    copies, page = write_training_graphs_as_samples(tile, folder / "samples"), folder / "audit.html"
    command = ["audit", "--synthetic", str(copies), "--data", str(tile)]
    text, warnings, figures = io.StringIO(), io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.redirect_stderr(warnings):
        code = main([*command, "--strict", "--report", str(page)])
    with contextlib.redirect_stdout(figures), contextlib.redirect_stderr(io.StringIO()):
        assert main([*command, "--json"]) == 0
    found = json.loads(figures.getvalue())
    return Audited(code, text.getvalue(), warnings.getvalue(), page, found)


def test_copies_are_caught_in_table_json_and_page(audited):
    assert audited.code == 1
    assert "30 samples, 30 training and 28 held-out graphs" in audited.text
    assert "copies of training graphs            100%" in audited.text
    assert "tells training graphs apart" in audited.text
    assert "nearer to training graphs" in audited.text
    assert "Membership attacks" in audited.page.read_text()
    figures = audited.figures
    assert figures["novelty"]["copied"] == 1.0
    assert [a["name"] for a in figures["attacks"]] == [
        "nearest_sample", "density_ratio", "calibrated_classifier", "unique_motifs",
        "reconstruction",
    ]  # fmt: skip
    assert figures["attacks"][0]["auc"] > 0.9
    assert figures["attacks"][0]["verdict"] == "tells training graphs apart"
    assert figures["nearness"]["verdict"] == "tells training graphs apart"
    assert figures["passes"] is False
    leaks = json.loads(audited.page.with_suffix(".json").read_text())["leaks"]
    assert leaks["attacks"] == figures["attacks"]


def test_samples_without_a_fingerprint_are_compared_with_a_warning(audited):
    assert "records no fingerprint of the training split" in audited.warnings


def test_local_structure_stands_beside_that_of_held_out_graphs(audited):
    rows = audited.figures["local"]
    assert "repeated_blocks:number" in [row["generated"]["metric"]["name"] for row in rows]
    for row in rows:
        name = row["generated"]["metric"]["name"]
        told = [x.split() for x in audited.text.splitlines() if x.startswith(f"  {name} ")]
        assert bool(told) == (row["generated"]["value"] is not None)
        for words in told:
            assert float(words[1]) == pytest.approx(row["generated"]["value"], rel=0.01)
            assert name in audited.page.read_text()


def test_neighborhoods_stand_beside_those_of_held_out_graphs(audited):
    lines = audited.text.splitlines()
    head = next(i for i, line in enumerate(lines) if line.startswith("nodes whose neighborhood"))
    columns = [lines[head].index(word) for word in ("samples", "held-out")]
    rows = audited.figures["neighborhoods"]
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
    shown = audited.page.read_text()
    assert "nodes whose neighborhood occurs in no training graph, radius 3" in shown


def audit_of(samples: Path, data: Path, weights: Path) -> list[str]:
    places = {"--synthetic": samples, "--data": data, "--checkpoint": weights}
    return ["audit", *(str(word) for place in places.items() for word in place)]


def test_the_weights_are_attacked_where_a_checkpoint_is_given(tile, copies, tmp_path, capsys):
    weights = checkpoint(tile, tmp_path / "run", read_dataset(tile).fingerprint)
    command = audit_of(copies, tile, weights)
    assert main([*command, "--json"]) == 0
    attacks = {a["name"]: a for a in json.loads(capsys.readouterr().out)["attacks"]}
    assert {"schema_lookup", "schema_density"} <= attacks.keys()
    attack = attacks["likelihood"]
    # Untrained weights know nothing.
    assert attack["interval"]["low"] < 0.5 < attack["interval"]["high"]


def test_a_checkpoint_of_other_data_is_refused(tile, copies, tmp_path, capsys):
    weights = checkpoint(tile, tmp_path / "run", "0123456789abcdef")
    command = audit_of(copies, tile, weights)
    assert main(command) == 2
    assert "fingerprint 0123456789abcdef" in capsys.readouterr().err


def labeled_run(folder: Path, labels: str) -> LoadedCheckpoint:
    """Return what an audit looks at of a run on a folder of graphs with a label file."""
    data = load_folder(FolderConfig(folder=folder, labels=folder / labels))
    run_config = {"data": {"name": "folder", "labels": labels}, "conditions": ["label"]}
    meta = CheckpointMeta(0, 0, data.conditioned_on(["label"]).fingerprint, {})
    sizes = data.schema.sizes()
    statistics = GraphStatistics.measure(data.graphs["train"], sizes)
    spec = ModelSpec("fast", sizes, statistics, {"width": 32, "depth": 1})
    return LoadedCheckpoint(build_model(spec), spec, {}, run_config, meta, Path("best"))


def test_the_label_file_of_a_run_is_found_by_its_name_or_asked_for(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    rows = ["name,label"]
    for i in range(12):
        write_json(folder / f"g{i}.json", chain(f"g{i}", "ab" * (i + 1)))
        rows.append(f"g{i},{i + 1}")
    (folder / "costs.csv").write_text("\n".join(rows))
    run = labeled_run(folder, "costs.csv")
    assert ReferenceData(str(folder)).load_for_checkpoint(run).schema.condition_names == ["label"]
    (folder / "costs.csv").rename(tmp_path / "moved.csv")
    with pytest.raises(UsageError, match="name it with --labels"):
        ReferenceData(str(folder)).load_for_checkpoint(run)
    found = ReferenceData(str(folder), str(tmp_path / "moved.csv")).load_for_checkpoint(run)
    assert found.fingerprint == run.meta.data_fingerprint


def record(samples: Path, **entries: object) -> None:
    """Add entries to the manifest of samples."""
    manifest = samples / "manifest.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), **entries}))


def test_samples_of_the_same_split_are_compared_without_a_warning(tile, copies, capsys):
    record(copies, split=read_dataset(tile).split.to_dict())
    assert main(["audit", "--synthetic", str(copies), "--data", str(tile)]) == 0
    assert "fingerprint" not in capsys.readouterr().err


def test_samples_of_another_split_are_refused(tile, copies, capsys):
    split = read_dataset(tile).split.to_dict()
    record(copies, split={**split, "train": split["test"]})
    assert main(["audit", "--synthetic", str(copies), "--data", str(tile)]) == 2
    complaint = capsys.readouterr().err
    assert "another split" in complaint
    assert "the training graphs differ" in complaint


@dataclass(frozen=True)
class OwnRun:
    """A user's graphs, labels elsewhere, the run's own file, and samples of it."""

    folder: Path
    labels: Path
    run: Path
    samples: Path


@pytest.fixture
def own(tmp_path) -> OwnRun:
    """26, 3 and 3 graphs by a label file that lies elsewhere; the samples are training graphs."""
    folder, labels, run = tmp_path / "graphs", tmp_path / "elsewhere" / "l.csv", tmp_path / "run"
    samples = tmp_path / "samples"
    for path in (folder, labels.parent, run, samples):
        path.mkdir()
    rows = ["name,label,split"]
    for i in range(32):
        write_json(
            folder / f"g{i}.json",
            chain(f"g{i}", f"{i:05b}".translate({48: "a", 49: "b"}) + "a" * i),
        )
        rows.append(f"g{i},{i + 1},{'train' if i < 26 else 'val' if i < 29 else 'test'}")
    labels.write_text("\n".join(rows))
    data = load_folder(FolderConfig(folder=folder, labels=labels))
    write_run_file(
        run,
        run_record(run, {"data": {"name": "folder", "folder": str(folder), "labels": str(labels)}}),
    )
    entries = []
    for name in data.names["train"][:20]:
        write_json(samples / f"{name}.json", read_json(folder / f"{name}.json"))
        entries.append({"name": name, "file": f"{name}.json", "conditions": {}})
    manifest = {"samples": entries, "split": data.split.to_dict(), "data": {"name": "folder"}}
    (samples / "manifest.json").write_text(json.dumps(manifest))
    return OwnRun(folder, labels, run, samples)


def test_few_own_graphs_are_audited_and_not_an_error(own, capsys):
    command = ["audit", "--synthetic", str(own.samples), "--data", str(own.folder)]
    assert main([*command, "--labels", str(own.labels)]) == 0
    printed = capsys.readouterr().out
    assert "20 samples, 26 training and 6 held-out graphs" in printed
    assert "copies of training graphs            100%" in printed
    assert "column 'split'" in printed
    assert "data.held_out" in printed
    assert "no better than chance" not in printed
    assert "safe" not in printed


def test_a_run_knows_its_data_labels_and_split(own, capsys):
    assert main(["audit", "--synthetic", str(own.samples), "--data", str(own.run)]) == 0
    assert "26 training and 6 held-out graphs" in capsys.readouterr().out


def test_the_folder_without_its_label_file_is_another_split(own, capsys):
    # Without the file graphs are split by content and seed, so that others are held out.
    assert main(["audit", "--synthetic", str(own.samples), "--data", str(own.folder)]) == 2
    assert "the label file it was trained with" in capsys.readouterr().err


def test_without_held_out_graphs_copies_are_still_counted(tmp_path, rng, capsys):
    tile = write_tile(tmp_path / "tile", rng, {"train": 6}, layers=5, codes=6)
    samples = write_training_graphs_as_samples(tile, tmp_path / "samples")
    command = ["audit", "--synthetic", str(samples), "--data", str(tile)]
    assert main(command) == 0
    printed = capsys.readouterr().out
    assert "copies of training graphs            100%" in printed
    assert "no graph is held out" in printed
    assert main([*command, "--strict"]) == 1


def flows(folder: Path, start: int, count: int) -> Path:
    folder.mkdir()
    for i in range(start, start + count):
        graph = chain(f"g{i}", "abcab"[: 2 + i % 4] * (1 + i // 4), label=1.0 + i)
        write_json(folder / f"g{i}.json", graph)
    return folder


def test_three_folders_of_flow_graphs_are_audited_into_text_json_and_page(tmp_path, capsys):
    train, holdout = flows(tmp_path / "train", 0, 12), flows(tmp_path / "holdout", 12, 12)
    made = flows(tmp_path / "made", 0, 12)
    (made / "notes.txt").write_text("made from acme_runs_77/x")
    words = ["--train", str(train), "--holdout", str(holdout), "--synthetic", str(made)]
    page = tmp_path / "page.html"
    command = ["audit", *words, "--report", str(page), "--strict"]
    assert main(command) == 1
    printed = capsys.readouterr().out
    assert "12 samples, 12 training and 12 held-out graphs" in printed
    assert "copies of real graphs, new durations 100%" in printed
    assert "honest holdout: AUROC" in printed
    assert "TPR at 1% FPR cannot be told (12 held-out graphs" in printed
    assert "model:depth" in printed
    assert "looked for in 13 files): 0 found" in printed
    assert main([*command, "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["passes"] is False
    assert found["copies"]["copied"] == 1.0
    assert found["words"]["found"] == []
    attacks = {attack["name"]: attack for attack in found["attacks"]}
    assert attacks["nearest_sample"]["holdout"]["others"] == 12
    assert [rate["false_positive_rate"] for rate in attacks["reconstruction"]["rates"]] == [
        0.01, 0.001,
    ]  # fmt: skip
    assert "on an honest holdout" in page.read_text()


def test_an_audit_says_what_it_left_out_and_did_not_understand(tmp_path, capsys):
    train, holdout = flows(tmp_path / "train", 0, 4), flows(tmp_path / "holdout", 4, 4)
    made = flows(tmp_path / "made", 0, 4)
    os.truncate(train / "g1.json", 60)
    sized = chain("sized", "ab")
    write_graphml(made / "sized.graphml", replace(sized, numbers={"cost": np.array([1.0, 7.5])}))
    odd = (made / "sized.graphml").read_text()
    (made / "sized.graphml").write_text(odd.replace("7.5", "inf"))
    words = ["--train", str(train), "--holdout", str(holdout), "--synthetic", str(made)]
    assert main(["audit", *words, "--json"]) == 0
    out, told = capsys.readouterr()
    assert "left out: 1 graph, the first: " in told
    assert "note: " in told
    found = json.loads(out)
    assert found["left_out"] == 1
    assert [(note["kind"], note["count"]) for note in found["notes"]] == [("number", 1)]
    assert str(tmp_path) not in json.dumps(found)


def test_traces_are_audited_and_a_word_of_theirs_is_found(tmp_path, capsys):
    train, holdout = write_jobs(tmp_path / "a", 4), write_jobs(tmp_path / "b", 4, start=50)
    made = write_jobs(tmp_path / "made", 3, start=90)
    words = ["--train", str(train), "--holdout", str(holdout), "--synthetic", str(made)]
    (made / "labels.csv").write_text("name,label\nsecretproj-2,1.5\n")
    assert main(["audit", *words]) == 0
    printed = capsys.readouterr().out
    assert "3 samples, 4 training and 4 held-out graphs" in printed
    assert "labels.csv: holds 'secretproj-2', a word of the private traces." in printed


FOLDERS = ["--train", "a", "--holdout", "b"]
BUDGETED = [*FOLDERS, "--shadows", "--checkpoint", "c", "--shadow-budget"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--train", "a"], "--train FOLDER and --holdout FOLDER, or --data DATA"),
        ([], "--train FOLDER and --holdout FOLDER, or --data DATA"),
        (["--data", "d", "--holdout", "b"], "--train FOLDER and --holdout FOLDER"),
        (["--train", "a", "--holdout", "b", "--labels", "l"], "--labels needs --data"),
        ([*FOLDERS, "--shadows"], "name them with --checkpoint"),
        ([*FOLDERS, "--shadow-steps", "3", "--checkpoint", "c"], "--shadow-steps is for shadow"),
        ([*FOLDERS, "--init", "base"], "--init is for shadow models"),
        ([*FOLDERS, "--shadows", "3", "--checkpoint", "c"], "at least 16 shadow models, found 3"),
        ([*BUDGETED, "soon"], "--shadow-budget is 'soon'; write a time"),
        ([*BUDGETED, "1m", "--shadow-steps", "2"], "leave one of them out"),
    ],
)
def test_wrong_use_is_a_sentence(capsys, words, told):
    assert main(["audit", "--synthetic", "s", *words]) == 2
    assert told in capsys.readouterr().err


def test_the_call_in_python_takes_sets_or_a_data_set(tmp_path):
    train = [chain(f"t{i}", "abc"[: 1 + i % 3] * 2) for i in range(6)]
    holdout = [chain(f"h{i}", "abd"[: 1 + i % 3] * 2) for i in range(6)]
    found = ld.audit(train=train, holdout=holdout, synthetic=train[:4])
    assert (found.train, found.held_out, found.copies.copied) == (6, 6, 1.0)
    assert found.words is None
    with pytest.raises(UsageError, match="neither samples nor data"):
        ld.audit(train[:4], train=train, holdout=holdout)
    with pytest.raises(UsageError, match="needs samples and a data set"):
        ld.audit(train[:4])


def test_the_weights_are_attacked_with_graphs_of_folders(tmp_path):
    checkpoint = chain_checkpoint(tmp_path)
    graphs = [chain(f"g{i}", "abcab"[: 2 + i % 4]) for i in range(8)]
    found = ld.audit(
        train=graphs[:4], holdout=graphs[4:], synthetic=graphs[:2], checkpoint=checkpoint
    )
    assert found.weights[0].name == "likelihood"
    assert found.weights[0].holdout is not None
    assert found.weights[0].holdout.description == "2 held-out graphs pose as training graphs"


def test_shadow_models_are_trained_told_and_kept(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(_settings, "MIN_SHADOWS", 6)
    chain_checkpoint(tmp_path)
    train, holdout = flows(tmp_path / "train", 0, 6), flows(tmp_path / "holdout", 6, 6)
    made = flows(tmp_path / "made", 0, 4)
    words = ["--train", str(train), "--holdout", str(holdout), "--synthetic", str(made)]
    words += ["--checkpoint", str(tmp_path / "model")]
    words += ["--report", str(tmp_path / "page.html")]
    threads = torch.get_num_threads()
    try:
        assert main(["audit", *words, "--shadows", "6", "--shadow-steps", "1"]) == 0
    finally:
        torch.set_num_threads(threads)
    told = capsys.readouterr()
    assert "layerdag: shadow model 6 of 6: 1 steps" in told.err
    assert "attack likelihood_ratio_offline, on the weights" in told.out
    words += ["--shadows", "6", "--shadow-steps", "1", "--json"]
    assert main(["audit", *words]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["shadows"]["models"] == 6
    assert {"likelihood", "likelihood_ratio", "likelihood_ratio_offline"} <= {
        attack["name"] for attack in found["attacks"]
    }
    assert "each of 6 shadow models as the target" in (tmp_path / "page.html").read_text()
    assert len(list((tmp_path / "model.shadows").glob("*.npz"))) == 6
