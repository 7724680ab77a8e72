"""One flat tensor of all weights, on a block of two weights worked out by hand."""

import pytest

from layerdag.workloads.stage._dims import NOTHING, Dim, parse_dim, parse_dims
from layerdag.workloads.stage._flat_weights import FLAT, FLAT_GRADIENT, with_flat_weights
from layerdag.workloads.stage._forms import Row, read_table

TABLE = """
x | T B, S, D
wup | W D, F
wdown | W F, D
up | M bsm,mn->bsn | x | wup
y | M bsm,mn->bsn | up | wdown
dy | T B, S, D
dwdown | M bsn,bsm->mn | dy | up | gradient of wdown
dup | M bsn,mn->bsm | dy | wdown
dwup | M bsn,bsm->mn | dup | x | gradient of wup
dx | M bsn,mn->bsm | dup | wup
"""
BLOCK = {row.name: row for row in read_table(TABLE, {})}
WHOLE = parse_dim("2*D*F", {})
SIZES = {"B": 2, "S": 3, "D": 4, "F": 5, "dp": 2}


@pytest.fixture(params=[False, True], ids=["whole", "sharded"])
def sharded(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def flat(sharded: bool) -> dict[str, Row]:
    return with_flat_weights(BLOCK, sharded)


def test_the_flat_tensor_is_the_only_weight(flat: dict[str, Row]) -> None:
    assert [row.name for row in flat.values() if row.weight] == [FLAT]
    assert {row.name: row.gradient_of for row in flat.values() if row.gradient_of} == {
        FLAT_GRADIENT: FLAT
    }


def test_every_rank_holds_its_share_of_weights_and_gradients(
    flat: dict[str, Row], sharded: bool
) -> None:
    """4 x 5 + 5 x 4 = 40 elements, 20 on each of two ranks."""
    for name in (FLAT, FLAT_GRADIENT):
        assert flat[name].form.result.elements.value(SIZES) == (20 if sharded else 40)


def test_weights_are_gathered_once_for_each_pass(flat: dict[str, Row]) -> None:
    readers = [row.name for row in flat.values() if FLAT in row.sources]
    assert readers == ["_assembled_weight", "_assembled_weight_backward"]
    for name in readers:
        assert flat[name].form.result.dims == (WHOLE,)
        assert flat[name].form.operations == NOTHING


def test_a_weight_is_taken_out_in_its_own_shape_at_no_cost(flat: dict[str, Row]) -> None:
    for name, source in (
        ("wup", "_assembled_weight"),
        ("_wup_backward", "_assembled_weight_backward"),
    ):
        assert flat[name].sources == (source,)
        assert flat[name].form.operands[0].dims == (WHOLE,)
        assert flat[name].form.result.dims == parse_dims("D, F", {})
        assert flat[name].form.operations == NOTHING


def test_the_forward_pass_reads_as_before_and_the_backward_pass_its_own(
    flat: dict[str, Row],
) -> None:
    assert flat["up"].sources == ("x", "wup")
    assert flat["y"].sources == ("up", "wdown")
    assert flat["dup"].sources == ("dy", "_wdown_backward")
    assert flat["dx"].sources == ("dup", "_wup_backward")


def test_no_operator_gets_another_cost(flat: dict[str, Row]) -> None:
    for name, row in BLOCK.items():
        if not row.weight:
            assert flat[name].form is row.form
    total = sum((row.form.operations for row in flat.values()), NOTHING)
    assert total == sum((row.form.operations for row in BLOCK.values()), NOTHING)


def test_gradients_are_joined_when_all_are_there(flat: dict[str, Row]) -> None:
    joined = flat["_assembled_grad"]
    assert (joined.sources, joined.after) == (("dwup",), ("dwdown",))
    assert joined.form.result.dims == (WHOLE,)
    assert flat[FLAT_GRADIENT].sources == ("_assembled_grad",)


def test_joined_gradients_are_partial_sums_as_their_parts_are(flat: dict[str, Row]) -> None:
    """They are sums over a rank's own sequences, so that data parallel ranks must still add."""
    assert flat["_assembled_grad"].form.result.reduced == parse_dims("B, S", {})
    assert flat[FLAT_GRADIENT].form.operands[0].reduced == ()


def test_all_that_is_read_is_there(flat: dict[str, Row]) -> None:
    for row in flat.values():
        assert {*row.sources, *row.after} <= set(flat)
    assert set(BLOCK) <= set(flat)


def test_the_block_that_was_given_stays_as_it_is(flat: dict[str, Row]) -> None:
    assert BLOCK["wup"].weight
    assert BLOCK["dwup"].gradient_of == "wup"
    assert FLAT not in BLOCK


def test_one_weight_waits_for_no_other_gradient() -> None:
    table = """
    x | T B, D
    w | W D, F
    y | E 1 | x
    dw | M bn,bm->mn | x | y | gradient of w
    """
    lone = with_flat_weights({row.name: row for row in read_table(table, {})}, sharded=False)
    assert lone["_assembled_grad"].after == ()
    assert lone[FLAT].form.result.dims == (Dim.symbol("D") * Dim.symbol("F"),)
