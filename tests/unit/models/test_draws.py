from collections.abc import Callable

import numpy as np
import pytest
import torch
from random_words import splitmix_finalizer

from layerdag.dag.dag import DAG, DAGBatch
from layerdag.models.draws import (
    SampleStreams,
    assemble_dags,
    bin_positions,
    choose_in_groups,
    choose_with_one_of,
    guided,
    gumbel,
    sample_categorical,
    sample_from_logits,
    slot_uniforms,
)
from layerdag.runtime.rng import derive_seed


def test_a_shuffled_batch_comes_apart_into_its_graphs(
    make_dag: Callable[..., DAG],
    make_batch: Callable[..., DAGBatch],
    generator: torch.Generator,
):
    dags = [make_dag(2, 3, 2), make_dag(1), make_dag(1, 4, 4, extra_edges=1.0)]
    batch = make_batch(*dags)
    order_E = torch.randperm(batch.edge_type_E.numel(), generator=generator)
    found = assemble_dags(
        batch.x_NA,
        batch.u_NA,
        batch.node_ptr.diff(),
        batch.edge_index_2E[:, order_E],
        batch.edge_type_E[order_E],
        batch.layer_N,
    )
    for dag, wanted in zip(found, dags, strict=True):
        dag.check()
        for name in ("x_NA", "u_NA", "edge_index_2E", "edge_type_E", "layer_N"):
            assert torch.equal(getattr(dag, name), getattr(wanted.in_layer_order(), name))


def test_a_graph_does_not_keep_the_tensors_of_the_others():
    x_NA = torch.zeros(1000, 1, dtype=torch.int64)
    none = torch.zeros(2, 0, dtype=torch.int64)
    small, _ = assemble_dags(x_NA, x_NA.float(), torch.tensor([1, 999]), none, none[0], x_NA[:, 0])
    assert small.x_NA.untyped_storage().nbytes() == 8
    assert small.u_NA.untyped_storage().nbytes() == 4
    assert small.layer_N.untyped_storage().nbytes() == 8


def test_a_position_just_below_1_stays_below_1_in_single_precision():
    found = bin_positions(torch.tensor([0.25, 1 - 2.0**-53], dtype=torch.float64))
    assert found.dtype == torch.float32
    assert found[0] == 0.25
    assert found[1] < 1


def test_draw_never_takes_a_code_of_weight_0():
    weights = torch.tensor([0.0, 2.0, 0.0, 6.0, 0.0]).expand(1000, 5)
    uniform = (torch.arange(1000) + 0.5) / 1000
    codes = sample_categorical(weights, uniform)
    assert codes.bincount(minlength=5).tolist() == [0, 250, 0, 750, 0]


def test_draw_stays_in_range_at_the_ends():
    weights = torch.tensor([[0.2, 0.8], [0.2, 0.8]])
    assert sample_categorical(
        weights, torch.tensor([1e-300, 1 - 2.0**-53], dtype=torch.float64)
    ).tolist() == [
        0,
        1,
    ]


def test_logits_invert_the_distribution_function():
    logits = torch.tensor([0.2, 0.3, 0.5]).log().expand(5, 3)
    u = torch.tensor([0.0, 0.19, 0.21, 0.49, 0.51], dtype=torch.float64)
    assert sample_from_logits(logits, u).tolist() == [0, 0, 1, 1, 2]


def test_logits_never_give_an_impossible_category():
    logits = torch.tensor([[-torch.inf, 0.0, -torch.inf, 0.0, -torch.inf]]).expand(3, 5)
    assert sample_from_logits(logits, torch.tensor([0.0, 0.5, 1 - 2**-53]).double()).tolist() == [
        1,
        3,
        3,
    ]


def test_any_number_of_leading_dimensions_is_drawn_at_once(generator: torch.Generator):
    weights = torch.rand(4, 3, 5, generator=generator)
    uniform = torch.rand(4, 3, generator=generator)
    found = sample_categorical(weights, uniform)
    one_by_one = [
        int(sample_categorical(weights[i, j], uniform[i, j])) for i in range(4) for j in range(3)
    ]
    assert found.flatten().tolist() == one_by_one


def test_draws_follow_the_weights(generator: torch.Generator):
    weights, draws = torch.tensor([3.0, 0.0, 1.0, 4.0]), 8000
    found = sample_categorical(
        weights.expand(draws, 4), torch.rand(draws, generator=generator)
    ).bincount(minlength=4)
    expected = draws * weights / 8
    assert found[1] == 0
    kept = weights > 0
    assert ((found - expected)[kept] ** 2 / expected[kept]).sum() < 18.4  # 2 degrees: 1e-4


def test_the_scale_of_weights_and_a_shift_of_logits_change_no_draw(generator: torch.Generator):
    weights = torch.rand(50, 6, generator=generator, dtype=torch.float64)
    u = torch.rand(50, generator=generator, dtype=torch.float64)
    plain = sample_categorical(weights, u)
    assert torch.equal(sample_categorical(1024 * weights, u), plain)
    assert torch.equal(sample_from_logits(weights.log(), u), plain)
    assert torch.equal(sample_from_logits(weights.log() + 40, u), plain)


