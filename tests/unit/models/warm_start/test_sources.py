import numpy as np
import pytest

from layerdag.datasets.schema import NumericAttribute
from layerdag.models.warm_start import word_kind
from layerdag.models.warm_start._sources import (
    BY_KIND,
    BY_NAME,
    FRESH,
    by_bin,
    by_count,
    by_largest_below,
    by_same_name,
    by_word,
)


def bins(*rows: tuple[float, float]) -> NumericAttribute:
    return NumericAttribute(
        "bytes", "bytes", tuple(tuple(np.linspace(low, high, 5)) for low, high in rows)
    )


@pytest.mark.parametrize(
    ("word", "kind"),
    [
        ("c10d::all_reduce", "collective"),
        ("c10d::send", "message"),
        ("aten::_foreach_add_", "optimizer"),
        ("aten::_fused_adamw_", "optimizer"),
        ("aten::gelu_backward", "backward"),
        ("aten::mm", "compute"),
        ("<other>", "value"),
        ("float32", "value"),
    ],
)
def test_a_word_tells_its_kind(word: str, kind: str) -> None:
    assert word_kind(word) == kind


def test_a_new_word_is_the_mean_of_its_kind_and_of_all_where_there_is_none() -> None:
    old = ("aten::mm", "aten::add", "c10d::all_reduce")
    source = by_word(("c10d::all_to_all", "aten::add", "aten::bmm", "<other>"), old)
    wanted = [[0, 0, 1], [0, 1, 0], [0.5, 0.5, 0], [1 / 3, 1 / 3, 1 / 3]]
    assert np.allclose(source.matrix_KJ, wanted)
    assert source.how == (BY_KIND, BY_NAME, BY_KIND, BY_KIND)


def test_the_same_bin_is_copied_and_another_mixes_those_that_hold_its_values() -> None:
    old = bins((1, 1), (2, 4), (4, 8), (16, 16))
    new = bins((2, 4), (3, 5), (16, 16), (500, 600))
    matrix = by_bin(new, old).matrix_KJ
    assert np.allclose(matrix.sum(axis=1), 1)
    assert matrix[0].tolist() == [1, 0, 0, 0, 0], "absent"
    assert matrix[1].tolist() == [0, 0, 1, 0, 0]
    assert 0.3 < matrix[2, 2] < 0.7
    assert matrix[2, 2] + matrix[2, 3] == 1
    assert matrix[3].tolist() == [0, 0, 0, 0, 1]
    assert matrix[4].tolist() == [0, 0, 0, 0, 1], "the nearest bin"


def test_bins_of_numbers_that_were_always_absent_are_fresh() -> None:
    source = by_bin(bins((1, 2)), bins())
    assert source.how[1] == FRESH
    assert source.matrix_KJ.tolist() == [[1], [0]]


def test_counts_share_the_numbers_of_their_bins_and_the_last_bin_has_no_end() -> None:
    old, new = (0, 1, 2, 4, 8), (0, 1, 3, 9, 30)
    matrix = by_count(new, old).matrix_KJ
    assert matrix[0].tolist() == [1, 0, 0, 0]
    assert matrix[1].tolist() == [0, 0.5, 0.5, 0]
    assert np.allclose(matrix[2], [0, 0, 1 / 6, 5 / 6])
    assert matrix[3].tolist() == [0, 0, 0, 1]


def test_degrees_start_from_the_largest_that_is_not_larger() -> None:
    matrix = by_largest_below((0, 1, 5, 9), (0, 1, 2, 8)).matrix_KJ
    assert matrix.argmax(axis=1).tolist() == [0, 1, 2, 3]


def test_edge_types_have_no_kinds() -> None:
    source = by_same_name(("control", "new"), ("data", "control"))
    assert source.matrix_KJ.tolist() == [[0, 1], [0, 0]]
    assert source.how == (BY_NAME, FRESH)
