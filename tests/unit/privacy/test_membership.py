"""True-positive rates at low false-positive rates, against counting by hand and exact chances."""

import numpy as np
import pytest
import torch
from leak_figures import sample_attacks
from random_graphs import random_dag
from raw_graphs import chain
from torch import nn

from layerdag.dag.dag import DAG, DAGBatch
from layerdag.models.base import DAGModel, LossTerm, SampleRequest, SampleResult
from layerdag.privacy.membership import (
    CERTAIN,
    REPLICATES,
    AttackResult,
    _by_chance,
    _found,
    _resampled_rates,
    _resamples,
    detection_rates,
    graph_losses,
    likelihood_attack,
)
from layerdag.schema.schema import GraphSchema
from layerdag.statistics import (
    MARGIN,
    Interval,
    Verdict,
    auroc,
    chance_half_width,
    half_width_for_verdict,
    needed,
    round_up,
)

SAVED_AS = {"what": "description", "caught": "true_positive_rate", "others": "non_members"}


def graphs(rng: np.random.Generator, count: int) -> list[DAG]:
    return [random_dag(rng, [2, 3, 3], [4, 3]) for _ in range(count)]


def test_the_area_under_the_curve_counts_pairs_and_ties_half():
    assert auroc(np.array([3.0, 1.0]), np.array([2.0, 1.0])) == (1 + 1 + 0 + 0.5) / 4


def test_a_generator_that_copies_is_caught_by_both_attacks(rng):
    train, held_out = graphs(rng, 40), graphs(rng, 40)
    for attack in sample_attacks(train, held_out, train):
        assert attack.auc > 0.95
        assert attack.true_positive_rate > 0.9
        assert attack.interval.low < attack.auc <= attack.interval.high <= 1
        assert attack.leaks
        assert attack.need is None
        assert attack.in_words() == Verdict.LEAKS.value


def test_a_generator_that_copies_one_graph_in_four_is_caught(rng):
    train, held_out = graphs(rng, 80), graphs(rng, 160)
    generated = train[:20] + graphs(rng, 60)
    for attack in sample_attacks(train, held_out, generated):
        assert attack.leaks
        assert 0.55 < attack.auc < 0.8


def test_a_generator_that_never_saw_the_training_graphs_is_not_accused():
    accused = []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        train, held_out, generated = graphs(rng, 40), graphs(rng, 60), graphs(rng, 40)
        accused += [attack.leaks for attack in sample_attacks(train, held_out, generated)]
    # 20 attacks at one chance in 40: more than 4 false alarms have a chance of 0.03 %.
    assert sum(accused) <= 4


class Memory(DAGModel):
    """A model that knows some graphs by heart, by the first codes of their nodes."""

    def __init__(self, known: list[tuple[int, ...]]) -> None:
        super().__init__()
        self.known = known
        self.weight = nn.Parameter(torch.zeros(1))

    def losses(self, batch: DAGBatch, generator: torch.Generator) -> dict[str, LossTerm]:
        noise = torch.rand((), generator=generator)
        cost = 0.1 if tuple(batch.x_NA[:, 0].tolist()) in self.known else 1.0
        count = torch.tensor(batch.num_nodes)
        return {"node": LossTerm((cost + noise) * count, count)}

    def objective_parameters(self) -> dict[tuple[str, ...], list[nn.Parameter]]:
        return {("node",): [self.weight]}

    def sample(self, request: SampleRequest) -> SampleResult:
        raise AssertionError("An attack on likelihoods samples nothing.")


def paths(rng: np.random.Generator, count: int) -> tuple[GraphSchema, list[DAG]]:
    names = ["".join(rng.choice(list("abcdefgh"), 12)) for _ in range(count)]
    raws = [chain(f"g{i}", name) for i, name in enumerate(names)]
    schema = GraphSchema.fit("flow", raws)
    return schema, [schema.encode(raw) for raw in raws]


