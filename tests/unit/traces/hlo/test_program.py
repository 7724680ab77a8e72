"""FLOPs and bytes of operations, by hand."""

import json
from pathlib import Path

import pytest

from layerdag.errors import ConfigError
from layerdag.traces.hlo.parser import read_program
from layerdag.traces.hlo.program import HARDWARE, Computation, Hardware, ValueType
from layerdag.traces.hlo.traces import summarize_program


@pytest.mark.parametrize(
    ("element", "num_bytes"),
    [("f32", 60), ("bf16", 30), ("i1", 15), ("f8E4M3FN", 15), ("i4", 8), ("complex<f32>", 120),
     ("complex<f64>", 240), ("ui64", 120)],
)  # fmt: skip
def test_a_tensor_takes_the_bytes_of_its_elements(element: str, num_bytes: int) -> None:
    assert ValueType((3, 5), element).num_bytes == num_bytes


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


DEVICE = Hardware(1e12, 1e11, {"bf16": 4e12, "tf32": 2e12})


def operation(flops: int, num_bytes: int, element: str, *, matrix: bool = False) -> Computation:
    return Computation("op", flops, num_bytes, element, (), matrix)


@pytest.mark.parametrize(
    ("flops", "num_bytes", "seconds"),
    [
        (10**12, 10, 1.0),  # 1e12 operations at 1e12 per second, bytes hidden behind them
        (10, 10**11, 1.0),  # 1e11 bytes at 1e11 per second, operations hidden
        (10**12, 2 * 10**11, 2.0),  # the larger of one and two seconds, not their sum
        (0, 0, 0.0),
    ],
)
def test_an_operation_takes_the_longer_of_computing_and_moving(
    flops: int, num_bytes: int, seconds: float
) -> None:
    assert DEVICE.seconds(operation(flops, num_bytes, "f32")) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("element", "matrix", "seconds"),
    [
        ("bf16", True, 1.0),  # 4e12 operations at the listed 4e12 per second
        ("bf16", False, 1.0),  # a listed rate holds for every operation of the type
        ("f32", True, 2.0),  # matrix products of f32 run as tf32
        ("f32", False, 4.0),  # other operations of f32 at the peak of what is not listed
        ("f64", True, 4.0),
    ],
)
def test_the_rate_follows_the_element_type(element: str, matrix: bool, seconds: float) -> None:
    found = DEVICE.seconds(operation(4 * 10**12, 0, element, matrix=matrix))
    assert found == pytest.approx(seconds)


def test_without_a_rate_for_tf32_products_of_f32_take_that_of_f32() -> None:
    device = Hardware(1e12, 1e11, {"f32": 5e11})
    assert device.seconds(operation(10**12, 0, "f32", matrix=True)) == pytest.approx(2.0)


@pytest.mark.parametrize("name", sorted(HARDWARE))
def test_a_preset_is_found_by_its_name_and_names_itself(name: str) -> None:
    device = Hardware.from_name(name)
    assert device is HARDWARE[name]
    assert device.name == name


def test_the_larger_a100_moves_bytes_faster_and_computes_the_same() -> None:
    small, large = Hardware.from_name("a100-40"), Hardware.from_name("a100-80")
    product = operation(10**15, 1, "bf16", matrix=True)
    copy = operation(0, 2039 * 10**9, "bf16")
    assert small.seconds(product) == large.seconds(product) == pytest.approx(1e15 / 312e12)
    assert large.seconds(copy) == pytest.approx(1.0)
    assert small.seconds(copy) > large.seconds(copy)


def test_a_file_gives_the_same_device_as_its_numbers(tmp_path: Path) -> None:
    file = tmp_path / "mine.json"
    rates = {"peak_flops": 1e12, "memory_bandwidth": 1e11, "per_datatype_flops": {"bf16": 4e12}}
    file.write_text(json.dumps(rates))
    assert Hardware.from_name(str(file)) == Hardware(1e12, 1e11, {"bf16": 4e12}, "mine")
    file.write_text(json.dumps({**rates, "name": "chip"}))
    assert Hardware.from_file(file).name == "chip"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", "is no JSON"),
        ("[1]", "holds no JSON object; write one with peak_flops"),
        ('{"peak_flops": 1}', "'memory_bandwidth' is missing; state it per second"),
        ('{"memory_bandwidth": 1}', "'peak_flops' is missing"),
        ('{"peak_flops": "1", "memory_bandwidth": 1}', "'peak_flops' is '1'; it must be a number"),
        ('{"peak_flops": true, "memory_bandwidth": 1}', "'peak_flops' is True; it must be"),
        ('{"peak_flops": 0, "memory_bandwidth": 1}', r"peak_flops is 0\.0; it must be a positive"),
        ('{"peak_flops": 1, "memory_bandwidth": -1}', r"memory_bandwidth is -1\.0"),
        ('{"peak_flops": 1, "memory_bandwidth": Infinity}', "memory_bandwidth is inf"),
        (
            '{"peak_flops": 1, "memory_bandwidth": 1, "per_datatype_flops": [1]}',
            "per_datatype_flops must be an object of rates by type",
        ),
        (
            '{"peak_flops": 1, "memory_bandwidth": 1, "per_datatype_flops": {"bf16": 0}}',
            r"per_datatype_flops\.bf16 is 0\.0",
        ),
        (
            '{"peak_flops": 1, "memory_bandwith": 1}',
            "unknown key 'memory_bandwith'. Did you mean 'memory_bandwidth'",
        ),
    ],
)
def test_a_file_without_rates_is_one_sentence_that_names_it(
    tmp_path: Path, text: str, sentence: str
) -> None:
    file = tmp_path / "device.json"
    file.write_text(text)
    with pytest.raises(ConfigError, match=sentence) as caught:
        Hardware.from_file(file)
    assert str(caught.value).startswith(str(file))


def test_what_is_neither_preset_nor_file_is_told_with_the_nearest_preset() -> None:
    with pytest.raises(ConfigError, match=r"no hardware 'a100-8'\. Did you mean 'a100-80'"):
        Hardware.from_name("a100-8")
