from typing import Any

import pytest

from layerdag.traces import CollectiveType, NodeType
from layerdag.traces.pytorch.device._kineto import Event
from layerdag.traces.pytorch.device._nccl import (
    KernelCommunication,
    kernel_communication,
    tensor_bytes,
)


def kernel(name: str, **args: Any) -> Event:
    return Event(name, "kernel", 0, 5, (0, 7), args)


def operator(name: str, dims: Any = None, types: Any = None) -> Event:
    return Event(name, "cpu_op", 0, 9, (1,), {"Input Dims": dims, "Input type": types})


def test_a_kernel_that_computes_communicates_nothing() -> None:
    assert kernel_communication(kernel("ampere_sgemm_nccl"), ()) is None


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("ncclDevKernel_AllGather_RING_LL", CollectiveType.ALL_GATHER),
        ("ncclKernel_AllReduce_RING_LL_Sum_f32", CollectiveType.ALL_REDUCE),
        ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL", CollectiveType.REDUCE_SCATTER),
        ("ncclKernel_Broadcast_RING_LL_Sum_int8_t", CollectiveType.BROADCAST),
        ("rcclKernel_Reduce_RING_LL", CollectiveType.REDUCE),
    ],
)
def test_older_kernels_name_their_collective(name: str, kind: CollectiveType) -> None:
    found = kernel_communication(kernel(name), ())
    assert found == KernelCommunication(NodeType.COMM_COLL, kind, 0, ())


def test_newer_kernels_tell_collective_size_and_group() -> None:
    args = {"Collective name": "_allgather_base", "In msg nelems": 6, "dtype": "BFloat16",
            "Process Group Ranks": "[0, 2, 4]"}  # fmt: skip
    found = kernel_communication(kernel("ncclDevKernel_Generic", **args), ())
    assert found is not None
    assert (found.collective, found.num_bytes, found.ranks) == (
        CollectiveType.ALL_GATHER, 12, (0, 2, 4),
    )  # fmt: skip
    cut_off = kernel_communication(
        kernel("ncclDevKernel_AllReduce", **{"Process Group Ranks": "[0, 1, ..."}), ()
    )
    assert cut_off is not None
    assert cut_off.ranks == ()


@pytest.mark.parametrize(
    ("operators", "kind"),
    [
        (["record_param_comms", "c10d::send"], NodeType.COMM_SEND),
        (["c10d::recv"], NodeType.COMM_RECV),
    ],
)
def test_a_message_is_known_by_the_operator_that_launched_it(
    operators: list[str], kind: NodeType
) -> None:
    around = tuple(operator(name, [[4, 2]], ["float"]) for name in operators)
    found = kernel_communication(
        kernel("ncclDevKernel_SendRecv", **{"Process Group Ranks": [0, 1]}), around
    )
    assert found == KernelCommunication(kind, CollectiveType.INVALID, 32, (0, 1))


def test_a_grouped_send_and_receive_is_an_all_to_all() -> None:
    found = kernel_communication(kernel("ncclDevKernel_SendRecv", **{"In msg nelems": 3}), ())
    assert found == KernelCommunication(NodeType.COMM_COLL, CollectiveType.ALL_TO_ALL, 12, ())


@pytest.mark.parametrize(
    ("dims", "types", "expected"),
    [
        ([[4, 2], [3]], ["float", "double"], 32),  # the largest counts
        ([[[4, 2], [2, 2]]], ["c10::Half"], 24),  # a list of tensors counts as a whole
        ([[5]], ["GenericTensor"], 20),  # 4 bytes where the profile does not say
        ([[], [7]], ["Scalar", "Scalar"], 0),
        (None, None, 0),
    ],
)
def test_bytes_of_an_operator_are_those_of_its_largest_tensor(
    dims: Any, types: Any, expected: int
) -> None:
    assert tensor_bytes({"Input Dims": dims, "Input type": types}) == expected


def test_a_kernel_without_a_count_has_the_size_of_the_operators_around_it() -> None:
    around = (operator("record_param_comms"), operator("c10d::allreduce_", [[[8]]], ["long int"]))
    found = kernel_communication(kernel("ncclDevKernel_AllReduce", **{"In msg nelems": 0}), around)
    assert found is not None
    assert found.num_bytes == 64


@pytest.mark.parametrize(
    ("told", "kind"),
    [
        ("allreduce", CollectiveType.ALL_REDUCE),
        ("allreduce_coalesced", CollectiveType.ALL_REDUCE),
        ("_reduce_scatter_base", CollectiveType.REDUCE_SCATTER),
        ("reduce", CollectiveType.REDUCE),
        ("all_to_all", CollectiveType.ALL_TO_ALL),
        ("broadcast", CollectiveType.BROADCAST),
        ("gather", CollectiveType.GATHER),
        ("scatter", CollectiveType.SCATTER),
        ("barrier", CollectiveType.BARRIER),
    ],
)
def test_the_collective_that_is_told_counts_before_the_name_of_the_kernel(
    told: str, kind: CollectiveType
) -> None:
    found = kernel_communication(
        kernel("ncclDevKernel_AllGather_RING_LL", **{"Collective name": told}), ()
    )
    assert found is not None
    assert found.collective == kind


def test_the_innermost_operator_that_says_it_decides() -> None:
    around = (operator("c10d::broadcast_"), operator("c10d::allreduce_"), operator("aten::copy_"))
    found = kernel_communication(kernel("ncclDevKernel_Generic"), around)
    assert found is not None
    assert found.collective == CollectiveType.ALL_REDUCE


@pytest.mark.parametrize(
    ("dtype", "width"),
    [("Float", 4), ("double", 8), ("Half", 2), ("BFloat16", 2), ("Byte", 1), ("no such type", 4)],
)
def test_elements_have_the_width_of_their_type(dtype: str, width: int) -> None:
    args = {"In msg nelems": 10, "dtype": dtype}
    found = kernel_communication(kernel("ncclDevKernel_AllReduce", **args), ())
    assert found is not None
    assert found.num_bytes == 10 * width


@pytest.mark.parametrize(
    "ranks",
    ["[0, 1", "[" * 5000, "7", '["0", "1"]', '[0, "1"]', "[[0], [1]]", "[0, -1]", "[true]", 5,
     {"0": 1}, None],
)  # fmt: skip
def test_a_list_of_ranks_that_is_none_counts_as_unknown(ranks: Any) -> None:
    found = kernel_communication(kernel("ncclAllReduce", **{"Process Group Ranks": ranks}), ())
    assert found == KernelCommunication(NodeType.COMM_COLL, CollectiveType.ALL_REDUCE, 0, ())


@pytest.mark.parametrize(
    ("dims", "types", "expected"),
    [
        (5, ["float"], 0),
        ([[2, 2]], "float", 0),
        ("dims", None, 0),
        ([5, [2, 3]], ["float", "float"], 24),  # a number is no shape
        ([[[2, 2], "x", [3]]], ["float"], 28),
        ([[2, "x"]], ["float"], 0),
        ([[[[9]]]], ["float"], 0),  # lists of lists of tensors do not exist
        ([[2, 2]], [["float"]], 0),
    ],
)
def test_dims_that_are_none_have_no_bytes(dims: Any, types: Any, expected: int) -> None:
    assert tensor_bytes({"Input Dims": dims, "Input type": types}) == expected
