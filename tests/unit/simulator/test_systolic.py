"""Compute nodes on a systolic array: products by their shapes or costs, other nodes, time."""

import csv
import dataclasses
import json

import numpy as np
import pytest
from simulator_traces import comp, ring, system, workload

from layerdag.errors import ConfigError, SimulationError
from layerdag.hardware.devices import DEVICES, Device
from layerdag.hardware.operators import find_operator
from layerdag.simulator.cluster import Cluster
from layerdag.simulator.compute import PredictedCompute, RooflineCompute
from layerdag.simulator.learned import ElementwiseLatency, three_dimensions
from layerdag.simulator.run import simulate
from layerdag.simulator.systolic import (
    TPU_V4_BATCH,
    TPU_V4_RANGES,
    TPU_V4_REGIONS,
    TPU_V4_ROOF,
    TPU_V6E_BATCH,
    TPU_V6E_RANGES,
    TPU_V6E_ROOF,
    BatchReduction,
    Clock,
    Dataflow,
    Gemm,
    Product,
    RoofMap,
    SystolicArray,
    SystolicCompute,
    first_shape,
    fit_roof,
    products_of,
    sizes_from_costs,
)
from layerdag.traces.builder import NodeSpec

ARRAY = SystolicArray(4, 4, Dataflow.WEIGHT_STATIONARY)


def operator(
    name: str, inputs: str | None = None, outputs: str | None = None, **attributes: object
) -> NodeSpec:
    node = comp(0, 9, **attributes)
    io = (None, inputs, None, None, outputs, None)
    return dataclasses.replace(node, name=name, io=io)


def times(nodes: list[NodeSpec], model: SystolicCompute) -> list[int]:
    nodes = [dataclasses.replace(node, id=i) for i, node in enumerate(nodes)]
    trace = workload(nodes).traces[0]
    on_cpu = trace.integers("is_cpu_op")[0] > 0
    return model.durations_ns(trace, np.arange(len(nodes)), on_cpu).tolist()


def product(name: str, inputs: object, outputs: object = None, num_ops: int = 0) -> Product | None:
    """Return the product of a node with these shapes, given as text or as tuples."""
    texts = [s if s is None or isinstance(s, str) else json.dumps(s) for s in (inputs, outputs)]
    costs = {"num_ops": num_ops} if num_ops else {}
    trace = workload([operator(name, *texts, **costs)]).traces[0]
    products, which = products_of(trace, np.arange(1))
    return products[which[0]] if which[0] >= 0 else None


@pytest.mark.parametrize(
    ("name", "inputs", "outputs", "expected"),
    [
        ("aten::mm.out", "[[5, 9], [9, 7], [5, 7]]", None, (Gemm(5, 7, 9), 1)),
        ("aten::addmm", "[[7], [5, 9], [9, 7], [], []]", None, (Gemm(5, 7, 9), 1)),
        ("aten::linear", "[[2, 5, 9], [7, 9], [7]]", None, (Gemm(10, 7, 9), 1)),
        ("aten::matmul", "[[2, 3, 5, 9], [2, 3, 9, 7]]", None, (Gemm(5, 7, 9), 6)),
    ],
)  # fmt: skip
def test_sizes_of_a_product_follow_from_the_shapes_of_its_node(name, inputs, outputs, expected):
    found = product(name, inputs, outputs)
    assert found is not None
    assert (found.gemm, found.batch) == expected


