"""The collective between a producer's sharding and its consumer's."""

import pytest

from layerdag.traces import CollectiveType
from layerdag.workloads.stage._collectives import State, collectives, states
from layerdag.workloads.stage._dims import parse_dims
from layerdag.workloads.stage._forms import Layout


def _layout(text: str) -> Layout:
    dims, _, reduced = text.partition("@")
    return Layout(parse_dims(dims, {}), parse_dims(reduced, {}))


@pytest.mark.parametrize(
    ("made", "expected", "kind"),
    [
        ("S, D", "S, D", None),
        ("S, D", "S/tp, D", None),  # ranks cut their part out themselves
        ("S/tp, D", "S/tp, D", None),
        ("S/tp, D", "S, D/tp", CollectiveType.ALL_TO_ALL),
        ("S/tp, D", "S, D", CollectiveType.ALL_GATHER),
        ("S, D @ F/tp", "S, D", CollectiveType.ALL_REDUCE),
        ("S, D @ F/tp", "S/tp, D", CollectiveType.REDUCE_SCATTER),
        ("S, D @ F/tp", "S, D @ 1/tp", None),
    ],
)
def test_every_pair_of_states(made: str, expected: str, kind: CollectiveType | None) -> None:
    found = collectives(_layout(made), _layout(expected), ["tp"])
    assert found == ([] if kind is None else [("tp", kind)])


def test_a_partial_sum_cannot_be_expected_of_a_whole() -> None:
    with pytest.raises(ValueError, match="partial sum"):
        collectives(_layout("S"), _layout("S @ 1/tp"), ["tp"])


def test_two_degrees_of_one_dimension_are_told_apart() -> None:
    """Residuals hold S/cp/tp, matrices S/cp: only the tensor ranks gather."""
    found = collectives(_layout("S/cp/tp, D"), _layout("S/cp, D"), ["dp", "tp", "cp"])
    assert found == [("tp", CollectiveType.ALL_GATHER)]


def test_a_degree_that_is_one_does_not_make_forms_differ() -> None:
    assert collectives(_layout("S/cp/tp, D"), _layout("S/cp, D"), ["cp"]) == []


def test_degrees_come_in_the_order_of_their_ranks() -> None:
    found = collectives(_layout("D @ B/dp, S/cp/tp"), _layout("D"), ["dp", "tp", "cp"])
    assert [degree for degree, _ in found] == ["dp", "tp", "cp"]
    assert {kind for _, kind in found} == {CollectiveType.ALL_REDUCE}


def test_the_shape_counts_before_what_was_summed_over() -> None:
    found = states(_layout("S/tp @ 1/tp"), ["tp", "cp"])
    assert found["tp"][0] is State.PARTITIONED
    assert found["cp"] == (State.DUPLICATED, None)
