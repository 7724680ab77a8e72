"""Rates of a device: presets, files, and the time of one operation on it."""

import json
from pathlib import Path

import pytest

from layerdag.errors import ConfigError
from layerdag.workloads.hlo._hardware import HARDWARE, Hardware
from layerdag.workloads.hlo._program import Computation

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
    device = Hardware.of(name)
    assert device is HARDWARE[name]
    assert device.name == name


def test_the_larger_a100_moves_bytes_faster_and_computes_the_same() -> None:
    small, large = Hardware.of("a100-40"), Hardware.of("a100-80")
    product = operation(10**15, 1, "bf16", matrix=True)
    copy = operation(0, 2039 * 10**9, "bf16")
    assert small.seconds(product) == large.seconds(product) == pytest.approx(1e15 / 312e12)
    assert large.seconds(copy) == pytest.approx(1.0)
    assert small.seconds(copy) > large.seconds(copy)


def test_a_file_gives_the_same_device_as_its_numbers(tmp_path: Path) -> None:
    file = tmp_path / "mine.json"
    rates = {"peak_flops": 1e12, "memory_bandwidth": 1e11, "per_datatype_flops": {"bf16": 4e12}}
    file.write_text(json.dumps(rates))
    assert Hardware.of(str(file)) == Hardware(1e12, 1e11, {"bf16": 4e12}, "mine")
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
        Hardware.of("a100-8")
