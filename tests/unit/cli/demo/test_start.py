from dataclasses import replace
from pathlib import Path

import pytest
from warm_starts import data_of, jobs

from layerdag.api import warm_start
from layerdag.cli.demo import DemoSettings, _stages, _start
from layerdag.cli.demo._stages import steps_of
from layerdag.datasets import GraphDataset
from layerdag.training import LoadedCheckpoint, load_checkpoint

SETTINGS = DemoSettings(
    Path("data"), Path("out"), max_nodes=10, tuning_steps=5, train_steps=50, processes=1
)


@pytest.fixture(scope="module")
def shipped() -> LoadedCheckpoint:
    return load_checkpoint(_start.pretrained_checkpoint())


def pretend(
    monkeypatch: pytest.MonkeyPatch, shipped: LoadedCheckpoint, learned: GraphDataset
) -> list[int]:
    """Let the shipped checkpoint be one that learned from these jobs; return the limits used."""
    limits: list[int] = []

    def load(folder: Path, max_nodes: int, further: str | None) -> GraphDataset:
        assert further == "further"
        limits.append(max_nodes)
        return data_of(jobs(12))

    meta = replace(shipped.meta, split=learned.split)
    monkeypatch.setattr(_start, "load_checkpoint", lambda path: replace(shipped, meta=meta))
    monkeypatch.setattr(_start, "load_corpus", load)
    return limits


def test_the_shipped_weights_are_used_if_they_saw_none_of_the_held_out_jobs(
    monkeypatch: pytest.MonkeyPatch, shipped: LoadedCheckpoint
) -> None:
    limits = pretend(monkeypatch, shipped, data_of(jobs(12)))
    data, warm = _start.load_stage(SETTINGS)
    assert limits == [1200]
    assert warm is not None
    assert warm.start.origin.name == "pretrained"
    assert steps_of(SETTINGS, warm) == 5
    assert max(dag.num_nodes for dags in data.graphs.values() for dag in dags) <= 10


def test_with_another_split_the_demo_starts_from_random_weights(
    monkeypatch: pytest.MonkeyPatch, shipped: LoadedCheckpoint
) -> None:
    pretend(monkeypatch, shipped, data_of(jobs(13)[1:]))
    _, warm = _start.load_stage(SETTINGS)
    assert warm is None
    assert steps_of(SETTINGS, warm) == 50


def test_the_split_of_the_shipped_checkpoint_is_that_of_its_settings(
    shipped: LoadedCheckpoint,
) -> None:
    assert shipped.meta.split is not None
    assert shipped.data_settings["max_nodes"] == 1200


def test_a_corpus_without_further_runs_is_taken_as_it_is(
    monkeypatch: pytest.MonkeyPatch, shipped: LoadedCheckpoint, tmp_path: Path
) -> None:
    asked: list[str | None] = []

    def load(folder: Path, max_nodes: int, further: str | None) -> GraphDataset:
        asked.append(further)
        return data_of(jobs(12))

    monkeypatch.setattr(_start, "load_checkpoint", lambda path: shipped)
    monkeypatch.setattr(_start, "load_corpus", load)
    _start.load_stage(replace(SETTINGS, data=tmp_path))
    assert asked == [None]


def test_smaller_graphs_stay_in_their_parts() -> None:
    data = data_of(jobs(12))
    kept = _start.at_most(data, 12)
    assert 0 < len(kept.graphs["train"]) < len(data.graphs["train"])
    for split, names in data.names.items():
        wanted = [
            n for n, dag in zip(names, data.graphs[split], strict=True) if dag.num_nodes <= 12
        ]
        assert list(kept.names[split]) == wanted
        assert len(kept.contents[split]) == len(wanted)
    total = sum(len(dags) for dags in data.graphs.values())
    assert len(kept.left_out) == total - sum(len(dags) for dags in kept.graphs.values())
    assert kept.schema is data.schema
    assert warm_start("pretrained", kept).spec.sizes == data.schema.sizes()


def test_the_conditions_of_samples_come_from_all_over_the_training_part(
    monkeypatch: pytest.MonkeyPatch, shipped: LoadedCheckpoint
) -> None:
    """The first training jobs are of few families, so that samples of their conditions are, too."""
    data, found = data_of(jobs(12)), []

    def sampled(
        model: object, schema: object, rows: list, plan: object, numbers: range
    ) -> list[int]:
        found.extend(rows)
        return list(numbers)

    monkeypatch.setattr(_stages, "sample_like", sampled)
    _stages.sample_stage(replace(SETTINGS, samples=5), data, shipped)
    dags = data.graphs["train"]
    assert found == [dags[i].conditions for i in (0, 2, 4, 6, 8)]
    found.clear()
    # In two processes each draws every other graph, under its own number.
    monkeypatch.setattr(_stages, "begin_beside", lambda work: work)
    drawn = _stages.sample_stage(replace(SETTINGS, samples=5, processes=2), data, shipped)
    assert list(drawn) == [0, 1, 2, 3, 4]
    assert found == [dags[i].conditions for i in (0, 4, 8, 2, 6)]
    found.clear()
    _stages.sample_stage(replace(SETTINGS, samples=20), data, shipped)
    assert [row["label"] for row in found[:4]] == [
        dags[i].conditions["label"] for i in (0, 0, 1, 1)
    ]
