"""Compute-cost models: roofline of devices, cycles to time, learned latencies, predictors."""

import csv

import numpy as np
import pytest
from simulator_traces import comp, ring, system, workload

from layerdag.errors import ConfigError, SimulationError
from layerdag.simulator import Cluster, simulate
from layerdag.simulator.compute._base import PredictedCompute
from layerdag.simulator.compute._cycles_to_time import (
    TPU_V4_RANGES,
    TPU_V4_REGIONS,
    TPU_V6E_BATCH,
    TPU_V6E_ROOF,
    BatchReduction,
    RoofMap,
    fit_roof,
)
from layerdag.simulator.compute._elementwise import ElementwiseLatency, three_dimensions
from layerdag.simulator.compute._roofline import DEVICES, Device, RooflineCompute
from layerdag.simulator.compute._systolic import Dataflow, Gemm, SystolicArray

TOY = Device("toy", {"f32": 1e12, "bf16": 4e12}, 1e9)


def duration(node, model) -> int:
    nodes = [node]
    result = simulate(workload(nodes, nodes), Cluster(ring(2), system()), compute=model)
    return int(result.rank_finish_ns[0])


@pytest.mark.parametrize(
    ("ops", "size", "dtype", "expected"),
    [
        (4_000_000, 8, "float32", 4000),  # 4e6 / 1e12 s
        (4_000_000, 8, "bfloat16", 1000),
        (4_000_000, 8, "c10::BFloat16", 1000),
        (4_000_000, 8, "half", 1000),
        (4_000_000, 8, "c10::Half", 1000),
        (4_000_000, 8, "int8", 4000),  # the device lacks the format: f32
        (1, 8, "float32", 8),  # 8 B at 1 B/ns
        (0, 0, "float32", 1),  # never less than 1 ns
    ],
)
def test_roofline_takes_the_longer_of_operations_and_bytes(ops, size, dtype, expected):
    node = comp(0, 9, num_ops=ops, tensor_size=size, dtype=dtype)
    assert duration(node, RooflineCompute(TOY)) == expected


@pytest.mark.parametrize(
    ("kind", "dtypes"),
    [
        ("f64", ["double", "float64"]),
        ("f32", ["float", "float32", "c10::complex", ""]),
        ("bf16", ["bfloat16", "half", "float16"]),
        ("i8", ["int8", "uint8", "signed char", "unsigned char"]),
    ],
)
def test_every_name_of_a_number_format_has_the_peak_of_its_class(kind, dtypes):
    rates = {"f64": 1e12, "f32": 2e12, "bf16": 4e12, "i8": 8e12}
    for dtype in dtypes:
        node = comp(0, 9, num_ops=8_000_000, tensor_size=8, dtype=dtype)
        found = duration(node, RooflineCompute(Device("toy", rates, 1e9)))
        assert found == 8e15 / rates[kind]


def test_roofline_efficiency_and_launch_cost():
    node = comp(0, 9, num_ops=4_000_000, tensor_size=8)
    assert duration(node, RooflineCompute(TOY, efficiency=0.5, launch_ns=7.0)) == 8007
    memory_bound = comp(0, 9, num_ops=1, tensor_size=8)
    assert duration(memory_bound, RooflineCompute(TOY, efficiency=0.5, launch_ns=7.0)) == 23
    with pytest.raises(ConfigError, match="efficiency"):
        RooflineCompute(TOY, efficiency=0.0)


def test_roofline_keeps_recorded_times_of_cpu_nodes_and_refuses_bare_ones():
    assert duration(comp(0, 9, is_cpu_op=True), RooflineCompute(DEVICES["h100"])) == 9000
    with pytest.raises(SimulationError, match="neither num_ops nor tensor_size"):
        duration(comp(0, 9), RooflineCompute(DEVICES["h100"]))


