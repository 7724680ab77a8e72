"""How many operators a training step and a sampling position take; these numbers only fall.

Graphs of jobs are small, so a GPU waits for the host to launch its kernels, and a processor for
Python: time is proportional to these numbers (benchmarks/operator_counts.py).
"""

import pytest
import torch
from corpus_cut import cut_corpus
from operator_counts import (
    counted,
    request_of,
    round_counts,
    sampling_counts,
    training_counts,
)

from layerdag.dag.dag import DAGBatch
from layerdag.datasets.encoding import load_with_schema
from layerdag.datasets.settings import CorpusConfig
from layerdag.graph.attributed_graph import Condition
from layerdag.sampling.settings import GenerationSettings
from layerdag.training.checkpoint import (
    LoadedCheckpoint,
    checkpoint_schema,
    load_checkpoint,
    pretrained_checkpoint,
)
from layerdag.training.settings import TrainSettings

TRAINING_STEP = {"operators": 852, "kernels": 585, "waits": 0.5, "host": 355}
"""Of the model of the checkpoint ``pretrained``, in single precision: 845, 578, 0.4 (the loss is
read once in some steps) and 348 where this was written. "host" are those that make a batch.
On a GPU a step is recorded and is then one launch (tests/integration/test_gpu.py)."""

SAMPLING_POSITION = {"operators": 105, "kernels": 68, "waits": 1.5, "host": 0}
"""Of four GPT jobs of the checkpoint ``pretrained``: 94, 61 and 1.1 where this was written; those
that wait replace particles or come at the end. A processor that rounds otherwise may draw other
graphs, whose nodes have other parents."""

SAMPLING_ROUND = {"operators": 2150, "kernels": 1580, "waits": 0, "host": 0}
"""Of a round as on a GPU, where it is recorded and is then one launch: 2,036 and 1,497 where
this was written."""

ASKED: dict[str, Condition] = {
    "family": "gpt", "strategy": "single", "phase": "training", "world_size": "1",
    "num_nodes": 100.0, "num_layers": 40.0, "label": 0.01,
}  # fmt: skip


@pytest.fixture(scope="module")
def checkpoint() -> LoadedCheckpoint:
    return load_checkpoint(pretrained_checkpoint("pretrained"))


@pytest.fixture(scope="module")
def graphs(checkpoint: LoadedCheckpoint, tmp_path_factory: pytest.TempPathFactory) -> DAGBatch:
    folder = cut_corpus(tmp_path_factory.mktemp("corpus"), {"train": 12}, max_nodes=60)
    data = load_with_schema(CorpusConfig(folder=folder), checkpoint_schema(checkpoint))
    return data.batch("train")


def test_a_training_step_takes_no_more_operators_and_waits(checkpoint, graphs):
    found = training_counts(checkpoint.spec, graphs, TrainSettings(precision="float32"))
    assert {name: found[name] for name in found if found[name] > TRAINING_STEP[name]} == {}


def test_a_sampling_position_takes_no_more_operators_and_waits(checkpoint):
    request = request_of(checkpoint, GenerationSettings(num=4, conditions=ASKED))
    found = sampling_counts(checkpoint.model, request)
    assert {name: found[name] for name in found if found[name] > SAMPLING_POSITION[name]} == {}


def test_a_round_on_a_gpu_takes_no_more_operators_and_no_wait(checkpoint):
    request = request_of(checkpoint, GenerationSettings(num=4, conditions=ASKED))
    found = round_counts(checkpoint.model, request)
    assert {name: found[name] for name in found if found[name] > SAMPLING_ROUND[name]} == {}


def test_every_way_to_wait_is_counted():
    x = torch.arange(4.0)
    twice = torch.tensor([1, 2])
    ways = {
        "_local_scalar_dense": lambda: float(x[0]),
        "nonzero": lambda: (x > 1).nonzero(),
        "index": lambda: x[x > 1],
        "index_put_": lambda: x.clone().__setitem__(x > 1, 0.0),
        "masked_select": lambda: x.masked_select(x > 1),
        "bincount": lambda: twice.bincount(),
        "equal": lambda: torch.equal(x, x + 1),
        "_unique2": lambda: twice.unique(),
        "repeat_interleave": lambda: x[:2].repeat_interleave(twice),
        "tolist": lambda: x.tolist(),
        "numpy": lambda: x.numpy(),
    }
    for name, wait in ways.items():
        with counted() as counts, torch.inference_mode():
            wait()
        assert dict(counts.waits) == {name: 1}, name


def test_what_does_not_wait_counts_as_operators_and_views_as_no_kernels():
    x = torch.arange(4.0)
    index = torch.tensor([0, 1])
    with counted() as counts:
        (x[index] + x[:2].repeat_interleave(index, output_size=1)).view(2, 1)
    assert counts.waits == {}
    assert counts.kernels == {"index": 1, "repeat_interleave": 1, "index_select": 1, "add": 1}
    assert counts.operators == {**counts.kernels, "slice": 1, "view": 1}


def test_the_backward_pass_is_counted():
    x = torch.ones(2, requires_grad=True)
    with counted() as forward:
        loss = x.exp().sum()
    with counted() as both:
        loss.backward()
    assert both.kernels.total() > 0
    assert "mul" in both.kernels
    assert "mul" not in forward.kernels
