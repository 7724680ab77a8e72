"""Distances of pooled frequencies: by hand, by law, and in blocks."""

import math

import numpy as np
import pytest
from letters import path

from layerdag.errors import DataError
from layerdag.evaluation import GraphSet
from layerdag.evaluation.metrics import Comparison, Items
from layerdag.evaluation.metrics.local import _frequencies
from layerdag.evaluation.metrics.local._frequencies import FrequencyDistances, frequency_distances

NAMES = ("train", "test", "generated")


def distances(*sets: list[str]) -> tuple[FrequencyDistances, FrequencyDistances]:
    """Return the distances of sets of words, a graph each, a letter being a kind that occurs."""
    graphs = [GraphSet.of([path(word) for word in words]) for words in sets]
    items = [
        Items(
            name,
            np.array([ord(letter) for word in words for letter in word]),
            np.array([graph for graph, word in enumerate(words) for _ in word]),
        )
        for name, words in zip(NAMES, sets, strict=True)
    ]
    return frequency_distances(items, Comparison(*graphs, replicates=4))


def test_equal_sets_have_no_distance() -> None:
    made, real = distances(["ab", "ba"], ["ab"], ["abab"])
    for found in (made, real):
        assert found.total_variation_R[0] == pytest.approx(0, abs=1e-12)
        assert found.rmse_R[0] == pytest.approx(0, abs=1e-6)


def test_sets_without_a_common_kind_are_as_far_apart_as_can_be() -> None:
    made, _ = distances(["ab"], ["ab"], ["cd"])
    assert made.total_variation_R[0] == pytest.approx(1)


def test_figures_are_those_computed_by_hand() -> None:
    # Test: a 3/4, b 1/4. Generated: a 1/2, c 1/2. Differences: 1/4, 1/4 and 1/2.
    made, real = distances(["ab"], ["aaab"], ["ac"])
    assert made.total_variation_R[0] == pytest.approx(1 / 2)
    assert made.rmse_R[0] == pytest.approx(math.sqrt((6 / 16) / 3))
    # Training: a 1/2, b 1/2. Differences: 1/4 and 1/4, over two kinds.
    assert real.total_variation_R[0] == pytest.approx(1 / 4)
    assert real.rmse_R[0] == pytest.approx(math.sqrt((2 / 16) / 2))


def test_counts_are_pooled_so_that_large_graphs_count_more() -> None:
    made, _ = distances(["a"], ["aaab"], ["aaa", "b"])
    assert made.total_variation_R[0] == pytest.approx(0, abs=1e-12)


def test_the_first_row_is_the_sample_and_the_others_are_drawn_again() -> None:
    made, _ = distances(["ab", "b"], ["aab", "b"], ["b", "aac"])
    assert made.total_variation_R.shape == made.rmse_R.shape
    assert len(set(made.total_variation_R.round(9).tolist())) > 1


def test_blocks_of_kinds_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    sets = (["abcdefg", "aab"], ["gfed", "ahij"], ["bcd", "xyz"])
    whole = distances(*sets)
    monkeypatch.setattr(_frequencies, "_KINDS_AT_ONCE", 2)
    for found, expected in zip(distances(*sets), whole, strict=True):
        np.testing.assert_allclose(found.total_variation_R, expected.total_variation_R)
        np.testing.assert_allclose(found.rmse_R, expected.rmse_R)


@pytest.mark.parametrize("empty", range(3))
def test_a_set_with_nothing_to_count_is_refused_by_name(empty: int) -> None:
    graphs = [GraphSet.of([path("ab")])] * 3
    nothing = Items("x", np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))
    some = Items("x", np.array([97, 98]), np.array([0, 0]))
    items = [nothing if place == empty else some for place in range(3)]
    told = ("training", "test", "generated")[empty]
    with pytest.raises(DataError, match=f"The {told} graphs have nothing to count"):
        frequency_distances(items, Comparison(*graphs, replicates=2))
