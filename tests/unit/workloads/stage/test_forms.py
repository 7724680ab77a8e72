"""Rows of tables as forms: results, costs, links."""

import pytest

from layerdag.workloads.stage import _tables as tables
from layerdag.workloads.stage._dims import Dim, parse_dim, parse_dims
from layerdag.workloads.stage._forms import Row, read_table

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
def test_what_an_operator_makes_and_costs(
    line: str, kind: str, dims: str, reduced: str, operations: int
) -> None:
    form = _row(line).form
    assert form.kind == kind
    assert form.result.dims == parse_dims(dims, {})
    assert form.result.reduced == parse_dims(reduced, {})
    assert form.operations.value(_NUMBERS) == operations


def test_an_operand_is_expected_as_it_was_made_unless_a_table_says_otherwise() -> None:
    as_made = _row("y | E 1 | x").form.operands[0]
    assert (as_made.dims, as_made.reduced) == (parse_dims("B, S, D", {}), ())
    other = _row("y | A | x: B, S/tp, D @ 1/cp | x").form.operands[0]
    assert other.dims == parse_dims("B, S/tp, D", {})
    assert other.reduced == parse_dims("1/cp", {})


def test_partial_sums_are_not_expected_by_default() -> None:
    rows = {row.name: row for row in read_table(tables.FEED_FORWARD, {"Q": Dim.symbol("S")})}
    assert rows["xdown1"].form.result.reduced == parse_dims("F/tp", {})
    assert rows["xdown"].form.operands[0].reduced == ()


def test_fields_of_a_row() -> None:
    row = _row("y | C 1 | x | -> B | after d w | gradient of w")
    assert (row.sources, row.after, row.gradient_of) == (("x",), ("d", "w"), "w")
    renamed = row.renamed(lambda name: f"a.{name}")
    assert (renamed.name, renamed.sources, renamed.after) == ("a.y", ("a.x",), ("a.d", "a.w"))
    assert renamed.gradient_of == "a.w"


def test_only_a_tensor_from_elsewhere_is_linked() -> None:
    row = read_table("x | T B, S", {})[0].linked("other.y")
    assert (row.form.kind, row.sources) == ("I", ("other.y",))
    with pytest.raises(ValueError, match="cannot be linked"):
        row.linked("another.y")


@pytest.mark.parametrize("name", [name for name in vars(tables) if name.isupper()])
def test_every_table_can_be_read(name: str) -> None:
    """Sources stand above what reads them; weights have gradients."""
    rows = read_table(getattr(tables, name), {"Q": parse_dim("S/cp/tp", {})})
    names = [row.name for row in rows]
    assert len(set(names)) == len(names)
    for place, row in enumerate(rows):
        assert {*row.sources, *row.after} <= set(names[:place])
        assert len(row.form.operands) in (len(row.sources), 0)
    weights = {row.name for row in rows if row.weight}
    assert {row.gradient_of for row in rows if row.gradient_of} == weights
