import torch

from layerdag.models import Conditions

KNOWN = Conditions(torch.tensor([[0.5, 1.0], [2.0, -2.0]]), torch.tensor([[1], [0]]))


def test_unknown_conditions_keep_the_shape_and_say_nothing():
    unknown = KNOWN.unknown()
    assert unknown.numeric_BC.isnan().all()
    assert unknown.numeric_BC.shape == (2, 2)
    assert unknown.category_BM.tolist() == [[-1], [-1]]


def test_each_uniform_below_the_rate_drops_its_condition_and_the_last_one_all():
    uniform = torch.tensor([[0.0, 0.9, 0.9, 0.9], [0.9, 0.9, 0.9, 0.1]])
    dropped = KNOWN.dropped(uniform, 0.2)
    assert dropped.numeric_BC.isnan().tolist() == [[True, False], [True, True]]
    assert dropped.category_BM.tolist() == [[1], [-1]]


def test_rows_are_taken_and_joined_in_order():
    joined = KNOWN.of(torch.tensor([1])).followed_by(KNOWN)
    assert joined.numeric_BC[:, 0].tolist() == [2.0, 0.5, 2.0]
    assert joined.category_BM[:, 0].tolist() == [0, 1, 0]
