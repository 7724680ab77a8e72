"""Weights of a checkpoint: where they come from, their shapes, and whether they fit into memory."""

from dataclasses import asdict
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from layerdag.errors import CheckpointError
from layerdag.models import ModelSpec, build_model
from layerdag.training import _weights
from layerdag.training._checkpoint import CheckpointMeta
from layerdag.training._weights import Origin, check_finite, check_shapes

MIB = 1 << 20


@pytest.fixture
def weights(tmp_path: Path, spec: ModelSpec) -> Path:
    save_file(build_model(spec).state_dict(), tmp_path / "weights.safetensors")
    return tmp_path / "weights.safetensors"


def test_an_origin_survives_plain_data() -> None:
    origin = Origin("pretrained", "f00", 5000, "da7a")
    assert Origin.from_dict(asdict(origin)) == origin


@pytest.mark.parametrize("step", [None, "7", 7.5, True])
def test_what_an_origin_lacks_is_empty(step: object) -> None:
    assert Origin.from_dict({"name": "run", "step": step}) == Origin("run", "", 0, "")
    assert Origin.from_dict({}) == Origin("", "")


@pytest.mark.parametrize("data", [None, "pretrained", ["run"], 3])
def test_what_is_no_origin_is_none(data: object) -> None:
    assert Origin.from_dict(data) is None
    assert CheckpointMeta().origin is None


def test_the_weights_of_the_model_are_accepted(weights: Path, spec: ModelSpec) -> None:
    check_shapes(weights, spec)
    check_finite(weights, build_model(spec))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda w, name: w.pop(name), "has shape none but the model .* needs ("),
        (lambda w, name: w.update(alien=torch.ones(3)), "'alien' has shape (3,) but .* needs none"),
        (lambda w, name: w.update({name: torch.ones(1, 2)}), "has shape (1, 2) but the model"),
    ],
)
def test_a_tensor_that_is_not_the_models_is_named(
    weights: Path, spec: ModelSpec, change, sentence: str
) -> None:
    found = build_model(spec).state_dict()
    change(found, next(iter(found)))
    save_file(found, weights)
    with pytest.raises(CheckpointError, match=sentence.replace("(", r"\(").replace(")", r"\)")):
        check_shapes(weights, spec)


def test_weights_take_at_most_a_third_of_the_free_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_weights, "memory_left", lambda: 3 * 128 * MIB)
    _weights._check_memory(Path("w"), [(32 * MIB,)])  # 128 MiB of four-byte numbers
    with pytest.raises(CheckpointError, match=r"w: the model has 0\.1 GiB of weights, more than a"):
        _weights._check_memory(Path("w"), [(32 * MIB,), (1,)])
    monkeypatch.setattr(_weights, "memory_left", lambda: 4 * 128 * MIB - 4)
    _weights._check_memory(Path("w"), [(40 * MIB,)])


def test_sixty_four_mebibytes_are_loaded_without_asking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_weights, "memory_left", lambda: 0)
    _weights._check_memory(Path("w"), [(16, MIB)])
    with pytest.raises(CheckpointError, match="more than a third of the memory"):
        _weights._check_memory(Path("w"), [(16, MIB), (1,)])


def test_a_number_that_is_none_is_named(spec: ModelSpec) -> None:
    model = build_model(spec)
    next(model.parameters()).data.fill_(float("nan"))
    with pytest.raises(CheckpointError, match=r"weights\.safetensors"):
        check_finite(Path("weights.safetensors"), model)
