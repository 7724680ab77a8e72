"""Repeated blocks: runs of equal colors."""

import numpy as np
import pytest

from layerdag.graph.repeats import Run, repeated_runs


def colors(word: str) -> np.ndarray:
    """Return the letters of a word as colors."""
    return np.array([ord(letter) for letter in word])


@pytest.mark.parametrize(
    ("word", "runs"),
    [
        ("abcabcabc", [Run(0, 3, 3)]),
        ("xabababy", [Run(1, 2, 3)]),
        ("xaabaabz", [Run(1, 3, 2)]),
        ("abcd", []),
        ("aaaa", [Run(0, 1, 4)]),
        ("abcabcxdede", [Run(0, 3, 2), Run(7, 2, 2)]),
        ("", []),
        ("a", []),
        ("ababa", [Run(0, 2, 2)]),
    ],
)
def test_runs_of_equal_blocks(word, runs):
    assert list(repeated_runs(colors(word))) == runs
