"""Checkpoints: those that ship, what is written, and what is refused of others."""

import json
import os
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch
from killing import states_when_killed
from private_jobs import GUARANTEE
from safetensors.torch import save_file

from layerdag.datasets.splits import SplitFingerprint
from layerdag.errors import CheckpointError, UsageError
from layerdag.models.spec import build_model
from layerdag.runtime.json_shape import from_json
from layerdag.training import checkpoint as _weights
from layerdag.training.checkpoint import (
    SHIPPED,
    CheckpointMeta,
    Guarantee,
    check_finite,
    check_shapes,
    export_checkpoint,
    load_checkpoint,
    load_trainer_state,
    pretrained_checkpoint,
    save_checkpoint,
)


@pytest.mark.parametrize("name", SHIPPED)
def test_it_is_small_enough_to_ship(name):
    files = [*pretrained_checkpoint(name).iterdir()]
    assert sum(path.stat().st_size for path in files) <= 5_000_000


@pytest.mark.parametrize("given", [GUARANTEE, replace(GUARANTEE, epsilon=None, lower_bound=0.4)])
def test_it_survives_json(given):
    plain = json.loads(json.dumps(asdict(given), allow_nan=False))
    assert from_json(Guarantee, plain) == given


@pytest.mark.parametrize(
    "damage", [{"epsilon": "3"}, {"delta": True}, {"steps": float("nan")}, {"clip": None}]
)
def test_another_type_is_refused(damage):
    (name,) = damage
    with pytest.raises(ValueError, match=f"'privacy.{name}' must be "):
        from_json(Guarantee, {**asdict(GUARANTEE), **damage}, "privacy")


def test_it_says_what_is_promised_and_that_without_noise_nothing_is():
    assert str(GUARANTEE).startswith(
        "(epsilon = 3, delta = 0.001) differential privacy of each run"
    )
    assert "nothing is promised" in str(replace(GUARANTEE, epsilon=None))


@pytest.fixture
def checkpoint(tmp_path, spec) -> Path:
    weights = build_model(spec, seed=3).state_dict()
    meta = CheckpointMeta(step=7, seed=3, data_fingerprint="abc", metrics={"node": 1.5})
    state = {"step": 7, "tensor": torch.ones(2)}
    contents = (spec, weights, {"kind": "flow"}, {"data": "x"}, meta, state)
    save_checkpoint(tmp_path / "last", *contents)
    return tmp_path / "last"


def test_loading_gives_back_what_was_saved(checkpoint, spec):
    loaded = load_checkpoint(checkpoint)
    for name, tensor in build_model(spec, seed=3).state_dict().items():
        assert torch.equal(loaded.model.state_dict()[name], tensor)
    assert not loaded.model.training
    assert loaded.spec.to_dict() == json.loads(json.dumps(spec.to_dict())) or loaded.spec == spec
    assert (loaded.schema, loaded.run_config) == ({"kind": "flow"}, {"data": "x"})
    assert (loaded.meta.step, loaded.meta.metrics) == (7, {"node": 1.5})
    assert torch.equal(load_trainer_state(checkpoint)["tensor"], torch.ones(2))


def test_the_split_comes_back_and_may_be_unknown(checkpoint, tmp_path):
    loaded = load_checkpoint(checkpoint)
    assert loaded.meta.split is None
    split = SplitFingerprint("a1", "b2", "")
    meta = replace(loaded.meta, split=split)
    run = {"data": {"name": "folder", "folder": "/home/me/secret", "labels": "l.csv", "seed": 3}}
    weights = loaded.model.state_dict()
    save_checkpoint(tmp_path / "new", *(loaded.spec, weights, {}, run, meta))
    again = load_checkpoint(tmp_path / "new")
    assert again.meta.split == split
    assert again.data_settings == {"name": "folder", "seed": 3}
    edit("meta.json", lambda meta: meta.pop("split"))(tmp_path / "new")
    with pytest.raises(CheckpointError, match="cannot be read"):
        load_checkpoint(tmp_path / "new")


def test_an_export_holds_no_trainer_state(checkpoint, tmp_path):
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
        r"meta\.json cannot be read \('seed' is missing\)",
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
    "step is a fraction": (
        edit("meta.json", lambda d: d.update(step=1.0)),
        r"'step' must be a whole number, found 1\.0",
    ),
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
def test_a_damaged_checkpoint_is_one_sentence(checkpoint, name):
    fault, words = FAULTS[name]
    fault(checkpoint)
    with pytest.raises(CheckpointError, match=words) as caught:
        load_checkpoint(checkpoint)
    assert str(checkpoint.name) in str(caught.value)


def test_the_smallest_and_largest_numbers_of_a_record_are_read(checkpoint):
    edit("meta.json", lambda d: d.update(step=0, seed=(1 << 63) - 1))(checkpoint)
    meta = load_checkpoint(checkpoint).meta
    assert (meta.step, meta.seed) == (0, (1 << 63) - 1)
    assert (meta.torch_version, meta.data_fingerprint) == (str(torch.__version__), "abc")
    assert meta.origin is None


