"""Splitting by run, and what each test needs."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from random_jobs import random_job
from traced_jobs import write_jobs

from layerdag.api.publication import ReleaseSettings
from layerdag.api.publication._split import (
    LEAST_RUNS,
    Need,
    dataset_of,
    folded_half_width,
    held_out_of,
    needs_of,
    runs_by_likeness,
    runs_for_cross_fitting,
    runs_for_membership,
    split_jobs,
)
from layerdag.api.publication.reading import FoundJobs, FoundLabels, read_jobs
from layerdag.codec import AttributedGraph
from layerdag.evaluation.privacy import MARGIN, chance_half_width


def test_as_few_runs_are_held_out_as_an_attack_needs() -> None:
    for runs in (1000, 5000):
        held = held_out_of(runs)
        assert chance_half_width(runs - held, held) <= MARGIN
        assert held >= 0.2 * runs
        assert held == round(0.2 * runs) or chance_half_width(runs - held + 1, held - 1) > MARGIN


@pytest.mark.parametrize(("runs", "held"), [(8, 3), (32, 13), (100, 40), (500, 200)])
def test_of_few_runs_two_fifths_are_held_out(runs: int, held: int) -> None:
    assert held_out_of(runs) == held


def test_the_number_of_runs_for_membership_is_the_least_one() -> None:
    found = runs_for_membership()
    for runs, enough in ((found, True), (found - 5, False)):
        held = round(0.4 * runs)
        assert (chance_half_width(runs - held, held) <= MARGIN) is enough


@pytest.mark.parametrize(("folds", "runs"), [(2, 258), (3, 194), (5, 162), (10, 144)])
def test_cross_fitting_needs_fewer_runs(folds: int, runs: int) -> None:
    assert runs_for_cross_fitting(folds) == runs
    assert folded_half_width(runs, folds) <= MARGIN < folded_half_width(runs - 1, folds)
    assert runs < runs_for_membership()


def test_copies_of_a_run_are_in_one_part_and_the_order_does_not_matter(tmp_path: Path) -> None:
    folder = write_jobs(tmp_path / "traces", 12)
    for seed in range(12):
        data = (folder / f"secretproj-{seed}.0.et").read_bytes()
        (folder / f"another-{seed}.0.et").write_bytes(data)
    jobs = read_jobs(ReleaseSettings(folder, tmp_path / "out"))
    parts = split_jobs(jobs, 0)
    place = {graph.name: part for part, graphs in parts.items() for graph in graphs}
    assert len(place) == 24
    assert all(place[f"secretproj-{i}"] == place[f"another-{i}"] for i in range(12))
    assert {part: len(graphs) for part, graphs in parts.items()} == {
        "train": 14,
        "val": 4,
        "test": 6,
    }
    assert place != {g.name: p for p, graphs in split_jobs(jobs, 1).items() for g in graphs}


def found_jobs(graphs: Sequence[AttributedGraph]) -> FoundJobs:
    """Return graphs as they are found, each of a run of its own."""
    return FoundJobs(
        tuple(graphs),
        tuple(f"run-{i}" for i in range(len(graphs))),
        kind="trace",
        formats={},
        left_out=(),
        others={},
        private=frozenset(),
        labels=FoundLabels({}, (), ()),
        labeled=0,
        renamed=0,
    )


def jobs_of(families: Sequence[str]) -> FoundJobs:
    """Return a different job for each of these families."""
    graphs = tuple(
        replace(random_job(i, 1), conditions={"family": family} if family else {})
        for i, family in enumerate(families)
    )
    return found_jobs(graphs)


@given(st.lists(st.integers(2, 12), min_size=1, max_size=6), st.integers(0, 1000))
def test_every_family_is_held_out_as_often_as_the_others(sizes: list[int], seed: int) -> None:
    families = [f"family-{i}" for i, size in enumerate(sizes) for _ in range(size)]
    if len(families) < LEAST_RUNS:
        families += ["more"] * LEAST_RUNS
    parts = split_jobs(jobs_of(families), seed)
    held = [*parts["val"], *parts["test"]]
    assert len(held) == held_out_of(len(families))
    assert len(parts["train"]) + len(held) == len(families)
    for family, count in Counter(families).items():
        found = sum(graph.conditions["family"] == family for graph in held)
        assert abs(found - count * len(held) / len(families)) < 3  # two blocks at its ends


def test_every_run_is_held_out_in_some_split_as_often_as_any_other() -> None:
    jobs = jobs_of(["a"] * 7 + ["b"] * 3 + [""] * 10)
    seeds = 200
    times = Counter(
        graph.name
        for seed in range(seeds)
        for part, graphs in split_jobs(jobs, seed).items()
        if part != "train"
        for graph in graphs
    )
    assert set(times) == {graph.name for graph in jobs.graphs}
    assert all(abs(count / seeds - 0.4) < 0.2 for count in times.values())


def test_without_families_like_programs_stand_next_to_each_other() -> None:
    kinds = [("aten::mm", "aten::add"), ("aten::convolution", "aten::relu")]
    graphs = []
    for i in range(12):
        plain = random_job(i, 1)
        count = plain.num_nodes
        names = [kinds[i % 2][(i + j) % 2] for j in range(count)]
        graphs.append(replace(plain, categories={**plain.categories, "op": names}, conditions={}))
    order = runs_by_likeness(found_jobs(graphs), 0)
    kind = [int(run.removeprefix("run-")) % 2 for run in order]
    assert kind in ([0] * 6 + [1] * 6, [1] * 6 + [0] * 6)


def test_needs_say_what_is_too_few(tmp_path: Path) -> None:
    folder = write_jobs(tmp_path / "traces", 20)
    data = dataset_of(read_jobs(ReleaseSettings(folder, tmp_path / "out")), 0)
    membership, similarity, usefulness = needs_of(data, 20, [True] * len(data.held_out))
    assert not membership.is_met
    assert membership.needed >= 500
    assert membership.found == 20
    assert similarity.is_met
    assert not usefulness.is_met
    assert Need("x", 3, 2).sentence() == "x: 2 held-out graphs, needs 3: too few to tell"
