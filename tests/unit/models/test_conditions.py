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


def test_a_rate_of_0_drops_nothing_and_one_of_1_everything():
    uniform = torch.tensor([[0.0, 0.5, 0.9, 0.1], [0.3, 0.99, 0.0, 0.0]])
    kept, lost = KNOWN.dropped(uniform, 0.0), KNOWN.dropped(uniform, 1.0)
    assert torch.equal(kept.numeric_BC, KNOWN.numeric_BC)
    assert torch.equal(kept.category_BM, KNOWN.category_BM)
    assert lost.numeric_BC.isnan().all()
    assert (lost.category_BM == -1).all()


def test_what_is_unknown_stays_unknown():
    unknown = KNOWN.unknown()
    dropped = unknown.dropped(torch.ones(2, 4), 0.5)
    assert dropped.numeric_BC.isnan().all()
    assert (dropped.category_BM == -1).all()


def test_dropping_leaves_the_conditions_themselves_alone():
    before = KNOWN.numeric_BC.clone()
    KNOWN.dropped(torch.zeros(2, 4), 0.5)
    assert torch.equal(KNOWN.numeric_BC, before)


def test_graphs_may_have_numbers_alone_categories_alone_or_nothing():
    for numbers, categories in ((2, 0), (0, 2), (0, 0)):
        plain = Conditions(torch.zeros(3, numbers), torch.zeros(3, categories, dtype=torch.int64))
        uniform = torch.full((3, numbers + categories + 1), 0.9)
        uniform[1, -1] = 0.0
        dropped = plain.dropped(uniform, 0.5)
        assert dropped.numeric_BC.isnan().any(1).tolist() == [False, bool(numbers), False]
        assert (dropped.category_BM == -1).any(1).tolist() == [False, bool(categories), False]
        assert plain.of(torch.zeros(0, dtype=torch.int64)).numeric_BC.shape == (0, numbers)


SIZES_B2 = torch.tensor([[30.0, 3.0], [70.0, 7.0]])


def test_the_sizes_asked_for_are_conditions_that_may_be_dropped():
    asked = Conditions(KNOWN.numeric_BC, KNOWN.category_BM, SIZES_B2)
    uniform = torch.tensor([[0.9, 0.9, 0.9, 0.1, 0.9, 0.9], [0.9, 0.9, 0.9, 0.9, 0.1, 0.9]])
    dropped = asked.dropped(uniform, 0.2)
    assert dropped.sizes_B2.isnan().tolist() == [[True, False], [False, True]]
    assert not dropped.numeric_BC.isnan().any()
    everything = asked.dropped(uniform.masked_fill(uniform < 0.5, 0.9).clone(), 0.95)
    assert everything.sizes_B2.isnan().all()


def test_rows_without_sizes_follow_those_with_them():
    asked = Conditions(KNOWN.numeric_BC, KNOWN.category_BM, SIZES_B2)
    joined = asked.followed_by(asked.unknown()).of(torch.tensor([1, 0, 3]))
    assert joined.known_sizes_B2[:2].tolist() == [[70.0, 7.0], [30.0, 3.0]]
    assert joined.known_sizes_B2[2].isnan().all()
    assert KNOWN.known_sizes_B2.shape == (2, 2)
    assert KNOWN.known_sizes_B2.isnan().all()
