"""Checkpoints with names of weights of earlier versions: same outputs, and resumed to the bit."""

import json
from importlib.resources import files
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_checkpoints import chain_checkpoint

from layerdag.errors import CheckpointError
from layerdag.graph import DAGBatch
from layerdag.models import ModelSpec, SampleRequest
from layerdag.training import TrainingRun, TrainSettings, load_checkpoint, train
from layerdag.training._checkpoint import FORMAT_VERSION, load_trainer_state
from layerdag.training._weights import (
    OLD_PREFIXES,
    present_name,
    with_present_names,
    with_present_state,
)

NEW_PREFIXES = {new: old for old, new in OLD_PREFIXES.items()}


def old_name(name: str) -> str:
    """Return what a weight was called in format 3."""
    head, dot, tail = name.partition(".")
    return NEW_PREFIXES.get(head + dot, head + dot) + tail


def with_old_names(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {old_name(name): tensor for name, tensor in weights.items()}


def age(folder: Path) -> None:
    """Turn a checkpoint into one as format 3 wrote it."""
    weights = load_file(folder / "weights.safetensors")
    assert with_old_names(weights).keys() != weights.keys()
    save_file(with_old_names(weights), folder / "weights.safetensors")
    meta = json.loads((folder / "meta.json").read_text())
    (folder / "meta.json").write_text(json.dumps({**meta, "format_version": 3}))


def age_trainer(folder: Path) -> None:
    """Turn what resuming needs into what format 3 wrote."""
    state = torch.load(folder / "trainer.pt", weights_only=True)
    state["model"] = with_old_names(state["model"])
    state["average"]["shadow"] = with_old_names(state["average"]["shadow"])
    for group in state["tracks"].values():
        group["weights"] = with_old_names(group["weights"])
    torch.save(state, folder / "trainer.pt")


@pytest.mark.parametrize(
    ("name", "present"),
    [
        ("trunk.0.mix.weight", "encoder.0.mix.weight"),
        ("judge.answer.2.bias", "posterior.answer.2.bias"),
        ("heads.trunk.weight", "heads.trunk.weight"),
        ("judgement.weight", "judgement.weight"),
        ("encoder.0.mix.weight", "encoder.0.mix.weight"),
    ],
)
def test_names_change_at_their_beginning_alone(name: str, present: str) -> None:
    assert present_name(name) == present


def test_a_weight_under_both_names_is_not_overwritten() -> None:
    both = {"trunk.a": 1, "encoder.a": 2, "judge.b": 3}
    assert with_present_names(both) == {"trunk.a": 1, "encoder.a": 2, "posterior.b": 3}


@pytest.mark.parametrize(
    "state",
    [{}, {"model": 3}, {"average": {"shadow": None}}, {"tracks": [1]}, {"tracks": {"node": 0}}],
)
def test_what_train_did_not_write_is_returned_as_it_is(state: dict) -> None:
    converted = with_present_state(state)
    assert converted == state


def test_an_old_checkpoint_samples_and_predicts_the_same_bits(tmp_path: Path) -> None:
    present = chain_checkpoint(tmp_path)
    age(present.path)
    old = load_checkpoint(present.path)
    assert old.meta.format_version == FORMAT_VERSION
    for name, tensor in present.model.state_dict().items():
        assert torch.equal(old.model.state_dict()[name], tensor), name
    numeric_BC = torch.zeros(3, present.spec.sizes.numeric_conditions)
    category_BM = torch.zeros(3, len(present.spec.sizes.category_conditions), dtype=torch.long)
    request = SampleRequest(numeric_BC, category_BM, (1, 2, 3), max_nodes=8, max_layers=5)
    drawn, again = (checkpoint.model.sample(request) for checkpoint in (present, old))
    batch = DAGBatch.of(list(drawn.dags), numeric_BC, category_BM)
    for first, second in zip(drawn.dags, again.dags, strict=True):
        assert torch.equal(first.x_NA, second.x_NA)
    found = [checkpoint.model.predict_numeric_conditions(batch) for checkpoint in (present, old)]
    assert torch.equal(found[0], found[1])


def test_a_file_with_a_weight_under_both_names_is_refused(tmp_path: Path) -> None:
    folder = chain_checkpoint(tmp_path).path
    weights = load_file(folder / "weights.safetensors")
    name = next(name for name in weights if old_name(name) != name)
    save_file({**weights, old_name(name): weights[name].clone()}, folder / "weights.safetensors")
    with pytest.raises(CheckpointError, match=f"tensor '{old_name(name)}' has shape"):
        load_checkpoint(folder)


def test_a_run_that_format_3_began_is_resumed_to_the_bit(
    data: DAGBatch, spec: ModelSpec, tmp_path: Path
) -> None:
    spec = ModelSpec("fast", spec.sizes, spec.statistics, {"width": 32, "depth": 1})
    ends = []
    for name in ("present", "old"):
        job = TrainingRun(spec, data, data, tmp_path / name, schema={"kind": "flow"})
        first = train(job, TrainSettings(max_steps=2, batch_graphs=6, evaluate_every=1))
        if name == "old":
            age(first.last)
            age_trainer(first.last)
        settings = TrainSettings(max_steps=4, batch_graphs=6, evaluate_every=1)
        last = train(job, settings, resume_from=first.last).last
        ends.append(load_trainer_state(last)["model"])
    assert ends[0].keys() == ends[1].keys()
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in ends[0])


def test_the_shipped_checkpoint_loads_whatever_names_it_has() -> None:
    folder = Path(str(files("layerdag"))) / "pretrained" / "corpus"
    written = load_file(folder / "weights.safetensors")
    loaded = load_checkpoint(folder).model.state_dict()
    assert all(torch.equal(loaded[present_name(name)], tensor) for name, tensor in written.items())
    assert any(name.startswith("posterior.") for name in loaded)
