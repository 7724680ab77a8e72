"""Regions of a program and the traces of its devices."""

import json
from pathlib import Path

import pytest

import layerdag as ld
from layerdag.errors import ConfigError, UsageError
from layerdag.evaluation.rules import check_workload
from layerdag.traces import NodeType
from layerdag.workloads.hlo import (
    Computation,
    Hardware,
    Split,
    program_workload,
    read_program,
    regions,
)

A100 = Hardware.of("a100-80")


@pytest.fixture
def programs(repository: Path) -> Path:
    return repository / "data" / "examples" / "programs"


@pytest.mark.parametrize("split", Split)
@pytest.mark.parametrize("file", ["mlp.mlir", "loop.hlo"])
def test_the_traces_keep_every_rule_and_run_to_their_end(
    programs: Path, file: str, split: Split
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
    found = regions(read_program(programs / "mlp.mlir"), A100, Split.INDIVIDUAL)
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
        Hardware.of(str(file))


def test_unknown_hardware_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'a100-80'"):
        Hardware.of("a100-8")
