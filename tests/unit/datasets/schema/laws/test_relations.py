"""Products of conditions that hold in all graphs."""

import math

import numpy as np
import pytest

from layerdag.datasets.schema.laws import Relation, find_relations
from layerdag.datasets.schema.laws._relations import log_of

RANKS = Relation(("world",), ("tensor", "data"))


def test_products_are_found_and_no_sums_of_others() -> None:
    rng = np.random.default_rng(0)
    tensor, data, layers, stages = rng.integers(1, 9, (4, 50))
    columns = {
        "tensor": tensor, "data": data, "world": tensor * data, "same": tensor,
        "layers": layers * stages, "stages": stages, "each": layers,
    }  # fmt: skip
    found = find_relations([*columns], np.log(np.stack([*columns.values()], axis=1)))
    assert {str(relation) for relation in found} == {
        "tensor = same", "world = tensor x data", "world = data x same", "layers = stages x each",
    }  # fmt: skip


def test_what_fails_once_is_no_relation() -> None:
    log_GC = np.log(np.array([[2.0, 3.0, 6.0], [2.0, 5.0, 10.0], [3.0, 5.0, 14.0]]))
    assert find_relations(["a", "b", "c"], log_GC) == ()


@pytest.mark.parametrize(("name", "known", "expected"), [
    ("world", {"tensor": "4", "data": 8.0}, 32.0),
    ("data", {"world": "32", "tensor": 4.0}, 8.0),
    ("data", {"world": 10.0, "tensor": 4.0}, 2.5),
    ("data", {"world": 10.0}, None),
    ("data", {"world": 10.0, "tensor": "many"}, None),
])  # fmt: skip
def test_one_condition_follows_from_the_others(
    name: str, known: dict[str, str | float], expected: float | None
) -> None:
    assert RANKS.solved(name, known) == pytest.approx(expected)


def test_relations_hold_fail_or_cannot_be_told() -> None:
    assert RANKS.holds({"world": 8.0, "tensor": "2", "data": 4.0}) is True
    assert RANKS.holds({"world": 9.0, "tensor": "2", "data": 4.0}) is False
    assert RANKS.holds({"tensor": "2", "data": 4.0}) is None
    assert RANKS.holds({"world": 8.0, "tensor": "2"}) is None


def test_only_positive_numbers_have_logarithms() -> None:
    assert log_of("8") == pytest.approx(math.log(8))
    assert all(math.isnan(log_of(value)) for value in (None, "x", 0.0, -1.0, math.inf, "nan"))
