import itertools

import pytest
from raw_graphs import chain

from layerdag.datasets import enough_to_judge, held_out_fraction, named_splits, split_graphs
from layerdag.datasets._splits import content_key, tenths
from layerdag.errors import ConfigError

WORDS = ["".join(word) for word in itertools.product("ab", repeat=5)]


def names(parts):
    return {split: {graph.name for graph in graphs} for split, graphs in parts.items()}


def test_equal_graphs_stay_together_whatever_their_conditions():
    graphs = [chain(f"{word}/{i}", word, label=float(i)) for word in WORDS for i in range(3)]
    parts = split_graphs(graphs, seed=0)
    contents = [{content_key(g) for g in graphs} for graphs in parts.values()]
    assert all(not a & b for a, b in itertools.combinations(contents, 2))
    assert [len(keys) for keys in contents] == [26, 3, 3]


def test_the_split_depends_on_the_seed_and_not_on_the_order():
    graphs = [chain(word, word) for word in WORDS]
    first = names(split_graphs(graphs, seed=1))
    assert names(split_graphs(graphs[::-1], seed=1)) == first
    assert names(split_graphs(graphs, seed=2)) != first


@pytest.mark.parametrize(
    ("count", "sizes"), [(1, [1, 0, 0]), (2, [1, 1, 0]), (3, [1, 1, 1]), (20, [16, 2, 2])]
)
def test_few_graphs_are_for_training_then_val_then_test(count, sizes):
    parts = split_graphs([chain(word, word) for word in WORDS[:count]], seed=0)
    assert [len(graphs) for graphs in parts.values()] == sizes


@pytest.mark.parametrize(
    ("count", "sizes"),
    [(1, [1, 0, 0]), (3, [1, 1, 1]), (12, [8, 2, 2]), (32, [20, 6, 6])],
)
def test_small_folders_hold_out_enough_to_judge(count, sizes):
    graphs = [chain(word, word) for word in WORDS[:count]]
    parts = split_graphs(graphs, seed=0, sizes=enough_to_judge)
    assert [len(graphs) for graphs in parts.values()] == sizes


@pytest.mark.parametrize("count", [100, 101, 555, 1013])
def test_from_a_hundred_graphs_on_a_tenth_each_is_held_out(count):
    assert enough_to_judge(count) == tenths(count)


def test_ten_graphs_each_are_held_out_of_fifty():
    assert enough_to_judge(50) == enough_to_judge(99) == (10, 10)


def test_a_share_of_held_out_graphs_may_be_chosen():
    graphs = [chain(word, word) for word in WORDS[:30]]
    parts = split_graphs(graphs, seed=0, sizes=held_out_fraction(0.4))
    assert [len(graphs) for graphs in parts.values()] == [18, 6, 6]
    for share in (0.0, 1.0, -0.2):
        with pytest.raises(ConfigError, match="between 0 and 1"):
            held_out_fraction(share)


def test_graphs_that_the_label_file_does_not_name_are_for_training():
    parts = named_splits([chain("a", "a"), chain("b", "b")], {"b": "test"})
    assert names(parts) == {"train": {"a"}, "val": set(), "test": {"b"}}
