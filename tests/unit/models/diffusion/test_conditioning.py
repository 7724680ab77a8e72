import pytest
import torch

from layerdag.graph import GraphSizes
from layerdag.models import Conditions
from layerdag.models.diffusion._conditioning import ConditionEncoder, drop_conditions


@pytest.fixture
def conditions() -> Conditions:
    return Conditions(torch.tensor([[0.5], [float("nan")], [-2.0]]), torch.tensor([[1], [2], [-1]]))


def test_every_condition_changes_the_vector(sizes: GraphSizes, conditions: Conditions):
    encoder = ConditionEncoder(sizes, 8)
    whole, none = encoder(conditions), encoder(conditions.unknown())
    assert torch.equal(none[0], none[1])
    for row in range(3):
        assert not torch.allclose(whole[row], none[row])


def test_a_wide_range_of_labels_stays_apart(sizes: GraphSizes):
    encoder = ConditionEncoder(sizes, 8)
    labels = torch.linspace(-3, 3, 50)[:, None]
    vectors = encoder(Conditions(labels, torch.zeros(50, 1, dtype=torch.int64)))
    distance = torch.cdist(vectors, vectors) + torch.eye(50)
    assert distance.min() > 1e-4


def test_without_conditions_all_graphs_share_a_vector():
    encoder = ConditionEncoder(GraphSizes((3,)), 8)
    vectors = encoder(Conditions(torch.zeros(4, 0), torch.zeros(4, 0, dtype=torch.int64)))
    assert vectors.shape == (4, 8)
    assert torch.equal(vectors[0], vectors[3])


def test_dropping_makes_the_asked_share_unknown(generator: torch.Generator):
    conditions = Conditions(torch.zeros(10_000, 2), torch.zeros(10_000, 1, dtype=torch.int64))
    dropped = drop_conditions(conditions, 0.1, generator)
    lost = dropped.numeric_BC.isnan()
    assert abs(lost.float().mean() - (1 - 0.9**2)) < 0.01
    all_lost = lost.all(1) & (dropped.category_BM[:, 0] == -1)
    assert abs(all_lost.float().mean() - 0.1) < 0.01


def test_dropping_nothing_changes_nothing(conditions: Conditions, generator: torch.Generator):
    kept = drop_conditions(conditions, 0.0, generator)
    torch.testing.assert_close(kept.numeric_BC, conditions.numeric_BC, equal_nan=True)
    assert torch.equal(kept.category_BM, conditions.category_BM)
