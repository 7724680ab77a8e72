import json
from itertools import pairwise

import pytest
from damaged_json import changed
from fidelity import read_durations
from host_json import (
    ALL_REDUCE,
    COPY_,
    EMPTY,
    LINEAR,
    MM,
    VIEW,
    listed,
    node,
    plain,
    tensor,
    write_host,
)
from hypothesis import example, given, strategies as st
from laws import tried
from profile_json import event, kernel, launch, write_profile

from layerdag.errors import TraceError, UsageError
from layerdag.hardware.collectives import CollectiveType
from layerdag.runtime.notes import NoteKind
from layerdag.traces.builder import attribute_at
from layerdag.traces.chakra.files import encode_trace
from layerdag.traces.pytorch.importer import WINDOW, align, import_host, import_pytorch
from layerdag.traces.pytorch.kineto import Timings
from layerdag.traces.trace import NodeType

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
    sizes = {axis: int(trace.integers(axis)[0][0]) for axis in ("batch", "m", "n", "k")}
    assert sizes == {"batch": 1, "m": 4, "n": 2, "k": 8}
    assert trace.integers("host_calls")[0].tolist() == [5, 2, 1]  # ids 4, 5 and 7 of entries 1 to 8
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


def test_what_is_extra_on_one_side_is_skipped():
    assert align(["a", "b", "c", "d"], ["x", "a", "b", "y", "c", "d"])[-1] == (3, 5)
    assert align(["z", "z", "a", "b", "c"], ["a", "b", "c"]) == [(2, 0), (3, 1), (4, 2)]


def test_unrelated_sequences_do_not_pair_and_end():
    assert align(["a"] * 500, ["b"] * 500) == []


def test_a_gap_larger_than_the_window_loses_only_a_stretch():
    left = [str(n) for n in range(1000)]
    right = left[:300] + ["x"] * WINDOW * 3 + left[300 + WINDOW * 3 :]
    pairs = align(left, right)
    assert len(pairs) > 700
    assert all(left[i] == right[j] for i, j in pairs)


@tried(60)
@given(st.lists(st.sampled_from("abcd"), max_size=40), st.lists(st.sampled_from("abcd")))
def test_pairs_have_equal_names_and_ascend_on_both_sides(left, right):
    pairs = align(left, right)
    assert all(left[i] == right[j] for i, j in pairs)
    assert all(a < c and b < d for (a, b), (c, d) in pairwise(pairs))


@tried(30)
@given(st.sets(st.integers(0, 9)), st.booleans())
def test_isolated_extra_operators_cost_no_other_pair(extra, on_the_left):
    """Names are unique, so that only one pairing is right; runs of four names lie between."""
    names = [f"op{n}" for n in range(40)]
    more = list(names)
    for at in sorted(extra, reverse=True):
        more.insert(4 * at, f"extra{at}")
    left, right = (more, names) if on_the_left else (names, more)
    pairs = align(left, right)
    assert [(left[i], right[j]) for i, j in pairs] == [(name, name) for name in names]


HOST = [
    node(3, "aten::mm", MM, (tensor(1), tensor(2)), (tensor(10),)),
    node(4, "aten::mm", MM, (tensor(10), tensor(2)), (tensor(11),)),
]


def profile(*handles: int) -> list[dict]:
    """Two products, whose operators carry the given RecordFunction handles."""
    told = [{"Record function id": handle} if handle else {} for handle in handles]
    return [
        event("cpu_op", "aten::mm", 0, 8, **told[0]),
        launch(1, 2),
        kernel(1, 5, 20),
        event("cpu_op", "aten::mm", 10, 8, **told[1]),
        launch(2, 12),
        kernel(2, 26, 20),
    ]


@pytest.mark.parametrize("handles", [(503, 504), (0, 0)])
def test_host_and_device_are_joined_by_handle_or_by_order(tmp_path, handles):
    host = write_host(tmp_path / "host.json", HOST)
    device = write_profile(tmp_path / "device.json", profile(*handles))
    result = import_pytorch(host, device)
    assert result.trace.names() == ["cudaLaunchKernel", "aten::mm"] * 2
    assert result.joined_fraction == 1
    assert result.trace.data_deps.of(3).tolist() == [1]
    assert result.trace.integers("num_ops")[0].tolist() == [0, 128, 0, 128]
    assert result.trace.texts("dtype")[0][1] == "float32"


