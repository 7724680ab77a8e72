"""Paths and records made by hand, for tests of the benchmarks' tables."""

from typing import Any

import torch
from benchmark_tables import runs

from layerdag.dag.dag import DAG

HARDWARE = {"machine": "x86_64", "cores": 2, "threads": 1, "torch": "2", "load": [1.0]}


def chain(nodes: int) -> DAG:
    steps = torch.arange(nodes - 1)
    return DAG.build(torch.zeros(nodes, 1, dtype=torch.int64), torch.stack([steps, steps + 1]))


def record(
    table: str,
    name: str,
    figures: dict[str, Any],
    config: dict[str, Any],
    *,
    learner: str = "fast",
    seed: int = 0,
) -> runs.Record:
    """Return the record of a run that took a minute on two cores."""
    return runs.Record(table, runs.Run(name, learner, seed, config), figures, 60.0, 30.0, HARDWARE)
