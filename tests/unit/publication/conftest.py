"""A small release of flow graphs: chains of letters, models of a few hundred parameters."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from raw_graphs import chain

from layerdag.datasets.dataset import GraphDataset
from layerdag.graph.attributed_graph import AttributedGraph
from layerdag.publication import training as _recipe
from layerdag.publication.settings import ReleaseSettings
from layerdag.publication.training import training_settings
from layerdag.publication.workspace import PrivateWorkspace, workspace_lock
from layerdag.sampling.generated import GeneratedGraph
from layerdag.training.settings import TrainSettings


@pytest.fixture(autouse=True)
def narrow(monkeypatch) -> None:
    """Let models be small and trained for two steps."""

    def short(*plan: object, **more: object) -> TrainSettings:
        return replace(training_settings(*plan, **more), max_steps=2)

    monkeypatch.setattr(_recipe, "training_settings", short)
    monkeypatch.setattr(_recipe, "WIDTH", 32)


@pytest.fixture
def settings(tmp_path) -> ReleaseSettings:
    (tmp_path / "traces").mkdir()
    return ReleaseSettings(
        tmp_path / "traces",
        tmp_path / "out",
        steps=1,
        seed=3,
        max_nodes=60,
    )


@pytest.fixture
def work(settings) -> Iterator[PrivateWorkspace]:
    with workspace_lock(
        settings.private, settings.out, settings.request(), overwrite=False
    ) as held:
        yield held


@pytest.fixture(scope="session")
def graphs() -> list[AttributedGraph]:
    """Return 24 chains; two and two are one run."""
    words = ("ab", "abc", "abca", "bcab", "cabca", "aabb")
    return [chain(f"g{i:02d}", words[i % 6] + "abc"[i % 3], label=1.0 + i) for i in range(24)]


@pytest.fixture(scope="session")
def data(graphs) -> GraphDataset:
    return GraphDataset.build(
        "chains", "flow", {"train": graphs[:14], "val": graphs[14:18], "test": graphs[18:]}
    )


@pytest.fixture(scope="session")
def kept(data) -> list[GeneratedGraph]:
    """Return ten samples, as a teacher would draw them."""
    made = [chain(f"m{i}", "abcabcabc"[i % 3 : 3 + i // 2], label=2.0 + i) for i in range(10)]
    return [
        GeneratedGraph(f"sample-{i:05d}", i, data.schema.encode(graph), False, data.schema)
        for i, graph in enumerate(made)
    ]