@pytest.mark.parametrize(
    ("name", "inputs", "outputs"),
    [
        ("aten::add", "[[5, 9], [5, 9]]", None),  # no product
        ("aten::mm", "[[5, 9], [8, 7]]", None),  # inner sizes differ
        ("aten::mm", "[[5, 0], [0, 7]]", None),  # empty
        ("aten::mm", "[[5, 9]]", None),
        ("aten::mm", "[[5, 9], [9", None),  # no JSON
        ("aten::mm", "[[[5], 9], [9, 7]]", None),
        ("aten::mm", "[[-5, 9], [9, 7]]", None),
        ("aten::mm", "[" * 50_000, None),
        ("aten::convolution", "[[2, 3, 12, 12], [8, 3, 5, 5]]", None),
        ("aten::convolution", "[[2, 3, 12, 12], [8, 3, 5, 5]]", "[[2, 9, 10, 10]]"),
        ("aten::mm", None, None),
    ],
)
def test_a_node_without_sound_shapes_and_costs_is_no_product(name, inputs, outputs):
    assert product(name, inputs, outputs) is None


def test_first_shape_is_that_of_the_first_input():
    nodes = [operator("aten::add", "[[2, 3], [3]]"), operator("aten::add")]
    trace = workload([dataclasses.replace(node, id=i) for i, node in enumerate(nodes)]).traces[0]
    assert [first_shape(trace, row) for row in (0, 1)] == [(2, 3), ()]


@pytest.mark.parametrize(("m", "n"), [(64, 64), (64, 8), (100, 1), (1, 1)])
def test_costs_of_a_product_with_equal_m_and_k_give_back_its_sizes(m, n):
    assert sizes_from_costs(float(m * m * n), float(m * m + 2 * m * n)) == Gemm(m, n, m)


def test_costs_of_no_product_give_a_cube_or_a_wide_product():
    assert sizes_from_costs(1000.0, 10.0) == Gemm(10, 10, 10)
    assert sizes_from_costs(512.0, 192.0) == Gemm(8, 8, 8)
    assert sizes_from_costs(512.0, 320.0) == Gemm(16, 2, 16)


def test_a_product_takes_the_cycles_of_the_array_over_its_clock():
    # 5 x 9 by 9 x 7 on 4 x 4 cells: 3 x 2 folds of 5 + 8 + 4 - 2 cycles; the last has index 89.
    node = operator("aten::mm", "[[5, 9], [9, 7]]")
    assert times([node], SystolicCompute(ARRAY)) == [89]
    assert times([node], SystolicCompute(ARRAY, Clock(0.5))) == [178]
    # Three of them one after the other; the same product by its costs (315 multiply-adds).
    batch = operator("aten::bmm", "[[3, 5, 9], [3, 9, 7]]")
    assert times([batch], SystolicCompute(ARRAY)) == [267]
    cost = operator("aten::mm", num_ops=2 * 8 * 8 * 3, tensor_size=4 * (64 + 48))
    assert times([cost], SystolicCompute(ARRAY)) == [ARRAY.cycles(Gemm(8, 3, 8))]


def test_memory_bounds_a_product_by_its_largest_operand_and_number_format():
    node = operator("aten::mm", "[[5, 9], [9, 7]]")
    # The filter has 63 words of 4 bytes at .5 bytes per ns: 504 ns; of 2 bytes 252 ns.
    assert times([node], SystolicCompute(ARRAY, bytes_per_ns=0.5)) == [504]
    half = operator("aten::mm", "[[5, 9], [9, 7]]", dtype="bfloat16")
    assert times([half], SystolicCompute(ARRAY, bytes_per_ns=0.5)) == [252]
    assert times([half], SystolicCompute(ARRAY, bytes_per_ns=100.0)) == [89]
    # At 2 GHz the array takes 44.5 ns, and the memory as long as before.
    assert times([half], SystolicCompute(ARRAY, Clock(2.0), bytes_per_ns=0.5)) == [252]


def test_a_published_map_has_a_memory_rate_of_its_own_and_reduces_batches():
    roof, half = RoofMap(0.001, 1.0, 1e9), BatchReduction(1.0, 1.0)  # u = 1/2 for one tile
    model = SystolicCompute(ARRAY, roof, batch=half, bytes_per_ns=1e-6)
    node = operator("aten::bmm", "[[4, 5, 9], [4, 9, 7]]")
    assert times([node], model) == [int(1.089 * 4 * (0.5 + 0.125) * 1000)]