def test_a_model_that_knows_its_training_graphs_by_heart_is_caught_by_its_likelihood(rng):
    schema, dags = paths(rng, 60)
    train, held_out = dags[:30], dags[30:]
    heard = Memory([tuple(dag.x_NA[:, 0].tolist()) for dag in train])
    assert likelihood_attack(heard, schema, train, held_out).auc == 1.0
    deaf = likelihood_attack(Memory([]), schema, train, held_out)
    assert deaf.auc == 0.5
    assert not deaf.leaks


def test_losses_of_a_graph_depend_on_it_alone(rng):
    schema, dags = paths(rng, 5)
    model = Memory([])
    model.train()
    together = graph_losses(model, schema, dags, seed=3)
    assert together[2] == graph_losses(model, schema, dags[2:3], seed=3)[0]
    assert model.training


def test_few_held_out_graphs_are_too_few_to_tell_and_no_error():
    found = []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        found += sample_attacks(graphs(rng, 26), graphs(rng, 6), graphs(rng, 30), seed)
    assert len(found) == 20
    assert all(attack.verdict is not Verdict.CHANCE for attack in found)
    # The bootstrap of six graphs alone accuses more often than one time in 40.
    assert sum(attack.leaks for attack in found) <= 3
    needs = [attack.need for attack in found if attack.need is not None]
    assert needs
    assert all(need.found == 6 < need.count for need in needs)
    near = [attack.need for attack in found if abs(attack.auc - 0.5) < 0.05 and attack.need]
    assert all(need.count > 100 for need in near)


def test_one_held_out_graph_leaves_the_attack_that_needs_one(rng):
    (attack,) = sample_attacks(graphs(rng, 5), graphs(rng, 1), graphs(rng, 3))
    assert attack.name == "nearest_sample"
    assert "too few graphs to tell (1 held-out graphs" in attack.in_words()


def test_what_is_saved_of_an_attack_makes_it_again(rng):
    attack = sample_attacks(graphs(rng, 9), graphs(rng, 8), graphs(rng, 7))[0]
    saved = attack.to_dict()
    assert (saved["caught"], saved["others"]) == (attack.true_positive_rate, 8)
    fields = {field: saved[key] for key, field in SAVED_AS.items()}
    same = {name: value for name, value in saved.items() if name not in SAVED_AS}
    assert AttackResult(**same, **fields) == attack


def test_too_few_graphs_say_how_many_it_would_take(rng):
    for attack in sample_attacks(graphs(rng, 12), graphs(rng, 12), graphs(rng, 12)):
        assert attack.verdict is Verdict.TOO_FEW
        assert attack.need is not None
        assert attack.in_words() == f"{Verdict.TOO_FEW.value} ({attack.need.in_words()})"
        assert not attack.leaks


def test_members_above_all_others_but_one_in_a_hundred_are_found():
    other_H = np.arange(200.0)
    member_T = np.array([500.0, 198.5, 197.5, 196.5, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0])
    one, thousandth = detection_rates("a", [(member_T, other_H)], 0)
    # Two of 200 may be accused: the threshold is the third largest, 197.
    assert one.true_positive_rate == pytest.approx(0.3)
    assert one.interval is not None
    assert one.interval.low <= 0.3 <= one.interval.high
    assert one.need is None
    assert thousandth.true_positive_rate is None
    assert thousandth.need is not None
    assert (thousandth.need.found, thousandth.need.count) == (200, 1000)
    assert "TPR at 0.1% FPR cannot be told (200 held-out graphs, about 1,000 needed)" in (
        thousandth.in_words()
    )


def test_a_score_that_says_nothing_finds_what_chance_finds():
    rng = np.random.default_rng(0)
    chances, found = [], []
    for seed in range(60):
        fold = (rng.random(150), rng.random(120))
        rate = detection_rates("a", [fold], seed)[0]
        chances.append(rate.by_chance)
        found.append(rate.is_above_chance)
    # p-values of a discrete score are no smaller than uniform ones.
    assert np.mean(np.array(chances) <= 0.1) <= 0.22
    assert sum(found) <= 60 * CERTAIN + 1