def test_a_single_code_is_always_drawn():
    assert sample_categorical(torch.tensor([[0.0, 1e-30]]), torch.tensor([0.5])).tolist() == [1]
    assert sample_from_logits(torch.tensor([[7.0]]), torch.tensor([0.99])).tolist() == [0]


def test_of_no_rows_nothing_is_drawn():
    assert sample_categorical(torch.zeros(0, 3), torch.zeros(0)).tolist() == []


CONDITIONAL = torch.tensor([[1.0, 0.0, -1.0]])
UNCONDITIONAL = torch.tensor([[0.0, 0.5, -1.0]])


@pytest.mark.parametrize(("weight", "expected"), [(0.0, UNCONDITIONAL), (1.0, CONDITIONAL)])
def test_weights_0_and_1_give_either_logits(weight: float, expected: torch.Tensor):
    torch.testing.assert_close(guided(CONDITIONAL, UNCONDITIONAL, weight), expected)


def test_a_weight_above_1_moves_further_the_same_way():
    assert guided(CONDITIONAL, UNCONDITIONAL, 3.0).tolist() == [[3.0, -1.0, -1.0]]


def test_a_code_that_the_conditions_rule_out_stays_impossible():
    conditional = torch.tensor([[-torch.inf, 0.0], [-torch.inf, 0.0]])
    unconditional = torch.tensor([[-torch.inf, 0.0], [1.0, 0.0]])
    found = guided(conditional, unconditional, 2.0)
    assert found.tolist() == [[-torch.inf, 0.0], [-torch.inf, 0.0]]


@pytest.mark.parametrize("weight", [-1.0, 0.3, 2.0, 7.5])
def test_log_probabilities_are_on_the_line_through_both(weight: float, generator: torch.Generator):
    conditional, unconditional = torch.randn(2, 4, 3, generator=generator)
    found = guided(conditional, unconditional, weight)
    torch.testing.assert_close(found, weight * conditional + (1 - weight) * unconditional)


def test_a_constant_added_to_the_logits_changes_no_probability(generator: torch.Generator):
    conditional, unconditional = torch.randn(2, 4, 3, generator=generator)
    shifted = guided(conditional + 5, unconditional - 3, 2.5).softmax(1)
    torch.testing.assert_close(shifted, guided(conditional, unconditional, 2.5).softmax(1))


def test_where_conditions_say_nothing_no_weight_changes_anything(generator: torch.Generator):
    logits = torch.randn(4, 3, generator=generator)
    for weight in (0.0, 1.0, 9.0):
        torch.testing.assert_close(guided(logits, logits, weight), logits)


GAMMA = 0x9E3779B97F4A7C15


def splitmix(seed: int, count: int) -> list[int]:
    """Return the outputs of SplitMix64, straight from its definition."""
    return [splitmix_finalizer(seed + (k + 1) * GAMMA) for k in range(count)]


def test_stream_is_splitmix64():
    drawn = SampleStreams([5]).uniforms(torch.tensor([50]))
    wanted = [((w >> 11) + 0.5) * 2.0**-53 for w in splitmix(derive_seed(5, "sample"), 50)]
    assert drawn.tolist() == wanted


def test_a_sample_draws_the_same_whatever_its_batch_mates():
    together = SampleStreams([1, 2, 3])
    first = together.uniforms(torch.tensor([4, 2, 1]))
    second = together.uniforms(torch.tensor([0, 3, 5]))
    alone = SampleStreams([2]).uniforms(torch.tensor([5]))
    assert torch.equal(alone, torch.cat([first[4:6], second[:3]]))


def test_uniforms_are_uniform_and_never_0_or_1():
    drawn = SampleStreams(range(100)).uniforms(torch.full((100,), 1000)).numpy()
    assert drawn.min() > 0
    assert drawn.max() < 1
    counts = np.histogram(drawn, bins=50, range=(0, 1))[0]
    chi_square = ((counts - 2000) ** 2 / 2000).sum()
    assert chi_square < 90  # 49 degrees of freedom: the chance of more is 3e-4


def drawn(seeds: list[int], position: int, slots: range) -> torch.Tensor:
    return slot_uniforms(np.array(seeds, np.uint64), np.full(len(seeds), position), slots)


def test_a_uniform_depends_on_its_own_seed_position_and_slot_alone():
    together = drawn([3, 4, 5], 7, range(10))
    assert torch.equal(drawn([4], 7, range(2, 4))[0], together[1, 2:4])
    assert not torch.equal(drawn([4], 8, range(10))[0], together[1])


def test_uniforms_are_splitmix_of_seed_position_and_slot():
    seed, position, gamma = 2**64 - 3, 7, 0x9E3779B97F4A7C15
    node = splitmix_finalizer(seed + (position + 1) * gamma)
    words = [splitmix_finalizer(node ^ splitmix_finalizer((k + 1) * gamma)) for k in range(2, 6)]
    expected = [(word >> 11) * 2.0**-53 for word in words]
    assert drawn([seed], position, range(2, 6))[0].tolist() == expected


