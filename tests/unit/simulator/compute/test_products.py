"""Which inputs of an operator are the factors of its matrix product, operator by operator."""

from dataclasses import replace

import pytest
from simulator_traces import comp

from layerdag.simulator.compute._products import (
    Product,
    _product,
    is_matrix_operator,
    sizes_from_costs,
)
from layerdag.simulator.compute._systolic import Gemm
from layerdag.traces.chakra import build_trace

PLAIN, BATCHED = [(2, 3), (3, 5)], [(4, 2, 3), (4, 3, 5)]
FACTORS = {
    "mm": PLAIN, "matmul": PLAIN, "_int_mm": PLAIN, "_scaled_mm": PLAIN, "bmm": BATCHED,
    "addmm": [(5,), *PLAIN], "addmm_": [(2, 5), *PLAIN], "_addmm_activation": [(5,), *PLAIN],
    "baddbmm": [(4, 2, 5), *BATCHED], "baddbmm_": [(4, 2, 5), *BATCHED],
    "linear": [(2, 3), (5, 3)],
}  # fmt: skip
WITHOUT_SIZES = (
    "mv", "addmv", "dot", "convolution_backward", "_scaled_dot_product_flash_attention",
    "_flash_attention_forward", "_efficient_attention_forward",
)  # fmt: skip
CONVOLUTIONS = (
    "convolution", "convolution_overrideable", "cudnn_convolution", "miopen_convolution",
    "mkldnn_convolution",
)  # fmt: skip


def product(name: str, inputs: object, outputs: object = None, num_ops: int = 0) -> Product | None:
    """Return the product of a node with these shapes."""
    trace = build_trace([comp(0, 1)])
    texts = [name, str(inputs).replace("(", "[").replace(",)", "]").replace(")", "]")]
    texts.append("" if outputs is None else str(outputs).replace("(", "[").replace(")", "]"))
    strings = (*trace.strings, *texts)
    first = len(trace.strings)
    return _product(replace(trace, strings=strings), first, first + 1, first + 2, num_ops, 0, 4)


@pytest.mark.parametrize("name", [*FACTORS, *CONVOLUTIONS, *WITHOUT_SIZES])
def test_an_operator_is_known_with_and_without_its_namespace(name: str) -> None:
    assert is_matrix_operator(name)
    assert is_matrix_operator(f"aten::{name}")
    assert is_matrix_operator(f"aten::{name}.out")
    assert not is_matrix_operator(f"x{name}")


@pytest.mark.parametrize("name", FACTORS)
def test_sizes_are_those_of_the_two_factors(name: str) -> None:
    batch = 4 if "bmm" in name else 1
    assert product(f"aten::{name}", FACTORS[name]) == Product(Gemm(2, 5, 3), batch, 4)


@pytest.mark.parametrize("name", FACTORS)
def test_factors_that_do_not_fit_leave_the_costs(name: str) -> None:
    wrong = [*FACTORS[name][:-1], (7, 7)]
    assert product(f"aten::{name}", wrong) is None
    assert product(f"aten::{name}", FACTORS[name][:-1]) is None
    found = product(f"aten::{name}", wrong, num_ops=2 * 8**3)
    assert found == Product(Gemm(8, 8, 8), 1, 4)


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_a_convolution_is_lowered_to_pixels_filters_and_window(name: str) -> None:
    found = product(f"aten::{name}", [(2, 3, 9, 9), (16, 3, 5, 5)], [(2, 16, 5, 5)])
    assert found == Product(Gemm(2 * 25, 16, 3 * 25), 1, 4)


@pytest.mark.parametrize("name", WITHOUT_SIZES)
def test_other_matrix_operators_have_sizes_from_their_costs(name: str) -> None:
    assert product(f"aten::{name}", PLAIN) is None
    assert product(f"aten::{name}", PLAIN, num_ops=2 * 8**3) == Product(Gemm(8, 8, 8), 1, 4)


def test_a_product_of_one_number_is_a_product() -> None:
    assert product("mm", [(1, 1), (1, 1)]) == Product(Gemm(1, 1, 1), 1, 4)
    assert product("mm", [(0, 1), (1, 1)]) is None


def test_more_bytes_than_a_cube_make_a_wide_product() -> None:
    assert sizes_from_costs(512.0, 192.0) == Gemm(8, 8, 8)
    assert sizes_from_costs(512.0, 320.0) == Gemm(16, 2, 16)
