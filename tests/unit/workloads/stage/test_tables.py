"""The tables of blocks against sums worked out by hand: what each layer costs, what it holds."""

from fractions import Fraction

import pytest

from layerdag.workloads.stage import tables
from layerdag.workloads.stage.flags import NOTHING, parse_dim
from layerdag.workloads.stage.operators import Row, read_table

ONE_RANK = {"dp": 1, "tp": 1, "cp": 1, "ep": 1}
SIZES = {"B": 2, "S": 4, "D": 12, "H": 6, "K": 3, "F": 20, "V": 30, "X": 2, "R": 2} | ONE_RANK
MEANING = {"Q": parse_dim("S/cp/tp", {}), "In": parse_dim("V", {}), "Out": parse_dim("D", {})}
TOKENS = 2 * 4


def rows(table: str) -> dict[str, Row]:
    return {row.name: row for row in read_table(table, MEANING)}


def operations(table: str, kind: str, sizes: dict[str, int] = SIZES) -> Fraction:
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
    assert sum(found, NOTHING).value(SIZES) == elements


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
        assert 2 * operations(table, kind, {**SIZES, degree: 2}) == whole


@pytest.mark.parametrize("table", [tables.KERNEL, tables.GROUPED_KERNEL])
def test_a_kernel_costs_three_operations_forward_and_eighteen_back(table: str) -> None:
    """Of each element of the queries: 3, then 6 for each of q, k and v."""
    assert operations(table, "CUSTOM") == (3 + 3 * 6) * TOKENS * 12


def test_gradients_of_shared_heads_are_cut_to_the_heads_there_are() -> None:
    found = rows(tables.GROUPED_KERNEL)
    for name in ("dk", "dv"):
        assert found[name].form.kind == "SLICE"
        made = found[f"{name}1"].form.result
        assert made.dims[3].value(SIZES) == 6  # query heads
        assert found[name].form.result.dims[3].value(SIZES) == 3


def test_keys_and_values_are_gathered_over_context_ranks_before_the_kernel() -> None:
    found = rows(tables.KERNEL)
    for name in ("k", "v"):
        assert found[name].form.result.dims[1] == parse_dim("S/cp", {})
        assert found[f"{name}1"].form.result.dims[1] == parse_dim("S", {})
    assert found["qkv"].after == ("k1", "v1")


def test_the_router_repeats_each_token_for_its_experts_and_averages_back() -> None:
    found = rows(tables.ROUTER)
    for repeated, back in (("x1", "y"), ("dy2", "dx02")):
        assert found[repeated].form.result.elements.value(SIZES) == 2 * TOKENS * 12
        assert found[back].form.result.elements.value(SIZES) == TOKENS * 12


def test_an_expert_takes_its_share_of_tokens_and_gives_them_back() -> None:
    found = rows(tables.DISPATCH)
    routed = found["x"].form.result.elements.value(SIZES)
    assert routed == TOKENS * 2 * 12  # each token goes to two experts
    assert found["x_expert"].form.result.elements.value(SIZES) * 2 == routed  # of two
    for name in ("y", "dx"):
        assert found[name].form.result.elements.value(SIZES) == routed


@pytest.mark.parametrize(("table", "each"), [(tables.NORM, 10), (tables.LOSS, 10)])
def test_elementwise_layers_cost_five_operations_each_way(table: str, each: int) -> None:
    assert operations(table, "E") == each * TOKENS * 12
