import json

import pytest
from host_json import (
    ALL_REDUCE,
    COPY_,
    EMPTY,
    LINEAR,
    MM,
    RELU_,
    VIEW,
    host_blocks,
    listed,
    node,
    plain,
    tensor,
)

from layerdag.errors import TraceError
from layerdag.traces.pytorch.host_dataflow import (
    Dependencies,
    Operation,
    declared_groups,
    dependencies,
    host_operations,
    number_groups,
    process_groups,
    queue_order,
    transitive_reduction,
)
from layerdag.traces.pytorch.operators import OpRole

NAMELESS = Operation(
    1, "c10d::allreduce_", OpRole.COMMUNICATION, 0, 0, (), (), (), (), frozenset(), values=()
)


def found(*nodes: dict) -> tuple[list[str], Dependencies]:
    host = host_operations(host_blocks(*nodes))
    names = [op.name for op in host.operations if op.name != "aten::empty"]
    return names, dependencies(host.operations)


def mm(number: int, left: int, right: int, result: int) -> dict:
    return node(number, "aten::mm", MM, (tensor(left), tensor(right)), (tensor(result),))


def test_consumers_depend_on_producers_through_storages():
    names, deps = found(mm(3, 1, 2, 10), mm(4, 1, 2, 11), mm(5, 10, 11, 12))
    assert names == ["aten::mm"] * 3
    assert deps.data == ((), (), (0, 1))
    assert deps.order == ((), (), ())


def test_views_are_folded_away_and_carry_the_flow():
    view = node(4, "aten::view", VIEW, (tensor(10), plain([16])), (tensor(10, (16,)),))
    names, deps = found(mm(3, 1, 2, 10), view, mm(5, 10, 1, 11))
    assert names == ["aten::mm"] * 2
    assert deps.data[1] == (0,)


def test_a_composite_is_descended_and_a_kernel_is_not():
    inner = mm(4, 1, 2, 10)
    composite = node(3, "aten::linear", LINEAR, (tensor(1), tensor(2)), (tensor(10),))
    assert found(inner, composite)[0] == ["aten::mm"]
    copy = node(6, "aten::copy_", COPY_, (tensor(20), tensor(1)), (tensor(20),))
    addmm = "aten::addmm(Tensor self, Tensor mat1, Tensor mat2) -> Tensor"
    kernel = node(5, "aten::addmm", addmm, (tensor(1), tensor(1), tensor(2)), (tensor(20),))
    assert found(copy, kernel)[0] == ["aten::addmm"]


def test_a_tensor_subclass_forwards_to_the_operator_of_the_same_name():
    outer = node(3, "aten::mm", MM, (tensor(91), tensor(92)), (tensor(93),))
    host = host_operations(host_blocks(mm(4, 1, 2, 10), outer))
    assert [op.id for op in host.operations] == [4]


def test_an_overload_that_forwards_on_its_own_memory_shows_numbers_as_numbers():
    number = {"value": [77, 10, 0, 1, 8, "cpu"], "shape": [], "type": "Tensor(long int)",
              "strides": []}  # fmt: skip
    sub = "aten::sub.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor"
    inner = node(4, "aten::sub", sub, (tensor(1), number), (tensor(11),))
    outer = node(3, "aten::sub", sub.replace(".Tensor", ".Scalar"), (tensor(1), plain(1)),
                 (tensor(11),))  # fmt: skip
    host = host_operations(host_blocks(inner, outer))
    assert [op.id for op in host.operations] == [3]
    assert [access.storage for access in host.operations[0].reads] == [1]


def test_under_autocast_copies_and_the_inner_call_are_what_runs():
    to_copy = "aten::_to_copy(Tensor self, *, ScalarType? dtype=None) -> Tensor"
    half = [node(number, "aten::_to_copy", to_copy, (tensor(number - 3),), (tensor(number + 10),))
            for number in (4, 5)]  # fmt: skip
    outer = node(3, "aten::mm", MM, (tensor(1), tensor(2)), (tensor(20),))
    nodes = (*half, mm(6, 14, 15, 20), outer)
    names, deps = found(*nodes)
    assert names == ["aten::_to_copy", "aten::_to_copy", "aten::mm"]
    assert deps.data == ((), (), (0, 1))
    # Kernels of a profile that names the outer call are the inner one's.
    assert host_operations(host_blocks(*nodes)).inside == {503: 506}


