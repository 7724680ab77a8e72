import numpy as np
import pytest
from random_graphs import random_dag

from layerdag.dag.dag import DAG, GraphSizes
from layerdag.surrogates.targets import Labeled

SIZES = GraphSizes(attributes=(4, 3), edge_types=2)


@pytest.fixture(scope="session")
def sizes() -> GraphSizes:
    return SIZES


def labeled_graphs(rng: np.random.Generator, count: int) -> Labeled:
    """Random graphs whose target is the summed cost of their nodes, by first attribute."""
    dags: list[DAG] = []
    for _ in range(count):
        widths = rng.integers(1, 5, 5).tolist()
        dags.append(random_dag(rng, widths, list(SIZES.attributes), num_edge_types=2))
    cost_K = np.array([1.0, 2.0, 4.0, 8.0])
    target_B = np.array([cost_K[dag.x_NA[:, 0].numpy()].sum() for dag in dags])
    return Labeled(tuple(dags), target_B)


@pytest.fixture(scope="session")
def labeled_sets() -> tuple[Labeled, Labeled]:
    rng = np.random.default_rng(20241)
    return labeled_graphs(rng, 60), labeled_graphs(rng, 40)


@pytest.fixture(scope="session")
def real(labeled_sets) -> Labeled:
    return labeled_sets[0]


@pytest.fixture(scope="session")
def test_set(labeled_sets):
    return labeled_sets[1]
