"""The devices by name have the dense rates of their makers' data sheets."""

import pytest
from simulator_traces import comp, system, workload

from layerdag.hardware.devices import DEVICES
from layerdag.hardware.dtypes import item_bytes
from layerdag.simulator.compute_choice import compute_model

# TFLOP/s by number format, and GB/s of the memory. A100, H100, H200: NVIDIA's data sheets (SXM).
# TPU v3 and v4: the estimators that docs/reference/simulator.md names.
DATA_SHEETS = {
    "a100-40": ({"double": 9.7, "float": 19.5, "bfloat16": 312, "int8": 624}, 1555),
    "a100-80": ({"double": 9.7, "float": 19.5, "bfloat16": 312, "int8": 624}, 2039),
    "h100": ({"double": 34, "float": 67, "bfloat16": 989, "int8": 1979}, 3350),
    "b200": ({"double": 37, "float": 75, "bfloat16": 2250, "int8": 4500}, 8000),
    "l40s": ({"double": 1.4, "float": 91.6, "bfloat16": 362, "int8": 733}, 864),
    "h200": ({"double": 34, "float": 67, "bfloat16": 989, "int8": 1979}, 4800),
    "tpu-v3": ({"float": 63.3, "bfloat16": 63.3}, 429.2),
    "tpu-v4": ({"float": 275, "bfloat16": 275, "int8": 275}, 1228),
}


def time_ns(device: str, **values: object) -> int:
    trace = workload([comp(0, 0, **values)]).traces[0]
    model = compute_model(device, system())
    durations = model.durations_ns(trace, trace.id_N * 0, trace.id_N > 0)
    return int(durations[0])


def test_no_device_lacks_a_data_sheet():
    assert set(DEVICES) == set(DATA_SHEETS)


@pytest.mark.parametrize("device", DATA_SHEETS)
def test_a_second_at_the_peak_takes_a_second(device):
    rates, bandwidth = DATA_SHEETS[device]
    for dtype, tflops in rates.items():
        sheet = f"{device}:efficiency=1"
        found = time_ns(sheet, num_ops=round(tflops * 1e12), tensor_size=8, dtype=dtype)
        assert found == pytest.approx(1e9, abs=1), dtype
    found = time_ns(sheet, num_ops=1, tensor_size=round(bandwidth * 1e9), dtype="bfloat16")
    assert found == pytest.approx(1e9, abs=1)


@pytest.mark.parametrize("device", ["tpu-v3"])
def test_a_format_that_a_device_lacks_has_the_rate_of_f32(device):
    sheet = f"{device}:efficiency=1"
    assert time_ns(sheet, num_ops=633_000_000, tensor_size=1, dtype="int8") == 10_000


@pytest.mark.parametrize(
    ("dtype", "size"),
    [
        ("double", 8), ("float64", 8), ("float", 4), ("float32", 4), ("bfloat16", 2), ("half", 2),
        ("float16", 2), ("int8", 1), ("uint8", 1), ("signed char", 1), ("unsigned char", 1),
        ("c10::Half", 2), ("c10::BFloat16", 2), ("", 4), ("complex", None),
        ("Float8_e5m2", 1), ("long int", 8),
    ],
)  # fmt: skip
def test_bytes_of_a_number_follow_from_its_format(dtype, size):
    assert item_bytes(dtype) == size
