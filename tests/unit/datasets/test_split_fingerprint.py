from dataclasses import replace

import numpy as np
import pytest
from raw_graphs import chain

from layerdag.codec import AttributedGraph
from layerdag.datasets import GraphDataset, SplitFingerprint, require_same_split
from layerdag.datasets._split_fingerprint import content_hash
from layerdag.errors import UsageError


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


def test_a_hash_does_not_depend_on_the_order_of_nodes_nor_on_conditions() -> None:
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
def test_a_hash_depends_on_words_numbers_names_and_edges(changed: dict) -> None:
    graph = diamond([0, 1, 2, 3], [1.0, 2.0, 3.0, 4.0])
    assert content_hash(replace(graph, **changed)) != content_hash(graph)


def test_a_split_does_not_depend_on_the_order_of_graphs() -> None:
    assert split("aa ab bb", "ba", "bab") == split("bb aa ab", "ba", "bab")


def test_a_graph_in_another_part_is_another_split() -> None:
    whole = split("aa ab bb", "ba", "bab")
    assert whole.differing(split("aa ab", "ba", "bab bb")) == ("train", "test")
    assert whole.differing(split("aa ab bb", "ba", "bab")) == ()


def test_the_number_of_equal_graphs_counts() -> None:
    assert split("aa ab ab", "ba", "bab").differing(split("aa aa ab", "ba", "bab")) == ("train",)


def test_no_digest_is_of_a_graph_alone() -> None:
    one = split("aa", "aa", "aa")
    # The same graph in another part has another digest, and none of them is its hash.
    assert len({one.train, one.val, one.test}) == 3
    assert content_hash(chain("aa", "aa")).split()[0] not in "".join(one.to_dict().values())


def test_an_empty_part_has_no_digest() -> None:
    assert split("aa ab", "", "bab").val == ""


def test_plain_data_comes_back_and_anything_else_is_no_fingerprint() -> None:
    whole = split("aa ab", "ba", "bab")
    assert SplitFingerprint.from_dict(whole.to_dict()) == whole
    for other in (None, 3, {}, {"train": "a", "val": "b"}, {"train": 1, "val": "b", "test": "c"}):
        assert SplitFingerprint.from_dict(other) is None


def test_another_split_is_refused_with_the_parts_that_differ() -> None:
    learned = split("aa ab bb", "ba", "bab")
    require_same_split(learned, split("bb aa ab", "ba", "bab"), model="m", data="d")
    with pytest.raises(UsageError, match=r"the training and test graphs differ.*held out here"):
        require_same_split(learned, split("aa ab", "ba", "bab bb"), model="m", data="d")


def test_the_shipped_checkpoint_names_the_split_of_the_corpus(repository) -> None:
    from layerdag.cli.verbs import checkpoint_path
    from layerdag.training import load_checkpoint

    loaded = load_checkpoint(checkpoint_path("pretrained"))
    assert loaded.meta.split is not None
    assert loaded.data_settings["max_nodes"] == 1200
    assert not {"folder", "labels"} & set(loaded.data_settings)


@pytest.mark.slow
def test_the_shipped_checkpoint_was_trained_on_the_split_of_the_corpus(repository) -> None:
    from layerdag.cli.verbs import checkpoint_path
    from layerdag.datasets.sources import load_corpus
    from layerdag.training import load_checkpoint

    loaded = load_checkpoint(checkpoint_path("pretrained"))
    limit = loaded.data_settings["max_nodes"]
    assert load_corpus(repository / "data", max_nodes=limit).split == loaded.meta.split