def test_uniforms_are_uniform_and_unrelated_across_neighboring_seeds():
    u_BU = drawn(list(range(400)), 1, range(50))
    assert (u_BU >= 0).all()
    assert (u_BU < 1).all()
    assert abs(u_BU.mean() - 0.5) < 0.01
    assert abs(u_BU.var() - 1 / 12) < 0.003
    neighbors = torch.corrcoef(torch.stack([u_BU[:-1].flatten(), u_BU[1:].flatten()]))
    assert abs(neighbors[0, 1]) < 0.03


GROUP = torch.tensor([0, 0, 0, 1, 1, 3])
KEY = torch.tensor([0.1, 0.9, 0.5, -1.0, -2.0, 7.0])


def test_takes_the_largest_keys_of_each_group():
    chosen = choose_in_groups(KEY, GROUP, torch.tensor([2, 1, 5, 4]))
    assert chosen.tolist() == [False, True, True, True, False, True]


def test_one_of_the_eligible_is_always_taken():
    eligible = torch.tensor([True, False, False, False, True, True])
    chosen = choose_with_one_of(KEY, GROUP, torch.tensor([2, 1, 1, 1]), eligible)
    assert chosen.tolist() == [True, True, False, False, True, True]


def test_gumbel_keys_draw_in_proportion_to_weights(generator: torch.Generator):
    weights = torch.tensor([1.0, 2.0, 5.0], dtype=torch.float64)
    draws = 8000
    uniform = torch.rand(draws * 3, generator=generator, dtype=torch.float64)
    key = weights.log().repeat(draws) + gumbel(uniform)
    group = torch.arange(draws).repeat_interleave(3)
    chosen = choose_in_groups(key, group, torch.ones(draws, dtype=torch.int64))
    counts = chosen.view(draws, 3).sum(0)
    wanted = draws * weights / 8
    assert ((counts - wanted) ** 2 / wanted).sum() < 18.4  # 2 degrees of freedom: chance 1e-4


def test_a_group_without_an_eligible_candidate_is_chosen_by_key_alone():
    eligible = torch.tensor([False, False, False, False, True, True])
    chosen = choose_with_one_of(KEY, GROUP, torch.tensor([1, 1, 1, 1]), eligible)
    assert chosen.tolist() == [False, True, False, False, True, True]


def test_nothing_is_chosen_of_nothing():
    none = torch.zeros(0, dtype=torch.int64)
    assert choose_in_groups(torch.zeros(0), none, torch.tensor([2, 3])).tolist() == []


def test_pairs_are_drawn_without_replacement_in_proportion(generator: torch.Generator):
    """P(i then j) = w_i / W * w_j / (W - w_i), over both orders (Plackett-Luce)."""
    weights, draws = torch.tensor([1.0, 2.0, 5.0], dtype=torch.float64), 8000
    uniform = torch.rand(draws * 3, generator=generator, dtype=torch.float64)
    key = weights.log().repeat(draws) + gumbel(uniform)
    group = torch.arange(draws).repeat_interleave(3)
    chosen = choose_in_groups(key, group, torch.full((draws,), 2)).view(draws, 3)
    assert (chosen.sum(1) == 2).all()
    left_out = (~chosen).sum(0)
    wanted = []
    for out in range(3):
        i, j = (k for k in range(3) if k != out)
        pair = weights[i] * weights[j] / 8
        wanted.append(draws * (pair / (8 - weights[i]) + pair / (8 - weights[j])))
    expected = torch.stack(wanted)
    assert expected.sum() == pytest.approx(draws)
    assert ((left_out - expected) ** 2 / expected).sum() < 18.4  # chance 1e-4


def test_the_first_is_drawn_among_the_eligible_in_proportion(generator: torch.Generator):
    """One of candidates 0 and 2 comes first, so the only one drawn is one of them."""
    weights, draws = torch.tensor([1.0, 50.0, 3.0], dtype=torch.float64), 4000
    uniform = torch.rand(draws * 3, generator=generator, dtype=torch.float64)
    key = weights.log().repeat(draws) + gumbel(uniform)
    group = torch.arange(draws).repeat_interleave(3)
    eligible = torch.tensor([True, False, True]).repeat(draws)
    ones = torch.ones(draws, dtype=torch.int64)
    found = choose_with_one_of(key, group, ones, eligible).view(draws, 3).sum(0)
    assert found[1] == 0
    expected = draws * torch.tensor([0.25, 0.75])
    assert ((found[[0, 2]] - expected) ** 2 / expected).sum() < 15.1  # 1 degree: chance 1e-4


def test_gumbel_noise_has_its_distribution_function():
    uniform = torch.tensor([0.1, 0.5, 0.9], dtype=torch.float64)
    torch.testing.assert_close((-(-gumbel(uniform)).exp()).exp(), uniform)