def test_files_of_different_steps_are_refused(tmp_path):
    host = write_host(tmp_path / "host.json", HOST)
    device = write_profile(tmp_path / "device.json", profile(901, 902))
    with pytest.raises(TraceError, match=r"launched one of the 2 kernels.*not of the same step"):
        import_pytorch(host, device)


def test_a_profile_of_the_host_gives_durations(tmp_path):
    host = write_host(tmp_path / "host.json", HOST)
    events = [event("cpu_op", "aten::mm", 0, 8, **{"Record function id": 503})]
    result = import_pytorch(host, write_profile(tmp_path / "device.json", events))
    assert result.joined_fraction == 0.5
    assert result.trace.integers("duration_ns")[0].tolist() == [8000, 0]


def test_a_host_trace_or_a_profile_alone_is_enough(tmp_path):
    host = write_host(tmp_path / "host.json", HOST)
    assert import_pytorch(host).trace.num_nodes == 2
    device = write_profile(tmp_path / "device.json", profile(0, 0))
    assert import_pytorch(None, device).trace.num_nodes == 4


def test_nothing_is_a_wrong_call():
    with pytest.raises(UsageError, match="nothing to import"):
        import_pytorch(None)


@pytest.mark.slow
def test_every_pytorch_file_imports_or_is_refused_with_a_reason(shared_data):
    rows = json.loads((shared_data / "traces" / "manifest.json").read_text())
    refused = []
    for row in rows:
        path = shared_data / "traces" / row["file"]
        if row["kind"] not in ("kineto", "pytorch_et") or row["raw_bytes"] > 20_000_000:
            continue
        try:
            both = (path, None) if row["kind"] == "pytorch_et" else (None, path)
            assert import_pytorch(*both).trace.num_nodes
        except TraceError as error:
            refused.append(f"{row['file']}: {error}")
    assert all("no kernel, copy or fill on a device" in reason for reason in refused), refused


def attributes(trace, row: int) -> dict[str, object]:
    """Return the attributes of a node by name."""
    table = trace.attributes
    rows = range(int(table.ptr_N1[row]), int(table.ptr_N1[row + 1]))
    found = [attribute_at(table, at, trace.strings) for at in rows]
    return {each.name: each.value for each in found}


def joined(tmp_path, host: list[dict], events: list[dict]):
    paths = write_host(tmp_path / "host.json", host), write_profile(tmp_path / "p.json", events)
    return import_pytorch(*paths)


def test_operations_count_for_the_longest_kernel_of_an_operator(tmp_path):
    events = [
        event("cpu_op", "aten::mm", 0, 30, **{"Record function id": 503}),
        *(launch(1, 1), launch(2, 5), launch(3, 9)),
        *(kernel(1, 4, 10), kernel(2, 15, 40), kernel(3, 60, 7)),
    ]
    trace = joined(tmp_path, HOST, events).trace
    kernels = [row for row, name in enumerate(trace.names()) if name == "aten::mm"]
    assert [attributes(trace, row)["num_ops"] for row in kernels] == [0, 2 * 4 * 4 * 4, 0]
    assert [attributes(trace, row)["tensor_size"] for row in kernels] == [0, 3 * 4 * 4 * 4, 0]
    assert [attributes(trace, row)["dtype"] for row in kernels] == ["float32"] * 3


def test_data_flows_from_the_last_kernel_of_the_producer_and_order_that_it_implies_goes(tmp_path):
    events = [
        event("cpu_op", "aten::mm", 0, 9, **{"Record function id": 503}),
        *(launch(1, 1), launch(2, 5), kernel(1, 4, 10), kernel(2, 15, 10)),
        event("cpu_op", "aten::mm", 10, 8, **{"Record function id": 504}),
        *(launch(3, 12), kernel(3, 26, 20)),
    ]
    trace = joined(tmp_path, HOST, events).trace
    first, second, third = (r for r, name in enumerate(trace.names()) if name == "aten::mm")
    assert trace.data_deps.of(third).tolist() == [second]
    assert second not in trace.ctrl_deps.of(third).tolist()
    assert trace.ctrl_deps.of(second).tolist()[0] == first  # the stream


