from dataclasses import replace

import pytest
import torch

from layerdag.graph import GraphSizes
from layerdag.models import Conditions
from layerdag.models.autoregressive import POSITION_BUCKETS, ConditionEncoder, RemainingSizes
from layerdag.models.autoregressive._conditioning import at_tokens, drop_conditions, noisy_sizes

NONE = torch.zeros(2, 0, dtype=torch.int64)


def test_an_unknown_number_is_not_taken_for_a_mean_one():
    encoder = ConditionEncoder(GraphSizes((2,), numeric_conditions=2), 32)
    found = encoder(Conditions(torch.tensor([[torch.nan, 1.0], [0.0, 1.0]]), NONE)).before_BJD
    assert found.isfinite().all()
    assert not torch.allclose(found[0], found[1])


def test_nothing_known_of_numbers_alone_adds_nothing():
    encoder = ConditionEncoder(GraphSizes((2,), numeric_conditions=2), 32)
    found = encoder(Conditions(torch.full((2, 2), torch.nan), NONE))
    assert not found.before_BJD.any()
    assert not found.after_BJD.any()


def test_each_bucket_learns_a_vector_of_its_own():
    encoder = ConditionEncoder(GraphSizes((2,), category_conditions=(3,)), 32)
    torch.nn.init.normal_(encoder.after.weight)
    category = torch.tensor([[0], [2]])
    encoder(Conditions(torch.zeros(2, 0), category)).after_BJD[:, 4].square().sum().backward()
    grown = (
        encoder.stage_categories.weight.grad.view(4, len(POSITION_BUCKETS) + 1, 32).abs().sum(2) > 0
    )
    assert grown[1:, 4].tolist() == [True, False, True]
    assert not grown[:, [0, 1, 2, 3, 5]].any()


def test_buckets_of_positions():
    encoder = ConditionEncoder(GraphSizes((2,)), 32)
    stages = encoder.bucket(torch.tensor([0, 1, 2, 3, 4, 5, 8, 9, 512, 513, 9000])).tolist()
    assert stages == [0, 1, 2, 3, 3, 4, 4, 5, 10, 11, 11]


def test_a_token_gets_the_vector_of_its_graph_and_bucket():
    vectors = torch.arange(6.0).view(2, 3, 1)
    found = at_tokens(vectors, torch.tensor([0, 0, 1]), torch.tensor([0, 2, 1]))
    assert found[:, 0].tolist() == [0.0, 2.0, 4.0]


def test_dropping_hides_about_the_asked_fraction_and_nothing_at_zero():
    whole = Conditions(torch.zeros(2000, 1), torch.zeros(2000, 1, dtype=torch.int64))
    dropped = drop_conditions(whole, 0.2, torch.Generator().manual_seed(0))
    assert abs(dropped.numeric_BC.isnan().float().mean() - 0.36) < 0.05
    assert abs((dropped.category_BM == -1).float().mean() - 0.36) < 0.05
    kept = drop_conditions(whole, 0.0, torch.Generator())
    assert not kept.numeric_BC.isnan().any()
    assert not (kept.category_BM == -1).any()


SIZES = GraphSizes((2,), numeric_conditions=2, category_conditions=(3, 2))


def noisy_encoder(sizes: GraphSizes = SIZES) -> ConditionEncoder:
    """An encoder of which no weight is zero."""
    torch.manual_seed(0)
    encoder = ConditionEncoder(sizes, 16, position_buckets=(1, 4))
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return encoder


def some_conditions(graphs: int = 4) -> Conditions:
    generator = torch.Generator().manual_seed(2)
    numbers = torch.randn(graphs, 2, generator=generator)
    codes = torch.randint(2, (graphs, 2), generator=generator)
    return Conditions(numbers, codes)


def test_an_untrained_encoder_gives_every_position_the_same_and_adds_nothing_behind():
    found = ConditionEncoder(SIZES, 16)(some_conditions())
    assert torch.equal(found.before_BJD, found.before_BJD[:, :1].expand_as(found.before_BJD))
    assert found.before_BJD.any()
    assert not found.after_BJD.any()


def test_each_condition_changes_the_vectors_of_its_graph_alone():
    encoder, plain = noisy_encoder(), some_conditions()
    wanted = encoder(plain)
    for column in range(2):
        for part in ("numeric_BC", "category_BM"):
            changed = getattr(plain, part).clone()
            changed[1, column] = 1 - changed[1, column]
            other = encoder(replace(plain, **{part: changed}))
            for name in ("before_BJD", "after_BJD"):
                moved_BJ = (getattr(other, name) != getattr(wanted, name)).any(2)
                assert moved_BJ[1].all()
                assert not moved_BJ[[0, 2, 3]].any()


def test_an_unknown_category_has_a_vector_of_its_own():
    encoder = noisy_encoder(GraphSizes((2,), category_conditions=(3,)))
    every = encoder(Conditions(torch.zeros(4, 0), torch.tensor([[-1], [0], [1], [2]]))).before_BJD
    distance = torch.cdist(every[:, 0], every[:, 0])
    assert (distance + torch.eye(4) > 1e-2).all()


