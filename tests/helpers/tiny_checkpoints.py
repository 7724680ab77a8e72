"""Untrained checkpoints of tiny fast models."""

from pathlib import Path

from costed_jobs import costed_jobs
from random_jobs import random_job
from raw_graphs import chain

from layerdag.dag.statistics import GraphStatistics
from layerdag.datasets.dataset import GraphDataset
from layerdag.models.base import ModelSpec, build_model
from layerdag.training.checkpoint import (
    CheckpointContents,
    CheckpointMeta,
    LoadedCheckpoint,
    load_checkpoint,
    save_checkpoint,
)


def chain_checkpoint(folder: Path) -> LoadedCheckpoint:
    """Return a checkpoint of flow graphs, written to ``folder/model``."""
    graphs = [chain(f"g{i}", "abcab"[: 2 + i % 4], label=1.0 + i) for i in range(8)]
    return untrained(folder, GraphDataset.build("chains", "flow", {"train": graphs}))


def job_checkpoint(folder: Path) -> LoadedCheckpoint:
    """Return a checkpoint of jobs, written to ``folder/model``."""
    jobs = [random_job(seed, 2, layers=4) for seed in range(6)]
    return untrained(folder, GraphDataset.build("jobs", "trace", {"train": jobs}, num_bins=2))


def costed_checkpoint(folder: Path) -> LoadedCheckpoint:
    """Return a checkpoint of jobs that share what operators cost, written to ``folder/model``."""
    jobs = costed_jobs([8, 16] * 10)
    return untrained(folder, GraphDataset.build("costed", "trace", {"train": jobs}, num_bins=2))


def untrained(folder: Path, data: GraphDataset) -> LoadedCheckpoint:
    """Return a checkpoint of a data set, written to ``folder/model``."""
    sizes = data.schema.sizes()
    statistics = GraphStatistics.measure(data.graphs["train"], sizes)
    spec = ModelSpec("fast", sizes, statistics, {"width": 32, "depth": 1})
    weights = build_model(spec, seed=1).state_dict()
    meta = CheckpointMeta(seed=1, data_fingerprint=data.fingerprint, split=data.split)
    contents = CheckpointContents(spec, weights, data.schema.to_dict(), {}, meta)
    save_checkpoint(folder / "model", contents)
    return load_checkpoint(folder / "model")