def test_a_kernel_of_an_operator_inside_a_kept_one_belongs_to_the_kept_one(tmp_path):
    addmm = "aten::addmm(Tensor self, Tensor mat1, Tensor mat2) -> Tensor"
    host = [
        node(6, "aten::copy_", COPY_, (tensor(20), tensor(1)), (tensor(20),)),
        node(5, "aten::addmm", addmm, (tensor(1), tensor(1), tensor(2)), (tensor(20),)),
    ]
    events = [
        event("cpu_op", "aten::copy_", 1, 3, **{"Record function id": 506}),
        *(launch(1, 2), kernel(1, 5, 3)),
    ]
    result = joined(tmp_path, host, events)
    assert result.joined_fraction == 1
    assert attributes(result.trace, 1)["num_ops"] == 2 * 4 * 4 * 4


def test_nested_operators_that_share_a_handle_do_not_keep_the_search_going(tmp_path):
    inner = node(6, "aten::copy_", COPY_, (tensor(20), tensor(1)), (tensor(20),))
    outer = node(5, "aten::view", VIEW, (tensor(20),), (tensor(20),))
    for each in (inner, outer):
        each["attrs"][0]["value"] = 0
    copied = [event("cpu_op", "aten::view", 50, 9), event("cpu_op", "aten::copy_", 51, 7)]
    events = [*profile(0, 0), *copied, launch(3, 52), kernel(3, 60, 5)]
    assert joined(tmp_path, [*HOST, inner, outer], events).joined_fraction == pytest.approx(2 / 3)


def test_a_kernel_that_no_host_operation_launched_stays_as_it_is(tmp_path):
    events = [*profile(503, 504), launch(9, 60), kernel(9, 70, 5)]
    result = joined(tmp_path, HOST, events)
    assert result.joined_fraction == pytest.approx(2 / 3)
    (stray,) = (row for row, name in enumerate(result.trace.names()) if name == "kernel")
    assert "num_ops" not in attributes(result.trace, stray)


def test_communication_that_a_kernel_does_has_no_operations(tmp_path):
    host = [*HOST, node(5, "c10d::allreduce_", ALL_REDUCE, (listed(tensor(11)), plain(0)))]
    events = [
        *profile(503, 504),
        event("cpu_op", "c10d::allreduce_", 50, 8, **{"Record function id": 505}),
        *(launch(3, 52), kernel(3, 60, 9, "ncclDevKernel_AllReduce")),
    ]
    trace = joined(tmp_path, host, events).trace
    row = trace.names().index("nccl::all_reduce")
    assert "num_ops" not in attributes(trace, row)
    assert attributes(trace, row)["dtype"] == "float32"  # of the tensor that it writes
    assert trace.data_deps.of(row).tolist() == [3]


def test_threads_are_followed_in_order_each_on_its_own(tmp_path):
    """Without handles: the second thread of the host trace is that of the profile."""
    forward = [node(n, f"aten::op{n}", MM, (tensor(n), tensor(2)), (tensor(n + 1),))
               for n in (3, 5)]  # fmt: skip
    backward = [node(n, f"aten::op{n}", MM, (tensor(n), tensor(2)), (tensor(n + 9),), tid=2)
                for n in (4, 6)]  # fmt: skip
    events = []
    for number, (n, tid) in enumerate(((3, 1), (4, 2), (5, 1), (6, 2)), start=1):
        ts = number * 10
        events += [
            event("cpu_op", f"aten::op{n}", ts, 6, tid=tid),
            {**launch(number, ts + 1), "tid": tid},
            kernel(number, ts + 4, 3),
        ]
    result = joined(tmp_path, [forward[0], backward[0], forward[1], backward[1]], events)
    assert result.joined_fraction == 1
    found = [name for name in result.trace.names() if name.startswith("aten")]
    assert found == ["aten::op3", "aten::op4", "aten::op5", "aten::op6"]


