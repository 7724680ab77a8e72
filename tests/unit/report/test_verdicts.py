"""The three verdicts, from findings made up for each case."""

from dataclasses import replace

import pytest

from layerdag.evaluation.metrics import Interval
from layerdag.evaluation.privacy import (
    Attack,
    DistanceToClosestRecord,
    LeakRow,
    Novelty,
    Verdict,
)
from layerdag.report import (
    ReportContent,
    likeness,
    mean_ratio,
    median_ratio,
    sharing,
    usefulness_of,
)
from layerdag.report._page import SECTIONS
from layerdag.surrogates import REAL, SCORES, SYNTHETIC, TransferReport, TransferRow
from layerdag.surrogates.tstr import Score

NEW = Novelty(graphs=40, valid=1.0, unique=1.0, novel=1.0, vun=1.0, copied=0.0, copied_real=0.0)
COPIED = Novelty(
    graphs=40, valid=1.0, unique=1.0, novel=0.95, vun=0.95, copied=0.05, copied_real=0.0
)


SPREAD = Interval(0.4, 0.6)


def leaks(nearest: Verdict, *attacks: Verdict) -> tuple[LeakRow, ...]:
    """Return the verdicts of all samples, behind those of a few, which do not decide."""
    return (row(Verdict.LEAKS, Verdict.LEAKS), row(nearest, *attacks))


def row(nearest: Verdict, *attacks: Verdict) -> LeakRow:
    near = DistanceToClosestRecord(0.5, SPREAD, 0.5, 0.5, 20, 40, nearest, None)
    return LeakRow(40, near, tuple(attack("a", verdict) for verdict in attacks))


def attack(name: str, verdict: Verdict) -> Attack:
    area, between = (0.6, Interval(0.55, 0.65)) if verdict is Verdict.LEAKS else (0.5, SPREAD)
    return Attack(name, "what", area, between, 0.1, 20, 10, verdict, None)


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
def test_copies_and_attacks_decide_on_sharing_by_all_samples(
    novel: Novelty, found: tuple[Verdict, ...], told: tuple[str, str], at: str
) -> None:
    answer = sharing(novel, leaks(*found))
    assert (answer.answer, answer.tone) == told
    assert answer.at == at


def test_one_of_several_attacks_that_chance_explains_is_a_reserve() -> None:
    weak = replace(
        attack("reconstruction", Verdict.LEAKS), auc=0.55, interval=Interval(0.509, 0.592)
    )
    alone = (replace(row(Verdict.CHANCE), attacks=(weak,)),)
    answer = sharing(NEW, alone)
    assert (answer.answer, answer.at) == ("yes, with a reserve", "membership")
    assert "not more than one of so many may by chance" in answer.reason
    strong = replace(weak, auc=0.6, interval=Interval(0.559, 0.641))
    assert sharing(NEW, (replace(alone[0], attacks=(strong,)),)).answer == "no"


def test_without_attacks_there_is_a_reserve_and_a_link_to_the_copies() -> None:
    answer = sharing(NEW, ())
    assert (answer.answer, answer.at) == ("yes, with a reserve", "validity")


def test_copies_are_counted() -> None:
    assert sharing(COPIED, ()).reason.startswith("2 of 40 samples repeat a real job")


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
def test_likeness_follows_from_the_median_ratio(ratio: float | None, told: tuple[str, str]) -> None:
    answer = likeness(ratio)
    assert (answer.answer, answer.tone) == told


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
def test_use_follows_from_rank_correlations(real: float, made: float, word: str) -> None:
    assert usefulness_of(transfer(real, made)).answer == word


def test_what_could_not_be_tested_says_why() -> None:
    answer = usefulness_of(None, "There are 7 labels.")
    assert (answer.answer, answer.reason) == ("too few to tell", "There are 7 labels.")


def test_without_predictors_nothing_can_be_told() -> None:
    assert usefulness_of(TransferReport((), (), 4, (0,))).answer == "too few to tell"


def test_every_reason_is_one_sentence_with_a_link_to_a_section() -> None:
    every = [
        *(sharing(novel, found) for novel in (NEW, COPIED) for found in ((), leaks(*Verdict))),
        sharing(NEW, leaks(Verdict.CHANCE, Verdict.CHANCE)),
        *(likeness(ratio) for ratio in (1.0, None)),
        usefulness_of(transfer(0.9, 0.8)),
        usefulness_of(None, "None."),
    ]
    sections = {name for name, _, _ in SECTIONS}
    for answer in every:
        assert answer.at in sections
        assert answer.reason.endswith(".")
        assert ". " not in answer.reason
        assert "_" not in answer.reason


def test_without_a_comparison_there_is_no_ratio() -> None:
    assert median_ratio(None) is None
    assert mean_ratio(None) is None


def test_the_median_leaves_out_what_has_no_ratio_and_what_is_no_distance(
    content: ReportContent,
) -> None:
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
    assert mean_ratio(replace(report, rows=(*rows, score))) == pytest.approx(7 / 3)
    assert median_ratio(replace(report, rows=(score,))) is None
    assert median_ratio(replace(report, rows=())) is None
