"""Figures of training and sampling on one device, a row each, which benchmarks/gpu.py collects.

Shape letters: as in ``layerdag.models``.
"""

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import torch
from device_calls import DeviceCalls, profiled
from operator_counts import counted, of_at_most_nodes, request_of, sampling_counts
from random_graphs import random_dag
from step_watch import Phase, Window, finish_device_work, watched
from torch.utils.flop_counter import FlopCounterMode

from layerdag.dag.dag import DAG, DAGBatch, GraphSizes
from layerdag.dag.statistics import GraphStatistics
from layerdag.datasets.loading import load_dataset
from layerdag.hardware.devices import DEVICES
from layerdag.models.base import DAGModel, SampleRequest
from layerdag.models.spec import ModelSpec, build_model
from layerdag.sampling.generation import generate
from layerdag.sampling.settings import GenerationSettings
from layerdag.training.batches import take_graphs
from layerdag.training.checkpoint import checkpoint_schema, load_checkpoint, pretrained_checkpoint
from layerdag.training.model_spec import spec_for
from layerdag.training.optimizer import has_bfloat16
from layerdag.training.settings import TrainSettings

Row = dict[str, Any]

ATTRIBUTES = (60, 8, 16, 16, 16)
"""Codes of the attributes of random graphs, about those of jobs."""

WIDTH = 10
"""Nodes of a layer of random graphs."""


def machine() -> Row:
    """Return what is measured on, and its ceilings."""
    found: Row = {
        "processor": _processor(), "cores": os.cpu_count(), "torch": torch.__version__,
        "cpu_product_flops": product_rate("cpu"),
    }  # fmt: skip
    if torch.cuda.is_available():
        properties = torch.cuda.get_device_properties(0)
        found |= {
            "gpu": properties.name,
            "gpu_memory_mb": properties.total_memory / 2**20,
            "multiprocessors": properties.multi_processor_count,
            "cuda": torch.version.cuda,
            "gpu_product_flops": product_rate("cuda"),
            "gpu_bytes_per_s": _copy_rate(),
            "gpu_data_sheet_flops": _data_sheet(properties.name),
        }
    return found


def _processor() -> str:
    """Return the name of the processor."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            names = [line.split(":", 1)[1].strip() for line in lines if "model name" in line]
    except OSError:
        names = []
    return names[0] if names else "unknown"


def _data_sheet(name: str) -> float | None:
    """Return the peak of bfloat16 products of a known GPU, operations per second."""
    known = {key.split("-")[0]: device.flops["bf16"] for key, device in DEVICES.items()}
    return next((peak for key, peak in known.items() if key in name.lower()), None)


@cache
def product_rate(device: str) -> float:
    """Return operations per second of a large product of matrices on random numbers."""
    size = 8192 if device == "cuda" else 1024
    low = has_bfloat16(torch.device(device))
    x = torch.randn(size, size, device=device).to(torch.bfloat16 if low else torch.float32)
    seconds = _median_seconds(lambda: x @ x, device)
    return 2 * size**3 / seconds


def _copy_rate() -> float:
    """Return bytes per second of a large copy on the GPU, read and written."""
    x = torch.empty(2**29, dtype=torch.uint8, device="cuda")
    y = torch.empty_like(x)
    return 2 * x.numel() / _median_seconds(lambda: y.copy_(x), "cuda")


def _median_seconds(work: Callable[[], Any], device: str, times: int = 10) -> float:
    """Return the median time of a piece of work that has been done before."""
    seconds = []
    for _ in range(times + 3):
        start = time.perf_counter()
        work()
        finish_device_work()
        seconds.append(time.perf_counter() - start)
    return float(np.median(seconds[3:]))


def peak_flops(device: str) -> float:
    """Return what the MFU is a fraction of: the data sheet's peak, else the measured one."""
    sheet = _data_sheet(torch.cuda.get_device_name()) if device == "cuda" else None
    return sheet or product_rate(device)


