"""A checkpoint from outside that is wrong in any way is one sentence, soon and in little memory."""

import contextlib
import json
import math
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from raw_graphs import chain

from layerdag.dag.statistics import GraphStatistics
from layerdag.datasets.dataset import GraphDataset
from layerdag.errors import CheckpointError
from layerdag.models.spec import ModelSpec, build_model
from layerdag.sampling.generation import generate
from layerdag.sampling.settings import GenerationSettings
from layerdag.training.checkpoint import (
    CheckpointMeta,
    checkpoint_schema,
    load_checkpoint,
    load_trainer_state,
    save_checkpoint,
)

Fault = Callable[[Path], None]
CELL = ("condition_table", "cells", 0)


@pytest.fixture(scope="module")
def sound(tmp_path_factory) -> Path:
    graphs = [chain(f"g{i}", "abcab"[: 2 + i % 4], label=1.0 + i) for i in range(8)]
    data = GraphDataset.build("chains", "flow", {"train": graphs})
    sizes = data.schema.sizes()
    statistics = GraphStatistics.measure(data.graphs["train"], sizes)
    spec = ModelSpec(
        "fast", sizes, statistics, {"width": 32, "depth": 1, "encoder": {"dropout": 0.1}}
    )
    weights = build_model(spec, seed=1).state_dict()
    contents = (spec, weights, data.schema.to_dict(), {}, CheckpointMeta(), {"step": 1})
    path = tmp_path_factory.mktemp("sound") / "model"
    save_checkpoint(path, *contents)
    return path


@pytest.fixture
def folder(sound, tmp_path) -> Path:
    """A sound checkpoint to be damaged."""
    return Path(shutil.copytree(sound, tmp_path / "model"))


def edited(file: str, *keys: str | int, value: Any) -> Fault:
    """Return a fault that sets one value of a JSON file, as Python writes it (Infinity, NaN)."""

    def fault(path: Path) -> None:
        data = json.loads((path / file).read_text())
        at = data
        for key in keys[:-1]:
            at = at[key]
        at[keys[-1]] = value
        (path / file).write_text(json.dumps(data))

    return fault


def weights(change: Callable[[torch.Tensor], torch.Tensor], name: str = "") -> Fault:
    """Return a fault that changes every tensor whose name begins so."""

    def fault(path: Path) -> None:
        file = path / "weights.safetensors"
        tensors = safetensors.torch.load_file(file)
        changed = {
            n: change(t).contiguous() if t.is_floating_point() and n.startswith(name) else t
            for n, t in tensors.items()
        }
        file.write_bytes(safetensors.torch.save(changed))

    return fault


