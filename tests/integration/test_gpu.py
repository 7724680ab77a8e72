"""What users do on a GPU, and that it agrees with a processor (``benchmarks/gpu.py --tests``)."""

import contextlib
import itertools
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from device_calls import profiled
from operator_counts import request_of
from tiny_checkpoints import SMALL_MODELS

import layerdag as ld
from layerdag.cli.main import main
from layerdag.dag.dag import DAGBatch
from layerdag.models.base import DAGModel, LossTerm
from layerdag.models.cuda_graphs import record_cuda_graph
from layerdag.models.fast import tensor_sampler
from layerdag.models.fast.tensor_sampler import TensorSampler
from layerdag.models.spec import build_model
from layerdag.training import loop
from layerdag.training.batches import BucketedSource, MicroBatch, ProcessGroup, local_device
from layerdag.training.checkpoint import LoadedCheckpoint, load_checkpoint, pretrained_checkpoint
from layerdag.training.model_spec import spec_for
from layerdag.training.optimizer import Optimizer, matrix_precision, parameter_groups
from layerdag.training.recorded_steps import PaddedBatches, RecordedSteps
from layerdag.training.settings import TrainSettings

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU on this machine"),
]

GPU = torch.device("cuda", 0)
CPU = torch.device("cpu")
SMALL = {"max_steps": 4, "evaluate_every": 2, "batch_graphs": 8}


@pytest.fixture(scope="module")
def corpus(small_corpus) -> ld.GraphDataset:
    return ld.load_dataset(small_corpus, max_nodes=60)


def train(corpus: Path, out: Path, *more: str) -> int:
    words = (
        "data.max_nodes=60",
        "model.width=32",
        "model.depth=1",
        "training.evaluate_every=2",
        "training.max_steps=4",
        "logger.sample_graphs=2",
    )
    return main(["train", f"data.folder={corpus}", *words, f"out={out}", *more])


@pytest.mark.parametrize("device", ["cuda", "auto"])
def test_the_command_line_trains_and_samples(small_corpus, tmp_path, device, capsys):
    assert local_device(device) == GPU
    torch.cuda.init()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    assert train(small_corpus, tmp_path / "run", f"device={device}") == 0
    assert "on cuda:0" in capsys.readouterr().err
    lines = [json.loads(line) for line in (tmp_path / "run/train.jsonl").read_text().splitlines()]
    assert any("validation/node" in line for line in lines)
    words = (f"checkpoint={tmp_path / 'run/best'}", "num=3", "max_nodes=24", f"device={device}")
    assert main(["sample", *words, f"out={tmp_path / 'samples'}"]) == 0
    assert main(["validate", str(tmp_path / "samples")]) == 0
    assert torch.cuda.max_memory_allocated() > before


@pytest.mark.parametrize("model", ["fast", "reference"])
def test_a_checkpoint_of_a_gpu_is_read_on_a_processor(corpus, tmp_path, model):
    options = {**SMALL_MODELS[model], **SMALL}
    made = ld.train(corpus, model, out=tmp_path / "run", device="cuda", **options)
    assert next(made.model.parameters()).device == GPU
    there = made.sample(2, max_nodes=16)
    read = ld.load_checkpoint(tmp_path / "run/best")
    assert next(read.model.parameters()).device == CPU
    for name, tensor in made.model.state_dict().items():
        assert torch.equal(tensor.cpu(), read.model.state_dict()[name]), name
    assert len(read.sample(2, max_nodes=16)) == len(there) == 2


def test_a_run_of_a_gpu_goes_on_on_a_processor(small_corpus, tmp_path):
    run = tmp_path / "run"
    assert train(small_corpus, run, "device=cuda") == 0
    assert main(["train", f"resume={run}", "training.max_steps=6", "device=cpu"]) == 0
    lines = [json.loads(line) for line in (run / "train.jsonl").read_text().splitlines()]
    assert max(line["step"] for line in lines) == 6


@pytest.fixture(scope="module")
def models(corpus) -> dict[torch.device, DAGModel]:
    spec = spec_for(corpus, "fast", {})
    return {device: build_model(spec, seed=3).to(device).eval() for device in (CPU, GPU)}


