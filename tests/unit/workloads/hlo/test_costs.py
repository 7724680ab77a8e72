"""FLOPs and bytes of operations, by hand."""

import json
from pathlib import Path

import pytest

from layerdag.workloads.hlo import Computation, Hardware, Tensor, read_program, summarize_program


@pytest.mark.parametrize(
    ("element", "num_bytes"),
    [("f32", 60), ("bf16", 30), ("i1", 15), ("f8E4M3FN", 15), ("i4", 8), ("complex<f32>", 120),
     ("complex<f64>", 240), ("ui64", 120)],
)  # fmt: skip
def test_a_tensor_takes_the_bytes_of_its_elements(element: str, num_bytes: int) -> None:
    assert Tensor((3, 5), element).num_bytes == num_bytes


OPERATIONS = {
    # name: (line, FLOPs, bytes)
    "dot": (
        "%r = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : "
        "(tensor<4x6xf32>, tensor<6x8xf32>) -> tensor<4x8xf32>",
        2 * 4 * 8 * 6,
        4 * (24 + 48 + 32),
    ),
    "elementwise": ("%r = stablehlo.add %a, %a : tensor<4x6xf32>", 24, 4 * 72),
    "comparison": (
        "%r = stablehlo.compare LT, %a, %a : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<4x6xi1>",
        24,
        4 * 48 + 24,
    ),
    "moved": (
        "%r = stablehlo.transpose %a, dims = [1, 0] : (tensor<4x6xf32>) -> tensor<6x4xf32>",
        0,
        192,
    ),
    "slice": ("%r = stablehlo.slice %a [0:2, 0:3] : (tensor<4x6xf32>) -> tensor<2x3xf32>", 0, 48),
    "reduction": (
        "%z = stablehlo.constant dense<0.0> : tensor<f32>\n"
        "%r = stablehlo.reduce(%a init: %z) applies stablehlo.add across dimensions = [1] : "
        "(tensor<4x6xf32>, tensor<f32>) -> tensor<4xf32>",
        5 * 4,
        4 * (24 + 4),
    ),
    "sort": (
        '%r = "stablehlo.sort"(%a) <{dimension = 0 : i64}> ({\n'
        "^bb0(%u: tensor<f32>, %v: tensor<f32>):\n"
        "%c = stablehlo.compare LT, %u, %v : (tensor<f32>, tensor<f32>) -> tensor<i1>\n"
        "stablehlo.return %c : tensor<i1>\n}) : (tensor<4x6xf32>) -> tensor<4x6xf32>",
        0,
        2 * 96 * 4,
    ),
    "constant": ("%r = stablehlo.constant dense<1.0> : tensor<512xf32>", 0, 0),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_costs_what_its_shapes_say(name: str, written) -> None:
    line, flops, moved = OPERATIONS[name]
    head = "func.func @main(%a: tensor<4x6xf32>, %b: tensor<6x8xf32>) {\n"
    program = read_program(written(f"{head}{line}\nreturn\n}}"))
    found = summarize_program(program)
    assert (found.flops, found.mem_bytes) == (flops, moved)
    assert not program.notes


def test_an_operator_without_a_rule_is_counted_by_bytes_and_told(written) -> None:
    line = "%r = stablehlo.cholesky %a : tensor<4x4xf32>"
    program = read_program(written(f"func.func @main(%a: tensor<4x4xf32>) {{\n{line}\nreturn\n}}"))
    assert summarize_program(program).mem_bytes == 128
    assert program.notes == ("no rule of costs, counted by their bytes alone: cholesky (1).",)


def test_a_matrix_product_of_f32_runs_at_the_rate_of_tf32() -> None:
    hardware = Hardware(1.0, 1e30, {"f32": 2.0, "tf32": 8.0})
    product, other = (Computation("", 16, 0, "f32", (), matrix) for matrix in (True, False))
    assert hardware.seconds(product) == 2.0
    assert hardware.seconds(other) == 8.0
    assert hardware.seconds(Computation("", 16, 0, "i64", ())) == 16.0
    assert Hardware(1e30, 4.0).seconds(other := Computation("", 1, 8, "f32", ())) == 2.0


def test_totals_equal_those_of_the_public_estimator(shared_data: Path) -> None:
    cases = json.loads((shared_data / "hespas" / "cases.json").read_text())["roofline"]
    for case in cases:
        config = case["hw_config"]
        rates = config.get("per_datatype_flops", {})
        hardware = Hardware(config["peak_flops"], config["memory_bandwidth"], rates)
        file = shared_data / "hespas" / "mlir" / f"{case['mlir']}.mlir"
        found = summarize_program(read_program(file), hardware)
        assert (found.flops, found.mem_bytes) == (case["flops"], case["mem_bytes"])
        assert found.runtime_s == pytest.approx(case["runtime_s"], rel=1e-12)
