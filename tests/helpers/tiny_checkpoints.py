"""Untrained checkpoints of tiny models."""

from pathlib import Path

from costed_jobs import costed_jobs
from random_jobs import random_job
from raw_graphs import chain

from layerdag.dag.statistics import GraphStatistics
from layerdag.datasets.dataset import GraphDataset
from layerdag.models.spec import ModelSpec, build_model
from layerdag.training.checkpoint import (
    CheckpointMeta,
    LoadedCheckpoint,
    load_checkpoint,
    save_checkpoint,
)

SMALL_MODELS = {
    "fast": {"width": 32, "depth": 1},
    "reference": {
        "layer_size": {"width": 8},
        "node": {"width": 8, "heads": 2, "steps": 4},
        "edge": {"width": 8, "steps": 2},
    },
}


def chains() -> GraphDataset:
    """Return a data set of chains, each with a label."""
    graphs = [chain(f"g{i}", "abcab"[: 2 + i % 4], label=1.0 + i) for i in range(8)]
    return GraphDataset.build("chains", "flow", {"train": graphs})


def chain_checkpoint(folder: Path) -> LoadedCheckpoint:
    """Return a checkpoint of flow graphs, written to ``folder/model``."""
    return untrained_checkpoint(folder, chains())


def job_checkpoint(folder: Path) -> LoadedCheckpoint:
    """Return a checkpoint of jobs, written to ``folder/model``."""
    jobs = [random_job(seed, 2, layers=4) for seed in range(6)]
    data = GraphDataset.build("jobs", "trace", {"train": jobs}, num_bins=2)
    return untrained_checkpoint(folder, data)


def costed_checkpoint(folder: Path) -> LoadedCheckpoint:
    """Return a checkpoint of jobs that share what operators cost, written to ``folder/model``."""
    jobs = costed_jobs([8, 16] * 10)
    data = GraphDataset.build("costed", "trace", {"train": jobs}, num_bins=2)
    return untrained_checkpoint(folder, data)


def untrained_checkpoint(folder: Path, data: GraphDataset, model: str = "fast") -> LoadedCheckpoint:
    """Return a checkpoint of a data set, written to ``folder/model``."""
    sizes = data.schema.sizes()
    statistics = GraphStatistics.measure(data.graphs["train"], sizes)
    spec = ModelSpec(model, sizes, statistics, SMALL_MODELS[model])
    weights = build_model(spec, seed=1).state_dict()
    meta = CheckpointMeta(seed=1, data_fingerprint=data.fingerprint, split=data.split)
    contents = (spec, weights, data.schema.to_dict(), {}, meta)
    save_checkpoint(folder / "model", *contents)
    return load_checkpoint(folder / "model")
