import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, strategies as st
from laws import tried
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


@given(st.integers(1, 20), st.integers(0, 5), st.sampled_from([0.1, 0.4, 0.9]))
@tried(6)
def test_every_graph_stands_in_one_part_and_equal_ones_in_the_same(count, seed, share):
    graphs = [chain(f"g{i}", "ab" * (1 + i % 7) + "a" * (i % 3)) for i in range(count)]
    for sizes in (tenths, enough_to_judge, held_out_fraction(share)):
        parts = split_graphs(graphs, seed, sizes=sizes)
        placed = [graph.name for part in parts.values() for graph in part]
        assert sorted(placed) == sorted(graph.name for graph in graphs)
        keys = {split: {content_key(graph) for graph in part} for split, part in parts.items()}
        assert not keys["train"] & keys["val"]
        assert not keys["train"] & keys["test"]
        assert not keys["val"] & keys["test"]


@pytest.mark.parametrize("share", [0.0, 1.0, -0.1, 1.5, float("nan")])
def test_a_share_of_nothing_or_of_all_is_refused(share):
    with pytest.raises(ConfigError, match=f"must lie between 0 and 1, found {share}"):
        held_out_fraction(share)


def test_equal_content_does_not_depend_on_names_conditions_or_the_order_of_nodes():
    graph = chain("g", "abc", label=1.0)
    renamed = replace(graph, name="h", conditions={"label": 2.0})
    order = np.array([2, 0, 1])
    place = np.argsort(order)
    turned = replace(
        graph,
        categories={"kind": [graph.categories["kind"][i] for i in order]},
        edge_index_2E=place[graph.edge_index_2E],
    )
    assert content_key(graph) == content_key(renamed) == content_key(turned)
    others = [
        chain("g", "abd"),
        chain("g", "cba"),
        replace(graph, edge_type_E=np.array([0, 1]), edge_type_names=("data", "control")),
        replace(graph, numbers={"x": np.array([1.0, 2.0, 3.0])}),
    ]
    assert content_key(graph) not in {content_key(other) for other in others}
