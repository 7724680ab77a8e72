import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, strategies as st
from laws import tried
from raw_graphs import chain

from layerdag.datasets.dataset import GraphDataset
from layerdag.datasets.settings import CorpusConfig
from layerdag.datasets.splits import (
    SplitFingerprint,
    content_hash,
    content_key,
    has_enough_held_out,
    held_out_fraction,
    named_splits,
    require_same_split,
    split_graphs,
    tenth_split_sizes,
)
from layerdag.errors import ConfigError, UsageError
from layerdag.graph.attributed_graph import AttributedGraph


def diamond(order: list[int], sizes: list[float]) -> AttributedGraph:
    """Return a -> b, a -> c, b -> d, c -> d with the nodes listed in ``order``."""
    place = {node: i for i, node in enumerate(order)}
    edges = [(0, 1), (0, 2), (1, 3), (2, 3)]
    return AttributedGraph(
        name="diamond",
        categories={"op": ["abcd"[node] for node in order]},
        numbers={"size": np.array([sizes[node] for node in order])},
        edge_index_2E=np.array([(place[s], place[t]) for s, t in edges]).T,
        edge_type_E=np.zeros(4, dtype=np.int64),
    )


def split(train: str, val: str, test: str) -> SplitFingerprint:
    parts = {
        name: [chain(word, word, label=1.0) for word in words.split()]
        for name, words in (("train", train), ("val", val), ("test", test))
    }
    return GraphDataset.build("toy", "flow", parts).split


def test_a_hash_does_not_depend_on_the_order_of_nodes_nor_on_conditions():
    sizes = [1.0, 2.0, float("nan"), -0.0]
    first = content_hash(diamond([0, 1, 2, 3], sizes))
    assert content_hash(diamond([2, 0, 3, 1], [1.0, 2.0, float("nan"), 0.0])) == first
    labeled = replace(diamond([0, 1, 2, 3], sizes), conditions={"label": 3.0})
    assert content_hash(labeled) == first


@pytest.mark.parametrize(
    "changed",
    [
        {"categories": {"op": ["a", "b", "c", "e"]}},
        {"numbers": {"size": np.array([1.0, 2.0, 3.0, 5.0])}},
        {"numbers": {"weight": np.array([1.0, 2.0, 3.0, 4.0])}},
        {"edge_type_names": ("control",)},
        {"edge_index_2E": np.array([(0, 1), (0, 2), (1, 3), (1, 2)]).T},
    ],
)
def test_a_hash_depends_on_words_numbers_names_and_edges(changed):
    graph = diamond([0, 1, 2, 3], [1.0, 2.0, 3.0, 4.0])
    assert content_hash(replace(graph, **changed)) != content_hash(graph)


def test_a_graph_in_another_part_is_another_split():
    whole = split("aa ab bb", "ba", "bab")
    assert whole.differing(split("aa ab", "ba", "bab bb")) == ("train", "test")
    assert whole.differing(split("aa ab bb", "ba", "bab")) == ()


def test_the_number_of_equal_graphs_counts():
    assert split("aa ab ab", "ba", "bab").differing(split("aa aa ab", "ba", "bab")) == ("train",)


def test_no_digest_is_of_a_graph_alone():
    one = split("aa", "aa", "aa")
    # The same graph in another part has another digest, and none of them is its hash.
    assert len({one.train, one.val, one.test}) == 3
    assert content_hash(chain("aa", "aa")).split()[0] not in "".join(one.to_dict().values())


def test_an_empty_part_has_no_digest():
    assert split("aa ab", "", "bab").val == ""


def test_plain_data_comes_back_and_anything_else_is_no_fingerprint():
    whole = split("aa ab", "ba", "bab")
    assert SplitFingerprint.from_dict(whole.to_dict()) == whole
    for other in (None, 3, {}, {"train": "a", "val": "b"}, {"train": 1, "val": "b", "test": "c"}):
        assert SplitFingerprint.from_dict(other) is None


def test_another_split_is_refused_with_the_parts_that_differ():
    learned = split("aa ab bb", "ba", "bab")
    require_same_split(learned, split("bb aa ab", "ba", "bab"), model="m", data="d")
    with pytest.raises(UsageError, match=r"the training and test graphs differ.*held out here"):
        require_same_split(learned, split("aa ab", "ba", "bab bb"), model="m", data="d")


def test_the_shipped_checkpoint_names_the_split_of_the_corpus(repository):
    from layerdag.training.checkpoint import checkpoint_path, load_checkpoint

    loaded = load_checkpoint(checkpoint_path("pretrained"))
    assert loaded.meta.split is not None
    assert loaded.data_settings["max_nodes"] == 1200
    assert not {"folder", "labels"} & set(loaded.data_settings)


@pytest.mark.slow
def test_the_shipped_checkpoint_was_trained_on_the_split_of_the_corpus(repository):
    from layerdag.datasets.corpus import load_corpus
    from layerdag.training.checkpoint import checkpoint_path, load_checkpoint

    loaded = load_checkpoint(checkpoint_path("pretrained"))
    limit = loaded.data_settings["max_nodes"]
    assert (
        load_corpus(CorpusConfig(folder=repository / "data", max_nodes=limit)).split
        == loaded.meta.split
    )


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
    ("count", "choice", "sizes"),
    [
        # Few graphs are for training, then val, then test.
        (1, {}, [1, 0, 0]),
        (2, {}, [1, 1, 0]),
        (3, {}, [1, 1, 1]),
        (20, {}, [16, 2, 2]),
        # Small folders hold out enough to judge.
        (1, {"sizes": has_enough_held_out}, [1, 0, 0]),
        (3, {"sizes": has_enough_held_out}, [1, 1, 1]),
        (12, {"sizes": has_enough_held_out}, [8, 2, 2]),
        (32, {"sizes": has_enough_held_out}, [20, 6, 6]),
        (30, {"sizes": held_out_fraction(0.4)}, [18, 6, 6]),
    ],
)
def test_parts_have_the_sizes_of_the_choice(count, choice, sizes):
    parts = split_graphs([chain(word, word) for word in WORDS[:count]], seed=0, **choice)
    assert [len(graphs) for graphs in parts.values()] == sizes


@pytest.mark.parametrize("count", [100, 101, 555, 1013])
def test_from_a_hundred_graphs_on_a_tenth_each_is_held_out(count):
    assert has_enough_held_out(count) == tenth_split_sizes(count)


def test_ten_graphs_each_are_held_out_of_fifty():
    assert has_enough_held_out(50) == has_enough_held_out(99) == (10, 10)


def test_graphs_that_the_label_file_does_not_name_are_for_training():
    parts = named_splits([chain("a", "a"), chain("b", "b")], {"b": "test"})
    assert names(parts) == {"train": {"a"}, "val": set(), "test": {"b"}}


@given(st.integers(1, 20), st.integers(0, 5), st.sampled_from([0.1, 0.4, 0.9]))
@tried(6)
def test_every_graph_stands_in_one_part_and_equal_ones_in_the_same(count, seed, share):
    graphs = [chain(f"g{i}", "ab" * (1 + i % 7) + "a" * (i % 3)) for i in range(count)]
    for sizes in (tenth_split_sizes, has_enough_held_out, held_out_fraction(share)):
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
