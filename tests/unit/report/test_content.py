"""Which real graph is most like a sample."""

import re
from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import torch

from layerdag.dag.dag import DAG
from layerdag.evaluation.similarity import QualityReport
from layerdag.privacy.copies import DistanceToClosestRecord, Novelty
from layerdag.privacy.membership import AttackResult
from layerdag.privacy.sample_leaks import SampleLeaks
from layerdag.report.content import (
    MIN_TESTED,
    median_ratio,
    nearest_real,
    privacy_verdict,
    similarity_verdict,
    utility_verdict,
)
from layerdag.report.page import render
from layerdag.statistics import Interval, Verdict
from layerdag.surrogates.scoring import SCORES
from layerdag.surrogates.training_sets import REAL, SYNTHETIC
from layerdag.surrogates.tstr import Score, TransferReport, TransferRow


def chain(*codes: int, family: str = "gpt", time: int = 0) -> DAG:
    steps = torch.arange(len(codes) - 1)
    x_NA = torch.tensor([[code, time] for code in codes])
    dag = DAG.build(x_NA, torch.stack([steps, steps + 1]))
    return dag.with_conditions({"family": family})


def test_a_sample_stands_beside_the_graph_of_its_family_that_is_most_like_it():
    real = [chain(0, 1, 2), chain(0, 0, 0), chain(3, 3, 3, family="mlp")]
    (found,) = nearest_real(real, [chain(0, 0, 0, 0)])
    assert (found.sample, found.real, found.family, found.compared) == (0, 1, "gpt", 2)
    assert 0 < found.distance < found.usual


def test_times_do_not_count():
    real = [chain(0, 1, time=1), chain(0, 2, time=2)]
    (found,) = nearest_real(real, [chain(0, 1, time=2)], measured=(1,))
    assert found.real == 0
    assert found.distance == pytest.approx(0, abs=1e-6)


def test_the_most_frequent_families_come_first_and_those_without_real_graphs_never():
    real = [chain(0, 1), chain(0, 1, family="mlp")]
    samples = [
        chain(0, 1, family="mlp"), chain(0, 1), chain(0, 2), chain(0, 0, family="cnn"),
        chain(0, 0, family="cnn"), chain(0, 0, family="cnn"),
    ]  # fmt: skip
    assert [one.family for one in nearest_real(real, samples)] == ["gpt", "mlp"]
    assert [one.family for one in nearest_real(real, samples, most=1)] == ["gpt"]


def test_what_is_too_large_to_be_drawn_is_left_out():
    small, large = chain(0, 1), chain(*range(9))
    assert nearest_real([large], [small], largest=5) == ()
    assert nearest_real([small], [large], largest=5) == ()
    (found,) = nearest_real([large, small], [large, small], largest=5)
    assert (found.sample, found.real) == (1, 1)


def test_a_single_real_graph_is_no_scale():
    (found,) = nearest_real([chain(0, 1)], [chain(0, 1)])
    assert found.usual is None


def test_graphs_without_families_are_all_of_one():
    bare = [DAG.build(torch.tensor([[0], [code]]), torch.tensor([[0], [1]])) for code in (1, 2)]
    (found,) = nearest_real(bare, bare[:1])
    assert (found.family, found.compared) == ("", 2)


NEW = Novelty(graphs=40, valid=1.0, unique=1.0, novel=1.0, vun=1.0, copied=0.0, copied_real=0.0)
COPIED = Novelty(
    graphs=40, valid=1.0, unique=1.0, novel=0.95, vun=0.95, copied=0.05, copied_real=0.0
)


SPREAD = Interval(0.4, 0.6)


def leaks(nearest: Verdict, *attacks: Verdict) -> SampleLeaks:
    near = DistanceToClosestRecord(0.5, SPREAD, 0.5, 0.5, 20, 40, nearest, None)
    return SampleLeaks(40, near, tuple(attack("a", verdict) for verdict in attacks))


def attack(name: str, verdict: Verdict) -> AttackResult:
    area, between = (0.6, Interval(0.55, 0.65)) if verdict is Verdict.LEAKS else (0.5, SPREAD)
    return AttackResult(name, "what", area, between, 0.1, 20, 10, verdict, None)


def transfer(real: float, made: float) -> TransferReport:
    rows = [
        TransferRow("trees", source, 20, {s.name: Score(mean, None, (mean,)) for s in SCORES})
        for source, mean in ((REAL, real), (SYNTHETIC, made))
    ]
    return TransferReport(tuple(rows), (), tested_on=40, seeds=(0,))


@pytest.mark.parametrize(
    ("novel", "found", "told", "at"),
    [
        (COPIED, (Verdict.CHANCE, Verdict.CHANCE), ("no", "poor"), "validity"),
        (NEW, (Verdict.CHANCE, Verdict.LEAKS), ("no", "poor"), "membership"),
        (NEW, (Verdict.CHANCE, Verdict.TOO_FEW), ("yes, with a reserve", "fair"), "membership"),
        (NEW, (Verdict.CHANCE, Verdict.REVERSED), ("yes, with a reserve", "fair"), "membership"),
        (NEW, (Verdict.CHANCE, Verdict.CHANCE), ("yes", "good"), "membership"),
    ],
)
def test_copies_and_attacks_decide_on_sharing_by_all_samples(novel, found, told, at):
    answer = privacy_verdict(novel, leaks(*found))
    assert (answer.answer, answer.tone) == told
    assert answer.at == at