def losses(model: DAGModel, batch: DAGBatch, precision: str) -> dict[str, LossTerm]:
    device = next(model.parameters()).device
    with matrix_precision(precision, device):
        return model.losses(batch.to(device), torch.Generator(device).manual_seed(0))


@pytest.mark.parametrize(("precision", "tolerance"), [("float32", 1e-5), ("bfloat16", 1e-2)])
def test_losses_are_those_of_a_processor(models, corpus, precision, tolerance):
    batch = corpus.batch("train")
    exact = losses(models[CPU], batch, "float32")
    found = losses(models[GPU], batch, precision)
    assert {name: int(term.count) for name, term in found.items()} == {
        name: int(term.count) for name, term in exact.items()
    }
    for name, term in exact.items():
        assert found[name].mean().item() == pytest.approx(term.mean().item(), rel=tolerance), name


def test_gradients_are_those_of_a_processor(models, corpus):
    batch = corpus.batch("train")
    gradients = {}
    for device, model in models.items():
        terms = losses(model, batch, "float32")
        torch.stack([term.mean() for term in terms.values()]).sum().backward()
        found = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
        gradients[device] = {name: grad.cpu() for name, grad in found.items()}
        model.zero_grad(set_to_none=True)
    assert gradients[CPU].keys() == gradients[GPU].keys()
    square = {d: sum(float(g.square().sum()) for g in gradients[d].values()) for d in (CPU, GPU)}
    apart = sum(float((gradients[GPU][n] - g).square().sum()) for n, g in gradients[CPU].items())
    assert apart <= 1e-4**2 * square[CPU]


def test_a_recorded_step_gives_what_the_same_step_gives_when_it_is_launched(corpus):
    """Noise included; batches of other graphs are padded to the sizes of the recording."""
    model = build_model(spec_for(corpus, "fast", {}), seed=3).to(GPU).train()
    settings = TrainSettings(precision="float32")
    optimizer = Optimizer(model, parameter_groups(model), settings, ProcessGroup())
    data = corpus.batch("train")
    parts = [MicroBatch(torch.tensor(graphs), 0, 0, 0) for graphs in ([0, 1, 2, 3], [3, 1, 2, 0])]
    source = BucketedSource(data, 4, 10**9, seed=0)
    steps = RecordedSteps(optimizer._loss_gradients, 8, GPU, partial(record_cuda_graph, device=GPU))
    ahead = PaddedBatches(model, source, itertools.cycle(parts), GPU, 1 << 30)
    with contextlib.closing(ahead) as batches:
        made = [batches.next()[1] for _ in range(6)][2:]
    for seed, padded in enumerate(made):
        numbers = [*padded.counts.values(), *padded.counts.values()]
        found = steps.run(padded, "all", numbers, seed)
        generator = torch.Generator(GPU).manual_seed(seed)
        there = torch.tensor(numbers, device=GPU)
        wanted = optimizer._loss_gradients(padded.batch, there, generator)
        torch.testing.assert_close(found.mean_O, wanted.mean_O, rtol=1e-4, atol=1e-5)
        for one, other in zip(found.gradients, wanted.gradients, strict=True):
            assert (one is None) is (other is None)
            if one is not None and other is not None:
                assert (one - other).norm() <= 1e-3 * other.norm() + 1e-6
    assert steps.recordings == 1


def test_a_run_of_recorded_steps_learns_what_one_of_launched_steps_learns(
    corpus, tmp_path, monkeypatch
):
    options: dict[str, Any] = {"max_steps": 60, "evaluate_every": 20, "batch_graphs": 8}
    found = []
    for recorded in (True, False):
        if not recorded:
            monkeypatch.setattr(loop, "recorder_for", lambda model, device: None)
        out = tmp_path / str(recorded)
        made = ld.train(corpus, "fast", out=out, device="auto", **options)
        assert next(made.model.parameters()).device == GPU
        found.append(load_checkpoint(out / "best").meta.metrics["validation/total_per_graph"])
    assert found[1] == pytest.approx(found[0], rel=0.05), found


