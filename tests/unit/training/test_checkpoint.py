import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from layerdag.datasets import SplitFingerprint
from layerdag.errors import CheckpointError, UsageError
from layerdag.models import ModelSpec, build_model
from layerdag.training import load_checkpoint
from layerdag.training._checkpoint import (
    CheckpointContents,
    CheckpointMeta,
    export_checkpoint,
    load_trainer_state,
    save_checkpoint,
)


@pytest.fixture
def checkpoint(tmp_path: Path, spec: ModelSpec) -> Path:
    weights = build_model(spec, seed=3).state_dict()
    meta = CheckpointMeta(step=7, seed=3, data_fingerprint="abc", metrics={"node": 1.5})
    state = {"step": 7, "tensor": torch.ones(2)}
    contents = CheckpointContents(spec, weights, {"kind": "flow"}, {"data": "x"}, meta, state)
    save_checkpoint(tmp_path / "last", contents)
    return tmp_path / "last"


def test_loading_gives_back_what_was_saved(checkpoint: Path, spec: ModelSpec):
    loaded = load_checkpoint(checkpoint)
    for name, tensor in build_model(spec, seed=3).state_dict().items():
        assert torch.equal(loaded.model.state_dict()[name], tensor)
    assert not loaded.model.training
    assert loaded.spec.to_dict() == json.loads(json.dumps(spec.to_dict())) or loaded.spec == spec
    assert (loaded.schema, loaded.run_config) == ({"kind": "flow"}, {"data": "x"})
    assert (loaded.meta.step, loaded.meta.metrics) == (7, {"node": 1.5})
    assert torch.equal(load_trainer_state(checkpoint)["tensor"], torch.ones(2))


def test_the_split_comes_back_and_may_be_unknown(checkpoint: Path, tmp_path: Path):
    loaded = load_checkpoint(checkpoint)
    assert loaded.meta.split is None
    split = SplitFingerprint("a1", "b2", "")
    meta = replace(loaded.meta, split=split)
    run = {"data": {"name": "folder", "folder": "/home/me/secret", "labels": "l.csv", "seed": 3}}
    weights = loaded.model.state_dict()
    save_checkpoint(tmp_path / "new", CheckpointContents(loaded.spec, weights, {}, run, meta))
    again = load_checkpoint(tmp_path / "new")
    assert again.meta.split == split
    assert again.data_settings == {"name": "folder", "seed": 3}
    edit("meta.json", lambda meta: meta.pop("split"))(tmp_path / "new")
    with pytest.raises(CheckpointError, match="cannot be read"):
        load_checkpoint(tmp_path / "new")


def test_an_export_holds_no_trainer_state(checkpoint: Path, tmp_path: Path):
    export_checkpoint(checkpoint, tmp_path / "small")
    load_checkpoint(tmp_path / "small")
    with pytest.raises(CheckpointError, match="sampling only"):
        load_trainer_state(tmp_path / "small")


def edit(name: str, change: Callable[[dict], None]) -> Callable[[Path], None]:
    """Return a fault that changes a JSON file."""

    def fault(path: Path) -> None:
        data = json.loads((path / name).read_text())
        change(data)
        (path / name).write_text(json.dumps(data))

    return fault


