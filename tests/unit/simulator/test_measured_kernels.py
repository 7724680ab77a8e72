"""Kernels measured on devices: rooflines, tables, and times of nodes."""

import numpy as np
import pytest
from simulator_traces import comp, system, workload

from layerdag.errors import ConfigError
from layerdag.simulator.compute import DEVICES
from layerdag.simulator.compute_choice import compute_model
from layerdag.simulator.kernel_roofline import KernelRoofline
from layerdag.simulator.kernel_tables import KernelTable, read_kernels
from layerdag.simulator.kernel_work import KERNEL_AXES, kernel_work
from layerdag.simulator.measured_kernels import MeasuredKernels, fitted_kernels

GRID = np.array(
    [[m, n, k] for m in (1, 16, 256, 4096) for n in (64, 512, 4096) for k in (64, 4096)]
)


def times_ns(model, **values):
    trace = workload([comp(0, 0, **values)]).traces[0]
    return int(model.durations_ns(trace, np.array([0]), np.array([False]))[0])


def test_a_roofline_is_found_again():
    rng = np.random.default_rng(0)
    compute, memory = 10 ** rng.uniform(-2, 4, (2, 300))
    measured = KernelRoofline(4.0, 0.8, 0.6).microseconds(compute, memory)
    found = KernelRoofline.fit(compute, memory, measured)
    numbers = (found.launch_us, found.compute_share, found.memory_share)
    assert numbers == pytest.approx((4.0, 0.8, 0.6), rel=0.02)
    assert found.error < 0.01


def test_a_table_gives_back_what_was_measured_and_lies_between_neighbors():
    work = kernel_work("gemm", GRID, "bf16")
    bumpy = np.exp(np.random.default_rng(1).normal(0, 0.3, len(GRID)))
    us = KernelRoofline(3.0, 0.7, 0.8).microseconds(work[0] / 1e9, work[1] / 1e6) * bumpy
    table = KernelTable.fit("gemm", GRID, us, "bf16")
    assert table.microseconds(GRID) == pytest.approx(us, rel=0.01)
    low, high = table.interval(GRID)
    assert (low <= high).all()
    beyond = np.array([[1 << 20, 1 << 15, 1 << 15]])
    ops, moved = kernel_work("gemm", beyond, "bf16")
    by_roofline = table.roofline.microseconds(ops / 1e9, moved / 1e6)
    assert table.microseconds(beyond) == pytest.approx(by_roofline)


def test_too_few_kernels_are_refused():
    with pytest.raises(ConfigError, match="at least 8"):
        KernelTable.fit("gemm", GRID[:3], np.ones(3), "bf16")


def test_work_of_kernels_is_the_textbook_s():
    ops, moved = kernel_work("gemm", np.array([[2, 3, 5]]), "bf16")
    assert (ops[0], moved[0]) == (60, 2 * (6 + 10 + 15))
    prefill = dict(batch=1, seq=4, heads=2, kv_heads=1, head_dim=8, window=0)
    sizes = np.array([[prefill[axis] for axis in KERNEL_AXES["attention_prefill"]]])
    assert kernel_work("attention_prefill", sizes, "bf16")[0][0] == 4 * 2 * 8 * (1 + 2 + 3 + 4)
    one_expert = np.array([[6, 8, 16, 4, 4, 2, 1]])
    assert kernel_work("moe", one_expert, "bf16")[0][0] == 6 * 4 * 3 * 2 * 8 * 8


@pytest.mark.parametrize("device", sorted(set(DEVICES) - {"tpu-v3", "tpu-v4"}))
def test_no_kernel_is_faster_than_the_data_sheet(device):
    model = MeasuredKernels(device, tables=False)
    sizes = {"m": 8192, "n": 8192, "k": 8192, "batch": 1}
    ops, moved = 2 * 8192**3, 3 * 2 * 8192**2
    costs = {"num_ops": ops, "tensor_size": moved, "dtype": "bfloat16", **sizes}
    found = times_ns(model, **costs)
    assert ops / DEVICES[device].flops["bf16"] * 1e9 < found
    small = {"num_ops": 2, "tensor_size": 6, "dtype": "bfloat16"}
    assert 500 < times_ns(model, **small) < 50_000


def test_tf32_and_names_of_operators_count():
    costs = {"num_ops": 2 * 4096**3, "tensor_size": 3 * 4 * 4096**2, "dtype": "float"}
    sizes = {"m": 4096, "n": 4096, "k": 4096, "batch": 1}
    plain = times_ns(compute_model("measured:h100", system()), **costs, **sizes)
    tf32 = times_ns(compute_model("measured:h100,tf32=1", system()), **costs)
    assert 3 < plain / tf32 < 12
    assert all("pointwise" in fits.rooflines for fits in [fitted_kernels()["h100"]])


def test_tables_of_no_device_are_one_sentence():
    pytest.importorskip("aiconfigurator_core")
    with pytest.raises(ConfigError, match="no measured kernels of 'h101'"):
        read_kernels("h101", "gemm")