def test_few_sure_members_are_told_although_the_area_is_one_half():
    rng = np.random.default_rng(1)
    other_H, member_T = rng.random(300), rng.random(300)
    member_T[:30] = 2.0
    member_T[30:60] = -1.0
    rate = detection_rates("a", [(member_T, other_H)], 0)[0]
    assert rate.is_above_chance
    assert rate.true_positive_rate == pytest.approx(0.1, abs=0.03)
    assert rate.in_words().startswith("TPR at 1% FPR 1")


def test_each_of_two_folds_has_to_resolve_the_rate():
    rng = np.random.default_rng(2)
    member_T = rng.random(50)
    few = detection_rates("a", [(member_T, rng.random(60)), (member_T, rng.random(60))], 0)[0]
    assert few.true_positive_rate is None
    many = detection_rates("a", [(member_T, rng.random(100)), (member_T, rng.random(100))], 0)[0]
    assert many.true_positive_rate is not None
    assert many.by_chance is not None


def test_ties_with_the_threshold_are_not_found_and_all_or_none_have_one_sided_intervals():
    ties = detection_rates("a", [(np.ones(40), np.ones(100))], 0)[0]
    assert (ties.true_positive_rate, ties.by_chance) == (0.0, 1.0)
    assert ties.interval is not None
    assert ties.interval.low == 0.0
    assert 0.05 < ties.interval.high < 0.12  # 1 - .025 ** (1 / 40)
    every = detection_rates("a", [(np.ones(40), np.zeros(100))], 0)[0]
    assert every.true_positive_rate == 1.0
    assert every.interval is not None
    assert every.interval.high == 1.0
    assert 0.88 < every.interval.low < 0.95


def test_resampled_rates_are_those_of_really_repeated_scores():
    """The draws are weights of graphs; repeating each score as often gives the same rate."""
    rng = np.random.default_rng(3)
    member_T, other_H = (
        rng.integers(0, 40, 25).astype(float),
        rng.integers(0, 40, 110).astype(float),
    )
    resamples = _resamples("a", [(member_T, other_H)], 5)
    [(falling_T, upto_RT, falling_H, upto_RH)] = resamples
    for rate in (0.01, 0.05, 0.3):
        found_R = _resampled_rates(resamples, rate)
        for row in range(0, REPLICATES, 37):
            times_T = np.diff(upto_RT[row], prepend=0).astype(int)
            times_H = np.diff(upto_RH[row], prepend=0).astype(int)
            repeated_T = np.repeat(falling_T, times_T)
            repeated_H = np.repeat(falling_H, times_H)
            assert (repeated_T.size, repeated_H.size) == (25, 110)
            expected = _found(repeated_T, repeated_H, rate) / 25
            assert found_R[row] == pytest.approx(expected)


def test_only_the_order_of_scores_counts():
    rng = np.random.default_rng(4)
    member_T, other_H = rng.normal(0.6, 1, 80), rng.normal(0, 1, 150)
    plain = detection_rates("a", [(member_T, other_H)], 0)
    assert detection_rates("a", [(np.exp(member_T), np.exp(other_H))], 0) == plain
    mixed = detection_rates("a", [(rng.permutation(member_T), rng.permutation(other_H))], 0)[0]
    assert mixed.true_positive_rate == plain[0].true_positive_rate
    assert mixed.by_chance == plain[0].by_chance


def test_the_chance_of_so_many_found_is_that_of_shuffled_labels():
    rng = np.random.default_rng(5)
    score_G = np.arange(140.0)
    shuffled = (rng.permutation(score_G) for _ in range(4000))
    counts = np.array([_found(each[:40], each[40:], 0.05) for each in shuffled])
    for found in (0, 1, 3, 6):
        assert _by_chance(found, 40, 100, 0.05) == pytest.approx(
            (counts >= found).mean(), abs=0.025
        )
    assert _by_chance(0, 40, 100, 0.05) == 1.0