def cut(name: str) -> Callable[[Path], None]:
    """Return a fault that cuts a file in half."""

    def fault(path: Path) -> None:
        data = (path / name).read_bytes()
        (path / name).write_bytes(data[: len(data) // 2])

    return fault


FAULTS = {
    "meta missing": (lambda p: (p / "meta.json").unlink(), "meta.json is missing"),
    "weights missing": (lambda p: (p / "weights.safetensors").unlink(), "incomplete"),
    "weights cut": (cut("weights.safetensors"), "cannot be read"),
    "config cut": (cut("config.json"), r"cannot be read \((Expecting|Unterminated)"),
    "no seed": (
        edit("meta.json", lambda d: d.pop("seed")),
        r"meta\.json cannot be read \('seed'\)",
    ),
    "config is a list": (lambda p: (p / "config.json").write_text("[]"), "JSON object"),
    "config too large": (
        lambda p: os.truncate(p / "config.json", 64 * 2**20 + 1),
        "larger than 64 MiB",
    ),
    "schema missing": (lambda p: (p / "schema.json").unlink(), "schema.json is missing"),
    "other format": (edit("meta.json", lambda d: d.update(format_version=99)), "format 99"),
    "step below 0": (
        edit("meta.json", lambda d: d.update(step=-1)),
        "found -1 where a whole number belongs",
    ),
    "step of 2**63": (
        edit("meta.json", lambda d: d.update(step=1 << 63)),
        "where a whole number belongs",
    ),
    "step is a fraction": (edit("meta.json", lambda d: d.update(step=1.0)), r"found 1\.0 where"),
    "old and unknown": (
        edit("meta.json", lambda d: (d.update(format_version=1), d.pop("layerdag_version"))),
        r"written by layerdag unknown\. Convert it with|written by layerdag unknown\. Train",
    ),
    "unknown model": (
        edit("config.json", lambda d: d["model"].update(name="os.system")),
        "no model",
    ),
    "unknown argument": (
        edit("config.json", lambda d: d["model"]["arguments"]["edge"].update(widht=3)),
        "Did you mean 'model.edge.width'",
    ),
    "wrong argument": (
        edit("config.json", lambda d: d["model"]["arguments"]["edge"].update(width="8")),
        "'model.edge.width' must be a whole number",
    ),
    "another width": (
        edit("config.json", lambda d: d["model"]["arguments"]["edge"].update(width=16)),
        "not of one checkpoint",
    ),
    "absurd width": (
        edit("config.json", lambda d: d["model"]["arguments"]["edge"].update(width=2**20)),
        "must be from 1 to 8192",
    ),
    "no sizes": (edit("config.json", lambda d: d["model"].pop("sizes")), "cannot be read"),
    "negative sizes": (
        edit("config.json", lambda d: d["model"]["sizes"].update(attributes=[-1])),
        "positive",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_damaged_checkpoint_is_one_sentence(checkpoint: Path, name: str):
    fault, words = FAULTS[name]
    fault(checkpoint)
    with pytest.raises(CheckpointError, match=words) as caught:
        load_checkpoint(checkpoint)
    assert str(checkpoint.name) in str(caught.value)


def test_the_smallest_and_largest_numbers_of_a_record_are_read(checkpoint: Path):
    edit("meta.json", lambda d: d.update(step=0, seed=(1 << 63) - 1))(checkpoint)
    meta = load_checkpoint(checkpoint).meta
    assert (meta.step, meta.seed) == (0, (1 << 63) - 1)
    assert (meta.torch_version, meta.data_fingerprint) == (str(torch.__version__), "abc")
    assert meta.origin is None


def test_an_export_over_another_one_needs_a_word(checkpoint: Path, tmp_path: Path):
    export_checkpoint(checkpoint, tmp_path / "small")
    with pytest.raises(UsageError, match="overwrite"):
        export_checkpoint(checkpoint, tmp_path / "small")
    export_checkpoint(checkpoint, tmp_path / "small", overwrite=True)
    assert load_checkpoint(tmp_path / "small").meta.step == 7


def test_the_order_of_keys_does_not_change_a_file(checkpoint: Path, tmp_path: Path):
    loaded = load_checkpoint(checkpoint)
    for name, schema in (("one", {"a": 1, "b": 2}), ("two", {"b": 2, "a": 1})):
        weights = loaded.model.state_dict()
        contents = CheckpointContents(loaded.spec, weights, schema, {}, loaded.meta)
        save_checkpoint(tmp_path / name, contents)
    texts = [(tmp_path / name / "schema.json").read_bytes() for name in ("one", "two")]
    assert texts[0] == texts[1]


def test_a_damaged_trainer_state_is_one_sentence(checkpoint: Path):
    cut("trainer.pt")(checkpoint)
    with pytest.raises(CheckpointError, match=r"trainer\.pt cannot be read"):
        load_trainer_state(checkpoint)


def test_a_pickle_is_not_executed(checkpoint: Path, tmp_path: Path):
    class Evil:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "executed",))

    torch.save({"step": Evil()}, checkpoint / "trainer.pt")
    with pytest.raises(CheckpointError):
        load_trainer_state(checkpoint)
    assert not (tmp_path / "executed").exists()


def test_the_folder_above_names_the_checkpoint_inside(checkpoint: Path):
    with pytest.raises(CheckpointError, match=r"did you mean .*last"):
        load_checkpoint(checkpoint.parent)


def test_a_missing_folder_is_one_sentence(tmp_path: Path):
    with pytest.raises(CheckpointError, match="not a checkpoint directory"):
        load_checkpoint(tmp_path / "nowhere")
