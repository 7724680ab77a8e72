"""Splitting by run, and what each test needs."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from random_jobs import random_job
from traced_jobs import invented, write_jobs

from layerdag.datasets.dataset import GraphDataset
from layerdag.datasets.discovery import FoundJobs, FoundLabels
from layerdag.graph.attributed_graph import AttributedGraph
from layerdag.kinds.job import JOB
from layerdag.privacy.membership import attack_by_scores
from layerdag.publication import cross_fitting as _cross_fit, drawing as _draw
from layerdag.publication.cross_fitting import (
    MIN_RUNS,
    CrossFit,
    RunRequirement,
    choose_held_out,
    cross_fitted,
    cross_fitted_if_affordable,
    dataset_of,
    fold_of_runs,
    folded_half_width,
    needs_of,
    program_of_runs,
    runs_by_similarity,
    runs_for_cross_fitting,
    runs_for_membership,
    split_jobs,
)
from layerdag.publication.pages import held_out_alike
from layerdag.publication.settings import ReleaseSettings, read_jobs
from layerdag.publication.workspace import FOLDS
from layerdag.sampling.generated import GeneratedGraph
from layerdag.sampling.settings import GenerationSettings
from layerdag.schema.schema import GraphSchema
from layerdag.statistics import MARGIN, Interval, Verdict, chance_half_width


def test_as_few_runs_are_held_out_as_an_attack_needs():
    for runs in (1000, 5000):
        held = choose_held_out(runs)
        assert chance_half_width(runs - held, held) <= MARGIN
        assert held >= 0.2 * runs
        assert held == round(0.2 * runs) or chance_half_width(runs - held + 1, held - 1) > MARGIN


@pytest.mark.parametrize(("runs", "held"), [(8, 3), (32, 13), (100, 40), (500, 200)])
def test_of_few_runs_two_fifths_are_held_out(runs, held):
    assert choose_held_out(runs) == held


def test_the_number_of_runs_for_membership_is_the_least_one():
    found = runs_for_membership()
    for runs, enough in ((found, True), (found - 5, False)):
        held = round(0.4 * runs)
        assert (chance_half_width(runs - held, held) <= MARGIN) is enough


@pytest.mark.parametrize(("folds", "runs"), [(2, 258), (3, 194), (5, 162), (10, 144)])
def test_cross_fitting_needs_fewer_runs(folds, runs):
    assert runs_for_cross_fitting(folds) == runs
    assert folded_half_width(runs, folds) <= MARGIN < folded_half_width(runs - 1, folds)
    assert runs < runs_for_membership()


def test_copies_of_a_run_are_in_one_part_and_the_order_does_not_matter(tmp_path):
    folder = write_jobs(tmp_path / "traces", 12, start=20)
    for seed in range(20, 32):
        data = (folder / f"secretproj-{seed}.0.et").read_bytes()
        (folder / f"another-{seed}.0.et").write_bytes(data)
    jobs = read_jobs(ReleaseSettings(folder, tmp_path / "out"))
    parts = split_jobs(jobs, 0)
    place = {graph.name: part for part, graphs in parts.items() for graph in graphs}
    assert len(place) == 24
    assert all(place[f"secretproj-{i}"] == place[f"another-{i}"] for i in range(20, 32))
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
        kind=JOB,
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


def of_programs(sizes: Sequence[int]) -> FoundJobs:
    """Return runs of programs: so many of each, which differ in sizes alone."""

    def operators(nodes: int, program: int) -> list[str]:
        return ["aten::mm"] * (program + 1) + ["aten::add"] * (nodes - program - 1)

    return found_jobs(
        [
            replace(
                job := random_job(program, 1),
                name=f"{program}-{run}",
                categories={**job.categories, "op": operators(job.num_nodes, program)},
                numbers={**job.numbers, "bytes": job.numbers["bytes"] + run},
            )
            for program, size in enumerate(sizes)
            for run in range(size)
        ]
    )


@pytest.mark.parametrize("sizes", [[3] * 10, [1, 2, 3, 4, 5, 6, 7, 8], [12, *[2] * 9]])
def test_whole_programs_are_held_out(sizes):
    jobs = of_programs(sizes)
    assert jobs.num_programs == len(sizes)
    for seed in range(5):
        parts = split_jobs(jobs, seed)
        seen = [{graph.name.split("-")[0] for graph in graphs} for graphs in parts.values()]
        assert sum(map(len, seen)) == len(set().union(*seen)) == len(sizes)
        assert all(seen)
        assert len(parts["train"]) >= jobs.num_runs / 2
        assert held_out_alike(dataset_of(jobs, seed), jobs) is None
        fold_of = fold_of_runs(jobs, 3, seed)
        program = program_of_runs(jobs)
        assert program is not None
        assert len({(program[run], fold) for run, fold in fold_of.items()}) == len(sizes)
        assert max(Counter(fold_of.values()).values()) <= 2 / 3 * jobs.num_runs


@pytest.mark.parametrize("sizes", [[6] * 5, [40, *[1] * 7]])
def test_runs_of_programs_that_cannot_be_held_out_whole_are_warned_of(sizes):
    jobs = of_programs(sizes)
    parts = split_jobs(jobs, 0)
    held = len(parts["val"]) + len(parts["test"])
    assert held == choose_held_out(jobs.num_runs)
    told = held_out_alike(dataset_of(jobs, 0), jobs)
    assert told is not None
    assert "are runs of programs that are trained on" in told
    by_fold = Counter(fold_of_runs(jobs, 3, 0).values())
    assert max(by_fold.values()) - min(by_fold.values()) <= 1


@given(st.lists(st.integers(2, 12), min_size=1, max_size=6), st.integers(0, 1000))
def test_every_family_is_held_out_as_often_as_the_others(sizes, seed):
    families = [f"family-{i}" for i, size in enumerate(sizes) for _ in range(size)]
    if len(families) < MIN_RUNS:
        families += ["more"] * MIN_RUNS
    jobs = jobs_of(families)
    # By chance some have equally many of each operator, and programs would be drawn, not runs.
    jobs.__dict__["programs"] = {graph.name: graph.name for graph in jobs.graphs}
    parts = split_jobs(jobs, seed)
    held = [*parts["val"], *parts["test"]]
    assert len(held) == choose_held_out(len(families))
    assert len(parts["train"]) + len(held) == len(families)
    for family, count in Counter(families).items():
        found = sum(graph.conditions["family"] == family for graph in held)
        assert abs(found - count * len(held) / len(families)) < 3  # two blocks at its ends


def test_every_run_is_held_out_in_some_split_as_often_as_any_other():
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


def test_without_families_like_programs_stand_next_to_each_other():
    kinds = [("aten::mm", "aten::add"), ("aten::convolution", "aten::relu")]
    graphs = []
    for i in range(12):
        plain = random_job(i, 1)
        count = plain.num_nodes
        names = [kinds[i % 2][(i + j) % 2] for j in range(count)]
        graphs.append(replace(plain, categories={**plain.categories, "op": names}, conditions={}))
    order = runs_by_similarity(found_jobs(graphs), 0)
    kind = [int(run.removeprefix("run-")) % 2 for run in order]
    assert kind in ([0] * 6 + [1] * 6, [1] * 6 + [0] * 6)


def test_needs_say_what_is_too_few(tmp_path):
    folder = write_jobs(tmp_path / "traces", 20)
    data = dataset_of(read_jobs(ReleaseSettings(folder, tmp_path / "out")), 0)
    membership, similarity, usefulness = needs_of(data, 20, [True] * len(data.held_out))
    assert not membership.is_met
    assert membership.needed >= 500
    assert membership.found == 20
    assert similarity.is_met
    assert not usefulness.is_met
    assert RunRequirement("x", 3, 2).sentence() == "x: 2 held-out graphs, needs 3: too few to tell"


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> FoundJobs:
    folder = tmp_path_factory.mktemp("jobs")
    write_jobs(folder / "traces", 12, start=20)  # a program each
    return read_jobs(ReleaseSettings(folder / "traces", folder / "out"))


@pytest.fixture
def plain(settings: ReleaseSettings) -> ReleaseSettings:
    return replace(settings, num=10)


def test_like_runs_are_spread_over_folds_and_stay_together(jobs):
    again = replace(jobs, graphs=jobs.graphs * 2, runs=jobs.runs * 2)
    fold_of = _cross_fit.fold_of_runs(again, 5, seed=0)
    assert set(fold_of) == set(jobs.runs)
    assert max(Counter(fold_of.values()).values()) <= 3
    assert fold_of == _cross_fit.fold_of_runs(again, 5, seed=0)
    assert fold_of != _cross_fit.fold_of_runs(again, 5, seed=1)


def test_every_run_is_held_out_once_and_a_stopped_call_goes_on(jobs, plain, work, monkeypatch):
    seen: list[GraphDataset] = []

    def taught(settings: object, data: GraphDataset, *_: object) -> Any:
        seen.append(data)
        return SimpleNamespace(model=None)

    monkeypatch.setattr(_cross_fit, "train_model", taught)
    monkeypatch.setattr(_draw, "generate", invented)
    monkeypatch.setattr(_draw, "BATCH", 12)
    lines: list[str] = []
    found = cross_fitted(plain, jobs, work, 2, 30.0, lines.append)
    assert found is not None
    assert (found.folds, found.runs) == (2, 12)
    assert found.samples >= 8
    held = [name for data in seen for name in (*data.names["val"], *data.names["test"])]
    assert sorted(held) == sorted(graph.name for graph in jobs.graphs)
    for data in seen:
        assert not {*data.names["val"], *data.names["test"]} & {*data.names["train"]}
    for attack in found.attacks:
        assert (attack.members, attack.non_members) == (12, 12)
        assert attack.interval.high - attack.interval.low < 0.6
    assert {attack.name for attack in found.attacks} >= {"nearest_sample", "reconstruction"}
    assert [line.split(":")[0] for line in lines] == [f"fold {i} of 2" for i in (1, 2)]
    assert len(list((work.path / FOLDS).glob("2-*/drawn/*.npz"))) >= 2
    monkeypatch.setattr(_draw, "generate", None)  # no call any more
    again = cross_fitted(plain, jobs, work, 2, 30.0, lines.append)
    assert again is not None
    assert [a.auc for a in again.attacks] == [a.auc for a in found.attacks]


def test_a_generator_that_repeats_training_graphs_is_caught(jobs, plain, work, monkeypatch):
    seen: list[GraphDataset] = []

    def copies(
        model: object, schema: GraphSchema, settings: GenerationSettings
    ) -> Iterator[GeneratedGraph]:
        train = seen[-1].graphs["train"]
        for i, sample in enumerate(invented(model, schema, settings)):
            conditions = sample.dag.conditions
            yield replace(sample, dag=train[i % len(train)].with_conditions(conditions))

    class Everything:
        """Keeps what a release would reject."""

        renumbered, copies = 0, SimpleNamespace(hashes=set(), threshold=0.0)

        @classmethod
        def from_jobs(cls, *_: object) -> "Everything":
            return cls()

        def filter(self, batch: list[GeneratedGraph]) -> list[tuple[GeneratedGraph, str]]:
            return [(sample, _draw.KEPT) for sample in batch]

    def taught(settings: object, data: GraphDataset, *_: object) -> Any:
        seen.append(data)
        return SimpleNamespace(model=None)

    monkeypatch.setattr(_cross_fit, "train_model", taught)
    monkeypatch.setattr(_draw, "generate", copies)
    monkeypatch.setattr(_draw, "ReleaseFilter", Everything)
    found = cross_fitted(replace(plain, num=20), jobs, work, 3, 30.0, lambda _: None)
    assert found is not None
    nearest = next(attack for attack in found.attacks if attack.name == "nearest_sample")
    assert nearest.auc > 0.95
    assert nearest.verdict is Verdict.LEAKS
    clauses = list(found.successes())
    assert any(
        clause.startswith("cross-fitted over 3 folds of 12 runs, the attack nearest_sample tells")
        for clause in clauses
    )


def test_folds_are_trained_where_the_budget_allows_or_they_are_asked_for(
    jobs, plain, work, monkeypatch
):
    asked: list[tuple[int, float]] = []

    def noted(_: object, __: object, ___: object, folds: int, seconds: float, ____: object) -> None:
        asked.append((folds, seconds))

    monkeypatch.setattr(_cross_fit, "cross_fitted", noted)
    told: list[str] = []

    def call(settings: ReleaseSettings) -> None:
        noted = sum(work.stages.get(stage, {}).get("seconds", 0.0) for stage in ("train", "sample"))
        left = settings.budget - noted - 20.0
        cross_fitted_if_affordable(settings, jobs, work, left, told.append)

    call(replace(plain, budget=900.0))  # nothing is known of how long it takes
    assert asked == []
    assert "not cross-fitted" in told[-1]
    work.note("train", {"seconds": 30.0})
    work.note("sample", {"seconds": 50.0})
    call(replace(plain, budget=250.0))
    assert asked == []
    call(replace(plain, budget=700.0))
    assert asked == [(2, 600.0)]
    work.note("train", {"seconds": 500.0})
    call(replace(plain, budget=700.0))  # goes on as it began
    assert asked[-1][0] == 2
    call(replace(plain, budget=300.0, cross_fit=4))
    assert asked[-1] == (4, 150.0)
    call(replace(plain, budget=300.0, cross_fit=20))
    assert asked[-1][0] == 6  # two runs in each fold
    count = len(asked)
    call(replace(plain, budget=9e5, cross_fit=0))
    cross_fitted_if_affordable(
        replace(plain, budget=9e4), replace(jobs, parts={"a": "train"}), work, 9e4, told.append
    )
    assert len(asked) == count


def test_folds_have_enough_runs_to_compare_with():
    assert [_cross_fit.usual_folds(runs) for runs in (8, 16, 31, 40, 400)] == [2, 2, 3, 5, 5]


def folded(auc: float, verdict: Verdict) -> CrossFit:
    attack = attack_by_scores("nearest_sample", "how near", [(np.zeros(9), np.zeros(9))], 0)
    half = 0.03
    shown = replace(
        attack, auc=auc, interval=Interval(auc - half, auc + half), verdict=verdict, need=None
    )
    return CrossFit(5, 31, 100, (shown,), 9.0)


def test_what_was_told_and_what_was_not_is_said(tmp_path):
    fine = folded(0.51, Verdict.CHANCE)
    assert fine.told() == (
        "cross-fitted over 5 folds of 31 runs, 100 samples of each: largest AUROC 0.51 "
        "[0.48, 0.54] (nearest_sample)"
    )
    assert not [*fine.successes(), *fine.reserves()]
    (doubt,) = folded(0.53, Verdict.TOO_FEW).reserves()
    assert "too few runs to tell whether membership attacks succeed by nearest_sample" in doubt
    assert "(about 162 needed)" in doubt
    (reason,) = folded(0.6, Verdict.LEAKS).successes()
    assert "tells which graphs were trained on (AUROC 0.60 [0.57, 0.63], 0.5 is chance)" in reason
    (uneven,) = folded(0.4, Verdict.REVERSED).reserves()
    assert uneven.endswith("nearest_sample prefers held-out graphs")
    assert fine.to_dict()["folds"] == 5