def random_batch(nodes: int, graphs: int) -> tuple[list[DAG], DAGBatch]:
    """Return random graphs with layers of ``WIDTH`` nodes, without conditions."""
    rng = np.random.default_rng(0)
    layers = [WIDTH] * (nodes // WIDTH)
    dags = [random_dag(rng, layers, list(ATTRIBUTES), extra_edges=0.1) for _ in range(graphs)]
    none = torch.zeros(graphs, 0)
    return dags, DAGBatch.from_dags(dags, none, none.long())


def random_spec(model: str, dags: list[DAG], arguments: Mapping[str, Any]) -> ModelSpec:
    """Return a model for random graphs."""
    sizes = GraphSizes(ATTRIBUTES)
    return ModelSpec(model, sizes, GraphStatistics.measure(dags, sizes), arguments)


def train_random(
    model: str,
    arguments: Mapping[str, Any],
    *,
    batch_nodes: int,
    device: str,
    seconds: float,
    nodes: int = 400,
) -> Row:
    """Train on random graphs of ``nodes`` nodes, in batches of one size."""
    size = max(1, batch_nodes // nodes)
    dags, data = random_batch(nodes, 2 * size)
    spec = random_spec(model, dags, arguments)
    settings = TrainSettings(batch_graphs=size, batch_nodes=size * nodes, log_every=5)
    return _training(spec, data, settings, device, seconds)


def train_corpus(*, device: str, seconds: float, data: str = "corpus") -> Row:
    """Train on the corpus, all settings at their defaults; how long until the first step, too."""
    start = time.perf_counter()
    graphs = load_dataset(data)
    loaded = time.perf_counter()
    spec = spec_for(graphs, "fast", {})
    batch = graphs.batch("train")
    row = _training(spec, batch, TrainSettings(), device, seconds)
    return {"load_s": loaded - start, **row}


def _training(
    spec: ModelSpec, data: DAGBatch, settings: TrainSettings, device: str, seconds: float
) -> Row:
    """Train for a while; return speed, use of the device, and what the host does for it."""
    nodes = data.num_nodes / data.num_graphs
    flops = _flops_per_node(spec, data, device)
    _forget_peak(device)
    observers = [profiled] if device == "cuda" else []
    phases = [Phase(), Phase(seconds=seconds), Phase(counted), *map(Phase, observers)]
    first, _, timed, operators, *calls = watched(spec, data, settings, device, phases)
    speed = timed.graphs / timed.seconds
    return {
        "parameters": sum(p.numel() for p in build_model(spec).parameters()),
        "nodes_per_graph": nodes,
        "nodes_per_step": timed.graphs * nodes / timed.steps,
        "first_steps_s": first.seconds,
        "step_ms": 1e3 * timed.seconds / timed.steps,
        "graphs_per_s": speed,
        "nodes_per_s": speed * nodes,
        "mfu": speed * nodes * flops / peak_flops(device),
        "flops_per_node": flops,
        **operators.found.per(operators.steps),
        **_calls_per_step(calls),
        "peak_mb": _peak_mb(device),
    }


def _calls_per_step(windows: list[Window]) -> dict[str, float]:
    """Return figures of CUDA's calls, if they were observed."""
    return windows[0].found.per(windows[0].steps) if windows else {}


def _flops_per_node(spec: ModelSpec, data: DAGBatch, device: str) -> float:
    """Return operations of the matrix products of a step, forward and backward, per node."""
    few = take_graphs(data, torch.arange(min(2, data.num_graphs))).to(torch.device(device))
    model = build_model(spec).to(device).train()
    with FlopCounterMode(display=False) as counter:
        terms = model.losses(few, torch.Generator(device).manual_seed(0))
        torch.stack([term.total for term in terms.values()]).sum().backward()
    return counter.get_total_flops() / few.num_nodes


def sample_random(
    model: str, arguments: Mapping[str, Any], *, graphs: int, nodes: int, device: str
) -> Row:
    """Sample graphs of ``nodes`` nodes from a model without training."""
    dags, _ = random_batch(100, 8)
    network = build_model(random_spec(model, dags, arguments)).to(device).eval()
    none = torch.zeros(graphs, 0, device=device)
    request = SampleRequest(none, none.long(), tuple(range(graphs)))
    if model == "fast":
        return _positions(network, request, nodes, device)
    request = replace(request, max_nodes=nodes, max_layers=nodes)
    _forget_peak(device)
    seconds, found = _timed(network, request)
    drawn = sum(dag.num_nodes for dag in found)
    return {
        "graphs_per_s": graphs / seconds,
        "nodes_per_s": drawn / seconds,
        "nodes_per_graph": drawn / graphs,
        "peak_mb": _peak_mb(device),
    }


def sample_positions(*, num: int, nodes: int, device: str) -> Row:
    """Sample from the shipped checkpoint at its defaults, jobs of at most ``nodes``."""
    checkpoint = load_checkpoint(pretrained_checkpoint("pretrained"), device)
    request = request_of(checkpoint, GenerationSettings(num=num))
    return {"best_of": request.best_of, **_positions(checkpoint.model, request, nodes, device)}


def _positions(model: DAGModel, request: SampleRequest, nodes: int, device: str) -> Row:
    """Return the time of a position and what it takes of host and device."""
    short, long = 8, 24
    asked = of_at_most_nodes(request, nodes)
    _timed(model, of_at_most_nodes(request, short))
    _forget_peak(device)
    seconds, found = _timed(model, asked)
    drawn = sum(dag.num_nodes for dag in found)
    calls = {}
    if device == "cuda":
        first, second = (_calls(model, of_at_most_nodes(request, n)) for n in (short, long))
        calls = second.per(long - short, first)
    return {
        "graphs_per_s": len(found) / seconds,
        "nodes_per_s": drawn / seconds,
        "nodes_per_graph": drawn / len(found),
        "position_ms": 1e3 * seconds / nodes,
        **sampling_counts(model, request, (short, long)),
        **calls,
        "peak_mb": _peak_mb(device),
    }


def _timed(model: DAGModel, request: SampleRequest) -> tuple[float, tuple[DAG, ...]]:
    """Return (seconds, graphs)."""
    finish_device_work()
    start = time.perf_counter()
    found = model.sample(request).dags
    finish_device_work()
    return time.perf_counter() - start, found


def _calls(model: DAGModel, request: SampleRequest) -> DeviceCalls:
    """Return the calls that sampling makes."""
    with profiled() as found:
        model.sample(request)
    return found


def sample_jobs(*, num: int, max_nodes: int, best_of: int | None, device: str) -> Row:
    """Sample whole jobs from the shipped checkpoint, as ``layerdag.sample`` does."""
    checkpoint = load_checkpoint(pretrained_checkpoint("pretrained"), device)
    settings = GenerationSettings(num=num, max_nodes=max_nodes, best_of=best_of)
    _forget_peak(device)
    start = time.perf_counter()
    jobs = list(generate(checkpoint.model, checkpoint_schema(checkpoint), settings))
    seconds = time.perf_counter() - start
    nodes = sum(job.dag.num_nodes for job in jobs)
    return {
        "seconds": seconds,
        "graphs_per_s": num / seconds,
        "nodes_per_s": nodes / seconds,
        "nodes_per_graph": nodes / num,
        "peak_mb": _peak_mb(device),
    }


def sample_command(*, num: int, device: str) -> Row:
    """Run ``layerdag sample`` at its defaults, from its start to the last file."""
    with tempfile.TemporaryDirectory() as folder:
        words = ("sample", f"num={num}", f"device={device}", f"out={folder}/samples")
        start = time.perf_counter()
        subprocess.run([sys.executable, "-m", "layerdag", *words], check=True, timeout=60)
        seconds = time.perf_counter() - start
    return {"seconds": seconds, "graphs_per_s": num / seconds}


def same_graphs(*, num: int, max_nodes: int, best_of: int, device: str) -> Row:
    """Return how many graphs of the same seeds are the same on the processor and on the device."""
    settings = GenerationSettings(num=num, max_nodes=max_nodes, best_of=best_of)
    here, there = (_samples(settings, place) for place in ("cpu", device))
    same = sum(a == b for a, b in zip(here, there, strict=True))
    return {"graphs": num, "same": same, "same_share": same / num}


def _samples(settings: GenerationSettings, device: str) -> list[tuple[Any, ...]]:
    """Return codes and edges of samples of the shipped checkpoint, to be compared."""
    checkpoint = load_checkpoint(pretrained_checkpoint("pretrained"), device)
    graphs = generate(checkpoint.model, checkpoint_schema(checkpoint), settings)
    return [(g.dag.x_NA.tolist(), g.dag.edge_index_2E.tolist()) for g in graphs]


def _forget_peak(device: str) -> None:
    """Begin to measure the peak of the device's memory."""
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()


def _peak_mb(device: str) -> float:
    """Return the peak memory: of the device, or of this process so far."""
    if device == "cuda":
        return torch.cuda.max_memory_allocated() / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
