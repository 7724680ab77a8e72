"""Compute nodes on a systolic array: products by their shapes or costs, other nodes, time."""

import dataclasses

import numpy as np
import pytest
from simulator_traces import comp, workload

from layerdag.errors import ConfigError
from layerdag.simulator.compute import (
    BatchReduction,
    Clock,
    Dataflow,
    ElementwiseLatency,
    Gemm,
    RoofMap,
    SystolicArray,
    SystolicCompute,
)
from layerdag.simulator.compute._products import (
    Product,
    first_shape,
    is_matrix_operator,
    products_of,
    sizes_from_costs,
)
from layerdag.traces.chakra import NodeSpec

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


def product(name: str, inputs: str | None, outputs: str | None = None) -> Product | None:
    trace = workload([operator(name, inputs, outputs)]).traces[0]
    products, which = products_of(trace, np.arange(1))
    return products[which[0]] if which[0] >= 0 else None


@pytest.mark.parametrize(
    ("name", "inputs", "outputs", "expected"),
    [
        ("aten::mm", "[[5, 9], [9, 7]]", None, (Gemm(5, 7, 9), 1)),
        ("aten::mm.out", "[[5, 9], [9, 7], [5, 7]]", None, (Gemm(5, 7, 9), 1)),
        ("aten::addmm", "[[7], [5, 9], [9, 7], [], []]", None, (Gemm(5, 7, 9), 1)),
        ("aten::linear", "[[2, 5, 9], [7, 9], [7]]", None, (Gemm(10, 7, 9), 1)),
        ("aten::bmm", "[[3, 5, 9], [3, 9, 7]]", None, (Gemm(5, 7, 9), 3)),
        ("aten::matmul", "[[2, 3, 5, 9], [2, 3, 9, 7]]", None, (Gemm(5, 7, 9), 6)),
        # 2 images, 8 filters of 3 x 5 x 5, 10 x 10 outputs: im2col.
        (
            "aten::convolution", "[[2, 3, 12, 12], [8, 3, 5, 5]]", "[[2, 8, 10, 10]]",
            (Gemm(200, 8, 75), 1),
        ),
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


def test_matrix_operators_are_recognized_by_name():
    for name in ("aten::mm", "aten::addmm.out", "aten::convolution_backward", "aten::linear"):
        assert is_matrix_operator(name)
    assert is_matrix_operator("aten::_scaled_dot_product_flash_attention_for_cpu")
    for name in ("aten::mul", "aten::add", "c10d::all_reduce", "COMP", ""):
        assert not is_matrix_operator(name)


def test_first_shape_is_that_of_the_first_input():
    nodes = [operator("aten::add", "[[2, 3], [3]]"), operator("aten::add")]
    trace = workload([dataclasses.replace(node, id=i) for i, node in enumerate(nodes)]).traces[0]
    assert [first_shape(trace, row) for row in (0, 1)] == [(2, 3), ()]


@pytest.mark.parametrize(("m", "n"), [(64, 64), (64, 8), (100, 1), (1, 1)])
def test_costs_of_a_product_with_equal_m_and_k_give_back_its_sizes(m: int, n: int):
    assert sizes_from_costs(float(m * m * n), float(m * m + 2 * m * n)) == Gemm(m, n, m)


def test_costs_below_those_of_any_product_give_a_cube():
    assert sizes_from_costs(1000.0, 10.0) == Gemm(10, 10, 10)


def test_a_product_takes_the_cycles_of_the_array_over_its_clock():
    # 5 x 9 by 9 x 7 on 4 x 4 cells: 3 x 2 folds of 5 + 8 + 4 - 2 cycles; the last has index 89.
    node = operator("aten::mm", "[[5, 9], [9, 7]]")
    assert times([node], SystolicCompute(ARRAY)) == [89]
    assert times([node], SystolicCompute(ARRAY, Clock(0.5))) == [178]
    # Three of them one after the other; the same product by its costs (315 multiply-adds).
    batch = operator("aten::bmm", "[[3, 5, 9], [3, 9, 7]]")
    assert times([batch], SystolicCompute(ARRAY)) == [267]
    cost = operator("aten::mm", num_ops=2 * 8 * 8 * 3, tensor_size=4 * (64 + 48))
    assert times([cost], SystolicCompute(ARRAY)) == [ARRAY.run(Gemm(8, 3, 8)).cycles]


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


def test_a_product_of_unknown_type_has_elements_of_four_bytes():
    assert Product(Gemm(2, 2, 2)).item_bytes == 4
    # The filter has 63 words: 4 bytes each unless a type says otherwise.
    plain = operator("aten::mm", "[[5, 9], [9, 7]]")
    single = operator("aten::mm", "[[5, 9], [9, 7]]", dtype="float32")
    model = SystolicCompute(ARRAY, bytes_per_ns=0.5)
    assert times([plain], model) == times([single], model)