def test_other_nodes_take_bandwidth_or_their_measured_time():
    nodes = [operator("aten::add", num_ops=100, tensor_size=1200, duration_ns=77)]
    assert times(nodes, SystolicCompute(ARRAY)) == [77]
    assert times(nodes, SystolicCompute(ARRAY, bytes_per_ns=3.0)) == [400]
    on_cpu = operator("aten::mm", "[[5, 9], [9, 7]]", is_cpu_op=True, duration_ns=55)
    assert times([on_cpu, *nodes], SystolicCompute(ARRAY, bytes_per_ns=3.0)) == [55, 400]


def test_other_nodes_take_the_latency_of_their_shape(rng):
    shapes = 2.0 ** rng.integers(0, 8, (300, 3))
    latency = ElementwiseLatency.fit(shapes, 1.0 + 1e-3 * shapes.prod(axis=1))
    expected = latency.microseconds(np.array([[2.0, 64, 64], [1, 1, 4096]])) * 1000
    nodes = [operator("aten::add", "[[2, 64, 64], []]"), operator("aten::add", num_ops=4096)]
    assert (
        times(nodes, SystolicCompute(ARRAY, elementwise=latency)) == expected.astype(int).tolist()
    )


def test_a_trace_without_products_and_durations_is_not_timed():
    bare = workload([dataclasses.replace(operator("aten::add"), duration_us=0)]).traces[0]
    rows = np.arange(1)
    assert not SystolicCompute(ARRAY).is_timed(bare, rows)
    assert SystolicCompute(ARRAY, bytes_per_ns=1.0).is_timed(bare, rows)
    product = dataclasses.replace(operator("aten::mm", "[[5, 9], [9, 7]]"), duration_us=0)
    assert SystolicCompute(ARRAY).is_timed(workload([product]).traces[0], rows)


def test_clock_and_bandwidth_are_positive():
    with pytest.raises(ConfigError, match=r"the clock is 0\.0 GHz; it must be positive"):
        Clock(0.0)
    with pytest.raises(ConfigError, match="the bandwidth is -1"):
        SystolicCompute(ARRAY, bytes_per_ns=-1.0)


def test_the_first_of_several_products_keeps_its_own_time():
    small = operator("aten::mm", "[[4, 4], [4, 4]]")
    large = operator("aten::mm", "[[64, 64], [64, 64]]")
    other = operator("aten::add", num_ops=1, tensor_size=1, duration_ns=7)
    model = SystolicCompute(ARRAY)
    alone = [times([node], model)[0] for node in (small, large, other)]
    assert len(set(alone)) == 3
    assert times([small, large, other, small], model) == [*alone, alone[0]]


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


def test_fit_recovers_the_map_that_made_the_samples(rng):
    truth = RoofMap(3e-5, 1.2, 30.0)
    array = SystolicArray(128, 128, Dataflow.WEIGHT_STATIONARY)
    gemms = [Gemm(*sizes) for sizes in rng.integers(64, 4096, (200, 3)).tolist()]
    cycles = [array.cycles(gemm) for gemm in gemms]
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
    path.write_text(path.read_text().replace("latency_us", "kernel_us"))
    with pytest.raises(ConfigError, match="among them 'latency_us'"):
        ElementwiseLatency.from_csv(path)
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


def test_a_csv_that_is_no_text_is_one_sentence(tmp_path):
    file = tmp_path / "bad.csv"
    file.write_bytes(b"d0,d1,d2,latency_us\n" + b"\xff\xfe,1,1,1\n" * 30)
    with pytest.raises(ConfigError, match=r"bad\.csv"):
        ElementwiseLatency.from_csv(file)


MANY = 10**9
"""Cycles beyond any memory time of the products below."""

