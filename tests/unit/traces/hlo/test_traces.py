"""Cutting a program into nodes: nothing is lost, and dependencies are those of the program."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st
from laws import tried

import layerdag as ld
from layerdag.errors import ConfigError, UsageError
from layerdag.traces.hlo.parser import read_program
from layerdag.traces.hlo.program import Collective, CompiledProgram, Computation, Hardware
from layerdag.traces.hlo.traces import (
    DeviceSplit,
    Region,
    program_workload,
    regions,
    summarize_program,
)
from layerdag.traces.trace import NodeType
from layerdag.validation.checking import check_workload

DEVICE = Hardware(100.0, 10.0, {"f16": 400.0, "tf32": 200.0}, "toy")


def op(
    flops: int = 0, moved: int = 0, parents: tuple[int, ...] = (), **more: object
) -> Computation:
    values = {"element": "f32", "matrix": False, "name": "op"} | more
    return Computation(flops=flops, mem_bytes=moved, parents=parents, **values)


def reduce(*parents: int) -> Collective:
    return Collective("all_reduce", 64, (), (), parents)


def program(*items: Computation | Collective) -> CompiledProgram:
    return CompiledProgram("main", 2, items)


@pytest.mark.parametrize(
    ("operation", "seconds"),
    [
        (op(1000, 10), 10.0),  # 1000 / 100 operations per second, longer than 10 / 10 bytes
        (op(100, 500), 50.0),  # 500 / 10 bytes, longer than 100 / 100
        (op(1000, 10, element="f16"), 2.5),  # its own rate
        (op(1000, 10, matrix=True), 5.0),  # f32 products run at the rate of tf32
        (op(1000, 10, matrix=True, element="f64"), 10.0),  # others do not
        (op(0, 0), 0.0),
    ],
)
def test_an_operation_takes_the_longer_of_computing_and_moving(
    operation: Computation, seconds: float
) -> None:
    assert DEVICE.seconds(operation) == pytest.approx(seconds)


def test_without_a_rate_of_tf32_matrix_products_have_that_of_their_type() -> None:
    assert Hardware(100.0, 10.0).seconds(op(1000, 10, matrix=True)) == 10.0


def test_computation_between_collectives_is_joined_and_chained() -> None:
    found = regions(program(op(100, 1), op(300, 1), reduce(1), op(0, 5), reduce(0)), DEVICE)
    assert [region.operations for region in found] == [2, 1, 1, 1]
    assert [region.collective is not None for region in found] == [False, True, False, True]
    assert [region.parents for region in found] == [(), (0,), (1,), (2,)]
    assert found[0].seconds == pytest.approx(1 + 3)
    assert (found[0].flops, found[0].mem_bytes) == (400, 2)


def test_a_joined_node_has_the_element_type_of_its_longest_operation() -> None:
    (found,) = regions(program(op(100, 1), op(4000, 1, element="f16"), op(100, 1)), DEVICE)
    assert found.element == "f16"


def test_what_takes_no_time_is_no_node() -> None:
    assert regions(program(op(), op()), DEVICE) == []
    assert regions(program(op(), op()), DEVICE, DeviceSplit.INDIVIDUAL) == []
    first, second = regions(program(op(), reduce(0), op(), reduce(2)), DEVICE)
    assert (first.parents, second.parents) == ((), (0,))


def test_an_operation_without_time_hands_its_parents_on() -> None:
    # 0 and 1 compute, 2 reshapes both, 3 takes what 2 made.
    items = (op(1, 1), op(1, 1), op(0, 0, (0, 1)), op(1, 1, (2,)), reduce(2, 3))
    found = regions(program(*items), DEVICE, DeviceSplit.INDIVIDUAL)
    assert [region.parents for region in found] == [(), (), (0, 1), (0, 1, 2)]


# Whether an item is a collective, its operations and bytes, and how far before it its parents are.
ITEM = st.tuples(
    st.sampled_from([False, False, True]),
    st.sampled_from([0, 0, 8, 900]),
    st.sampled_from([0, 0, 5, 70]),
    st.sets(st.integers(1, 6), max_size=3),
)
ITEMS = st.lists(ITEM, min_size=1, max_size=14)


def drawn(items: list[tuple[bool, int, int, set[int]]]) -> CompiledProgram:
    made: list[Computation | Collective] = []
    for place, (is_collective, flops, moved, back) in enumerate(items):
        parents = tuple(sorted(place - steps for steps in back if steps <= place))
        made.append(reduce(*parents) if is_collective else op(flops, moved, parents))
    return program(*made)


def reachable(found: list[Region]) -> np.ndarray:
    """Return whether node i comes before node j."""
    before = np.zeros((len(found), len(found)), dtype=bool)
    for place, region in enumerate(found):
        for parent in region.parents:
            before[:, place] |= before[:, parent]
            before[parent, place] = True
    return before


@tried(60)
@given(ITEMS)
@pytest.mark.parametrize("split", list(DeviceSplit))
def test_nodes_hold_all_operations_bytes_seconds_and_collectives(
    split: DeviceSplit, items: list[tuple[bool, int, int, set[int]]]
) -> None:
    made = drawn(items)
    found = regions(made, DEVICE, split)
    computed = [item for item in made.items if isinstance(item, Computation)]
    assert sum(region.flops for region in found) == sum(item.flops for item in computed)
    assert sum(region.mem_bytes for region in found) == sum(item.mem_bytes for item in computed)
    assert math.isclose(
        sum(region.seconds for region in found), sum(map(DEVICE.seconds, computed)), abs_tol=1e-9
    )
    kept = [region.collective for region in found if region.collective is not None]
    assert kept == [item for item in made.items if isinstance(item, Collective)]
    assert all(parent < place for place, r in enumerate(found) for parent in r.parents)


@tried(60)
@given(ITEMS)
def test_single_operations_keep_the_order_that_the_program_demands(
    items: list[tuple[bool, int, int, set[int]]],
) -> None:
    """Whether one node must come before another is as in the program with all its operations."""
    made = drawn(items)
    found = regions(made, DEVICE, DeviceSplit.INDIVIDUAL)
    timed = [
        place
        for place, item in enumerate(made.items)
        if isinstance(item, Collective) or item.flops or item.mem_bytes
    ]
    whole = [
        Region("", 1, 0, 0, 0.0, "", None, item.parents) for item in made.items
    ]  # every operation a node of its own
    expected = reachable(whole)[np.ix_(timed, timed)]
    np.testing.assert_array_equal(reachable(found), expected)


SUMMARY_DEVICE = Hardware(1e9, 1e9, name="unit")
PROGRAM = CompiledProgram(
    "step",
    2,
    (
        Computation("dot_general", 4 * 10**9, 8, "f32", (), matrix=True),
        Computation("add", 5, 10**9, "f32", (0,)),
        Collective("all_reduce", 100, (), (), (1,)),
        Computation("dot_general", 2 * 10**9, 8, "f32", (2,), matrix=True),
        Collective("all_reduce", 28, (), (), (3,)),
    ),
    ("one note",),
)


def test_totals_are_the_sums_of_the_operators() -> None:
    found = summarize_program(PROGRAM, SUMMARY_DEVICE)
    assert found.flops == sum(row.flops for row in found.operators) == 6 * 10**9 + 5
    assert found.mem_bytes == sum(row.mem_bytes for row in found.operators) == 10**9 + 16
    assert found.operations == sum(row.count for row in found.operators) == 3
    # 4 s and 2 s of products, 1 s of moving a gigabyte.
    assert found.runtime_s == pytest.approx(7.0)


def test_operators_with_most_time_come_first_and_without_hardware_those_with_most_bytes() -> None:
    assert [row.name for row in summarize_program(PROGRAM, SUMMARY_DEVICE).operators] == [
        "dot_general",
        "add",
    ]
    assert [row.name for row in summarize_program(PROGRAM).operators] == ["add", "dot_general"]


def test_collectives_are_counted_with_what_a_device_gives() -> None:
    assert summarize_program(PROGRAM).collectives == {"all_reduce": {"count": 2, "bytes": 128}}


def test_regions_lie_between_collectives_and_have_all_the_time() -> None:
    found = summarize_program(PROGRAM, SUMMARY_DEVICE)
    assert [region.seconds for region in found.regions] == pytest.approx([5.0, 2.0])
    assert sum(region.operations for region in found.regions) == found.operations


def test_without_hardware_there_is_no_time_and_no_region() -> None:
    found = summarize_program(PROGRAM)
    assert (found.runtime_s, found.hardware, found.regions) == (None, None, ())
    assert all(row.runtime_s is None for row in found.operators)


def test_the_lines_name_devices_totals_communication_and_notes() -> None:
    lines = str(summarize_program(PROGRAM, SUMMARY_DEVICE)).splitlines()
    assert lines[0] == "step: 2 devices, 3 operations on each"
    assert lines[1].endswith("7,000,000.000 us on unit")
    assert lines[2] == "all_reduce: 2, 0.000 MB from each device"
    assert lines[-1] == "one note"


def test_an_empty_program_takes_no_time() -> None:
    found = summarize_program(CompiledProgram("empty", 1, ()), SUMMARY_DEVICE)
    assert (found.operations, found.flops, found.runtime_s) == (0, 0, 0)
    assert str(found).startswith("empty: 1 device, 0 operations on each")


def test_plain_data_has_the_seconds_of_regions() -> None:
    document = summarize_program(PROGRAM, SUMMARY_DEVICE).to_dict()
    assert [region["runtime_s"] for region in document["regions"]] == pytest.approx([5.0, 2.0])
    assert set(document["regions"][0]) == {
        "name",
        "operations",
        "flops",
        "mem_bytes",
        "runtime_s",
    }


A100 = Hardware.from_name("a100-80")


@pytest.fixture
def programs(repository: Path) -> Path:
    return repository / "data" / "examples" / "programs"


@pytest.mark.parametrize("split", DeviceSplit)
@pytest.mark.parametrize("file", ["mlp.mlir", "loop.hlo"])
def test_the_traces_keep_every_rule_and_run_to_their_end(
    programs: Path, file: str, split: DeviceSplit
) -> None:
    workload = program_workload(read_program(programs / file), A100, split=split)
    assert {finding.rule.id for finding in check_workload(workload)} <= {"time-at-start"}
    result = ld.simulate(workload, ld.Cluster.preset("small"))
    assert (result.finish_ns >= 0).all()


def test_computation_between_two_collectives_is_one_node_of_a_chain(programs: Path) -> None:
    found = regions(read_program(programs / "mlp.mlir"), A100)
    assert [(region.name, region.operations) for region in found] == [
        ("region 0", 5),
        ("all_reduce", 1),
        ("region 2", 3),
    ]
    assert [region.parents for region in found] == [(), (0,), (1,)]
    items = read_program(programs / "mlp.mlir").items
    total = sum(A100.seconds(item) for item in items if isinstance(item, Computation))
    assert sum(region.seconds for region in found) == pytest.approx(total)


def test_operations_keep_their_own_dependencies(programs: Path) -> None:
    found = regions(read_program(programs / "mlp.mlir"), A100, DeviceSplit.INDIVIDUAL)
    names = [region.name for region in found]
    update = found[names.index("multiply")]
    assert {names[parent] for parent in update.parents} == {"all_reduce", "broadcast_in_dim"}


def test_devices_of_different_groups_have_traces_of_their_own(programs: Path) -> None:
    workload = program_workload(read_program(programs / "mlp.mlir"), A100)
    assert workload.groups == {"1": (0, 1), "2": (2, 3)}
    assert len({id(trace) for trace in workload.traces}) == 2
    trace = workload.traces[2]
    (row,) = (trace.type_N == NodeType.COMM_COLL).nonzero()[0].tolist()
    assert trace.texts("pg_name")[0][row] == "2"
    assert trace.integers("comm_size")[0][row] == 4 * 256 * 128


def test_a_program_for_one_device_runs_on_any_number(tmp_path: Path) -> None:
    file = tmp_path / "one.mlir"
    file.write_text(
        "module @one {\nfunc.func @main(%x: tensor<9000xf32>) -> tensor<9000xf32> {\n"
        '%r = "stablehlo.all_reduce"(%x) <{replica_groups = dense<0> : tensor<1x1xi64>}> ({\n'
        "^bb0(%a: tensor<f32>, %b: tensor<f32>):\n%c = stablehlo.add %a, %b : tensor<f32>\n"
        "stablehlo.return %c : tensor<f32>\n}) : (tensor<9000xf32>) -> tensor<9000xf32>\n"
        "return %r : tensor<9000xf32>\n}\n}\n"
    )
    program = read_program(file)
    alone = program_workload(program, A100)
    assert [trace.num_nodes for trace in alone.traces] == [0]
    many = program_workload(program, A100, ranks=64)
    assert many.num_ranks == 64
    assert {trace.num_nodes for trace in many.traces} == {1}
    assert many.groups == {}


def test_another_number_of_devices_than_compiled_for_is_refused(programs: Path) -> None:
    with pytest.raises(UsageError, match="compiled for 4 devices, so that it cannot run on 8"):
        program_workload(read_program(programs / "mlp.mlir"), A100, ranks=8)


def test_the_summary_of_a_public_conversion_is_met(shared_data: Path) -> None:
    folder = shared_data / "hespas"
    (case,) = json.loads((folder / "cases.json").read_text())["chakra"]
    program = read_program(folder / "mlir" / "jax_example.mlir")
    workload = program_workload(program, Hardware(312e12, 1935e9), ranks=case["devices"])
    trace = workload.traces[0]
    assert workload.num_ranks == case["devices"]
    assert trace.num_nodes == case["nodes"]
    assert int(trace.duration_us_N.sum()) == case["sum_duration_us"]
    assert int(trace.integers("comm_size")[0].sum()) == case["comm_bytes"]["ALL_REDUCE"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", "is no JSON"),
        ("[]", "holds no JSON object"),
        ('{"peak_flops": 1e12}', "'memory_bandwidth' is missing"),
        ('{"peak_flops": "fast", "memory_bandwidth": 1}', "'peak_flops' is 'fast'"),
        ('{"peak_flops": 0, "memory_bandwidth": 1}', "must be a positive number"),
        ('{"peak_flop": 1, "memory_bandwidth": 1}', "Did you mean 'peak_flops'"),
        ('{"peak_flops": 1, "memory_bandwidth": 1, "per_datatype_flops": 3}', "must be an object"),
        (
            '{"peak_flops": 1, "memory_bandwidth": 1, "per_datatype_flops": {"f32": true}}',
            "'f32' is True",
        ),
    ],
)
def test_bad_hardware_is_one_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    file = tmp_path / "hardware.json"
    file.write_text(text)
    with pytest.raises(ConfigError, match=sentence):
        Hardware.from_name(str(file))


def test_unknown_hardware_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'a100-80'"):
        Hardware.from_name("a100-8")
