import json

import pytest

from layerdag.errors import TraceError
from layerdag.traces import CollectiveType, NodeType
from layerdag.traces.pytorch.device import Timings, read_durations
from layerdag.traces.pytorch.host import import_host
from tests.unit.traces.host_json import ALL_REDUCE, MM, listed, node, plain, tensor, write_host

SEND = (
    "c10d::send(Tensor[] tensors, __torch__.torch.classes.c10d.ProcessGroup group, int dst, "
    "int tag) -> __torch__.torch.classes.c10d.Work"
)
OBJECT = plain("<Object>", "Object")


def groups(*rows: dict) -> dict:
    return node(3, "## process_group:init ##", "", (plain(json.dumps(rows), "String"),))


WORLD = {"pg_name": "0", "ranks": [], "group_size": 2}
STEP = [
    groups(WORLD),
    node(4, "aten::mm", MM, (tensor(1, (4, 8)), tensor(2, (8, 2))), (tensor(3, (4, 2)),)),
    node(6, "gloo:all_reduce", "", (tensor(3, (4, 2)),)),
    node(5, "c10d::allreduce_", ALL_REDUCE, (listed(tensor(3, (4, 2))), OBJECT)),
    node(7, "c10d::send", SEND, (listed(tensor(3, (4, 2))), OBJECT, plain(1), plain(7))),
    node(8, "gloo:send", "", (tensor(3, (4, 2)),)),
]
TIMES = Timings({504: (10_000, 2_600), 506: (13_000, 900_000), 505: (12_500, 40)})


def test_a_node_carries_what_simulators_and_models_need(tmp_path):
    result = import_host(write_host(tmp_path / "host.json", STEP), TIMES)
    trace = result.trace
    assert trace.names() == ["aten::mm", "c10d::all_reduce", "c10d::send"]
    assert trace.type_N.tolist() == [NodeType.COMP, NodeType.COMM_COLL, NodeType.COMM_SEND]
    assert trace.integers("num_ops")[0].tolist()[0] == 2 * 4 * 8 * 2
    assert trace.integers("tensor_size")[0].tolist()[0] == 4 * (32 + 16 + 8)
    assert trace.texts("dtype")[0] == ["float32"] * 3
    assert trace.texts("device")[0] == ["cpu"] * 3
    assert trace.integers("is_cpu_op", default=1)[0].tolist() == [0, 0, 0]
    assert trace.data_deps.of(1).tolist() == [0]


def test_communication_is_typed_with_size_group_and_peer(tmp_path):
    result = import_host(write_host(tmp_path / "host.json", STEP))
    trace = result.trace
    kind_N, has_kind_N = trace.integers("comm_type")
    assert (kind_N[1], has_kind_N.tolist()) == (CollectiveType.ALL_REDUCE, [False, True, False])
    assert trace.integers("comm_size")[0].tolist()[1:] == [32, 32]
    assert trace.texts("pg_name")[0] == ["", "0", "0"]
    assert trace.integers("comm_dst")[0].tolist()[2] == 1
    assert trace.integers("comm_tag")[0].tolist()[2] == 7
    assert dict(result.groups) == {"0": (0, 1)}
    assert result.guessed_groups == 0


def test_durations_are_exact_and_those_of_gloo_come_from_its_threads(tmp_path):
    result = import_host(write_host(tmp_path / "host.json", STEP), TIMES)
    nanoseconds_N, present_N = result.trace.integers("duration_ns")
    assert nanoseconds_N.tolist()[:2] == [2_600, 900_000]
    assert present_N.tolist() == [True, True, False]
    assert result.trace.duration_us_N.tolist() == [3, 900, 0]
    assert result.trace.start_us_N.tolist()[:2] == [0, 3]
    assert result.joined_fraction == pytest.approx(2 / 3)


def test_joining_nothing_is_an_error(tmp_path):
    other = Timings({1: (0, 1)}, "other.json")
    with pytest.raises(TraceError, match=r"none of its 3 operators occurs in other\.json"):
        import_host(write_host(tmp_path / "host.json", STEP), other)


def test_a_trace_without_work_is_an_error(tmp_path):
    with pytest.raises(TraceError, match=r"none of the 1 nodes is an operator"):
        import_host(write_host(tmp_path / "host.json", [node(3, "my scope")]))


def test_an_opaque_group_among_several_is_reported_as_guessed(tmp_path):
    pair = {"pg_name": "7", "ranks": [0, 1], "group_size": 2}
    nodes = [groups({**WORLD, "group_size": 4}, pair), *STEP[1:]]
    result = import_host(write_host(tmp_path / "host.json", nodes))
    assert dict(result.groups) == {"0": (0, 1, 2, 3), "1": (0, 1)}
    assert result.guessed_groups == 2


def test_functional_collectives_name_their_group(tmp_path):
    schema = "_c10d_functional::all_reduce(Tensor input, str reduce_op, Any group_name) -> Tensor"
    pair = {"pg_name": "tp", "ranks": [0, 1], "group_size": 2}
    inputs = (tensor(1), plain("sum", "String"), plain("tp", "String"))
    reduce = node(4, "_c10d_functional::all_reduce", schema, inputs, (tensor(2),))
    path = write_host(tmp_path / "host.json", [groups({**WORLD, "group_size": 4}, pair), reduce])
    assert import_host(path).trace.texts("pg_name")[0] == ["1"]


def test_a_table_of_durations_is_read_and_others_are_refused(tmp_path):
    path = tmp_path / "dur.json"
    path.write_text('{"cols": ["rf_id", "ts_us", "dur_us", "tid"], "rows": [[5, 1.5, 2.25, 9]]}')
    assert read_durations(path).of == {5: (1500, 2250)}
    path.write_text('{"rows": []}')
    with pytest.raises(TraceError, match="no table of durations"):
        read_durations(path)


@pytest.mark.slow
def test_every_collected_trace_imports_and_spmd_ranks_share_one_structure(shared_data):
    structures: dict[str, set[int]] = {}
    for path in sorted((shared_data / "collected").glob("*.et.json.gz")):
        timings = read_durations(path.with_name(path.name.replace(".et.", ".dur.")))
        result = import_host(path, timings)
        assert result.joined_fraction == 1
        trace = result.trace
        columns = (trace.data_deps.values, trace.data_deps.ptr_N1, trace.ctrl_deps.values)
        content = tuple(column.tobytes() for column in columns)
        run = path.name.rsplit("_r", 1)[0]
        structures.setdefault(run, set()).add(hash((*content, tuple(trace.names()))))
    parallel = [
        s for run, s in structures.items() if not run.startswith("ws1") and "_pp" not in run
    ]
    assert len(structures) == 104
    assert [len(seen) for seen in parallel] == [1] * 37
