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


def test_a_graph_s_vector_depends_on_its_own_conditions_alone(
    sizes: GraphSizes, conditions: Conditions
):
    encoder = ConditionEncoder(sizes, 8)
    together = encoder(conditions)
    for row in range(3):
        alone = encoder(conditions.of(torch.tensor([row])))
        torch.testing.assert_close(alone[0], together[row])


def test_an_unknown_number_is_not_taken_for_zero():
    encoder = ConditionEncoder(GraphSizes((2,), numeric_conditions=1), 8)
    none = torch.zeros(2, 0, dtype=torch.int64)
    unknown, zero = encoder(Conditions(torch.tensor([[torch.nan], [0.0]]), none))
    assert not torch.allclose(unknown, zero)


def test_every_category_and_unknown_have_vectors_of_their_own():
    encoder = ConditionEncoder(GraphSizes((2,), category_conditions=(3, 2)), 8)
    codes = torch.cartesian_prod(torch.arange(-1, 3), torch.arange(-1, 2))
    found = encoder(Conditions(torch.zeros(12, 0), codes))
    assert (torch.cdist(found, found) + torch.eye(12)).min() > 1e-2


def test_categories_add_up():
    encoder = ConditionEncoder(GraphSizes((2,), category_conditions=(3, 2)), 8)
    codes = torch.tensor([[0, 0], [0, 1], [2, 0], [2, 1]])
    a, b, c, d = encoder(Conditions(torch.zeros(4, 0), codes))
    torch.testing.assert_close(b - a, d - c)


def test_gradients_stay_finite_where_nothing_is_known(sizes: GraphSizes, conditions: Conditions):
    encoder = ConditionEncoder(sizes, 8)
    encoder(conditions.unknown()).square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in encoder.parameters())


def test_dropping_all_needs_a_rate_of_1(conditions: Conditions, generator: torch.Generator):
    dropped = drop_conditions(conditions, 1.0, generator)
    assert dropped.numeric_BC.isnan().all()
    assert (dropped.category_BM == -1).all()


def test_dropping_takes_one_number_per_graph_first(conditions: Conditions):
    """Golden losses hang on the order of the draws: for all of a graph, then for each."""
    uniform = torch.rand(3, generator=torch.Generator().manual_seed(3))
    rate = float(uniform.sort().values[:2].mean())
    dropped = drop_conditions(conditions, rate, torch.Generator().manual_seed(3))
    lost = int(uniform.argmin())
    assert dropped.numeric_BC[lost].isnan().all()
    assert (dropped.category_BM[lost] == -1).all()
