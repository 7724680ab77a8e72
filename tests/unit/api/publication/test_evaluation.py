"""Which figures on samples can be had, and which are left out for want of graphs."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from traced_jobs import invented, write_jobs

from layerdag.api.publication import ReleaseSettings, _evaluation
from layerdag.api.publication._evaluation import SampleEvaluation, evaluate_samples
from layerdag.api.publication._split import dataset_of
from layerdag.api.publication.drawing import KEPT, Drawn
from layerdag.api.publication.reading import FoundJobs, read_jobs
from layerdag.datasets import GraphDataset
from layerdag.errors import DataError
from layerdag.evaluation.privacy import Verdict
from layerdag.report import median_ratio
from layerdag.sampling import GeneratedGraph, GenerationSettings

Real = tuple[FoundJobs, GraphDataset]


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Real:
    folder = tmp_path_factory.mktemp("evaluation")
    jobs = read_jobs(ReleaseSettings(write_jobs(folder / "traces", 12), folder / "out"))
    return jobs, dataset_of(jobs, 0)


def samples(real: Real, num: int = 4) -> list[GeneratedGraph]:
    return list(invented(None, real[1].schema, GenerationSettings(num=num)))


def bare(**changes: Any) -> SampleEvaluation:
    """Return an evaluation of which only the named figures are known."""
    fields = dict.fromkeys(SampleEvaluation.__dataclass_fields__, None)
    return SampleEvaluation(**{**fields, "leaks": (), **changes})


def leak(nearness: Verdict, **attacks: Verdict) -> Any:
    return SimpleNamespace(
        nearness=SimpleNamespace(verdict=nearness),
        attacks=[SimpleNamespace(name=name, verdict=verdict) for name, verdict in attacks.items()],
        inferences=[SimpleNamespace(name="properties", verdict=Verdict.TOO_FEW)],
    )


def test_verdicts_are_those_on_all_samples() -> None:
    few = leak(Verdict.TOO_FEW, nearest=Verdict.TOO_FEW)
    everything = leak(Verdict.CHANCE, nearest=Verdict.LEAKS, shadow=Verdict.CHANCE)
    assert bare(leaks=(few, everything)).verdicts == {
        "nearness": Verdict.CHANCE, "nearest": Verdict.LEAKS, "shadow": Verdict.CHANCE,
        "properties": Verdict.TOO_FEW,
    }  # fmt: skip
    assert bare().verdicts == {}


def ratios(*rows: tuple[float | None, bool]) -> Any:
    return SimpleNamespace(
        rows=[SimpleNamespace(matched_ratio=ratio, is_distance=told) for ratio, told in rows]
    )


@pytest.mark.parametrize(
    ("rows", "median"),
    [
        ([(1.0, True), (3.0, True), (2.0, True)], 2.0),
        ([(1.0, True), (4.0, True)], 2.5),
        ([(1.0, True), (900.0, False)], 1.0),  # no distance
        ([(1.5, True), (None, True), (float("inf"), True), (float("nan"), True)], 1.5),
        ([(None, True)], None),
        ([], None),
    ],
)
def test_the_median_is_over_known_ratios_of_distances(
    rows: list[tuple[float | None, bool]], median: float | None
) -> None:
    assert median_ratio(ratios(*rows)) == median


def test_without_a_comparison_there_is_no_ratio() -> None:
    assert median_ratio(None) is None


def test_few_graphs_on_either_side_are_not_compared(
    real: Real, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_evaluation, "compare", lambda *_: "compared")
    dags = [sample.dag for sample in samples(real)]
    held = len(real[1].held_out)
    assert held >= 3
    monkeypatch.setattr(_evaluation, "FOR_SIMILARITY", 3)
    found: Any = _evaluation.similarity_of(real[1], dags[:3])
    assert found == "compared"
    assert _evaluation.similarity_of(real[1], dags[:2]) is None
    monkeypatch.setattr(_evaluation, "FOR_SIMILARITY", held + 1)
    assert _evaluation.similarity_of(real[1], dags * held) is None


def test_usefulness_needs_labels_in_all_three_parts(
    real: Real, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[GraphDataset] = []

    def told(data: GraphDataset, made: list[GeneratedGraph]) -> Any:
        calls.append(data)
        return len(made)

    monkeypatch.setattr(_evaluation, "transferred", told)
    monkeypatch.setattr(_evaluation, "FOR_USEFULNESS", 3)
    kept = samples(real)
    bare_dag = kept[0].dag.with_conditions({})
    found: Any = _evaluation._transfer(real[1], [*kept[1:], replace(kept[0], dag=bare_dag)])
    assert found == 3  # the sample without a label is left out
    assert calls[0].graphs["val"] == ()
    assert len(calls[0].graphs["test"]) == len(real[1].held_out)
    assert _evaluation._transfer(real[1], [*kept[1:3], replace(kept[0], dag=bare_dag)]) is None


def test_labels_that_teach_nothing_are_no_error(
    real: Real, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> Any:
        raise DataError("All labels are alike.")

    monkeypatch.setattr(_evaluation, "transferred", refuse)
    monkeypatch.setattr(_evaluation, "FOR_USEFULNESS", 1)
    assert _evaluation._transfer(real[1], samples(real)) is None


@pytest.mark.parametrize(
    ("makespans", "takes"), [([3, 5], True), ([3, 0], False), ([0], False), ([], False)]
)
def test_times_are_told_only_if_every_job_takes_some(makespans: list[int], takes: bool) -> None:
    part: Any = SimpleNamespace(
        num_ranks=np.ones(len(makespans), dtype=np.int64),
        makespan_ns=np.array(makespans, dtype=np.float64),
    )
    assert _evaluation._takes_time(part) is takes


def test_graphs_that_are_no_traces_are_not_simulated(real: Real) -> None:
    data: Any = SimpleNamespace(schema=SimpleNamespace(kind="flow"))
    assert _evaluation._simulated(data, real[0].graphs, samples(real)) == ((), None, (), {})


def test_real_jobs_that_cannot_be_traces_are_passed_over(
    real: Real, monkeypatch: pytest.MonkeyPatch
) -> None:
    graphs = real[0].graphs[:3]

    def converted(graph: Any) -> Any:
        if graph is graphs[1]:
            raise DataError("Its ranks do not match.")
        return SimpleNamespace(workload=graph.name)

    monkeypatch.setattr(_evaluation, "as_workload", converted)
    assert _evaluation._real_workloads(graphs) == [graphs[0].name, graphs[2].name]
    monkeypatch.setattr(_evaluation, "SIMULATED", 2)
    assert _evaluation._real_workloads(graphs) == [graphs[0].name]


@pytest.fixture(scope="module")
def evaluated(real: Real) -> SampleEvaluation:
    kept = samples(real)
    copy = GeneratedGraph("copy", 5, real[1].graphs["train"][0], False, real[1].schema)
    drawn = Drawn((*kept, copy), (KEPT,) * 4 + ("copy of a real graph",), 0, 0.5, 1.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_evaluation, "weight_attacks", lambda *_: ())
        patch.setattr(_evaluation, "SIMULATED", 2)
        model: Any = None
        return evaluate_samples(real[1], real[0].graphs[:2], drawn, kept, model)


def test_few_samples_have_figures_on_rules_and_copies(evaluated: SampleEvaluation) -> None:
    assert evaluated.structure.valid_B.shape == (4,)
    assert evaluated.real_structure.validity == 1.0
    assert evaluated.novelty.copied == 0
    assert evaluated.leaks
    assert "nearness" in evaluated.verdicts


def test_few_samples_have_no_figures_on_likeness_and_use(evaluated: SampleEvaluation) -> None:
    assert evaluated.similarity is None
    assert evaluated.ratio is None
    assert evaluated.ratio_with_copies is None
    assert evaluated.transfer is None


def test_jobs_of_one_rank_are_simulated_but_not_compared_across_systems(
    evaluated: SampleEvaluation,
) -> None:
    """Systems differ in their networks, which a single rank does not use."""
    assert evaluated.failed == ()
    makespan, share = evaluated.simulations
    assert [sample.values.shape for sample in makespan.samples] == [(2,), (2,)]
    for sample in makespan.samples:
        assert (sample.values > 0).all()
    for sample in share.samples:
        assert sample.values.tolist() == [0.0, 0.0]
    assert evaluated.systems is None
