"""Graphs of another size than asked for are drawn again."""

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from tiny_checkpoints import chain_checkpoint, job_checkpoint

from layerdag.errors import UsageError
from layerdag.graph import DAG
from layerdag.sampling import GeneratedGraph, GenerationSettings, _sampling, checkpoint_schema
from layerdag.sampling.writing._request import run_facts
from layerdag.training import LoadedCheckpoint


def chain(nodes: int) -> DAG:
    """Return a path of nodes without attributes."""
    edges_2E = torch.stack([torch.arange(nodes - 1), torch.arange(1, nodes)])
    return DAG.build(torch.zeros((nodes, 0), dtype=torch.int64), edges_2E)


def drawn(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    sizes: Sequence[int],
    *,
    asked: float,
    redraws: int,
) -> tuple[GeneratedGraph, list[int]]:
    """Return a graph that has these sizes in its draws one after another, and all seeds."""
    schema = checkpoint_schema(chain_checkpoint(tmp_path))
    seeds_drawn: list[int] = []

    def graphs(
        self: object, numbers: Sequence[int], seeds: Sequence[int], rows: Sequence[object]
    ) -> list[GeneratedGraph]:
        dag = chain(sizes[len(seeds_drawn)])
        seeds_drawn.extend(seeds)
        return [GeneratedGraph("sample-00000", seeds[0], dag, False, schema)]

    monkeypatch.setattr(_sampling._Drawing, "_graphs", graphs)
    settings = GenerationSettings(seed=7, redraws=redraws)
    drawing = _sampling._Drawing(None, schema, settings, None, None)
    (kept,) = drawing.graphs([0], [{"num_nodes": asked}])
    return kept, seeds_drawn


@pytest.mark.parametrize(
    ("sizes", "redraws", "draws", "kept"),
    [
        ([16, 99, 99], 2, 1, 16),
        ([30, 16, 99], 2, 2, 16),
        ([30, 24, 40], 2, 3, 24),
        ([30, 40, 24], 2, 3, 24),
        ([20, 30, 40], 2, 3, 20),
        ([30, 16, 99], 0, 1, 30),
    ],
)
def test_the_nearest_of_so_many_draws_is_kept_under_its_own_seed(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    sizes: list[int],
    redraws: int,
    draws: int,
    kept: int,
) -> None:
    graph, seeds = drawn(tmp_path, monkeypatch, sizes, asked=16.0, redraws=redraws)
    assert (graph.dag.num_nodes, graph.seed) == (kept, 7)
    assert len(seeds) == len(set(seeds)) == draws


def test_jobs_that_are_the_best_of_several_are_drawn_again_where_a_size_is_asked_for(
    tmp_path: Path,
) -> None:
    job, flow = job_checkpoint(tmp_path / "jobs"), chain_checkpoint(tmp_path / "flow")

    size = {"num_nodes": 16.0}

    def redraws(checkpoint: LoadedCheckpoint, **settings: object) -> int | None:
        schema = checkpoint_schema(checkpoint)
        return GenerationSettings(**settings).settled(checkpoint.model, schema).redraws

    assert redraws(job, best_of=8, conditions=size) == 3
    assert redraws(job, best_of=8) == 0
    assert redraws(job, best_of=1, conditions=size) == 0
    assert redraws(job, best_of=1, redraws=3) == 3
    assert redraws(flow, best_of=4, conditions=size) == 0


def test_the_conditions_of_rows_are_asked_for(tmp_path: Path) -> None:
    job = job_checkpoint(tmp_path)
    plain, schema = GenerationSettings(best_of=8), checkpoint_schema(job)
    assert plain.settled(job.model, schema, asked={"num_nodes"}).redraws == 3
    assert plain.settled(job.model, schema, asked={"label"}).redraws == 0


def test_a_manifest_names_redraws_where_there_are_some(tmp_path: Path) -> None:
    """Where nothing is drawn again, there is no such entry."""
    job = job_checkpoint(tmp_path)
    schema = checkpoint_schema(job)

    def facts(**settings: object) -> dict[str, object]:
        return run_facts(job, GenerationSettings(**settings).settled(job.model, schema), "et")

    assert "redraws" not in facts(best_of=8)
    assert facts(best_of=8, conditions={"num_nodes": 16.0})["redraws"] == 3


def test_fewer_than_no_redraws_are_refused() -> None:
    with pytest.raises(UsageError, match="'redraws' must not be negative, found -1"):
        GenerationSettings(redraws=-1)
