"""Trip counts against loops that run, and tables of devices."""

import pytest
from hypothesis import given, strategies as st
from laws import tried

from layerdag.workloads.hlo._attributes import _rows, _turns
from layerdag.workloads.hlo._program import Tensor

COMPARISONS = {
    "LT": lambda i, limit: i < limit,
    "LE": lambda i, limit: i <= limit,
    "GT": lambda i, limit: i > limit,
    "GE": lambda i, limit: i >= limit,
    "NE": lambda i, limit: i != limit,
}
MOST = 200


def counted(begin: int, limit: int, step: int, direction: str) -> int | None:
    """Run the loop; None if it does not end soon."""
    turns = 0
    while COMPARISONS[direction](begin, limit):
        begin, turns = begin + step, turns + 1
        if turns > MOST:
            return None
    return turns


@tried(300)
@given(
    begin=st.integers(-40, 40),
    limit=st.integers(-40, 40),
    step=st.integers(-5, 5).filter(bool),
    direction=st.sampled_from(sorted(COMPARISONS)),
)
def test_a_trip_count_is_what_running_the_loop_counts(
    begin: int, limit: int, step: int, direction: str
) -> None:
    text = f"#stablehlo<comparison_direction {direction}>"
    assert _turns(begin, limit, step, text) == counted(begin, limit, step, direction)


def test_another_comparison_has_no_trip_count() -> None:
    assert _turns(0, 9, 1, "#stablehlo<comparison_direction EQ>") is None


def test_tables_of_devices_are_read_row_by_row() -> None:
    assert _rows([[0, 1], [2, 3]]) == [[0, 1], [2, 3]]
    assert _rows([4, 5]) == [[4], [5]]
    assert _rows([]) == []


@pytest.mark.parametrize(
    ("element", "shape", "num_bytes"),
    [
        ("f32", (3, 5), 60),
        ("bf16", (3, 5), 30),
        ("f8E4M3FN", (3, 5), 15),
        ("i4", (3,), 2),  # twelve bits
        ("i1", (3, 5), 15),  # a Boolean is a byte in memory
        ("complex<f32>", (2,), 16),
        ("complex<f64>", (2,), 32),
        ("f64", (), 8),  # a scalar
        ("f32", (0, 7), 0),
    ],
)
def test_values_take_the_bytes_of_their_elements(
    element: str, shape: tuple[int, ...], num_bytes: int
) -> None:
    assert Tensor(shape, element).num_bytes == num_bytes