def test_a_profile_alone_gives_kernels_the_sizes_of_its_shapes(tmp_path):
    """The longest kernel of a product has them; of a reduction the result would be needed."""

    def shapes(*dims: list[int]) -> dict[str, object]:
        return {"Input Dims": [*dims, []], "Input type": ["c10::BFloat16"] * len(dims) + ["Scalar"]}

    fused = "aten::_scaled_dot_product_flash_attention"
    events = [
        event("cpu_op", "aten::addmm", 0, 20, **shapes([32], [8, 16], [16, 32])),
        *(launch(1, 2), kernel(1, 30, 5), launch(2, 4), kernel(2, 40, 50)),
        event("cpu_op", fused, 20, 9, **shapes([2, 8, 64, 32], [2, 4, 64, 32], [2, 4, 64, 32])),
        *(launch(3, 22), kernel(3, 90, 9)),
        event("cpu_op", "aten::sum", 30, 9, **shapes([8, 16])),
        *(launch(4, 32), kernel(4, 100, 9)),
    ]
    trace = import_pytorch(None, write_profile(tmp_path / "p.json", events)).trace
    kernels = [at for at, name in enumerate(trace.names()) if name.startswith("aten")]
    found = {
        name: trace.integers(name)[0][kernels].tolist()
        for name in (
            "m",
            "n",
            "k",
            "heads",
            "kv_heads",
            "sequence",
            "head_dim",
            "num_ops",
            "tensor_size",
        )
    }
    assert found == {
        "m": [0, 8, 0, 0], "n": [0, 32, 0, 0], "k": [0, 16, 0, 0],
        "heads": [0, 0, 8, 0], "kv_heads": [0, 0, 4, 0], "sequence": [0, 0, 64, 0],
        "head_dim": [0, 0, 32, 0],
        "num_ops": [0, 2 * 8 * 32 * 16, 4 * 2 * 8 * 64 * 64 * 32, 8 * 16],
        # The product's result follows; others are taken to be as large as the largest argument.
        "tensor_size": [0, 2 * (32 + 8 * 16 + 16 * 32 + 8 * 32), 3 * 2 * 2 * 8 * 64 * 32,
                        2 * 2 * 8 * 16],
    }  # fmt: skip
    assert [trace.dtypes()[at] for at in kernels[1:3]] == ["bfloat16", "bfloat16"]


STEP_OF_ALL = {
    "distributedInfo": {"world_size": 4},
    "traceEvents": [
        event("cpu_op", "aten::mm", 0, 8, **{
            "Record function id": 503, "External id": 1,
            "Input Dims": [[4, 2], [[2, 2]]], "Input type": ["float", "float"]}),
        *(launch(1, 2), kernel(1, 5, 20, bytes=7, **{"External id": 1})),
        event("cpu_op", "c10d::allreduce_", 10, 8, **{"Record function id": 505}),
        launch(2, 12),
        kernel(2, 26, 20, "ncclDevKernel_SendRecv", **{
            "Collective name": "allreduce", "In msg nelems": 4, "dtype": "Float",
            "Process Group Ranks": "[0, 1]"}),
        event("cuda_runtime", "cudaDeviceSynchronize", 40, 30, correlation=9),
        kernel(77, 80, 3, stream=9),
    ],
}  # fmt: skip
GROUPS = '[{"pg_name": "0", "ranks": [], "group_size": 2}]'
HOST_OF_ALL = {
    "schema": "1.1.1",
    "nodes": [
        node(2, "## process_group:init ##", "", (plain(GROUPS, "String"),)),
        *HOST,
        node(5, "c10d::allreduce_", ALL_REDUCE, (listed(tensor(11)), plain("<Object>"))),
        node(6, "gloo:all_reduce"),
        node(8, "aten::mm", MM, (tensor(1), tensor(2)), (tensor(33),)),
        node(7, "aten::linear", LINEAR, (tensor(1),), (tensor(33),)),
        node(9, "aten::view", VIEW, (tensor(33),), (tensor(33),)),
        node(10, "aten::empty", EMPTY, (), (tensor(40),)),
    ],
}


