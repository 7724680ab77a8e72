import numpy as np
import pytest

from layerdag.graph.dag import DAG
from layerdag.graph.random import random_dag
from layerdag.graph.sizes import GraphSizes
from layerdag.surrogate.tstr import Labelled

SIZES = GraphSizes(attributes=(4, 3), edge_types=2)


@pytest.fixture
def sizes() -> GraphSizes:
    return SIZES


def labelled_graphs(rng: np.random.Generator, count: int) -> Labelled:
    """Random graphs whose target is the summed cost of their nodes, by first attribute."""
    dags: list[DAG] = []
    for _ in range(count):
        widths = rng.integers(1, 5, 5).tolist()
        dags.append(random_dag(rng, widths, list(SIZES.attributes), num_edge_types=2))
    cost_K = np.array([1.0, 2.0, 4.0, 8.0])
    target_B = np.array([cost_K[dag.x_NA[:, 0].numpy()].sum() for dag in dags])
    return Labelled(tuple(dags), target_B)


@pytest.fixture
def real(rng: np.random.Generator) -> Labelled:
    return labelled_graphs(rng, 60)


@pytest.fixture
def test_set(rng: np.random.Generator) -> Labelled:
    return labelled_graphs(rng, 40)