def one_nan(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.clone()
    tensor.view(-1)[0] = math.nan
    return tensor


def text(file: str, content: str) -> Fault:
    def fault(path: Path) -> None:
        (path / file).write_text(content)

    return fault


def larger(file: str, size: int) -> Fault:
    """Return a fault that makes a file long with a hole, which takes no space on the disk."""

    def fault(path: Path) -> None:
        with (path / file).open("r+b") as stream:
            stream.truncate(size)

    return fault


def argument(name: str, value: object) -> Fault:
    return edited("config.json", "model", "arguments", *name.split("."), value=value)


def statistic(*keys: str | int, value: object) -> Fault:
    return edited("config.json", "model", "statistics", *keys, value=value)


WORDS = ("categories", 0, "values")
CONDITION = ("numeric_conditions", 0)
FAULTS: dict[str, Fault] = {
    "NaN weights": weights(lambda t: torch.full_like(t, math.nan)),
    "one NaN": weights(one_nan, "last_norm"),
    "infinite weights": weights(lambda t: torch.full_like(t, math.inf), "encoder"),
    "weights cut off": lambda path: (path / "weights.safetensors").write_bytes(b"\xff" * 8),
    "weights with a hole": larger("weights.safetensors", 1 << 40),
    "json with a hole": larger("schema.json", 1 << 40),
    "huge block": argument("encoder.block", 10**9),
    "huge depth": argument("depth", 10**6),
    "huge width": argument("width", 32 * 10**6),
    "negative depth": argument("depth", -1),
    "depth is true": argument("depth", True),
    "depth of 5000 digits": text("config.json", '{"model": {"name": ' + "1" * 5000 + "}}"),
    "infinite width": argument("width", math.inf),
    "dropout is a word": argument("encoder.dropout", "x"),
    "dropout is NaN": argument("encoder.dropout", math.nan),
    "dropout of two": argument("encoder.dropout", 2.0),
    "unknown argument": argument("__class__", "os.system"),
    "group is a word": argument("encoder", "x"),
    "group in a group": argument("encoder.dropout", {"rate": 0.1}),
    "endless buckets": argument("conditioning", {"position_buckets": list(range(1, 100_000))}),
    "buckets without end": argument("conditioning", {"position_buckets": [math.inf]}),
    "unknown choice": argument("encoder.attention", "os.system"),
    "unknown class": edited("config.json", "model", "name", value="os.system"),
    "many codes": edited("config.json", "model", "sizes", "attributes", value=[10**9]),
    "infinite edge types": edited("config.json", "model", "sizes", "edge_types", value=math.inf),
    "many conditions": edited("config.json", "model", "sizes", "numeric_conditions", value=10**9),
    "negative degrees": statistic("in_degrees", 0, value=[[-5, 3]]),
    "fractional degrees": statistic("in_degrees", 0, value=[[0.5, 3]]),
    "degrees of 10 ** 40": statistic("out_degrees", 0, value=[[10**40, 1]]),
    "degrees of too few kinds": statistic("in_degrees", value=[[[0, 1]]]),
    "degrees of another form": statistic("in_degrees", value=7),
    "no layers": statistic("layer_sizes", value=[]),
    "layers of 10 ** 300": statistic("layer_sizes", value=[[10**300, 1]]),
    "no nodes": statistic("attributes", 0, value=[0, 0, 0]),
    "statistics as a word": statistic("graphs", value="many"),
    "std of 1e308": edited("schema.json", *CONDITION, "std", value=1e308),
    "std of zero": edited("schema.json", *CONDITION, "std", value=0.0),
    "mean of NaN": edited("schema.json", *CONDITION, "mean", value=math.nan),
    "infinite quantiles": edited("schema.json", *CONDITION, "quantiles", value=[math.inf]),
    "a word of ten million": edited("schema.json", *WORDS, value=["a" * 10**7, "b", "c"]),
    "a word with a null byte": edited("schema.json", *WORDS, value=["\0", "b", "c"]),
    "half a character": edited("schema.json", *WORDS, value=["\ud800", "b", "c"]),
    "a table without cells": edited("schema.json", "condition_table", value={}),
    "a table of rows": edited("schema.json", "condition_table", value=[[10**400] * 3]),
    "a cell of 10 ** 400 graphs": edited("schema.json", *CELL, "count", value=10**400),
    "a cell of no graphs": edited("schema.json", *CELL, "count", value=0),
    "a mean of 10 ** 400": edited("schema.json", *CELL, "mean", 0, value=10**400),
    "a spread of NaN": edited("schema.json", *CELL, "spread", 0, value=math.nan),
    "a code of 10 ** 400": edited("schema.json", *CELL, "values", value=[[10**400]]),
    "a correlation of 2": edited("schema.json", "condition_table", "correlation", 0, 0, value=2),
    "schema of others": edited("schema.json", "edge_types", value=["a", "b", "c"]),
    "schema is deep": text("schema.json", '{"a": ' + "[" * 10**6 + "]" * 10**6 + "}"),
    "infinite steps": edited("meta.json", "step", value=math.inf),
    "negative steps": edited("meta.json", "step", value=-1),
    "seed of 10 ** 40": edited("meta.json", "seed", value=10**40),
    "metrics of 10 ** 400": edited("meta.json", "metrics", value={"a": 10**400}),
    "metrics as a list": edited("meta.json", "metrics", value=[1]),
    "meta is no text": lambda path: (path / "meta.json").write_bytes(b"\xff\xfe{"),
}  # fmt: skip


def use(path: Path) -> list[str]:
    """Do what ``layerdag sample`` does with a checkpoint, but for writing."""
    loaded = load_checkpoint(path)
    schema = checkpoint_schema(loaded)
    settings = GenerationSettings(num=2, best_of=1, max_nodes=8)
    graphs = generate(loaded.model, schema, settings)
    return [schema.decode(graph.dag, graph.name).name for graph in graphs]


def test_the_checkpoint_of_these_tests_is_sound(folder):
    assert len(use(folder)) == 2


@pytest.mark.parametrize("name", FAULTS)
def test_a_malicious_checkpoint_is_one_sentence(folder, name):
    FAULTS[name](folder)
    with pytest.raises(CheckpointError) as caught:
        use(folder)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("scale", [1e6, 1e18, 1e30])
def test_absurd_weights_give_a_graph_or_one_sentence(folder, scale):
    weights(lambda t: t * scale)(folder)
    with contextlib.suppress(CheckpointError):
        assert len(use(folder)) == 2


def packed(path: Path) -> None:
    """Write the trainer state as an archive of ten megabytes that holds ten gigabytes."""
    with zipfile.ZipFile(path / "trainer.pt", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", bytes(1 << 24))


def claimed(path: Path) -> None:
    """Let a member of the archive claim more than the file holds."""
    data = bytearray((path / "trainer.pt").read_bytes())
    at = data.rindex(b"PK\x01\x02")
    data[at + 24 : at + 28] = (1 << 31).to_bytes(4, "little")
    (path / "trainer.pt").write_bytes(data)


@pytest.mark.parametrize("fault", [packed, claimed])
def test_a_trainer_state_that_unpacks_is_refused(folder, fault):
    fault(folder)
    with pytest.raises(CheckpointError, match="more than its own size"):
        load_trainer_state(folder)
