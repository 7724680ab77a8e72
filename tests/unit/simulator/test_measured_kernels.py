"""Kernels measured on devices: rooflines, tables, and times of nodes."""

from dataclasses import replace

import numpy as np
import pytest
from simulator_traces import comp, system, workload
from symbolic_jobs import LLAMA, MIXTURE, small

from layerdag.errors import ConfigError
from layerdag.hardware.devices import DEVICES
from layerdag.hardware.kernels import (
    KERNEL_AXES,
    KernelRoofline,
    KernelTable,
    fitted_kernels,
    kernel_work,
    read_kernels,
)
from layerdag.simulator.compute_choice import compute_model
from layerdag.simulator.measured_kernels import FAMILY, ROOFLINE, TABLE, MeasuredKernels
from layerdag.traces.trace import NodeType

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
    middle = table.microseconds(GRID)
    low, high = middle / table.spread, middle * table.spread
    assert (low <= high).all()
    beyond = np.array([[1 << 20, 1 << 15, 1 << 15]])
    ops, moved = kernel_work("gemm", beyond, "bf16")
    by_roofline = table.roofline.microseconds(ops / 1e9, moved / 1e6)
    assert table.microseconds(beyond) == pytest.approx(by_roofline)


def test_the_kernels_of_a_recorded_operator_are_timed_as_one():
    model = MeasuredKernels("h100")
    moved = {"num_ops": 0, "tensor_size": 2**28}
    assert times_ns(model, **moved, start_ns=7) == 1
    assert times_ns(model, **moved) > 10_000
    assert times_ns(model, tensor_size=2**28, start_ns=7) > 10_000


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


def test_batch_norms_of_inference_are_not_read_by_channels():
    """Few channels of many rows keep few blocks busy, unless each element is for itself."""
    norm = {"num_ops": 0, "tensor_size": 2**24, "m": 2**20, "n": 4}
    forward = replace(comp(0, 0, **norm), name="aten::cudnn_batch_norm")
    backward = replace(comp(1, 0, (0,), **norm), name="aten::cudnn_batch_norm_backward")
    model = MeasuredKernels("h100")

    def first_ns(*nodes):
        trace = workload(list(nodes)).traces[0]
        return int(model.durations_ns(trace, np.array([0]), np.array([False]))[0])

    assert first_ns(forward) < 30_000 < 200_000 < first_ns(forward, backward)


def test_tables_of_no_device_are_one_sentence():
    pytest.importorskip("aiconfigurator_core")
    with pytest.raises(ConfigError, match="no measured kernels of 'h101'"):
        read_kernels("h101", "gemm")


KNOWN = KernelRoofline(5.0, 0.5, 0.6)
"""Of the made-up tables below, at 1 PFLOP/s and 1 TB/s."""


def known_us(kind, *sizes):
    ops, moved = kernel_work(kind, np.array([sizes]), "bf16")
    return float(KNOWN.microseconds(ops / 1e9, moved / 1e6)[0])


@pytest.fixture
def made_up_tables(monkeypatch):
    """Tables of one law for sizes up to 512, and of no other precision."""

    def table(device, kind, precision):
        if precision != "bf16":
            return None
        sizes = 2 ** np.random.default_rng(0).integers(0, 10, (400, len(KERNEL_AXES[kind])))
        ops, moved = kernel_work(kind, sizes, "bf16")
        return KernelTable.fit(kind, sizes, KNOWN.microseconds(ops / 1e9, moved / 1e6), "bf16")

    monkeypatch.setattr("layerdag.simulator.measured_kernels.installed_table", table)


def kernels_of(shape, **settings):
    trace = small(shape, **settings).workload().traces[0]
    rows = np.flatnonzero(trace.type_N == NodeType.COMP)
    times = MeasuredKernels("h100").kernel_times(trace, rows)
    names = [trace.names()[row] for row in rows]
    return dict(zip(names, zip(times.us_M, times.source_M, strict=True), strict=True)), times


def test_symbolic_steps_of_inference_take_the_times_of_tables(made_up_tables):
    decode, _ = kernels_of(LLAMA, phase="decode", tensor=2)
    expected = {
        "mm.qkv.1.F0.T0": known_us("gemm", 8, 256, 256),
        "attention.1.F0.T0": known_us("attention_decode", 8, 128, 4, 2, 32, 0),
    }
    found = {name: decode[name] for name in expected}
    assert {name: us for name, (us, _) in found.items()} == pytest.approx(expected, rel=0.02)
    assert {source for _, source in found.values()} == {TABLE}
    prefill, _ = kernels_of(MIXTURE, phase="prefill", expert=2, data=2)
    us, source = prefill["attention.1.F0"]
    assert source == TABLE
    assert us == pytest.approx(known_us("attention_prefill", 4, 128, 8, 4, 32, 0), rel=0.02)
    block = prefill["mm.up.1.F0"][0] + prefill["mm.down.1.F0"][0]
    # 4 sequences of 128 tokens on each of 2 ranks, two experts of four a token.
    assert block == pytest.approx(known_us("moe", 1024, 256, 512, 4, 2, 1, 2), rel=0.05)


def test_other_sizes_have_a_roofline_and_pytorch_s_attention_its_family(made_up_tables):
    train, times = kernels_of(LLAMA)
    assert train["mm.qkv.1.F0"][1] == TABLE
    assert train["attention.1.F0"][1] == train["attention.1.B0"][1] == FAMILY
    assert train["attention.1.B0"][0] > train["attention.1.F0"][0]
    far, _ = kernels_of(LLAMA, phase="prefill", sequence=8192, batch=1)
    assert far["attention.1.F0"][1] == far["mm.qkv.1.F0"][1] == ROOFLINE
    counts = times.counts
    assert counts[TABLE] + counts[ROOFLINE] + counts[FAMILY] == len(times.us_M)
    busy, low, high = times.busy_us
    assert low < busy < high
    assert busy == pytest.approx(times.us_M.sum())
    assert high / busy < np.exp(times.spread_M.max())


def test_attention_and_experts_without_tables_have_shipped_rooflines(monkeypatch):
    monkeypatch.setattr("layerdag.simulator.measured_kernels.installed_table", lambda *_: None)
    found, _ = kernels_of(MIXTURE, phase="decode")
    for name in ("attention.1.F0.T0", "mm.up.1.F0.T0"):
        assert found[name][1] == ROOFLINE
