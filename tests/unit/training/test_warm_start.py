"""A run starts from the weights of a checkpoint whose codes mean the same."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from small_job_models import TINY, data_of, jobs

import layerdag as ld
from layerdag.datasets.dataset import GraphDataset
from layerdag.errors import CheckpointError, ConfigError
from layerdag.kinds.registry import graph_kind
from layerdag.training.checkpoint import (
    Origin,
    checkpoint_fingerprint,
    checkpoint_schema,
    load_checkpoint,
)
from layerdag.training.settings import OptimizerConfig
from layerdag.training.warm_start import first_difference, warm_start

SETTINGS = ld.TrainSettings(max_steps=1, evaluate_every=1, optimizer=OptimizerConfig(1e-9))


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """Return the folder of a run on some jobs."""
    folder = tmp_path_factory.mktemp("runs") / "first"
    settings = ld.TrainSettings(max_steps=2, evaluate_every=2)
    ld.train(data_of(jobs()), out=folder, settings=settings, **TINY["fast"])
    return folder


def test_a_run_starts_from_another_ones_weights_and_says_so(run, tmp_path):
    schema = checkpoint_schema(load_checkpoint(run / "best"))
    parts = {"train": jobs(5, first=4), "val": jobs(3, first=9)}
    data = GraphDataset.with_schema("others", schema, parts)
    checkpoint = ld.train(data, init=run, out=tmp_path / "second", settings=SETTINGS)
    first = ld.load_checkpoint(run / "best")
    assert checkpoint.spec.arguments["width"] == 32
    for name in ("encoder.0.mix.weight", "heads.pointer.query.weight"):
        found, wanted = checkpoint.model.state_dict()[name], first.model.state_dict()[name]
        assert torch.allclose(found, wanted, atol=1e-6)
    fingerprint = checkpoint_fingerprint(run / "best")
    origin = Origin("first", fingerprint, 2, first.meta.data_fingerprint)
    assert checkpoint.meta.origin == origin
    assert str(run.parent) not in (tmp_path / "second/best/meta.json").read_text()
    assert ld.load_checkpoint(run / "best").meta.origin is None


def test_the_sentence_names_the_checkpoint_and_its_step(run):
    assert str(warm_start(run / "last", data_of(jobs()))) == "starts from first (step 2)"


def test_weights_of_other_words_are_refused_by_the_first_difference(run):
    with pytest.raises(ConfigError, match="jobs: attribute 'op' is not that of the data that 'pre"):
        warm_start("pretrained", data_of(jobs()))


def test_each_part_of_a_schema_that_weights_depend_on_is_compared():
    schema = data_of(jobs()).schema
    assert first_difference(schema, replace(schema)) == ""
    number, category = schema.numeric_conditions[0], schema.category_conditions[0]
    for changes, told in (
        ({"kind": graph_kind("flow")}, "kind 'trace'"),
        ({"attributes": schema.attributes[:-1]}, f"attribute '{schema.attributes[-1].name}'"),
        ({"edge_types": (*schema.edge_types, "new")}, "edge type 'new'"),
        ({"numeric_conditions": schema.numeric_conditions[1:]}, f"condition '{number.name}'"),
        ({"category_conditions": ()}, f"condition '{category.name}'"),
    ):
        assert first_difference(schema, replace(schema, **changes)) == told


def test_what_cannot_be_started_from_is_refused(run, tmp_path):
    data = data_of(jobs())
    with pytest.raises(ConfigError, match=r"model.depth=2 contradicts .* depth=1"):
        ld.train(data, init=run, depth=2)
    with pytest.raises(ConfigError, match="'reference' cannot start from"):
        ld.train(data, "reference", init=run)
    with pytest.raises(CheckpointError, match="is not a checkpoint directory"):
        ld.train(data, init=tmp_path / "nothing")


def test_weights_that_are_not_finite_are_refused(run, tmp_path):
    from safetensors.torch import load_file, save_file

    bad = tmp_path / "bad"
    bad.mkdir()
    for file in (run / "best").iterdir():
        (bad / file.name).write_bytes(file.read_bytes())
    weights = load_file(bad / "weights.safetensors")
    weights["heads.context.bias"][0] = float("nan")
    save_file(weights, bad / "weights.safetensors")
    with pytest.raises(CheckpointError, match="NaN or infinite"):
        warm_start(bad, data_of(jobs()))
