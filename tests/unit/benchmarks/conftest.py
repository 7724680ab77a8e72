import pytest
from benchmark_tables import scheduling

from layerdag.datasets.dataset import GraphDataset


@pytest.fixture(scope="session")
def data() -> GraphDataset:
    """Return sixty scheduled graphs, which tests read and do not change."""
    return scheduling.scheduled(60)
