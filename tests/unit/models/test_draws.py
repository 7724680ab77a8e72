import numpy as np
import pytest
import torch
from random_words import splitmix_finalizer

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


def test_a_shuffled_batch_comes_apart_into_its_graphs(make_dag, make_batch, generator):
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
    ).tolist() == [0, 1]


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


def test_any_number_of_leading_dimensions_is_drawn_at_once(generator):
    weights = torch.rand(4, 3, 5, generator=generator)
    uniform = torch.rand(4, 3, generator=generator)
    found = sample_categorical(weights, uniform)
    one_by_one = [
        int(sample_categorical(weights[i, j], uniform[i, j])) for i in range(4) for j in range(3)
    ]
    assert found.flatten().tolist() == one_by_one


def test_a_code_that_the_conditions_rule_out_stays_impossible():
    conditional = torch.tensor([[-torch.inf, 0.0], [-torch.inf, 0.0]])
    unconditional = torch.tensor([[-torch.inf, 0.0], [1.0, 0.0]])
    found = guided(conditional, unconditional, 2.0)
    assert found.tolist() == [[-torch.inf, 0.0], [-torch.inf, 0.0]]


@pytest.mark.parametrize("weight", [-1.0, 0.0, 0.3, 1.0, 7.5])
def test_log_probabilities_are_on_the_line_through_both(weight, generator):
    conditional, unconditional = torch.randn(2, 4, 3, generator=generator)
    found = guided(conditional, unconditional, weight)
    torch.testing.assert_close(found, weight * conditional + (1 - weight) * unconditional)


GAMMA = 0x9E3779B97F4A7C15


def splitmix(seed: int, count: int) -> list[int]:
    """Return the outputs of SplitMix64, straight from its definition."""
    return [splitmix_finalizer(seed + (k + 1) * GAMMA) for k in range(count)]


def test_uniforms_are_splitmix64_of_seed_position_and_slot_alone():
    found = SampleStreams([5]).uniforms(torch.tensor([50]))
    wanted = [((w >> 11) + 0.5) * 2.0**-53 for w in splitmix(derive_seed(5, "sample"), 50)]
    assert found.tolist() == wanted
    together = drawn([3, 4, 5], 7, range(10))
    assert torch.equal(drawn([4], 7, range(2, 4))[0], together[1, 2:4])
    assert not torch.equal(drawn([4], 8, range(10))[0], together[1])
    seed, position, gamma = 2**64 - 3, 7, 0x9E3779B97F4A7C15
    node = splitmix_finalizer(seed + (position + 1) * gamma)
    words = [splitmix_finalizer(node ^ splitmix_finalizer((k + 1) * gamma)) for k in range(2, 6)]
    expected = [(word >> 11) * 2.0**-53 for word in words]
    assert drawn([seed], position, range(2, 6))[0].tolist() == expected


def test_a_sample_draws_the_same_whatever_its_batch_mates():
    together = SampleStreams([1, 2, 3])
    first = together.uniforms(torch.tensor([4, 2, 1]))
    second = together.uniforms(torch.tensor([0, 3, 5]))
    alone = SampleStreams([2]).uniforms(torch.tensor([5]))
    assert torch.equal(alone, torch.cat([first[4:6], second[:3]]))


def drawn(seeds: list[int], position: int, slots: range) -> torch.Tensor:
    return slot_uniforms(np.array(seeds, np.uint64), np.full(len(seeds), position), slots)


GROUP = torch.tensor([0, 0, 0, 1, 1, 3])
KEY = torch.tensor([0.1, 0.9, 0.5, -1.0, -2.0, 7.0])


def test_the_largest_keys_of_each_group_are_taken_and_one_of_the_eligible_always():
    chosen = choose_in_groups(KEY, GROUP, torch.tensor([2, 1, 5, 4]))
    assert chosen.tolist() == [False, True, True, True, False, True]
    eligible = torch.tensor([True, False, False, False, True, True])
    chosen = choose_with_one_of(KEY, GROUP, torch.tensor([2, 1, 1, 1]), eligible)
    assert chosen.tolist() == [True, True, False, False, True, True]
    eligible = torch.tensor([False, False, False, False, True, True])
    chosen = choose_with_one_of(KEY, GROUP, torch.tensor([1, 1, 1, 1]), eligible)
    assert chosen.tolist() == [False, True, False, False, True, True]
    none = torch.zeros(0, dtype=torch.int64)
    assert choose_in_groups(torch.zeros(0), none, torch.tensor([2, 3])).tolist() == []


def test_pairs_are_drawn_without_replacement_in_proportion(generator):
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


def test_gumbel_noise_has_its_distribution_function():
    uniform = torch.tensor([0.1, 0.5, 0.9], dtype=torch.float64)
    torch.testing.assert_close((-(-gumbel(uniform)).exp()).exp(), uniform)