@tried(60)
@given(changed(HOST_OF_ALL), changed(STEP_OF_ALL))
@example(HOST_OF_ALL, STEP_OF_ALL)
def test_damaged_files_end_in_a_trace_or_in_one_sentence(tmp_path_factory, host, device):
    folder = tmp_path_factory.mktemp("damaged")
    host_path, device_path = folder / "host.json", folder / "device.json"
    host_path.write_text(json.dumps(host))
    device_path.write_text(json.dumps(device))
    for pair in ((host_path, None), (None, device_path), (host_path, device_path)):
        told = str(folder)
        try:
            assert encode_trace(import_pytorch(*pair).trace)
        except TraceError as error:
            told = str(error)
        assert str(folder) in told
        assert len(told) < 500


def test_functional_collectives_that_list_their_ranks_are_collectives(tmp_path):
    """``c10d_functional`` of PyTorch 2.1 and 2.2; other families of communication are noted."""
    schema = "c10d_functional::all_reduce(Tensor self, str op, str tag, int[] ranks) -> Tensor"
    ranks = {"value": [0, 2], "shape": [[], []], "type": "GenericList[Int,Int]", "strides": []}
    words = (tensor(1), plain("sum", "String"), plain("ptd:0", "String"), ranks)
    fused, put = "symm_mem::fused_all_gather_matmul", "symm_mem::nvshmem_put_with_signal"
    waits = "symm_mem::nvshmem_wait_for_signal"
    nodes = [
        node(3, "c10d_functional::all_reduce", schema, words, (tensor(4),)),
        *(
            node(at, name, f"{name}(Tensor A) -> Tensor", (tensor(at - 1),), (tensor(at),))
            for at, name in enumerate((fused, put, waits), start=5)
        ),
    ]
    result = import_host(write_host(tmp_path / "h.json", nodes))
    trace = result.trace
    assert trace.names() == ["c10d::all_reduce", fused, put, waits]
    assert (trace.integers("comm_size")[0][0], result.groups) == (64, {"0": (0, 2)})
    assert [(note.kind, note.word) for note in trace.notes] == [
        (NoteKind.COLLECTIVE, fused),
        (NoteKind.COLLECTIVE, put),
    ]


def test_a_barrier_is_an_all_reduce_of_one_float(tmp_path):
    schema = "c10d::barrier(Tensor tensor, __torch__.torch.classes.c10d.ProcessGroup g) -> Work"
    path = write_host(tmp_path / "h.json", [node(3, "c10d::barrier", schema, (tensor(1),))])
    trace = import_host(path).trace
    assert trace.names() == ["c10d::barrier"]
    assert trace.integers("comm_type")[0].tolist() == [CollectiveType.ALL_REDUCE]
    assert trace.integers("comm_size")[0].tolist() == [4]


def test_types_that_nobody_knows_are_noted(tmp_path):
    odd = {**tensor(1), "type": "Tensor(c10::Float3)"}
    nodes = [node(3, "aten::mm", MM, (odd, tensor(2)), (tensor(4),))]
    (note,) = import_host(write_host(tmp_path / "h.json", nodes)).trace.notes
    assert (note.kind, note.word) == (NoteKind.DTYPE, "c10::Float3")


def test_what_a_profile_does_not_tell_of_a_collective_the_host_trace_does(tmp_path):
    host = [*HOST, node(5, "c10d::allreduce_", ALL_REDUCE, (listed(tensor(11)), plain(0)))]
    events = [
        *profile(503, 504),
        event("cpu_op", "c10d::allreduce_", 50, 8, **{"Record function id": 505}),
        *(launch(3, 52), kernel(3, 60, 9, "ncclDevKernel_AllReduce")),
    ]
    result = joined(tmp_path, host, events)
    row = result.trace.names().index("nccl::all_reduce")
    assert attributes(result.trace, row)["comm_size"] == 64
    assert not result.trace.notes