def test_a_copy_that_autograd_saves_comes_before_the_operator_in_place():
    copy = node(4, "aten::clone", "aten::clone(Tensor self) -> Tensor", (tensor(1),), (tensor(9),))
    silu_ = node(3, "aten::silu_", "aten::silu_(Tensor(a!) self) -> Tensor(a!)", (tensor(1),),
                 (tensor(1),))  # fmt: skip
    names, deps = found(copy, silu_, mm(5, 9, 1, 10))
    assert names == ["aten::clone", "aten::silu_", "aten::mm"]
    assert deps.data == ((), (), (0, 1))
    assert deps.order == ((), (0,), ())


def test_overwriting_waits_for_readers_without_data():
    copy = node(4, "aten::copy_", COPY_, (tensor(1), tensor(5)), (tensor(1),))
    _, deps = found(mm(3, 1, 2, 10), copy, mm(5, 1, 2, 11))
    assert deps.data == ((), (), (1,))
    assert deps.order == ((), (0,), ())


def test_an_in_place_operator_is_data_flow_not_order():
    relu = node(4, "aten::relu_", RELU_, (tensor(10),), (tensor(10),))
    _, deps = found(mm(3, 1, 2, 10), relu)
    assert deps.data == ((), (0,))
    assert deps.order == ((), ())


def test_a_storage_that_is_handed_out_again_forgets_its_past():
    empty = node(4, "aten::empty", EMPTY, (plain([4, 4]),), (tensor(10),))
    copy = node(5, "aten::copy_", COPY_, (tensor(10), tensor(7)), (tensor(10),))
    _, deps = found(mm(3, 1, 2, 10), empty, copy)
    assert deps.data == ((), ())
    assert deps.order == ((), ())


def test_disjoint_ranges_of_one_storage_are_independent():
    first = node(3, "aten::copy_", COPY_, (tensor(9, (4,)), tensor(1, (4,))), (tensor(9, (4,)),))
    other = tensor(9, (4,), offset=4)
    second = node(4, "aten::copy_", COPY_, (other, tensor(2, (4,))), (other,))
    reduce = node(5, "c10d::allreduce_", ALL_REDUCE, (listed(tensor(9, (8,))),))
    names, deps = found(first, second, reduce)
    assert names[-1] == "c10d::allreduce_"
    assert deps.data == ((), (), (0, 1))
    assert deps.order == ((), (), ())


def test_a_wrapped_number_in_recycled_memory_is_no_data_flow():
    number = {"value": [77, 10, 0, 1, 8, "cpu"], "shape": [], "type": "Tensor(double)",
              "strides": []}  # fmt: skip
    mul = "aten::mul.Tensor(Tensor self, Tensor other) -> Tensor"
    scaled = node(4, "aten::mul", mul, (tensor(1), number), (tensor(11),))
    assert found(mm(3, 1, 2, 10), scaled)[1].data == ((), ())


def test_a_number_beside_a_tensor_is_no_data_flow_even_if_it_fits():
    counter = {"value": [77, 10, 0, 1, 8, "cpu"], "shape": [], "type": "Tensor(long int)",
               "strides": []}  # fmt: skip
    largest = node(3, "aten::max", "aten::max(Tensor self) -> Tensor", (tensor(1),), (counter,))
    add = "aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor"
    beside = node(4, "aten::add", add, (tensor(2), counter), (tensor(11),))
    alone = node(5, "aten::neg", "aten::neg(Tensor self) -> Tensor", (counter,), (tensor(12, ()),))
    assert found(largest, beside, alone)[1].data == ((), (), (0,))


def test_work_of_gloo_threads_belongs_to_the_communication():
    inside = node(5, "aten::mm", MM, (tensor(50), tensor(51)), (tensor(52),), tid=2)
    span = node(4, "gloo:all_reduce", "", (tensor(9),))
    reduce = node(3, "c10d::allreduce_", ALL_REDUCE, (listed(tensor(9)),))
    assert found(inside, span, reduce)[0] == ["c10d::allreduce_"]


