"""Small random graphs and models for the tests of this package."""

from collections.abc import Callable

import pytest
import torch
from random_graphs import random_dag

from layerdag.dag.dag import DAG, DAGBatch, GraphSizes


@pytest.fixture
def sizes() -> GraphSizes:
    """Return two attributes, two edge types, one numeric and one categorical condition."""
    return GraphSizes((4, 2), edge_types=2, numeric_conditions=1, category_conditions=(3,))


@pytest.fixture
def make_dag(rng) -> Callable[..., DAG]:
    """Return a function that draws a DAG with given layer sizes, matching ``sizes``."""

    def make(*layer_sizes: int, extra_edges: float = 0.5) -> DAG:
        return random_dag(rng, list(layer_sizes), [4, 2], num_edge_types=2, extra_edges=extra_edges)

    return make


@pytest.fixture
def make_batch() -> Callable[..., DAGBatch]:
    """Return a function that lays DAGs end to end, with conditions 0, 1, 2, ..."""

    def make(*dags: DAG) -> DAGBatch:
        numbers = torch.arange(len(dags))
        return DAGBatch.from_dags(dags, numbers[:, None].float(), numbers[:, None] % 3)

    return make