def test_numbers_far_beyond_the_data_are_taken_for_ten_standard_deviations():
    encoder = noisy_encoder(GraphSizes((2,), numeric_conditions=1))
    far = torch.tensor([[10.0], [1e9], [-10.0], [-1e9]])
    found = encoder(Conditions(far, torch.zeros(4, 0, dtype=torch.int64))).before_BJD
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[2], found[3])
    assert not torch.allclose(found[0], found[2])


def test_vectors_of_some_graphs_are_selected_in_the_order_asked_for():
    encoder, plain = noisy_encoder(), some_conditions()
    rows = torch.tensor([3, 0, 0])
    found, wanted = encoder(plain).select(rows), encoder(plain.of(rows))
    torch.testing.assert_close(found.before_BJD, wanted.before_BJD)
    torch.testing.assert_close(found.after_BJD, wanted.after_BJD)


def test_without_any_condition_there_is_nothing_to_add():
    encoder = noisy_encoder(GraphSizes((2,)))
    found = encoder(Conditions(torch.zeros(3, 0), torch.zeros(3, 0, dtype=torch.int64)))
    assert found.before_BJD.shape == (3, 3, 16)
    assert not found.before_BJD.any()


def test_without_buckets_all_positions_share_one_vector():
    encoder = ConditionEncoder(SIZES, 16, position_buckets=())
    assert encoder(some_conditions()).before_BJD.shape == (4, 1, 16)
    assert encoder.bucket(torch.tensor([0, 7, 10**6])).tolist() == [0, 0, 0]


def test_dropping_everything_leaves_nothing_known():
    dropped = drop_conditions(some_conditions(), 1.0, torch.Generator())
    assert dropped.numeric_BC.isnan().all()
    assert (dropped.category_BM == -1).all()


def trained_remaining() -> RemainingSizes:
    torch.manual_seed(0)
    remaining = RemainingSizes(16)
    torch.nn.init.normal_(remaining.lift.weight)
    return remaining


def sizes_of(nodes: list[float], layers: list[float]) -> torch.Tensor:
    return torch.tensor([nodes, layers]).T


def test_remaining_sizes_add_nothing_untrained_or_where_none_are_asked_for():
    position_T, layer_T = torch.tensor([0, 5]), torch.tensor([0, 2])
    sizes_T2 = sizes_of([20.0, 20.0], [7.0, 7.0])
    assert not any(part.any() for part in RemainingSizes(16)(position_T, layer_T, sizes_T2))
    unknown_T2 = torch.full((2, 2), torch.nan)
    assert not any(part.any() for part in trained_remaining()(position_T, layer_T, unknown_T2))


@pytest.mark.parametrize("counted", ["nodes", "layers"])
def test_remaining_sizes_tell_apart_what_is_left_and_what_is_there(counted):
    done_T, asked_T = torch.tensor([10, 90, 10, 45, 0]), [20.0, 100.0, 100.0, 90.0, 1e6]
    zero_T, unknown_T = torch.zeros_like(done_T), [torch.nan] * 5
    if counted == "nodes":
        parts = trained_remaining()(done_T, zero_T, sizes_of(asked_T, unknown_T))
    else:
        parts = trained_remaining()(zero_T, done_T, sizes_of(unknown_T, asked_T))
    for part in parts:
        assert part.isfinite().all()
        assert (torch.cdist(part, part) + 9 * torch.eye(5) > 0.1).all()


def test_beyond_the_numbers_asked_for_nothing_is_left():
    sizes_T2 = sizes_of([100.0, 100.0], [10.0, 10.0])
    before_TD, after_TD = trained_remaining()(
        torch.tensor([130, 200]), torch.tensor([13, 20]), sizes_T2
    )
    assert torch.equal(before_TD[0], before_TD[1])
    assert torch.equal(after_TD[0], after_TD[1])


def test_sizes_of_training_graphs_are_asked_for_within_a_few_percent():
    sizes_B2 = torch.full((4000, 2), 500)
    ratio_B2 = noisy_sizes(sizes_B2, torch.Generator().manual_seed(0)) / 500
    assert 0.02 < ratio_B2.log().std() < 0.05
    assert (ratio_B2.log().mean(0).abs() < 0.005).all()
    assert torch.equal(noisy_sizes(sizes_B2, None), sizes_B2.float())


def test_dropping_conditions_hides_each_of_the_two_sizes():
    numbers, none = torch.zeros(500, 1), torch.zeros(500, 0, dtype=torch.int64)
    whole = Conditions(numbers, none, torch.ones(500, 2))
    dropped = drop_conditions(whole, 0.2, torch.Generator().manual_seed(0))
    hidden_B2 = dropped.sizes_B2.isnan()
    assert ((hidden_B2.float().mean(0) - 0.36).abs() < 0.1).all()
    assert hidden_B2[:, 0].logical_xor(hidden_B2[:, 1]).any()
    assert hidden_B2[:, 0].logical_xor(dropped.numeric_BC[:, 0].isnan()).any()
