"""The collective between a producer's sharding and its consumer's."""

import pytest

from layerdag.hardware.collectives import CollectiveType
from layerdag.workloads.stage import operators as tables
from layerdag.workloads.stage.operators import (
    FLAT,
    FLAT_GRADIENT,
    Row,
    ShardingState,
    TensorSharding,
    collectives,
    read_table,
    states,
    with_flat_weights,
)
from layerdag.workloads.stage.sizes import NOTHING, Dim, parse_dim, parse_dims


def _layout(text: str) -> TensorSharding:
    dims, _, reduced = text.partition("@")
    return TensorSharding(parse_dims(dims, {}), parse_dims(reduced, {}))


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
def test_every_pair_of_states(made, expected, kind):
    found = collectives(_layout(made), _layout(expected), ["tp"])
    assert found == ([] if kind is None else [("tp", kind)])


def test_a_partial_sum_cannot_be_expected_of_a_whole():
    with pytest.raises(ValueError, match="partial sum"):
        collectives(_layout("S"), _layout("S @ 1/tp"), ["tp"])


def test_degrees_are_told_apart_and_come_in_the_order_of_their_ranks():
    """Residuals hold S/cp/tp, matrices S/cp: only the tensor ranks gather."""
    found = collectives(_layout("S/cp/tp, D"), _layout("S/cp, D"), ["dp", "tp", "cp"])
    assert found == [("tp", CollectiveType.ALL_GATHER)]
    assert collectives(_layout("S/cp/tp, D"), _layout("S/cp, D"), ["cp"]) == []
    found = collectives(_layout("D @ B/dp, S/cp/tp"), _layout("D"), ["dp", "tp", "cp"])
    assert [degree for degree, _ in found] == ["dp", "tp", "cp"]
    assert {kind for _, kind in found} == {CollectiveType.ALL_REDUCE}


def test_the_shape_counts_before_what_was_summed_over():
    found = states(_layout("S/tp @ 1/tp"), ["tp", "cp"])
    assert found["tp"][0] is ShardingState.PARTITIONED
    assert found["cp"] == (ShardingState.DUPLICATED, None)


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


@pytest.fixture(params=[False, True], ids=["whole", "sharded"])
def sharded(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def flat(sharded: bool) -> dict[str, Row]:
    return with_flat_weights(BLOCK, sharded)


def test_flat_weights_are_gathered_once_a_pass_and_gradients_joined_as_partial_sums(flat):
    readers = [row.name for row in flat.values() if FLAT in row.sources]
    assert readers == ["_assembled_weight", "_assembled_weight_backward"]
    for name in readers:
        assert flat[name].form.result.dims == (WHOLE,)
        assert flat[name].form.operations == NOTHING
    # They are sums over a rank's own sequences, so that data parallel ranks must still add.
    assert flat["_assembled_grad"].form.result.reduced == parse_dims("B, S", {})
    assert flat[FLAT_GRADIENT].form.operands[0].reduced == ()


def test_one_weight_waits_for_no_other_gradient():
    table = """
    x | T B, D
    w | W D, F
    y | E 1 | x
    dw | M bn,bm->mn | x | y | gradient of w
    """
    lone = with_flat_weights({row.name: row for row in read_table(table, {})}, sharded=False)
    assert lone["_assembled_grad"].after == ()
    assert lone[FLAT].form.result.dims == (Dim.symbol("D") * Dim.symbol("F"),)


_NUMBERS = {"B": 2, "S": 6, "D": 10, "F": 4, "R": 3, "dp": 1, "tp": 2, "cp": 1, "ep": 1}


def _row(line: str) -> Row:
    """Return the last row of a table with an activation x, its gradient and a weight."""
    above = "x | T B, S, D\nd | T B, S, F\nw | W D, F/tp\n"
    return read_table(above + line, {})[-1]


@pytest.mark.parametrize(
    ("line", "kind", "dims", "reduced", "operations"),
    [
        ("y | M bsm,mn->bsn | x | w", "M", "B, S, F/tp", "D", 2 * 6 * 2 * 10),
        ("y | M bsn,bsm->mn | d | x", "M", "D, F", "B, S", 10 * 4 * 2 * 6),
        ("y | A | x | x", "A", "B, S, D", "", 120),
        ("y | E 5 | x", "E", "B, S, D", "", 600),
        ("y | E2 1 | x | x", "E2", "B, S, D", "", 120),
        ("y | I | x: B, S/tp, D", "I", "B, S/tp, D", "", 0),
        ("y | B 1 R | x", "B", "B, S*R, D", "", 360),
        ("y | B 1 1/R | x", "B", "B, S/R, D", "", 40),
        ("y | SLICE 2 D/2 | x", "SLICE", "B, S, D/2", "", 60),
        ("y | R | x | -> B, S*D, 1", "R", "B, S*D, 1", "", 120),
        ("y | C 7*S | x | -> B, D @ 1/tp", "CUSTOM", "B, D", "1/tp", 42),
    ],
)
def test_what_an_operator_makes_and_costs(line, kind, dims, reduced, operations):
    form = _row(line).form
    assert form.kind == kind
    assert form.result.dims == parse_dims(dims, {})
    assert form.result.reduced == parse_dims(reduced, {})
    assert form.operations.value(_NUMBERS) == operations


def test_operands_are_expected_as_made_but_for_partial_sums():
    as_made = _row("y | E 1 | x").form.operands[0]
    assert (as_made.dims, as_made.reduced) == (parse_dims("B, S, D", {}), ())
    other = _row("y | A | x: B, S/tp, D @ 1/cp | x").form.operands[0]
    assert other.dims == parse_dims("B, S/tp, D", {})
    assert other.reduced == parse_dims("1/cp", {})
    rows = {row.name: row for row in read_table(tables.FEED_FORWARD, {"Q": Dim.symbol("S")})}
    assert rows["xdown1"].form.result.reduced == parse_dims("F/tp", {})
    assert rows["xdown"].form.operands[0].reduced == ()


def test_fields_of_a_row():
    row = _row("y | C 1 | x | -> B | after d w | gradient of w")
    assert (row.sources, row.after, row.gradient_of) == (("x",), ("d", "w"), "w")
    renamed = row.renamed(lambda name: f"a.{name}")
    assert (renamed.name, renamed.sources, renamed.after) == ("a.y", ("a.x",), ("a.d", "a.w"))
    assert renamed.gradient_of == "a.w"


def test_only_a_tensor_from_elsewhere_is_linked():
    row = read_table("x | T B, S", {})[0].linked("other.y")
    assert (row.form.kind, row.sources) == ("I", ("other.y",))
    with pytest.raises(ValueError, match="cannot be linked"):
        row.linked("another.y")


TABLES = [name for name, text in vars(tables).items() if name.isupper() and " | " in str(text)]


@pytest.mark.parametrize("name", TABLES)
def test_every_table_can_be_read(name):
    """Sources stand above what reads them; weights have gradients."""
    rows = read_table(getattr(tables, name), {"Q": parse_dim("S/cp/tp", {})})
    names = [row.name for row in rows]
    assert len(set(names)) == len(names)
    for place, row in enumerate(rows):
        assert {*row.sources, *row.after} <= set(names[:place])
        assert len(row.form.operands) in (len(row.sources), 0)
    weights = {row.name for row in rows if row.weight}
    assert {row.gradient_of for row in rows if row.gradient_of} == weights