def test_predictor_gives_microseconds():
    assert (
        duration(comp(0, 9), PredictedCompute(lambda trace, rows: np.full(len(rows), 1.5))) == 1500
    )
    with pytest.raises(SimulationError, match="predictor"):
        duration(comp(0, 9), PredictedCompute(lambda trace, rows: np.zeros(7)))
    with pytest.raises(SimulationError, match="predictor"):
        duration(comp(0, 9), PredictedCompute(lambda trace, rows: np.full(len(rows), np.nan)))


def test_published_maps_choose_their_range():
    assert TPU_V4_RANGES.microseconds(1000, Gemm(128, 128, 128)) == pytest.approx(2.699335)
    assert TPU_V4_RANGES.microseconds(1000, Gemm(129, 128, 128)) == pytest.approx(2.44742)
    assert TPU_V4_RANGES.microseconds(1000, Gemm(128, 1025, 128)) == pytest.approx(29.9237)
    # K over one block, N and M at 16 blocks: region 7.
    expected = TPU_V4_REGIONS.regions[7].microseconds(10**6, Gemm(2048, 2048, 256))
    assert TPU_V4_REGIONS.microseconds(10**6, Gemm(2048, 2048, 256)) == expected


@pytest.mark.parametrize(
    ("sizes", "region"),
    [
        ((1920, 1920, 128), 0),  # 15 blocks, 15 blocks, one block
        ((1921, 1920, 128), 1),
        ((1920, 1921, 128), 2),
        ((1920, 1920, 129), 4),
        ((1921, 1, 129), 5),
    ],
)
def test_a_begun_block_of_a_matrix_counts_as_whole(sizes: tuple[int, int, int], region: int):
    expected = TPU_V4_REGIONS.regions[region].microseconds(10**6, Gemm(*sizes))
    assert TPU_V4_REGIONS.microseconds(10**6, Gemm(*sizes)) == expected


def test_a_batch_costs_less_than_separate_products_and_more_than_the_work_of_its_tiles():
    # 2 x 1 tiles with exponent 1 and c = 2: half of the time is spent per product.
    reduction = BatchReduction(exponent=1.0, half=2.0)
    assert reduction.microseconds(4, 10.0, Gemm(129, 128, 64)) == pytest.approx(40 * (0.5 + 0.125))
    assert reduction.microseconds(4, 10.0, Gemm(128, 257, 64)) == pytest.approx(40 * (0.6 + 0.1))
    assert reduction.microseconds(1, 10.0, Gemm(500, 500, 64)) == pytest.approx(10.0)


def test_fit_recovers_the_map_that_made_the_samples(rng):
    truth = RoofMap(3e-5, 1.2, 30.0)
    array = SystolicArray(128, 128, Dataflow.WEIGHT_STATIONARY)
    gemms = [Gemm(*sizes) for sizes in rng.integers(64, 4096, (200, 3)).tolist()]
    cycles = [array.run(gemm).cycles for gemm in gemms]
    times = np.array([truth.microseconds(c, g) for c, g in zip(cycles, gemms, strict=True)])
    found = fit_roof(np.array(cycles), gemms, times)
    again = [found.microseconds(c, g) for c, g in zip(cycles, gemms, strict=True)]
    np.testing.assert_allclose(again, times, rtol=0.02)
    with pytest.raises(ConfigError, match="three samples"):
        fit_roof(np.ones(1), gemms[:1], np.ones(1))


def test_latency_of_operators_is_learned_from_a_csv(tmp_path, rng):
    shapes = 2 ** rng.integers(0, 8, (300, 3))
    latency = 1.0 + 1e-4 * shapes.prod(axis=1)
    path = tmp_path / "add.csv"
    rows = np.column_stack([shapes, latency])
    np.savetxt(path, rows, delimiter=",", header="d0,d1,d2,latency_us", comments="")
    model = ElementwiseLatency.from_csv(path)
    error = np.abs(model.microseconds(shapes) / latency - 1)
    assert np.median(error) < 0.05
    with pytest.raises(ConfigError, match="lacks the column 'kernel_us'"):
        ElementwiseLatency.from_csv(path, "kernel_us")
    with pytest.raises(ConfigError, match="at least 20"):
        ElementwiseLatency.fit(shapes[:3], latency[:3])