# (slope in us per cycle, offset in us, bytes per cycle) by region, (K > 1 block, N >= 16, M >= 16).
REGIONS = {
    (False, False, False): (5.652e-6, 1.419, 5.261),
    (False, False, True): (1.623e-5, 1.579, 20.38),
    (False, True, False): (7.745e-6, 1.599, 9.399),
    (False, True, True): (1.653e-4, 1.468, 305.7),
    (True, False, False): (3.533e-5, 1.470, 24.73),
    (True, False, True): (1.270e-4, 1.646, 116.2),
    (True, True, False): (8.638e-5, 1.447, 78.92),
    (True, True, True): (1.241e-4, 4.277, 141.0),
}


def roof_us(line: tuple[float, float, float], cycles: int, gemm: Gemm) -> float:
    slope, offset, rate = line
    moved = 2 * (gemm.m * gemm.k + gemm.k * gemm.n + gemm.m * gemm.n)
    return slope * max(cycles, moved / rate) + offset


@pytest.mark.parametrize(("region", "line"), REGIONS.items())
@pytest.mark.parametrize("cycles", [1, MANY])
def test_every_region_has_its_published_line(region, line, cycles):
    deep, wide, tall = region
    for small, large in ((1, 2048), (1920, 15 * 128 + 1)):  # 15 blocks, and the 16th begun
        gemm = Gemm(large if tall else small, large if wide else small, 129 if deep else 128)
        expected = roof_us(line, cycles, gemm)
        assert TPU_V4_REGIONS.microseconds(cycles, gemm) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("roof", "line"),
    [(TPU_V4_ROOF, (3.408e-5, 1.471, 29.47)), (TPU_V6E_ROOF, (3.048e-5, 0.879, 39.07))],
)
@pytest.mark.parametrize("cycles", [1, 5000, MANY])
def test_a_roof_is_bounded_by_cycles_or_bytes(roof, line, cycles):
    gemm = Gemm(96, 640, 200)
    assert roof.microseconds(cycles, gemm) == pytest.approx(roof_us(line, cycles, gemm), rel=1e-12)


@pytest.mark.parametrize(
    ("lines", "published"),
    [
        (TPU_V4_RANGES, [(0.002762, -0.062665), (0.000388, 2.05942), (0.000202, 29.7217)]),
        (TPU_V6E_RANGES, [(0.001389, 0.6048), (0.000068, 1.5468), (0.00004, 4.3847)]),
    ],
)
def test_the_largest_size_chooses_the_range(lines, published):
    for size, (slope, offset) in zip(
        (128, 129, 1024, 1025), (published[i] for i in (0, 1, 1, 2)), strict=True
    ):
        for gemm in (Gemm(size, 1, 1), Gemm(1, size, 1), Gemm(1, 1, size)):
            assert lines.microseconds(1000, gemm) == pytest.approx(slope * 1000 + offset)


@pytest.mark.parametrize(
    ("batches", "exponent", "half"), [(TPU_V4_BATCH, 0.805, 21.0), (TPU_V6E_BATCH, 0.7769, 23.2)]
)
def test_a_batch_is_reduced_by_the_tiles_of_one_product(batches, exponent, half):
    tiles = (3 * 2) ** exponent  # 300 x 200: 3 x 2 tiles of 128
    separate = tiles / (tiles + half)
    expected = 5.0 * 8 * (separate + (1 - separate) / 8)
    assert batches.microseconds(8, 5.0, Gemm(300, 200, 77)) == pytest.approx(expected)
    assert batches.microseconds(1, 5.0, Gemm(300, 200, 77)) == pytest.approx(5.0)


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


@pytest.mark.parametrize("name", [*FACTORS, *CONVOLUTIONS, *WITHOUT_SIZES])
def test_an_operator_is_known_with_and_without_its_namespace(name):
    row = find_operator(name)
    assert row is not None
    assert row.systolic is not None
    assert row is find_operator(f"aten::{name}") is find_operator(f"aten::{name}.out")
    assert find_operator(f"x{name}") is None