@pytest.fixture(scope="module")
def shipped() -> dict[torch.device, LoadedCheckpoint]:
    folder = pretrained_checkpoint("pretrained")
    return {device: load_checkpoint(folder, device) for device in (CPU, GPU)}


@pytest.mark.parametrize("best_of", [1, 8])
def test_the_same_seeds_give_the_same_graphs_but_for_rounding(shipped, best_of):
    drawn = [ld.sample(shipped[d], 16, max_nodes=40, best_of=best_of) for d in (CPU, GPU)]
    same = sum(
        torch.equal(a.dag.x_NA, b.dag.x_NA)
        and torch.equal(a.dag.edge_index_2E, b.dag.edge_index_2E)
        for a, b in zip(*drawn, strict=True)
    )
    # A draw whose uniform lies within rounding of a border falls on its other side, and the rest
    # of the graph follows it.
    assert same >= 14, f"{same} of 16 graphs are the same on both devices"


def test_the_same_seeds_give_the_same_graphs_on_a_gpu_again(shipped):
    drawn = [ld.sample(shipped[GPU], 4, max_nodes=40, batch_size=size) for size in (4, 4)]
    for a, b in zip(*drawn, strict=True):
        assert torch.equal(a.dag.x_NA, b.dag.x_NA)
        assert torch.equal(a.dag.edge_index_2E, b.dag.edge_index_2E)


@pytest.mark.parametrize("guidance", [1.0, 1.5])
def test_recorded_rounds_give_what_launched_ones_give(shipped, guidance, monkeypatch):
    """With fewer rows than graphs, so that rows are used again."""
    monkeypatch.setattr(TensorSampler, "_rows_in_memory", lambda sampler: 24)
    recorded = ld.sample(shipped[GPU], 8, max_nodes=200, best_of=8, guidance=guidance)
    monkeypatch.setattr(
        tensor_sampler, "record_cuda_graph", lambda work, generator, device: (work(), work)
    )
    launched = ld.sample(shipped[GPU], 8, max_nodes=200, best_of=8, guidance=guidance)
    for a, b in zip(recorded, launched, strict=True):
        assert torch.equal(a.dag.x_NA, b.dag.x_NA)
        assert torch.equal(a.dag.edge_index_2E, b.dag.edge_index_2E)


def test_a_round_is_one_launch(shipped):
    """The host launches the recording, and copies what it looks at."""
    request = request_of(shipped[GPU], ld.GenerationSettings(num=32, max_nodes=60))
    with torch.inference_mode():
        sampler = TensorSampler(shipped[GPU].model, request)
        sampler.advance(2)  # recorded
        with profiled() as calls:
            sampler.advance(8)
    assert calls.per(8)["launches"] <= 1


@pytest.fixture
def nccl(tmp_path) -> Iterator[ProcessGroup]:
    """Collectives of NCCL on one rank; two are claimed, since one alone would need none."""
    where = f"file://{tmp_path / 'store'}"
    dist.init_process_group("nccl", init_method=where, rank=0, world_size=1, device_id=GPU)
    yield ProcessGroup(0, 2)
    dist.destroy_process_group()


def test_processes_average_over_nccl(nccl):
    model = torch.nn.Linear(3, 2).to(GPU)
    weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    nccl.same_weights(model)
    model(torch.ones(1, 3, device=GPU)).sum().backward()
    model.bias.grad = None
    flags = nccl.average_gradients(list(model.parameters()), torch.tensor([1.0, 2.0], device=GPU))
    nccl.barrier()
    assert flags.tolist() == [1.0, 2.0]
    assert model.weight.grad.tolist() == [[0.5] * 3] * 2
    assert nccl.sum(torch.tensor([2.0], device=GPU)).tolist() == [2.0]
    assert all(torch.equal(weights[name], tensor) for name, tensor in model.state_dict().items())


def test_training_inside_a_group_of_nccl(nccl, small_corpus, tmp_path):
    assert dist.get_backend() == "nccl"
    assert train(small_corpus, tmp_path / "run", "device=cuda") == 0
    assert (tmp_path / "run/last/trainer.pt").is_file()
