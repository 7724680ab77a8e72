"""The collective between a producer's sharding and its consumer's."""

from fractions import Fraction

import pytest

from layerdag.traces.trace import CollectiveType
from layerdag.workloads.stage import operators as tables
from layerdag.workloads.stage.flags import NOTHING, Dim, parse_dim, parse_dims
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


TABLES = [name for name, text in vars(tables).items() if name.isupper() and " | " in str(text)]


@pytest.mark.parametrize("name", TABLES)
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


ONE_RANK = {"dp": 1, "tp": 1, "cp": 1, "ep": 1}
TABLE_SIZES = {"B": 2, "S": 4, "D": 12, "H": 6, "K": 3, "F": 20, "V": 30, "X": 2, "R": 2} | ONE_RANK
MEANING = {"Q": parse_dim("S/cp/tp", {}), "In": parse_dim("V", {}), "Out": parse_dim("D", {})}
TOKENS = 2 * 4


def rows(table: str) -> dict[str, Row]:
    return {row.name: row for row in read_table(table, MEANING)}


def operations(table: str, kind: str, sizes: dict[str, int] = TABLE_SIZES) -> Fraction:
    """Return the operations of all operators of a kind."""
    found = (row.form.operations for row in rows(table).values() if row.form.kind == kind)
    return sum(found, NOTHING).value(sizes)


@pytest.mark.parametrize(
    ("table", "forward"),
    [
        # q, k, v of 6 + 2 x 3 heads of 2, then the output of 6 heads
        (tables.ATTENTION, TOKENS * 12 * 12 * 2 + TOKENS * 12 * 12),
        (tables.FEED_FORWARD, TOKENS * 2 * 12 * 20),
        (tables.EMBEDDING, TOKENS * 30 * 12),
        (tables.SPLIT_EMBEDDING, TOKENS * 30 * 12),
    ],
)
def test_a_backward_pass_costs_two_forward_passes(table: str, forward: int) -> None:
    assert operations(table, "M") == 3 * forward


def test_a_gated_layer_has_a_third_product_and_three_elementwise_ones() -> None:
    """Products of matrices forward and twice backward; gate times up and its two gradients."""
    assert operations(tables.GATED_FEED_FORWARD, "M") == 3 * (TOKENS * 3 * 12 * 20) + 3 * (
        TOKENS * 20
    )


@pytest.mark.parametrize(
    ("table", "elements"),
    [
        (tables.ATTENTION, 12 * 2 * (6 + 2 * 3) + 2 * 6 * 12),
        (tables.FEED_FORWARD, 2 * 12 * 20),
        (tables.GATED_FEED_FORWARD, 3 * 12 * 20),
        (tables.EMBEDDING, 30 * 12),
        (tables.ROUTER, 12 * 2),
        (tables.NORM, 0),
        (tables.RESIDUAL, 0),
    ],
)
def test_weights_of_a_table(table: str, elements: int) -> None:
    found = (row.form.result.elements for row in rows(table).values() if row.weight)
    assert sum(found, NOTHING).value(TABLE_SIZES) == elements


@pytest.mark.parametrize("table", [tables.ATTENTION, tables.FEED_FORWARD, tables.EMBEDDING])
def test_a_gradient_has_the_shape_of_its_weight(table: str) -> None:
    found = rows(table)
    for row in found.values():
        if row.gradient_of:
            assert row.form.result.dims == found[row.gradient_of].form.result.dims


@pytest.mark.parametrize(
    "table",
    [tables.ATTENTION, tables.KERNEL, tables.FEED_FORWARD, tables.GATED_FEED_FORWARD],
)
@pytest.mark.parametrize("degree", ["dp", "tp", "cp"])
def test_ranks_share_products_and_kernels(table: str, degree: str) -> None:
    for kind in ("M", "CUSTOM"):
        whole = operations(table, kind)
        assert 2 * operations(table, kind, {**TABLE_SIZES, degree: 2}) == whole


@pytest.mark.parametrize("table", [tables.KERNEL, tables.GROUPED_KERNEL])
def test_a_kernel_costs_three_operations_forward_and_eighteen_back(table: str) -> None:
    """Of each element of the queries: 3, then 6 for each of q, k and v."""
    assert operations(table, "CUSTOM") == (3 + 3 * 6) * TOKENS * 12


def test_gradients_of_shared_heads_are_cut_to_the_heads_there_are() -> None:
    found = rows(tables.GROUPED_KERNEL)
    for name in ("dk", "dv"):
        assert found[name].form.kind == "SLICE"
        made = found[f"{name}1"].form.result
        assert made.dims[3].value(TABLE_SIZES) == 6  # query heads
        assert found[name].form.result.dims[3].value(TABLE_SIZES) == 3


def test_keys_and_values_are_gathered_over_context_ranks_before_the_kernel() -> None:
    found = rows(tables.KERNEL)
    for name in ("k", "v"):
        assert found[name].form.result.dims[1] == parse_dim("S/cp", {})
        assert found[f"{name}1"].form.result.dims[1] == parse_dim("S", {})
    assert found["qkv"].after == ("k1", "v1")


def test_the_router_repeats_each_token_for_its_experts_and_averages_back() -> None:
    found = rows(tables.ROUTER)
    for repeated, back in (("x1", "y"), ("dy2", "dx02")):
        assert found[repeated].form.result.elements.value(TABLE_SIZES) == 2 * TOKENS * 12
        assert found[back].form.result.elements.value(TABLE_SIZES) == TOKENS * 12


def test_an_expert_takes_its_share_of_tokens_and_gives_them_back() -> None:
    found = rows(tables.DISPATCH)
    routed = found["x"].form.result.elements.value(TABLE_SIZES)
    assert routed == TOKENS * 2 * 12  # each token goes to two experts
    assert found["x_expert"].form.result.elements.value(TABLE_SIZES) * 2 == routed  # of two
    for name in ("y", "dx"):
        assert found[name].form.result.elements.value(TABLE_SIZES) == routed


@pytest.mark.parametrize(("table", "each"), [(tables.NORM, 10), (tables.LOSS, 10)])
def test_elementwise_layers_cost_five_operations_each_way(table: str, each: int) -> None:
    assert operations(table, "E") == each * TOKENS * 12
