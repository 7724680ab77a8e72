"""What ``train`` and ``sample`` tell a reader, on standard error: what is done, and what next."""

import json
import shlex
from pathlib import Path

import torch

from layerdag.datasets import GraphDataset
from layerdag.datasets.samples import SampleRun
from layerdag.models import ModelSpec, build_without_weights
from layerdag.sampling import PartSettings
from layerdag.training import TrainResult

UNITS = "losses are nats per decision (per graph where the name ends in per_graph); lower is better"


def announcement(data: GraphDataset, spec: ModelSpec, device: torch.device) -> str:
    """Return what is about to be trained on what, a line each."""
    counts = ", ".join(f"{len(dags)} {split}" for split, dags in data.graphs.items())
    lines = [f"data: {data.name}: {counts} graphs"]
    if data.left_out:
        lines.append(f"left out: {len(data.left_out)} graphs, the first: {data.left_out[0]}")
    lines.append(f"model: {spec.name}, {_parameters(spec):,} parameters, on {device}")
    return "\n".join([*lines, UNITS]) + "\n"


def _parameters(spec: ModelSpec) -> int:
    """Return the number of parameters of a model, without memory for them."""
    return sum(parameter.numel() for parameter in build_without_weights(spec).parameters())


def after_training(result: TrainResult) -> str:
    """Return how training ended and the command that samples from it."""
    best = shlex.quote(str(result.best))
    steps = "1 step" if result.step == 1 else f"{result.step} steps"
    return (
        f"trained {steps} in {result.seconds:.0f} s, until {_why(result.reason)}. "
        f"Sample from it: layerdag sample checkpoint={best}\n"
    )


def _why(reason: str) -> str:
    """Return the end of a run in words."""
    return {
        "budget": "its budget was spent",
        "patience": "validation improved no more",
    }.get(reason, reason)


def after_sampling(manifest: Path) -> str:
    """Return what was made, and how to look at it; ``manifest`` is that of the samples."""
    out, samples = manifest.parent, json.loads(manifest.read_text(encoding="utf-8"))["samples"]
    name = samples[0]["name"]
    first = shlex.quote(str(out / samples[0].get("file", f"{name}/{name}.0.et")))
    count = "1 sample" if len(samples) == 1 else f"{len(samples):,} samples"
    return (
        f"wrote {count} to {out}. Check all: layerdag validate {shlex.quote(str(out))}; "
        f"look at the first: layerdag view {first} --out sample.svg\n"
    )


def before_parts(num: int, parts: PartSettings) -> str:
    """Return a warning if there are more shards than parts, so that some draw nothing; else ""."""
    shards, there = parts.assigned.count, -(-num // parts.part_size)
    if shards <= there:
        return ""
    fitting = max(num // shards, 1)
    return (
        f"layerdag: there is work for only {there:,} of {shards:,} shards, since {num:,} samples "
        f"are cut into parts of {parts.part_size:,}; part_size={fitting} gives each its share.\n"
    )


def after_parts(folder: Path) -> str:
    """Return which parts of a run of samples are there, and how to look at them."""
    run = SampleRun.read(folder)
    there, where = run.count_parts(folder), shlex.quote(str(folder))
    if there < run.num_parts:
        return (
            f"{there:,} of {run.num_parts:,} parts are in {folder}; the same command writes what "
            f"is missing from its shard. Look at them: layerdag info {where}\n"
        )
    count = "1 sample" if run.num == 1 else f"{run.num:,} samples"
    return (
        f"{count} in {run.num_parts:,} parts are in {folder}. "
        f"Check all: layerdag validate {where}; look at them: layerdag info {where}\n"
    )
