"""A tiny data set and the reference model at tiny widths."""

import pytest
import torch
from random_graphs import random_dag

from layerdag.dag.dag import DAGBatch, GraphSizes
from layerdag.dag.statistics import GraphStatistics
from layerdag.models.spec import ModelSpec

SIZES = GraphSizes((4, 2), edge_types=2, numeric_conditions=1, category_conditions=(3,))
TINY = {
    "layer_size": {"width": 8, "rounds": 1},
    "node": {"width": 8, "rounds": 1, "heads": 2, "steps": 4},
    "edge": {"width": 8, "rounds": 1, "steps": 4},
}


@pytest.fixture
def data(rng) -> DAGBatch:
    """Return 12 random DAGs with conditions."""
    shapes = [rng.integers(1, 4, rng.integers(1, 5)).tolist() for _ in range(12)]
    dags = [random_dag(rng, shape, [4, 2], num_edge_types=2) for shape in shapes]
    return DAGBatch.from_dags(
        dags,
        torch.tensor(rng.normal(size=(12, 1)), dtype=torch.float32),
        torch.tensor(rng.integers(0, 3, size=(12, 1))),
    )


@pytest.fixture
def spec(rng) -> ModelSpec:
    """Return a tiny reference model as plain data."""
    dags = [random_dag(rng, [2, 3, 1], [4, 2], num_edge_types=2) for _ in range(5)]
    return ModelSpec("reference", SIZES, GraphStatistics.measure(dags, SIZES), TINY)