def test_shapes_become_three_dimensional():
    assert three_dimensions(()) == (1, 1, 1)
    assert three_dimensions((5,)) == (1, 1, 5)
    assert three_dimensions((2, 3, 4, 5)) == (6, 4, 5)
    assert three_dimensions((2, 3, 4, 5, 7)) == (24, 5, 7)


@pytest.mark.slow
def test_published_batch_map_is_close_to_its_measurements(shared_data):
    with (shared_data / "scalesim" / "tpu_measured" / "batched_gemm_tpuv6e.csv").open() as file:
        rows = [{k: float(v) for k, v in row.items()} for row in csv.DictReader(file)]
    errors = []
    for row in rows:
        gemm = Gemm(int(row["M"]), int(row["N"]), int(row["K"]))
        found = TPU_V6E_BATCH.microseconds(int(row["b"]), row["single_us"], gemm)
        errors.append(abs(found / row["einsum_us"] - 1))
    assert np.mean(errors) < 0.09  # 7.8 % as published
    assert TPU_V6E_ROOF.microseconds(0, Gemm(1, 1, 1)) == pytest.approx(0.879, abs=1e-3)


@pytest.mark.parametrize(
    ("sizes", "microseconds"),
    [
        # slope * 10^6 cycles + offset of the eight published regions: the cycles bound each.
        ((128, 128, 128), 5.652 + 1.419),
        ((2048, 128, 128), 16.23 + 1.579),
        ((128, 2048, 128), 7.745 + 1.599),
        ((2048, 2048, 128), 165.3 + 1.468),
        ((128, 128, 129), 35.33 + 1.470),
        ((2048, 128, 129), 127.0 + 1.646),
        ((128, 2048, 129), 86.38 + 1.447),
        ((2048, 2048, 129), 124.1 + 4.277),
    ],
)
def test_each_region_of_sizes_has_its_published_line(sizes, microseconds):
    found = TPU_V4_REGIONS.microseconds(10**6, Gemm(*sizes))
    assert found == pytest.approx(microseconds, rel=1e-9)


def test_a_small_product_has_the_published_offset():
    assert TPU_V4_RANGES.microseconds(100, Gemm(1, 1, 1)) == pytest.approx(0.2762 - 0.062665)


@pytest.mark.parametrize(
    ("sizes", "slope", "offset", "bytes_per_cycle"),
    [
        ((128, 128, 128), 5.652e-6, 1.419, 5.261),
        ((2048, 128, 128), 1.623e-5, 1.579, 20.38),
        ((128, 2048, 128), 7.745e-6, 1.599, 9.399),
        ((2048, 2048, 128), 1.653e-4, 1.468, 305.7),
        ((128, 128, 129), 3.533e-5, 1.470, 24.73),
        ((2048, 128, 129), 1.270e-4, 1.646, 116.2),
        ((128, 2048, 129), 8.638e-5, 1.447, 78.92),
        ((2048, 2048, 129), 1.241e-4, 4.277, 141.0),
    ],
)
def test_few_cycles_are_bounded_by_the_published_memory_rate(sizes, slope, offset, bytes_per_cycle):
    m, n, k = sizes
    moved = 2 * (m * k + k * n + m * n)
    found = TPU_V4_REGIONS.microseconds(1, Gemm(*sizes))
    assert found == pytest.approx(slope * moved / bytes_per_cycle + offset, rel=1e-9)


def test_a_csv_that_is_no_text_is_one_sentence(tmp_path):
    file = tmp_path / "bad.csv"
    file.write_bytes(b"d0,d1,d2,latency_us\n" + b"\xff\xfe,1,1,1\n" * 30)
    with pytest.raises(ConfigError, match=r"bad\.csv"):
        ElementwiseLatency.from_csv(file)