def test_an_export_over_another_one_needs_a_word(checkpoint, tmp_path):
    export_checkpoint(checkpoint, tmp_path / "small")
    with pytest.raises(UsageError, match="overwrite"):
        export_checkpoint(checkpoint, tmp_path / "small")
    export_checkpoint(checkpoint, tmp_path / "small", overwrite=True)
    assert load_checkpoint(tmp_path / "small").meta.step == 7


def test_a_kill_at_any_step_leaves_the_older_checkpoint_or_the_new_one(tmp_path, spec):
    def save(seed: int) -> None:
        weights = build_model(spec, seed=seed).state_dict()
        meta = CheckpointMeta(step=seed, seed=seed, data_fingerprint=f"of {seed}")
        save_checkpoint(
            tmp_path / "last",
            *(spec, weights, {"kind": f"{seed}"}, {}, meta, {"step": seed}),
            overwrite=True,
        )

    def look() -> str:
        loaded = load_checkpoint(tmp_path / "last")
        seed = loaded.meta.step
        assert loaded.schema == {"kind": f"{seed}"}
        for name, tensor in build_model(spec, seed=seed).state_dict().items():
            assert torch.equal(loaded.model.state_dict()[name], tensor)
        return str(seed)

    seen = states_when_killed(lambda: save(1), lambda: save(2), look)
    assert set(seen) == {"1", "2"}
    assert seen == sorted(seen)


def test_the_order_of_keys_does_not_change_a_file(checkpoint, tmp_path):
    loaded = load_checkpoint(checkpoint)
    for name, schema in (("one", {"a": 1, "b": 2}), ("two", {"b": 2, "a": 1})):
        weights = loaded.model.state_dict()
        contents = (loaded.spec, weights, schema, {}, loaded.meta)
        save_checkpoint(tmp_path / name, *contents)
    texts = [(tmp_path / name / "schema.json").read_bytes() for name in ("one", "two")]
    assert texts[0] == texts[1]


def test_a_damaged_trainer_state_is_one_sentence(checkpoint):
    cut("trainer.pt")(checkpoint)
    with pytest.raises(CheckpointError, match=r"trainer\.pt cannot be read"):
        load_trainer_state(checkpoint)


def test_a_pickle_is_not_executed(checkpoint, tmp_path):
    class Evil:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "executed",))

    torch.save({"step": Evil()}, checkpoint / "trainer.pt")
    with pytest.raises(CheckpointError):
        load_trainer_state(checkpoint)
    assert not (tmp_path / "executed").exists()


def test_the_folder_above_names_the_checkpoint_inside(checkpoint):
    with pytest.raises(CheckpointError, match=r"did you mean .*last"):
        load_checkpoint(checkpoint.parent)


def test_a_missing_folder_is_one_sentence(tmp_path):
    with pytest.raises(CheckpointError, match="not a checkpoint directory"):
        load_checkpoint(tmp_path / "nowhere")


MIB = 1 << 20


@pytest.fixture
def weights(tmp_path, spec) -> Path:
    save_file(build_model(spec).state_dict(), tmp_path / "weights.safetensors")
    return tmp_path / "weights.safetensors"


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda w, name: w.pop(name), "has shape none but the model .* needs ("),
        (lambda w, name: w.update(alien=torch.ones(3)), "'alien' has shape (3,) but .* needs none"),
        (lambda w, name: w.update({name: torch.ones(1, 2)}), "has shape (1, 2) but the model"),
    ],
)
def test_a_tensor_that_is_not_the_models_is_named(weights, spec, change, sentence):
    found = build_model(spec).state_dict()
    change(found, next(iter(found)))
    save_file(found, weights)
    with pytest.raises(CheckpointError, match=sentence.replace("(", r"\(").replace(")", r"\)")):
        check_shapes(weights, spec)


def test_weights_take_at_most_a_third_of_the_free_memory(monkeypatch):
    monkeypatch.setattr(_weights, "available_memory", lambda: 3 * 128 * MIB)
    _weights._check_memory(Path("w"), [(32 * MIB,)])  # 128 MiB of four-byte numbers
    with pytest.raises(CheckpointError, match=r"w: the model has 0\.1 GiB of weights, more than a"):
        _weights._check_memory(Path("w"), [(32 * MIB,), (1,)])
    monkeypatch.setattr(_weights, "available_memory", lambda: 4 * 128 * MIB - 4)
    _weights._check_memory(Path("w"), [(40 * MIB,)])


def test_sixty_four_mebibytes_are_loaded_without_asking(monkeypatch):
    monkeypatch.setattr(_weights, "available_memory", lambda: 0)
    _weights._check_memory(Path("w"), [(16, MIB)])
    with pytest.raises(CheckpointError, match="more than a third of the memory"):
        _weights._check_memory(Path("w"), [(16, MIB), (1,)])


def test_a_number_that_is_none_is_named(spec):
    model = build_model(spec)
    next(model.parameters()).data.fill_(float("nan"))
    with pytest.raises(CheckpointError, match=r"weights\.safetensors"):
        check_finite(Path("weights.safetensors"), model)
