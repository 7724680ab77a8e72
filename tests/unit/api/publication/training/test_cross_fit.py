"""Every run is both trained on and held out, and the verdict says what follows."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from traced_jobs import invented, write_jobs

from layerdag.api.publication import FOLDS, ReleaseSettings, Work
from layerdag.api.publication.drawing import _draw
from layerdag.api.publication.reading import FoundJobs, read_jobs
from layerdag.api.publication.training import (
    CrossFit,
    _cross_fit,
    cross_fitted,
    cross_fitted_if_affordable,
)
from layerdag.datasets import GraphDataset
from layerdag.datasets.schema import GraphSchema
from layerdag.evaluation.metrics import Interval
from layerdag.evaluation.privacy import Verdict, attack_by_scores
from layerdag.sampling import GeneratedGraph, GenerationSettings


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> FoundJobs:
    folder = tmp_path_factory.mktemp("jobs")
    write_jobs(folder / "traces", 12)
    return read_jobs(ReleaseSettings(folder / "traces", folder / "out"))


@pytest.fixture
def plain(settings: ReleaseSettings) -> ReleaseSettings:
    return replace(settings, num=10, with_weights=False)


def test_like_runs_are_spread_over_folds_and_stay_together(jobs: FoundJobs) -> None:
    again = replace(jobs, graphs=jobs.graphs * 2, runs=jobs.runs * 2)
    fold_of = _cross_fit.fold_of_runs(again, 5, seed=0)
    assert set(fold_of) == set(jobs.runs)
    assert max(Counter(fold_of.values()).values()) <= 3
    assert fold_of == _cross_fit.fold_of_runs(again, 5, seed=0)
    assert fold_of != _cross_fit.fold_of_runs(again, 5, seed=1)


def test_every_run_is_held_out_once_and_a_stopped_call_goes_on(
    jobs: FoundJobs, plain: ReleaseSettings, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[GraphDataset] = []

    def taught(settings: object, data: GraphDataset, *_: object) -> Any:
        seen.append(data)
        return SimpleNamespace(model=None)

    monkeypatch.setattr(_cross_fit, "trained_teacher", taught)
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


def test_a_generator_that_repeats_training_graphs_is_caught(
    jobs: FoundJobs, plain: ReleaseSettings, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
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
        def of(cls, *_: object) -> "Everything":
            return cls()

        def sifted(self, batch: list[GeneratedGraph]) -> list[tuple[GeneratedGraph, str]]:
            return [(sample, _draw.KEPT) for sample in batch]

    def taught(settings: object, data: GraphDataset, *_: object) -> Any:
        seen.append(data)
        return SimpleNamespace(model=None)

    monkeypatch.setattr(_cross_fit, "trained_teacher", taught)
    monkeypatch.setattr(_draw, "generate", copies)
    monkeypatch.setattr(_draw, "Sieve", Everything)
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
    jobs: FoundJobs, plain: ReleaseSettings, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, float]] = []

    def noted(_: object, __: object, ___: object, folds: int, seconds: float, ____: object) -> None:
        asked.append((folds, seconds))

    monkeypatch.setattr(_cross_fit, "cross_fitted", noted)
    told: list[str] = []

    def call(settings: ReleaseSettings) -> None:
        cross_fitted_if_affordable(settings, jobs, work, 20.0, told.append)

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
        replace(plain, budget=9e4), replace(jobs, parts={"a": "train"}), work, 1.0, told.append
    )
    assert len(asked) == count


def test_folds_have_enough_runs_to_compare_with() -> None:
    assert [_cross_fit.usual_folds(runs) for runs in (8, 16, 31, 40, 400)] == [2, 2, 3, 5, 5]


def folded(auc: float, verdict: Verdict) -> CrossFit:
    attack = attack_by_scores("nearest_sample", "how near", [(np.zeros(9), np.zeros(9))], 0)
    half = 0.03
    shown = replace(
        attack, auc=auc, interval=Interval(auc - half, auc + half), verdict=verdict, need=None
    )
    return CrossFit(5, 31, 100, (shown,), 9.0)


def test_what_was_told_and_what_was_not_is_said(tmp_path: Path) -> None:
    fine = folded(0.51, Verdict.CHANCE)
    assert fine.told() == (
        "cross-fitted over 5 folds of 31 runs, 100 samples of each: largest area 0.51 "
        "[0.48, 0.54] (nearest_sample)"
    )
    assert not [*fine.successes(), *fine.reserves()]
    (doubt,) = folded(0.53, Verdict.TOO_FEW).reserves()
    assert "too few runs to tell whether membership attacks succeed by nearest_sample" in doubt
    assert "(about 162 needed)" in doubt
    (reason,) = folded(0.6, Verdict.LEAKS).successes()
    assert "tells which graphs were trained on (area 0.60 [0.57, 0.63], .5 is chance)" in reason
    (uneven,) = folded(0.4, Verdict.REVERSED).reserves()
    assert uneven.endswith("nearest_sample prefers held-out graphs")
    assert fine.to_dict()["folds"] == 5
