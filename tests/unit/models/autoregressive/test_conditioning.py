import torch

from layerdag.graph import GraphSizes
from layerdag.models import Conditions
from layerdag.models.autoregressive import POSITION_BUCKETS, ConditionEncoder
from layerdag.models.autoregressive._conditioning import at_tokens, drop_conditions

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
