import numpy as np
import pytest

from layerdag.evaluation.metrics import Interval
from layerdag.evaluation.privacy import MARGIN, Verdict, chance_half_width, needed
from layerdag.evaluation.privacy._verdict import Need, half_width_for_verdict, round_up


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (0.46, 0.54, Verdict.CHANCE),
        (0.45, 0.55, Verdict.CHANCE),
        (0.46, 0.49, Verdict.CHANCE),
        (0.51, 0.53, Verdict.LEAKS),
        (0.9, 1.0, Verdict.LEAKS),
        (0.5, 0.6, Verdict.TOO_FEW),
        (0.44, 0.54, Verdict.TOO_FEW),
        (0.07, 0.68, Verdict.TOO_FEW),
        (0.0, 0.56, Verdict.TOO_FEW),
        (0.0, 1.0, Verdict.TOO_FEW),
        (0.3, 0.49, Verdict.REVERSED),
    ],
)
def test_only_an_interval_close_around_a_half_is_no_better_than_chance(
    low: float, high: float, verdict: Verdict
) -> None:
    assert Verdict.of(Interval(low, high)) is verdict


def test_no_verdict_sounds_like_an_all_clear() -> None:
    for verdict in Verdict:
        assert not {"safe", "secure", "private", "guessing"} & set(verdict.value.split())


@pytest.mark.parametrize("value", [0.5, 0.52, 0.54, 0.6, 0.4, 0.47])
def test_the_number_needed_is_enough_and_half_of_it_is_not(value: float) -> None:
    half, found = 0.3, 12
    count = needed(value, half, found)
    assert count > found

    def verdict_with(number: float) -> Verdict:
        narrowed = half * (found / number) ** 0.5
        return Verdict.of(Interval(value - narrowed, value + narrowed))

    assert verdict_with(1.001 * count) is not Verdict.TOO_FEW
    assert verdict_with(count / 2) is Verdict.TOO_FEW


def test_chance_spreads_the_area_under_the_curve_as_far_as_told(rng: np.random.Generator) -> None:
    members, others, repeats = 26, 6, 4000
    score_RG = rng.random((repeats, members + others))
    member_RT, other_RH = score_RG[:, :members], score_RG[:, members:]
    auc_R = (member_RT[:, :, None] > other_RH[:, None, :]).mean(axis=(1, 2))
    outside = float((np.abs(auc_R - 0.5) > chance_half_width(members, others)).mean())
    assert outside == pytest.approx(0.05, abs=0.02)


def test_few_held_out_graphs_can_never_be_no_better_than_chance() -> None:
    assert chance_half_width(10_000, 120) > MARGIN
    assert chance_half_width(751, 256) < MARGIN


@pytest.mark.parametrize(
    ("count", "shown"), [(3.2, 4), (99.1, 100), (381.0, 390), (12_345.0, 13_000)]
)
def test_needed_numbers_are_rounded_up_to_two_digits(count: float, shown: int) -> None:
    assert round_up(count) == shown


def test_every_interval_has_one_verdict_and_a_wider_one_says_less() -> None:
    """Widening an interval can turn a verdict into "too few", never into another verdict."""
    for value in np.linspace(0, 1, 41):
        said = []
        for half in np.linspace(0.001, 0.6, 60):
            verdict = Verdict.of(Interval(max(value - half, 0.0), min(value + half, 1.0)))
            if not said or said[-1] is not verdict:
                said.append(verdict)
        # A narrow interval beside a half may first be within the margin, then leave 0.5 out.
        assert said[-1] is Verdict.TOO_FEW
        assert len(said) <= 3
        assert not {Verdict.LEAKS, Verdict.REVERSED} <= set(said)


def test_a_verdict_takes_the_nearer_of_chance_and_margin() -> None:
    assert half_width_for_verdict(0.5) == pytest.approx(MARGIN)
    assert half_width_for_verdict(0.6) == pytest.approx(0.1)
    # Just beside the middle the whole margin is left, halfway to its end the least.
    assert half_width_for_verdict(0.525) == pytest.approx(0.025)
    for value in (0.51, 0.54, 0.7):
        assert half_width_for_verdict(value) == pytest.approx(half_width_for_verdict(1 - value))


def test_four_times_the_graphs_halve_the_width() -> None:
    assert needed(0.75, 0.5, 100) == 400
    assert chance_half_width(400, 400) == pytest.approx(chance_half_width(100, 100) / 2, rel=2e-3)
    assert chance_half_width(30, 80) == chance_half_width(80, 30)


def test_what_is_needed_is_said_in_a_clause() -> None:
    assert Need("samples", 1_200, 34_000).in_words() == "1,200 samples, about 34,000 needed"
