"""Which figures on samples can be had, and which are left out for want of graphs."""

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from traced_jobs import invented, write_jobs

from layerdag.datasets.dataset import GraphDataset
from layerdag.datasets.discovery import FoundJobs
from layerdag.errors import DataError
from layerdag.kinds.flow import FLOW
from layerdag.privacy.attacks import Inference
from layerdag.privacy.copies import DistanceToClosestRecord
from layerdag.privacy.membership import AttackResult, DetectionRate
from layerdag.privacy.membership_attacks import Roles
from layerdag.privacy.sample_leaks import SampleLeaks
from layerdag.publication import evaluation as _evaluation
from layerdag.publication.cross_fitting import CrossFit, RunRequirement, dataset_of
from layerdag.publication.drawing import KEPT, AcceptedSamples
from layerdag.publication.evaluation import (
    SIMILARITY,
    USEFULNESS,
    ReleaseDecision,
    SampleEvaluation,
    evaluate_samples,
    verdict_of,
)
from layerdag.publication.schedule import TimeLeft
from layerdag.publication.settings import ReleaseSettings, read_jobs
from layerdag.sampling.generated import GeneratedGraph
from layerdag.sampling.settings import GenerationSettings
from layerdag.statistics import Interval, SampleSizeRequirement as GraphsNeeded, Verdict

Real = tuple[FoundJobs, GraphDataset]


@pytest.fixture(scope="module")
def real(tmp_path_factory) -> Real:
    folder = tmp_path_factory.mktemp("evaluation")
    jobs = read_jobs(ReleaseSettings(write_jobs(folder / "traces", 12), folder / "out"))
    return jobs, dataset_of(jobs, 0)


def samples(real: Real, num: int = 4) -> list[GeneratedGraph]:
    return list(invented(None, real[1].schema, GenerationSettings(num=num)))


def bare(**changes: Any) -> SampleEvaluation:
    """Return an evaluation of which only the named figures are known."""
    fields = dict.fromkeys(SampleEvaluation.__dataclass_fields__, None)
    return SampleEvaluation(**{**fields, **changes})


def test_without_held_out_graphs_there_is_no_verdict_on_samples():
    assert bare(leaks=leaks(20, Verdict.LEAKS)).verdicts == {
        "nearness": Verdict.CHANCE,
        "nearest_sample": Verdict.LEAKS,
    }
    assert bare().verdicts == {}


def test_few_graphs_on_either_side_are_not_compared(real, monkeypatch):
    monkeypatch.setattr(_evaluation, "compare", lambda *_, **__: "compared")
    dags = [sample.dag for sample in samples(real)]
    held = len(real[1].held_out)
    assert held >= 3
    monkeypatch.setattr(_evaluation, "MIN_COMPARED", 3)
    found: Any = _evaluation.similarity_of(real[1], dags[:3])
    assert found == "compared"
    assert _evaluation.similarity_of(real[1], dags[:2]) is None
    monkeypatch.setattr(_evaluation, "MIN_COMPARED", held + 1)
    assert _evaluation.similarity_of(real[1], dags * held) is None


def test_usefulness_needs_labels_in_all_three_parts(real, monkeypatch):
    calls: list[GraphDataset] = []

    def told(data: GraphDataset, made: list[GeneratedGraph]) -> Any:
        calls.append(data)
        return len(made)

    monkeypatch.setattr(_evaluation, "transferred", told)
    monkeypatch.setattr(_evaluation, "MIN_TESTED", 3)
    kept = samples(real)
    bare_dag = kept[0].dag.with_conditions({})
    found: Any = _evaluation._transfer(real[1], [*kept[1:], replace(kept[0], dag=bare_dag)])
    assert found == 3  # the sample without a label is left out
    assert calls[0].graphs["val"] == ()
    assert len(calls[0].graphs["test"]) == len(real[1].held_out)
    assert _evaluation._transfer(real[1], [*kept[1:3], replace(kept[0], dag=bare_dag)]) is None


def test_labels_that_teach_nothing_are_no_error(real, monkeypatch):
    def refuse(*_: object) -> Any:
        raise DataError("All labels are alike.")

    monkeypatch.setattr(_evaluation, "transferred", refuse)
    monkeypatch.setattr(_evaluation, "MIN_TESTED", 1)
    assert _evaluation._transfer(real[1], samples(real)) is None


@pytest.mark.parametrize(
    ("makespans", "takes"), [([3, 5], True), ([3, 0], False), ([0], False), ([], False)]
)
def test_times_are_told_only_if_every_job_takes_some(makespans, takes):
    part: Any = SimpleNamespace(
        num_ranks=np.ones(len(makespans), dtype=np.int64),
        makespan_ns=np.array(makespans, dtype=np.float64),
    )
    assert _evaluation._takes_time(part) is takes


