from layerdag.traces.pytorch.host import dependencies
from layerdag.traces.pytorch.host._dataflow import Dependencies, in_turn, transitive_reduction
from layerdag.traces.pytorch.host._operations import host_operations
from tests.unit.traces.host_json import (
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
    queued = in_turn(deps, [[1, 2, 3], [0]])
    assert queued.data == deps.data
    assert queued.order == ((), (), (), (0, 2))
