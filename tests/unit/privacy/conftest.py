"""Words as small flow graphs, and a checkpoint that learned half of them by heart."""

from dataclasses import dataclass

import numpy as np
import pytest
from raw_graphs import chain

import layerdag as ld
from layerdag.graph.attributed_graph import AttributedGraph
from layerdag.privacy import shadows as _settings
from layerdag.training.checkpoint import LoadedCheckpoint
from layerdag.training.settings import OptimizerConfig


@pytest.fixture(autouse=True)
def few(monkeypatch) -> None:
    monkeypatch.setattr(_settings, "MIN_SHADOWS", 4)


@dataclass(frozen=True, eq=False)
class Learned:
    """A checkpoint, what it learned and what it never saw."""

    checkpoint: LoadedCheckpoint
    data: ld.GraphDataset
    graphs: list[AttributedGraph]


def words(count: int, seed: int) -> list[str]:
    rng = np.random.default_rng(seed)
    found: dict[str, None] = {}
    while len(found) < count:
        found["".join(rng.choice(list("abcdef"), size=int(rng.integers(4, 8))))] = None
    return list(found)


@pytest.fixture(scope="session")
def memorizer() -> Learned:
    """Return a model of twelve words of 48 that was trained for long."""
    graphs = [chain(f"g{i}", word) for i, word in enumerate(words(48, 0))]
    parts = {"train": graphs[:12], "val": graphs[12:16], "test": graphs[16:24]}
    data = ld.GraphDataset.build("words", "flow", parts)
    settings = ld.TrainSettings(
        max_steps=20,
        evaluate_every=20,
        ema_decay=0.5,
        optimizer=OptimizerConfig(learning_rate=6e-2),
    )
    return Learned(ld.train(data, settings=settings, width=32, depth=1).checkpoint, data, graphs)