def test_graphs_that_are_no_traces_are_not_simulated(real):
    data: Any = SimpleNamespace(schema=SimpleNamespace(kind=FLOW))
    assert _evaluation._simulated(data, real[0].graphs, samples(real)) == ((), None, (), {})


def test_real_jobs_that_cannot_be_traces_are_passed_over(real, monkeypatch):
    graphs = real[0].graphs[:3]

    def converted(graph: Any) -> Any:
        if graph is graphs[1]:
            raise DataError("Its ranks do not match.")
        return SimpleNamespace(workload=graph.name)

    monkeypatch.setattr(_evaluation, "as_workload", converted)
    assert _evaluation._real_workloads(graphs) == [graphs[0].name, graphs[2].name]
    monkeypatch.setattr(_evaluation, "SIMULATED", 2)
    assert _evaluation._real_workloads(graphs) == [graphs[0].name]


def evaluation_of(real: Real, seconds: float = math.inf) -> SampleEvaluation:
    kept = samples(real)
    copy = GeneratedGraph("copy", 5, real[1].graphs["train"][0], False, real[1].schema)
    drawn = AcceptedSamples((*kept, copy), (KEPT,) * 4 + ("copy of a real graph",), 0, 0.5, 1.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_evaluation, "weight_attacks", lambda *_: ())
        patch.setattr(_evaluation, "SIMULATED", 2)
        model: Any = None
        time_left = TimeLeft(seconds)
        return evaluate_samples(real[1], real[0].graphs[:2], drawn, kept, model, time_left)


@pytest.fixture(scope="module")
def evaluated(real) -> SampleEvaluation:
    return evaluation_of(real)


def test_without_time_only_what_the_verdict_needs_is_computed(real, evaluated):
    assert evaluated.left_out == ()
    found = evaluation_of(real, 0.0)
    assert found.leaks.samples == 4
    assert found.verdicts == evaluated.verdicts
    assert (found.structure.validity, found.novelty) == (1.0, evaluated.novelty)
    assert found.simulations == ()
    assert {SIMILARITY, USEFULNESS} < set(found.left_out)


def test_few_samples_have_figures_on_rules_and_copies(evaluated):
    assert evaluated.structure.valid_B.shape == (4,)
    assert evaluated.real_structure.validity == 1.0
    assert evaluated.novelty.copied == 0
    assert evaluated.leaks is not None
    assert "nearness" in evaluated.verdicts


def test_few_samples_have_no_figures_on_likeness_and_use(evaluated):
    assert evaluated.similarity is None
    assert evaluated.ratio is None
    assert evaluated.ratio_with_copies is None
    assert evaluated.transfer is None


def test_jobs_of_one_rank_are_simulated_but_not_compared_across_systems(evaluated):
    """Systems differ in their networks, which a single rank does not use."""
    assert evaluated.failed == ()
    makespan, share = evaluated.simulations
    assert [sample.values.shape for sample in makespan.samples] == [(2,), (2,)]
    for sample in makespan.samples:
        assert (sample.values > 0).all()
    for sample in share.samples:
        assert sample.values.tolist() == [0.0, 0.0]
    assert evaluated.systems is None


NEEDS = (RunRequirement("membership attacks", 535, 32, "distinct runs"),)


@pytest.fixture
def settings(tmp_path) -> ReleaseSettings:
    (tmp_path / "traces").mkdir()
    return ReleaseSettings(tmp_path / "traces", tmp_path / "out", num=20)


def drawn(kept: int, copies: int = 0) -> AcceptedSamples:
    words = (KEPT,) * kept + ("copy of a real graph",) * copies
    samples: Any = tuple(SimpleNamespace(name=f"s{i}") for i in range(len(words)))
    return AcceptedSamples(samples, words, 0, 0.5, 12.0)


def leaks(samples: int, verdict: Verdict) -> SampleLeaks:
    attack = AttackResult(
        "nearest_sample", "how near", 0.6, Interval(0.55, 0.65), 0.1, 10, 10, verdict, None
    )
    near = DistanceToClosestRecord(
        0.5, Interval(0.46, 0.54), 1.0, 1.0, 10, samples, Verdict.CHANCE, None
    )
    return SampleLeaks(samples, near, (attack,))


def evaluation(found: SampleLeaks, copied: float = 0.0, wrong: int = 0) -> Any:
    return SimpleNamespace(
        leaks=found,
        novelty=SimpleNamespace(copied=copied, graphs=20),
        structure=SimpleNamespace(valid_B=np.arange(20) >= wrong),
        cross_fit=None,
        verdicts=found.verdicts,
    )