@pytest.mark.parametrize("name", FACTORS)
def test_sizes_are_those_of_the_two_factors(name):
    batch = 4 if "bmm" in name else 1
    assert product(f"aten::{name}", FACTORS[name]) == Product(Gemm(2, 5, 3), batch, 4)


@pytest.mark.parametrize("name", FACTORS)
def test_factors_that_do_not_fit_leave_the_costs(name):
    wrong = [*FACTORS[name][:-1], (7, 7)]
    assert product(f"aten::{name}", wrong) is None
    assert product(f"aten::{name}", FACTORS[name][:-1]) is None
    found = product(f"aten::{name}", wrong, num_ops=2 * 8**3)
    assert found == Product(Gemm(8, 8, 8), 1, 4)


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_a_convolution_is_lowered_to_pixels_filters_and_window(name):
    found = product(f"aten::{name}", [(2, 3, 9, 9), (16, 3, 5, 5)], [(2, 16, 5, 5)])
    assert found == Product(Gemm(2 * 25, 16, 3 * 25), 1, 4)


@pytest.mark.parametrize("name", WITHOUT_SIZES)
def test_other_matrix_operators_have_sizes_from_their_costs(name):
    assert product(f"aten::{name}", PLAIN) is None
    assert product(f"aten::{name}", PLAIN, num_ops=2 * 8**3) == Product(Gemm(8, 8, 8), 1, 4)


def test_a_product_of_one_number_is_a_product():
    assert product("mm", [(1, 1), (1, 1)]) == Product(Gemm(1, 1, 1), 1, 4)
    assert product("mm", [(0, 1), (1, 1)]) is None


@pytest.mark.parametrize(
    ("dataflow", "cycles"),
    [
        # C = A (5 x 9) times B (9 x 7) on 2 x 3 cells. Output stationary: 5 on rows, 7 on columns,
        # 3 x 3 folds of 9 + 2 + 3 - 2 cycles.
        (Dataflow.OUTPUT_STATIONARY, 9 * 12 - 1),
        # Weights (9 on rows, 7 on columns): 5 x 3 folds of 5 + 4 + 3 - 2.
        (Dataflow.WEIGHT_STATIONARY, 15 * 10 - 1),
        # Inputs (9 on rows, 5 on columns): 5 x 2 folds of 7 + 4 + 3 - 2.
        (Dataflow.INPUT_STATIONARY, 10 * 12 - 1),
    ],
)
def test_cycles_by_hand(dataflow, cycles):
    assert SystolicArray(2, 3, dataflow).cycles(Gemm(5, 7, 9)) == cycles


def test_partly_filled_folds_cost_as_much_as_full_ones():
    array = SystolicArray(4, 4, Dataflow.WEIGHT_STATIONARY)
    assert array.cycles(Gemm(10, 5, 5)) == array.cycles(Gemm(10, 8, 8))


def test_empty_products_and_arrays_are_refused():
    with pytest.raises(ConfigError, match="empty"):
        Gemm(0, 1, 1)
    with pytest.raises(ConfigError, match="cannot compute"):
        SystolicArray(0, 1, Dataflow.INPUT_STATIONARY)
    with pytest.raises(ConfigError, match="0 cells"):
        SystolicArray(1, 0, Dataflow.INPUT_STATIONARY)


@pytest.mark.slow
def test_cycles_equal_those_of_scale_sim(shared_data):
    cases = json.loads((shared_data / "scalesim" / "cases.json").read_text())["cases"]
    assert len(cases) > 50
    for case in cases:
        rows, columns = case["arch"]["rows"], case["arch"]["cols"]
        array = SystolicArray(rows, columns, Dataflow(case["dataflow"]))
        cycles = array.cycles(Gemm(*case["gemm_mnk"]))
        expected = case["expect"]
        assert cycles + expected["stall_cycles"] == expected["total_cycles"], case["id"]
