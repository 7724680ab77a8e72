import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from raw_graphs import chain
from tiny_checkpoints import chain_checkpoint

import layerdag as ld
from layerdag.api import audit_of
from layerdag.datasets import encoded
from layerdag.datasets.files import write_json
from layerdag.errors import UsageError
from layerdag.graph import DAG
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
    weights = ld.audit(ld.sample(checkpoint, num=3, max_nodes=6), data, checkpoint).weights
    assert all(0 <= attack.auc <= 1 for attack in weights)
    assert "likelihood" in weights[0].name


def test_a_checkpoint_of_another_split_is_refused(tmp_path: Path) -> None:
    checkpoint = chain_checkpoint(tmp_path)
    with pytest.raises(UsageError, match="split"):
        ld.audit(ld.sample(checkpoint, num=2, max_nodes=6), DATA, checkpoint)


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
    assert (found.held_out, found.leaks, found.weights) == (0, (), ())
    assert (found.neighborhoods, found.local) == ((), ())
    assert not found.passes
    assert found.novelty.copied == 1.0
    assert "no graph is held out" in found.advice
    assert found.advice in str(found)


def test_local_structure_is_told_of_valid_samples_beside_that_of_held_out_graphs() -> None:
    made = encoded(GRAPHS[:6], DATA.schema)
    ring = DAG.build(torch.zeros((2, 1), dtype=torch.int64), torch.tensor([[0, 1], [1, 0]]))
    found = audit_of(DATA, [*made, ring])
    assert found.structure.valid_B.tolist() == [True] * 6 + [False]
    rows = {row.metric.name: row for row in found.local}
    assert rows["path_novelty:2"].generated.value == 0.0
    assert "step_without_gradient" not in rows
    head = next(i for i, line in enumerate(str(found).splitlines()) if "local structure" in line)
    shown = [line.split()[0] for line in str(found).splitlines()[head + 1 : head + 5]]
    assert shown == ["type_hashes", "path_novelty:2", "path_novelty:3", "path_novelty:4"]
    assert audit_of(DATA, [ring]).local == ()


def chain_checkpoint_of(data: ld.GraphDataset, folder: Path) -> Path:
    """Return the folder of an untrained checkpoint that was split as ``data``."""
    loaded = chain_checkpoint(folder)
    meta = replace(loaded.meta, split=data.split)
    contents = CheckpointContents(
        loaded.spec, loaded.model.state_dict(), dict(loaded.schema), {}, meta
    )
    save_checkpoint(folder / "same", contents)
    return folder / "same"