def test_all_at_chance_may_be_published(settings):
    found = verdict_of(settings, drawn(20), evaluation(leaks(20, Verdict.CHANCE)), NEEDS)
    assert found.outcome is ReleaseDecision.YES
    assert found.line.startswith("The samples may be published: 20 samples, no error, no copy")
    assert "\n" not in found.line


def test_too_few_to_tell_is_a_reserve(settings):
    found = verdict_of(settings, drawn(20), evaluation(leaks(20, Verdict.TOO_FEW)), NEEDS)
    assert found.outcome is ReleaseDecision.RESERVED
    assert "32 distinct runs, about 535 needed" in found.line


def test_where_a_figure_needs_more_than_the_split_has_its_own_number_is_told(settings):
    last = leaks(20, Verdict.TOO_FEW)
    attack = replace(last.attacks[0], need=GraphsNeeded("held-out graphs", 40, 900))
    rows = replace(last, attacks=(attack,))
    enough = (RunRequirement("membership attacks", 30, 40),)
    found = verdict_of(settings, drawn(20), evaluation(rows), enough)
    assert found.reserves == (
        "too few graphs to tell by nearest_sample (40 held-out graphs, about 900 needed)",
    )


def test_a_successful_attack_refuses_and_names_the_setting_that_helps(settings):
    found = verdict_of(settings, drawn(20), evaluation(leaks(20, Verdict.LEAKS)), NEEDS)
    assert found.outcome is ReleaseDecision.NO
    assert "nearest_sample tells which graphs were trained on" in found.line
    assert any("--steps 60" in word for word in found.remedies)


def test_where_hardly_anything_is_kept_the_reason_and_its_price_are_told(settings):
    found = verdict_of(settings, drawn(2, 98), evaluation(leaks(2, Verdict.TOO_FEW)), NEEDS)
    assert found.outcome is ReleaseDecision.NO
    assert "only 2 of 100 drawn samples could be kept" in found.line
    assert "copy of a real graph" in found.line
    assert any("about 12 s" in word for word in found.remedies)
    assert verdict_of(settings, drawn(0), None, NEEDS).outcome is ReleaseDecision.NO


def test_every_reason_is_told_and_each_remedy_once(settings):
    result = evaluation(leaks(20, Verdict.LEAKS), copied=0.1, wrong=2)
    found = verdict_of(settings, drawn(20), result, NEEDS)
    assert [reason.what.split(" (")[0] for reason in found.reasons] == [
        "2 samples break rules that consumers rely on",
        "2 samples are copies of training graphs",
        "the attack nearest_sample tells which graphs were trained on, from 20 samples",
    ]
    assert len(found.remedies) == len(set(found.remedies)) == 3
    assert found.line.count(";") == 2


def test_samples_nearer_to_training_graphs_are_refused(settings):
    last = leaks(20, Verdict.CHANCE)
    near = replace(last.nearness, dcr_share=0.75, verdict=Verdict.LEAKS)
    found = verdict_of(settings, drawn(20), evaluation(replace(last, nearness=near)), NEEDS)
    assert found.outcome is ReleaseDecision.NO
    assert "75.0% of the samples are nearer to training than to held-out graphs" in found.line
    assert "%], 50% is chance)" in found.line


@pytest.mark.parametrize(
    ("sentences", "words"),
    [
        (("card.md names 'secret'.",), "what it must not: card.md names 'secret'."),
        (
            ("a.et names 'x'.", "b.et names 'x'.", "c"),
            "what it must not: a.et names 'x' and 2 more",
        ),
    ],
)
def test_a_foreign_word_in_a_written_file_is_refused(settings, sentences, words):
    result = evaluation(leaks(20, Verdict.CHANCE))
    found = verdict_of(settings, drawn(20), result, NEEDS, sentences)
    assert found.outcome is ReleaseDecision.NO
    assert words in found.line
    assert "layerdag convert --scrub" in found.remedies[0]


def test_parts_that_are_not_alike_are_a_reserve(settings):
    found = verdict_of(settings, drawn(20), evaluation(leaks(20, Verdict.REVERSED)), NEEDS)
    assert found.outcome is ReleaseDecision.RESERVED
    assert found.reserves == (
        "training and held-out graphs are not alike by nearest_sample, so that it says nothing",
    )
    assert found.found[-1] == "no better than chance: nearness"


def test_hardly_any_samples_suffice_if_no_more_were_asked_for(settings):
    few = replace(settings, num=2)
    assert (
        verdict_of(few, drawn(2), evaluation(leaks(2, Verdict.CHANCE)), NEEDS).outcome
        is ReleaseDecision.YES
    )