def test_unknown_or_infinite_scores_find_nobody_they_should_not():
    other_H = np.arange(100.0)
    nowhere = detection_rates("a", [(np.full(20, np.nan), other_H)], 0)[0]
    assert nowhere.true_positive_rate == 0.0
    beyond = detection_rates("a", [(np.full(20, np.inf), np.full(100, np.inf))], 0)[0]
    assert beyond.true_positive_rate == 0.0
    one_sided = detection_rates("a", [(np.full(20, np.inf), np.full(100, -np.inf))], 0)[0]
    assert one_sided.true_positive_rate == 1.0


def test_dependent_folds_claim_no_more_than_one_of_them():
    rng = np.random.default_rng(6)
    member_T, other_H = np.concatenate([np.full(4, 9.0), rng.random(56)]), rng.random(100)
    once = detection_rates("a", [(member_T, other_H)], 0)[0]
    twice = detection_rates("a", [(member_T, other_H)] * 2, 0)[0]
    assert twice.true_positive_rate == once.true_positive_rate
    assert twice.by_chance == pytest.approx(min(2 * once.by_chance, 1.0))


@pytest.mark.parametrize("count", [1, 7, 40])
def test_the_exact_interval_rejects_at_its_ends_as_a_binomial_test_does(count):
    from scipy.stats import binomtest

    for found in {0, 1, count // 2, count}:
        expected = binomtest(found, count).proportion_ci(0.95, "exact")
        interval = Interval.clopper_pearson(found / count, count)
        assert (interval.low, interval.high) == pytest.approx((expected.low, expected.high))


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
def test_only_an_interval_close_around_a_half_is_no_better_than_chance(low, high, verdict):
    assert Verdict.from_interval(Interval(low, high)) is verdict


def test_no_verdict_sounds_like_an_all_clear():
    for verdict in Verdict:
        assert not {"safe", "secure", "private", "guessing"} & set(verdict.value.split())


@pytest.mark.parametrize("value", [0.5, 0.52, 0.54, 0.6, 0.4, 0.47])
def test_the_number_needed_is_enough_and_half_of_it_is_not(value):
    half, found = 0.3, 12
    count = needed(value, half, found)
    assert count > found

    def verdict_with(number: float) -> Verdict:
        narrowed = half * (found / number) ** 0.5
        return Verdict.from_interval(Interval(value - narrowed, value + narrowed))

    assert verdict_with(1.001 * count) is not Verdict.TOO_FEW
    assert verdict_with(count / 2) is Verdict.TOO_FEW


def test_chance_spreads_the_area_under_the_curve_as_far_as_told(rng):
    members, others, repeats = 26, 6, 4000
    score_RG = rng.random((repeats, members + others))
    member_RT, other_RH = score_RG[:, :members], score_RG[:, members:]
    auc_R = (member_RT[:, :, None] > other_RH[:, None, :]).mean(axis=(1, 2))
    outside = float((np.abs(auc_R - 0.5) > chance_half_width(members, others)).mean())
    assert outside == pytest.approx(0.05, abs=0.02)


def test_few_held_out_graphs_can_never_be_no_better_than_chance():
    assert chance_half_width(10_000, 120) > MARGIN
    assert chance_half_width(751, 256) < MARGIN


@pytest.mark.parametrize(
    ("count", "shown"), [(3.2, 4), (99.1, 100), (381.0, 390), (12_345.0, 13_000)]
)
def test_needed_numbers_are_rounded_up_to_two_digits(count, shown):
    assert round_up(count) == shown


def test_a_verdict_takes_the_nearer_of_chance_and_margin():
    assert half_width_for_verdict(0.5) == pytest.approx(MARGIN)
    assert half_width_for_verdict(0.6) == pytest.approx(0.1)
    # Just beside the middle the whole margin is left, halfway to its end the least.
    assert half_width_for_verdict(0.525) == pytest.approx(0.025)
    for value in (0.51, 0.54, 0.7):
        assert half_width_for_verdict(value) == pytest.approx(half_width_for_verdict(1 - value))


def test_four_times_the_graphs_halve_the_width():
    assert needed(0.75, 0.5, 100) == 400
    assert chance_half_width(400, 400) == pytest.approx(chance_half_width(100, 100) / 2, rel=2e-3)
    assert chance_half_width(30, 80) == chance_half_width(80, 30)
