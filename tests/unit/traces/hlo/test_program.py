"""FLOPs and bytes of operations, by hand."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st
from laws import tried

import layerdag as ld
from layerdag.errors import ConfigError, UsageError
from layerdag.hardware.devices import HARDWARE, Hardware
from layerdag.runtime.notes import Note, NoteKind
from layerdag.traces.hlo.parser import read_program
from layerdag.traces.hlo.program import (
    Collective,
    CompiledProgram,
    Computation,
    DeviceSplit,
    Region,
    program_workload,
    regions,
    summarize_program,
)
from layerdag.traces.trace import NodeType
from layerdag.validation.checking import check_workload

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
def test_an_operation_costs_what_its_shapes_say(name, written):
    line, flops, moved = OPERATIONS[name]
    head = "func.func @main(%a: tensor<4x6xf32>, %b: tensor<6x8xf32>) {\n"
    program = read_program(written(f"{head}{line}\nreturn\n}}"))
    found = summarize_program(program)
    assert (found.flops, found.mem_bytes) == (flops, moved)
    assert not program.notes


def test_an_operator_without_a_rule_is_counted_by_bytes_and_told(written):
    line = "%r = stablehlo.cholesky %a : tensor<4x4xf32>"
    program = read_program(written(f"func.func @main(%a: tensor<4x4xf32>) {{\n{line}\nreturn\n}}"))
    assert summarize_program(program).mem_bytes == 128
    assert [(note.word, note.count) for note in program.notes] == [("cholesky", 1)]


def test_totals_equal_those_of_the_public_estimator(shared_data):
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
def test_an_operation_takes_the_longer_of_computing_and_moving(flops, num_bytes, seconds):
    assert operation(flops, num_bytes, "f32").seconds(DEVICE) == pytest.approx(seconds)


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
def test_the_rate_follows_the_element_type(element, matrix, seconds):
    found = operation(4 * 10**12, 0, element, matrix=matrix).seconds(DEVICE)
    assert found == pytest.approx(seconds)


def test_without_a_rate_for_tf32_products_of_f32_take_that_of_f32():
    device = Hardware(1e12, 1e11, {"f32": 5e11})
    assert operation(10**12, 0, "f32", matrix=True).seconds(device) == pytest.approx(2.0)


@pytest.mark.parametrize("name", sorted(HARDWARE))
def test_a_preset_is_found_by_its_name_and_names_itself(name):
    device = Hardware.from_name(name)
    assert device is HARDWARE[name]
    assert device.name == name


def test_a_file_gives_the_same_device_as_its_numbers(tmp_path):
    file = tmp_path / "mine.json"
    rates = {"peak_flops": 1e12, "memory_bandwidth": 1e11, "per_datatype_flops": {"bf16": 4e12}}
    file.write_text(json.dumps(rates))
    assert Hardware.from_name(str(file)) == Hardware(1e12, 1e11, {"bf16": 4e12}, "mine")
    file.write_text(json.dumps({**rates, "name": "chip"}))
    assert Hardware.from_file(file).name == "chip"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", "write a JSON object with peak_flops"),
        ("[1]", "it must be an object, found .*; write a JSON object"),
        ('{"peak_flops": 1}', "'memory_bandwidth' is missing; write .* per second"),
        ('{"memory_bandwidth": 1}', "'peak_flops' is missing"),
        ('{"peak_flops": "1", "memory_bandwidth": 1}', "'peak_flops' must be a number, found '1'"),
        (
            '{"peak_flops": true, "memory_bandwidth": 1}',
            "'peak_flops' must be a number, found true",
        ),
        ('{"peak_flops": 0, "memory_bandwidth": 1}', r"peak_flops is 0\.0; it must be a positive"),
        ('{"peak_flops": 1, "memory_bandwidth": -1}', r"memory_bandwidth is -1\.0"),
        ('{"peak_flops": 1, "memory_bandwidth": Infinity}', "memory_bandwidth is inf"),
        (
            '{"peak_flops": 1, "memory_bandwidth": 1, "per_datatype_flops": [1]}',
            "'per_datatype_flops' must be an object",
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
def test_a_file_without_rates_is_one_sentence_that_names_it(tmp_path, text, sentence):
    file = tmp_path / "device.json"
    file.write_text(text)
    with pytest.raises(ConfigError, match=sentence) as caught:
        Hardware.from_file(file)
    assert str(caught.value).startswith(str(file))


def test_what_is_neither_preset_nor_file_is_told_with_the_nearest_preset():
    with pytest.raises(ConfigError, match=r"no hardware 'a100-8'\. Did you mean 'a100-80'"):
        Hardware.from_name("a100-8")


TOY = Hardware(100.0, 10.0, {"f16": 400.0, "tf32": 200.0}, "toy")


def op(
    flops: int = 0, moved: int = 0, parents: tuple[int, ...] = (), **more: object
) -> Computation:
    values = {"element": "f32", "matrix": False, "name": "op"} | more
    return Computation(flops=flops, mem_bytes=moved, parents=parents, **values)


def reduce(*parents: int) -> Collective:
    return Collective("all_reduce", 64, (), (), parents)


def program(*items: Computation | Collective) -> CompiledProgram:
    return CompiledProgram("main", 2, items)


def test_computation_between_collectives_is_joined_and_chained():
    found = regions(program(op(100, 1), op(300, 1), reduce(1), op(0, 5), reduce(0)), TOY)
    assert [region.operations for region in found] == [2, 1, 1, 1]
    assert [region.collective is not None for region in found] == [False, True, False, True]
    assert [region.parents for region in found] == [(), (0,), (1,), (2,)]
    assert found[0].seconds == pytest.approx(1 + 3)
    assert (found[0].flops, found[0].mem_bytes) == (400, 2)


def test_a_joined_node_has_the_element_type_of_its_longest_operation():
    (found,) = regions(program(op(100, 1), op(4000, 1, element="f16"), op(100, 1)), TOY)
    assert found.element == "f16"


def test_what_takes_no_time_is_no_node():
    assert regions(program(op(), op()), TOY) == []
    assert regions(program(op(), op()), TOY, DeviceSplit.INDIVIDUAL) == []
    first, second = regions(program(op(), reduce(0), op(), reduce(2)), TOY)
    assert (first.parents, second.parents) == ((), (0,))


def test_an_operation_without_time_hands_its_parents_on():
    # 0 and 1 compute, 2 reshapes both, 3 takes what 2 made.
    items = (op(1, 1), op(1, 1), op(0, 0, (0, 1)), op(1, 1, (2,)), reduce(2, 3))
    found = regions(program(*items), TOY, DeviceSplit.INDIVIDUAL)
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
def test_nodes_hold_all_operations_bytes_seconds_and_collectives(split, items):
    made = drawn(items)
    found = regions(made, TOY, split)
    computed = [item for item in made.items if isinstance(item, Computation)]
    assert sum(region.flops for region in found) == sum(item.flops for item in computed)
    assert sum(region.mem_bytes for region in found) == sum(item.mem_bytes for item in computed)
    assert math.isclose(
        sum(region.seconds for region in found),
        sum(each.seconds(TOY) for each in computed),
        abs_tol=1e-9,
    )
    kept = [region.collective for region in found if region.collective is not None]
    assert kept == [item for item in made.items if isinstance(item, Collective)]
    assert all(parent < place for place, r in enumerate(found) for parent in r.parents)


@tried(60)
@given(ITEMS)
def test_single_operations_keep_the_order_that_the_program_demands(items):
    """Whether one node must come before another is as in the program with all its operations."""
    made = drawn(items)
    found = regions(made, TOY, DeviceSplit.INDIVIDUAL)
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
NOTE = Note(NoteKind.OPERATOR, "sorted_by_hand", "step", "counted by its bytes alone")
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
    (NOTE,),
)


def test_totals_are_the_sums_of_the_operators():
    found = summarize_program(PROGRAM, SUMMARY_DEVICE)
    assert found.flops == sum(row.flops for row in found.operators) == 6 * 10**9 + 5
    assert found.mem_bytes == sum(row.mem_bytes for row in found.operators) == 10**9 + 16
    assert found.operations == sum(row.count for row in found.operators) == 3
    # 4 s and 2 s of products, 1 s of moving a gigabyte.
    assert found.runtime_s == pytest.approx(7.0)


def test_operators_with_most_time_come_first_and_without_hardware_those_with_most_bytes():
    assert [row.name for row in summarize_program(PROGRAM, SUMMARY_DEVICE).operators] == [
        "dot_general",
        "add",
    ]
    assert [row.name for row in summarize_program(PROGRAM).operators] == ["add", "dot_general"]


def test_collectives_are_counted_with_what_a_device_gives():
    assert summarize_program(PROGRAM).collectives == {"all_reduce": {"count": 2, "bytes": 128}}


def test_regions_lie_between_collectives_and_have_all_the_time():
    found = summarize_program(PROGRAM, SUMMARY_DEVICE)
    assert [region.seconds for region in found.regions] == pytest.approx([5.0, 2.0])
    assert sum(region.operations for region in found.regions) == found.operations


def test_without_hardware_there_is_no_time_and_no_region():
    found = summarize_program(PROGRAM)
    assert (found.runtime_s, found.hardware, found.regions) == (None, None, ())
    assert all(row.runtime_s is None for row in found.operators)


def test_the_lines_name_devices_totals_and_communication():
    lines = str(summarize_program(PROGRAM, SUMMARY_DEVICE)).splitlines()
    assert lines[0] == "step: 2 devices, 3 operations on each"
    assert lines[1].endswith("7,000,000.000 us on unit")
    assert lines[2] == "all_reduce: 2, 0.000 MB from each device"


def test_an_empty_program_takes_no_time():
    found = summarize_program(CompiledProgram("empty", 1, ()), SUMMARY_DEVICE)
    assert (found.operations, found.flops, found.runtime_s) == (0, 0, 0)
    assert str(found).startswith("empty: 1 device, 0 operations on each")


def test_plain_data_has_the_seconds_of_regions():
    document = summarize_program(PROGRAM, SUMMARY_DEVICE).to_dict()
    assert document["notes"] == [NOTE.to_json()]
    assert [region["runtime_s"] for region in document["regions"]] == pytest.approx([5.0, 2.0])
    assert set(document["regions"][0]) == {"name", "operations", "flops", "mem_bytes", "runtime_s"}


A100 = Hardware.from_name("a100-80")


@pytest.fixture
def programs(repository: Path) -> Path:
    return repository / "data" / "examples" / "programs"


@pytest.mark.parametrize("split", DeviceSplit)
@pytest.mark.parametrize("file", ["mlp.mlir", "loop.hlo"])
def test_the_traces_keep_every_rule_and_run_to_their_end(programs, file, split):
    workload = program_workload(read_program(programs / file), A100, split=split)
    assert {finding.rule.id for finding in check_workload(workload)} <= {"time-at-start"}
    result = ld.simulate(workload, ld.Cluster("small"))
    assert (result.finish_ns >= 0).all()


def test_operations_keep_their_own_dependencies(programs):
    found = regions(read_program(programs / "mlp.mlir"), A100, DeviceSplit.INDIVIDUAL)
    names = [region.name for region in found]
    update = found[names.index("multiply")]
    assert {names[parent] for parent in update.parents} == {"all_reduce", "broadcast_in_dim"}


def test_devices_of_different_groups_have_traces_of_their_own(programs):
    workload = program_workload(read_program(programs / "mlp.mlir"), A100)
    assert workload.groups == {"1": (0, 1), "2": (2, 3)}
    assert len({id(trace) for trace in workload.traces}) == 2
    trace = workload.traces[2]
    (row,) = (trace.type_N == NodeType.COMM_COLL).nonzero()[0].tolist()
    assert trace.texts("pg_name")[0][row] == "2"
    assert trace.integers("comm_size")[0][row] == 4 * 256 * 128


def test_a_program_for_one_device_runs_on_any_number(tmp_path):
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


def test_another_number_of_devices_than_compiled_for_is_refused(programs):
    with pytest.raises(UsageError, match="compiled for 4 devices, so that it cannot run on 8"):
        program_workload(read_program(programs / "mlp.mlir"), A100, ranks=8)


def test_the_summary_of_a_public_conversion_is_met(shared_data):
    folder = shared_data / "hespas"
    (case,) = json.loads((folder / "cases.json").read_text())["chakra"]
    program = read_program(folder / "mlir" / "jax_example.mlir")
    workload = program_workload(program, Hardware(312e12, 1935e9), ranks=case["devices"])
    trace = workload.traces[0]
    assert workload.num_ranks == case["devices"]
    assert trace.num_nodes == case["nodes"]
    assert int(trace.duration_us_N.sum()) == case["sum_duration_us"]
    assert int(trace.integers("comm_size")[0].sum()) == case["comm_bytes"]["ALL_REDUCE"]
