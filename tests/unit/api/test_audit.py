import json
from dataclasses import replace
from pathlib import Path

import pytest
from raw_graphs import chain
from tiny_checkpoints import chain_checkpoint

import layerdag as ld
from layerdag.datasets.files import write_json
from layerdag.errors import UsageError
from layerdag.training._checkpoint import CheckpointContents, save_checkpoint

GRAPHS = [chain(f"g{i}", "abcab"[: 2 + i % 4] * (1 + i // 4), label=1.0 + i) for i in range(24)]
DATA = ld.GraphDataset.build(
    "chains", "flow", {"train": GRAPHS[:12], "val": GRAPHS[12:18], "test": GRAPHS[18:]}
)


def test_copies_of_training_graphs_are_told(tmp_path: Path) -> None:
    found = ld.audit(GRAPHS[:12], DATA)
    assert (found.train, found.held_out, found.novelty.copied) == (12, 12, 1.0)
    assert not found.passes
    assert str(found).startswith("12 samples, 12 training and 12 held-out graphs\n")
    assert "copies of training graphs            100%" in str(found)


def test_the_weights_are_attacked_with_the_conditions_they_know(tmp_path: Path) -> None:
    settings = ld.TrainSettings(max_steps=1, evaluate_every=1)
    named = [chain(g.name, "".join(g.categories["kind"]), **g.conditions, size=1.0) for g in GRAPHS]
    data = ld.GraphDataset.build(
        "chains", "flow", {"train": named[:12], "val": named[12:18], "test": named[18:]}
    )
    checkpoint = ld.train(data.conditioned_on(["label"]), settings=settings, width=32, depth=1)
    weights = ld.audit(ld.sample(checkpoint, num=3), data, checkpoint).weights
    assert all(0 <= attack.auc <= 1 for attack in weights)
    assert "likelihood" in weights[0].name


def test_a_checkpoint_of_another_split_is_refused(tmp_path: Path) -> None:
    checkpoint = chain_checkpoint(tmp_path)
    with pytest.raises(UsageError, match="split"):
        ld.audit(ld.sample(checkpoint, num=2), DATA, checkpoint)


def written(folder: Path, split: object) -> Path:
    """Write training graphs as ``layerdag sample`` writes samples."""
    folder.mkdir()
    entries = []
    for graph in GRAPHS[:6]:
        write_json(folder / f"{graph.name}.json", graph)
        entries.append({"name": graph.name, "file": f"{graph.name}.json", "conditions": {}})
    (folder / "manifest.json").write_text(json.dumps({"samples": entries, "split": split}))
    return folder


def test_a_folder_of_samples_is_audited_unless_it_is_of_another_split(tmp_path: Path) -> None:
    found = ld.audit(written(tmp_path / "same", DATA.split.to_dict()), DATA)
    assert (found.novelty.graphs, found.novelty.copied) == (6, 1.0)
    assert "tells training graphs apart" in str(found) or "too few graphs to tell" in str(found)
    other = {**DATA.split.to_dict(), "test": "0" * 32}
    with pytest.raises(UsageError, match="the test graphs differ"):
        ld.audit(str(written(tmp_path / "other", other)), DATA)


def test_without_held_out_graphs_copies_are_counted_and_nothing_else(tmp_path: Path) -> None:
    alone = ld.GraphDataset.build("chains", "flow", {"train": GRAPHS[:12]})
    found = ld.audit(GRAPHS[:4], alone, chain_checkpoint_of(alone, tmp_path))
    assert (found.held_out, found.leaks, found.weights, found.neighborhoods) == (0, (), (), ())
    assert not found.passes
    assert found.novelty.copied == 1.0
    assert "no graph is held out" in found.advice
    assert found.advice in str(found)


def chain_checkpoint_of(data: ld.GraphDataset, folder: Path) -> Path:
    """Return the folder of an untrained checkpoint that was split as ``data``."""
    loaded = chain_checkpoint(folder)
    meta = replace(loaded.meta, split=data.split)
    contents = CheckpointContents(
        loaded.spec, loaded.model.state_dict(), dict(loaded.schema), {}, meta
    )
    save_checkpoint(folder / "same", contents)
    return folder / "same"
