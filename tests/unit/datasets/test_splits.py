import itertools

import pytest
from raw_graphs import chain

from layerdag.datasets.splits import content_key, named_splits, split_graphs

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


def test_graphs_that_the_label_file_does_not_name_are_for_training():
    parts = named_splits([chain("a", "a"), chain("b", "b")], {"b": "test"})
    assert names(parts) == {"train": {"a"}, "val": set(), "test": {"b"}}