def with_attacks(*attacks: AttackResult, reads: tuple[Inference, ...] = ()) -> Any:
    last = replace(leaks(20, Verdict.CHANCE), attacks=attacks, inferences=reads)
    found = evaluation(leaks(20, Verdict.CHANCE))
    found.leaks, found.verdicts = last, last.verdicts
    return found


def learned(auc: float, low: float) -> AttackResult:
    """Return an attack that shares its level with others."""
    return AttackResult(
        "unique_motifs", "it", auc, Interval(low, 2 * auc - low), 0.1, 10, 10, Verdict.LEAKS, None
    )


def test_an_attack_that_several_share_a_level_with_needs_more_evidence_to_refuse(settings):
    sure = verdict_of(settings, drawn(20), with_attacks(learned(0.6, 0.55)), NEEDS)
    assert sure.outcome is ReleaseDecision.NO
    assert "the attack unique_motifs tells which graphs were trained on" in sure.line
    barely = verdict_of(settings, drawn(20), with_attacks(learned(0.6, 0.51)), NEEDS)
    assert barely.outcome is ReleaseDecision.RESERVED
    assert "unique_motifs alone would tell training graphs apart" in barely.line


def test_single_graphs_that_are_found_refuse_whatever_the_area(settings):
    found = DetectionRate(0.01, 0.2, Interval(0.1, 0.3), 1e-9, None)
    attack = replace(leaks(20, Verdict.CHANCE).attacks[0], rates=(found,))
    verdict = verdict_of(settings, drawn(20), with_attacks(attack), NEEDS)
    assert verdict.outcome is ReleaseDecision.NO
    assert "finds single training graphs, from 20 samples (TPR at 1% FPR 20.0%" in verdict.line


def test_what_is_read_of_training_jobs_refuses_and_what_cannot_be_told_is_a_reserve(settings):
    def read(value: float) -> Inference:
        roles = Roles(np.arange(50), np.arange(50), np.arange(20))
        return Inference.from_half_width(
            "model:depth", "depth", (0.5, 0.2, 0.1), value, 0.1, margin=0.05, roles=roles
        )

    told = verdict_of(settings, drawn(20), with_attacks(reads=(read(0.3),)), NEEDS)
    assert told.outcome is ReleaseDecision.NO
    assert "model:depth is read of training graphs" in told.line
    enough = (RunRequirement("membership attacks", 30, 40),)
    open_ = verdict_of(settings, drawn(20), with_attacks(reads=(read(0.01),)), enough)
    assert open_.outcome is ReleaseDecision.RESERVED
    assert "too few graphs to tell by model (50 held-out graphs, about" in open_.line


def folded(verdict: Verdict, auc: float = 0.51) -> CrossFit:
    attack = replace(
        leaks(20, verdict).attacks[0], auc=auc, interval=Interval(auc - 0.04, auc + 0.04)
    )
    return CrossFit(5, 32, 20, (attack,), 9.0)


def test_what_cross_fitting_told_is_no_reserve_any_more(settings):
    result = evaluation(leaks(20, Verdict.TOO_FEW))
    result.cross_fit = folded(Verdict.CHANCE)
    found = verdict_of(settings, drawn(20), result, NEEDS)
    assert found.outcome is ReleaseDecision.YES
    assert (
        "cross-fitted over 5 folds of 32 runs, 20 samples of each: largest AUROC 0.51" in found.line
    )


def test_what_cross_fitting_does_not_tell_is_a_reserve_of_its_own(settings):
    last = leaks(20, Verdict.TOO_FEW)
    need = GraphsNeeded("held-out graphs", 12, 400)
    near = replace(last.nearness, verdict=Verdict.TOO_FEW, need=need)
    result = evaluation(replace(last, nearness=near))
    result.cross_fit = folded(Verdict.TOO_FEW, 0.53)
    found = verdict_of(settings, drawn(20), result, NEEDS)
    assert found.outcome is ReleaseDecision.RESERVED
    folds, alone = found.reserves
    assert folds.startswith("cross-fitted over 5 folds of 32 runs, too few runs to tell")
    assert (
        alone == "too few graphs to tell by nearness alone (12 held-out graphs, about 400 needed)"
    )


def test_an_attack_that_succeeds_on_folds_refuses(settings):
    result = evaluation(leaks(20, Verdict.TOO_FEW))
    result.cross_fit = folded(Verdict.LEAKS, 0.7)
    found = verdict_of(settings, drawn(20), result, NEEDS)
    assert found.outcome is ReleaseDecision.NO
    assert "folds of 32 runs, the attack nearest_sample tells which graphs were trained on" in (
        found.line
    )
    assert any("--steps 60" in word for word in found.remedies)
