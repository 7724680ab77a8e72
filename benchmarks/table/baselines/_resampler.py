"""Training graphs drawn again: everything about it is real, and nothing is new."""

from collections.abc import Sequence
from typing import Any

from layerdag.dag.dag import DAG
from layerdag.datasets.dataset import GraphDataset
from layerdag.runtime.rng import numpy_generator


class Resampler:
    """Draws training graphs with replacement."""

    parameters, steps = 0, 0

    def __init__(self, dags: Sequence[DAG]) -> None:
        self.dags = dags

    def sample(self, num: int, seed: int) -> list[DAG | None]:
        """Return training graphs."""
        rng = numpy_generator(seed, "resampler")
        return [self.dags[i] for i in rng.integers(0, len(self.dags), num)]


def fit_resampler(data: GraphDataset, seconds: float, seed: int, **settings: Any) -> Resampler:
    """Return the training graphs; time and seed change nothing."""
    return Resampler(data.graphs["train"])