def test_very_many_ranges_are_merged_in_order():
    parts = [tensor(9, (1,), offset=index) for index in range(600)]
    nodes = [
        node(3 + at, "aten::copy_", COPY_, (part, tensor(1, (1,))), (part,))
        for at, part in enumerate(parts)
    ]
    _, deps = found(*nodes, node(900, "aten::relu_", RELU_, (tensor(9, (600,)),)))
    reached: set[int] = set()
    waiting = [600]
    while waiting:
        at = waiting.pop()
        parents = set(deps.data[at]) | set(deps.order[at])
        waiting.extend(parents - reached)
        reached |= parents
    assert reached == set(range(600))


def test_reduction_drops_implied_order_and_keeps_data():
    deps = Dependencies(data=((), (0,), (0, 1), ()), order=((), (), (), (0, 1, 2)))
    reduced = transitive_reduction(deps)
    assert reduced.data == deps.data
    assert reduced.order == ((), (), (), (2,))


def test_members_of_a_queue_start_in_turn():
    deps = Dependencies(data=((), (), (1,), ()), order=((), (), (), (0,)))
    queued = queue_order(deps, [[1, 2, 3], [0]])
    assert queued.data == deps.data
    assert queued.order == ((), (), (), (0, 2))


def group(name: object, ranks: list[int], size: int) -> dict:
    return {"pg_name": name, "pg_desc": "x", "ranks": ranks, "group_size": size}


def test_no_ranks_means_all_and_names_become_integers_that_all_ranks_agree_on():
    first = [json.dumps([group("0", [], 4), group("tp_abc", [0, 1], 2)])]
    third = [json.dumps([group("0", [], 4), group("tp_xyz", [2, 3], 2)])]
    declared = [declared_groups(first, "r0"), declared_groups(third, "r2")]
    names = number_groups(declared)
    assert names == {(0, 1, 2, 3): "0", (0, 1): "1", (2, 3): "2"}
    assert process_groups(declared[1], names).alias == {"0": "0", "tp_xyz": "2"}


def test_schema_1_0_3_wrote_pairs():
    texts = [json.dumps([group(["7", "desc"], [], 2)])]
    assert declared_groups(texts, "r0") == {"7": (0, 1)}


def test_one_process_has_no_groups():
    assert number_groups([declared_groups([], "r0")]) == {}


@pytest.mark.parametrize(
    "row",
    [
        "no json",
        "[" * 100_000,
        {"pg_name": "0"},
        3,
        group("0", [], 2) | {"group_size": float("inf")},
        group("0", [], 2) | {"group_size": "many"},
        group("0", [-1], 2),
        group("0", [0, True], 2),
        group("0", [0, "1"], 2),
        group("0", [], 2) | {"ranks": "12"},
        group("0", [], 2) | {"ranks": None},
        group([], [], 2),
    ],
)
def test_a_group_that_is_none_is_refused(row):
    with pytest.raises(TraceError, match="r0: the process groups are not listed as PyTorch"):
        declared_groups([row if isinstance(row, str) else json.dumps([row])], "r0")


def test_a_group_of_more_ranks_than_any_job_has_is_not_written_down():
    texts = [json.dumps([group("0", [], 2**20 + 1)])]
    with pytest.raises(TraceError, match=r"r0: declares a process group of 1,048,577 ranks; .*"):
        declared_groups(texts, "r0")
    assert len(declared_groups([json.dumps([group("0", [], 2**10)])], "r0")["0"]) == 1024


def test_a_group_without_ranks_is_the_largest_group_that_is_declared():
    texts = [json.dumps([group("0", [], 4), group("all again", [], 2), group("tp", [1, 3], 2)])]
    found = declared_groups(texts, "r0")
    assert found == {"0": (0, 1, 2, 3), "all again": (0, 1, 2, 3), "tp": (1, 3)}


def test_the_world_is_zero_and_the_others_are_counted_by_their_ranks():
    declared = [{"a": (2, 3), "b": (0, 1)}, {"w": (0, 1, 2, 3), "c": (0, 2)}]
    names = number_groups(declared)
    assert names == {(0, 1, 2, 3): "0", (0, 1): "1", (0, 2): "2", (2, 3): "3"}
    assert number_groups(reversed(declared)) == names


def test_only_a_single_group_is_taken_for_granted():
    one = process_groups({"x": (0, 1)}, {(0, 1): "0"})
    assert one.of(NAMELESS) == "0"
    two = process_groups({"x": (0, 1)}, {(0, 1): "0", (1,): "1"})
    assert two.of(NAMELESS) is None
    assert process_groups({}, {}).of(NAMELESS) is None