def test_one_of_several_attacks_that_chance_explains_is_a_reserve():
    weak = replace(
        attack("reconstruction", Verdict.LEAKS), auc=0.55, interval=Interval(0.509, 0.592)
    )
    alone = replace(leaks(Verdict.CHANCE), attacks=(weak,))
    answer = privacy_verdict(NEW, alone)
    assert (answer.answer, answer.at) == ("yes, with a reserve", "membership")
    assert "not more than one of so many may by chance" in answer.reason
    strong = replace(weak, auc=0.6, interval=Interval(0.559, 0.641))
    assert privacy_verdict(NEW, replace(alone, attacks=(strong,))).answer == "no"


def test_without_attacks_there_is_a_reserve_and_a_link_to_the_copies():
    answer = privacy_verdict(NEW, None)
    assert (answer.answer, answer.at) == ("yes, with a reserve", "validity")


def test_copies_are_counted():
    assert privacy_verdict(COPIED, None).reason.startswith("2 of 40 samples repeat a real job")


@pytest.mark.parametrize(
    ("ratio", "told"),
    [
        (1.25, ("as real", "good")),
        (1.26, ("close", "fair")),
        (2.5, ("close", "fair")),
        (2.51, ("far", "poor")),
        (None, ("too few to tell", "fair")),
    ],
)
def test_likeness_follows_from_the_median_ratio(ratio, told):
    answer = similarity_verdict(ratio)
    assert (answer.answer, answer.tone) == told


@pytest.mark.parametrize(
    ("ratios", "word", "far"),
    [
        ((1.0, 1.1, 2.4), "as real", 0),
        ((1.0, 1.1, 2.6), "mixed", 1),
        ((1.0, 2.4, 2.6), "mixed", 1),
        ((1.0, 2.6, 2.7), "far", 0),
    ],
)
def test_no_answer_says_close_above_rows_that_say_far(ratios, word, far):
    rows = [SimpleNamespace(matched_ratio=ratio, is_distance=True) for ratio in ratios]
    report = Mock(spec=QualityReport, rows=rows)
    answer = similarity_verdict(median_ratio(report), report)
    assert answer.answer == word
    assert (f"By {far} of 3 measures they lie far away." in answer.reason) is bool(far)


@pytest.mark.parametrize(
    ("real", "made", "word"),
    [
        (0.9, 0.81, "as real ones"),
        (0.9, 0.80, "partly"),
        (0.9, 0.49, "hardly"),
        (float("nan"), 0.9, "hardly"),
        (0.9, float("nan"), "hardly"),
        (0.0, 0.0, "hardly"),
        (-0.1, -0.05, "hardly"),
    ],
)
def test_use_follows_from_rank_correlations(real, made, word):
    assert utility_verdict(transfer(real, made)).answer == word


def test_where_real_graphs_teach_nothing_use_cannot_be_told():
    found = transfer(0.1, 0.2)
    wide = Score(0.1, Interval(-0.1, 0.3), (0.1,))
    real = replace(found.rows[0], scores=dict.fromkeys(found.rows[0].scores, wide))
    answer = utility_verdict(replace(found, rows=(real, found.rows[1])))
    assert answer.answer == "cannot be told"
    assert "0.10 [-0.10, 0.30]" in answer.reason


def test_a_test_on_few_real_jobs_is_too_few_to_tell():
    few = replace(transfer(0.9, 0.9), tested_on=MIN_TESTED - 1)
    assert utility_verdict(few).answer == "too few to tell"


def test_what_could_not_be_tested_says_why():
    answer = utility_verdict(None, "There are 7 labels.")
    assert (answer.answer, answer.reason) == ("too few to tell", "There are 7 labels.")


def test_without_predictors_nothing_can_be_told():
    assert utility_verdict(TransferReport((), (), 4, (0,))).answer == "too few to tell"


def test_every_reason_is_one_sentence_with_a_link_to_a_section(content):
    every = [
        *(
            privacy_verdict(novel, found)
            for novel in (NEW, COPIED)
            for found in (None, leaks(*Verdict))
        ),
        privacy_verdict(NEW, leaks(Verdict.CHANCE, Verdict.CHANCE)),
        *(similarity_verdict(ratio) for ratio in (1.0, None)),
        utility_verdict(transfer(0.9, 0.8)),
        utility_verdict(None, "None."),
    ]
    sections = set(re.findall(r'<section id="(\w+)"', render(content)))
    for answer in every:
        assert answer.at in sections
        assert answer.reason.endswith(".")
        assert ". " not in answer.reason
        assert "_" not in answer.reason


def test_the_median_leaves_out_what_has_no_ratio_and_what_is_no_distance(content):
    report = content.similarity
    assert report is not None
    one = next(row for row in report.rows if row.is_distance)
    other = next(row for row in report.rows if not row.is_distance)
    ratios = (1.0, 2.0, 4.0, None, float("nan"), float("inf"))
    rows = tuple(
        replace(one, generated=replace(one.generated, value=ratio), matched=1.0) for ratio in ratios
    )
    score = replace(other, generated=replace(other.generated, value=1000.0))
    assert median_ratio(replace(report, rows=(*rows, score))) == 2.0
    assert median_ratio(replace(report, rows=(score,))) is None
    assert median_ratio(replace(report, rows=())) is None
    assert median_ratio(None) is None
