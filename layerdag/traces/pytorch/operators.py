"""Operators of PyTorch in traces: what they do to their tensors, what they send and receive.

Several families of communication operators appear in host traces, whatever the backend: ``c10d::*``
(the C++ process group; the group is an opaque object), ``_c10d_functional::*`` (functional
collectives; the group's name is an argument), ``c10d_functional::*`` (those of PyTorch 2.1 and 2.2,
with the list of the group's ranks), ``symm_mem::*`` (symmetric memory, with the group's name) and
``_C_custom_ar::*`` (vLLM, without a group). The size of a message follows ASTRA-sim: all-reduce,
reduce-scatter and all-to-all count the whole buffer of a rank, all-gather the shard that a rank
gives.

What an operator reads and writes is read from the alias annotations of its schema (PyTorch,
aten/src/ATen/native/README.md):
``Tensor(a!)`` is written, a result ``Tensor(a)`` without ``!`` is a view, a plain result is new.
"""

import functools
import re
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from layerdag.errors import TraceError
from layerdag.hardware.collectives import CollectiveType
from layerdag.hardware.dtypes import SPELLINGS, UNKNOWN_DTYPE
from layerdag.hardware.operators import Trait, find_operator, is_composite
from layerdag.traces.pytorch.host_trace import HostBlock
from layerdag.traces.trace import NodeType


@dataclass(frozen=True, slots=True)
class CommunicationOperator:
    """How to read the arguments of one communication operator.

    Attributes:
        name: Public name, such as "c10d::all_reduce", the same for both families.
        type: COMM_COLL, COMM_SEND or COMM_RECV.
        collective: Collective type; INVALID for send and receive.
        sent: Position of the tensors that the rank gives, -1 for none.
        received: Position of the tensors that are written, -1 if the results are.
        group: Position of the group's name or of its list of ranks, -1 where the group is an opaque
            object.
        peer: Position of the peer of a message, -1 for none; the tag follows it.
    """

    name: str
    type: NodeType
    collective: CollectiveType
    sent: int
    received: int
    group: int = -1
    peer: int = -1


def _coll(kind: CollectiveType, sent: int, received: int, group: int = -1) -> CommunicationOperator:
    name = f"c10d::{kind.name.lower()}"
    return CommunicationOperator(name, NodeType.COMM_COLL, kind, sent, received, group)


def _message(name: str, kind: NodeType, sent: int, received: int) -> CommunicationOperator:
    """Return a send or receive, whose peer and tag are arguments 2 and 3."""
    return CommunicationOperator(
        name, kind, CollectiveType.INVALID, sent, received, group=-1, peer=2
    )


_K = CollectiveType

COMMUNICATION_OPERATORS: dict[str, CommunicationOperator] = {
    "c10d::allreduce_": _coll(_K.ALL_REDUCE, 0, 0),
    "c10d::allreduce_coalesced_": _coll(_K.ALL_REDUCE, 0, 0),
    "c10d::broadcast_": _coll(_K.BROADCAST, 0, 0),
    "c10d::reduce_": _coll(_K.REDUCE, 0, 0),
    "c10d::allgather_": _coll(_K.ALL_GATHER, 1, 0),
    "c10d::_allgather_base_": _coll(_K.ALL_GATHER, 1, 0),
    "c10d::allgather_coalesced_": _coll(_K.ALL_GATHER, 1, 0),
    "c10d::allgather_into_tensor_coalesced_": _coll(_K.ALL_GATHER, 1, 0),
    "c10d::reduce_scatter_": _coll(_K.REDUCE_SCATTER, 1, 0),
    "c10d::_reduce_scatter_base_": _coll(_K.REDUCE_SCATTER, 1, 0),
    "c10d::reduce_scatter_tensor_coalesced_": _coll(_K.REDUCE_SCATTER, 1, 0),
    "c10d::alltoall_": _coll(_K.ALL_TO_ALL, 1, 0),
    "c10d::alltoall_base_": _coll(_K.ALL_TO_ALL, 1, 0),
    "c10d::gather_": _coll(_K.GATHER, 1, 0),
    "c10d::scatter_": _coll(_K.SCATTER, 1, 0),
    "c10d::barrier": _coll(_K.BARRIER, 0, -1),
    "c10d::send": _message("c10d::send", NodeType.COMM_SEND, 0, -1),
    "c10d::recv_": _message("c10d::recv", NodeType.COMM_RECV, -1, 0),
    "c10d::recv_any_source_": _message("c10d::recv", NodeType.COMM_RECV, -1, 0),
    "_c10d_functional::all_reduce": _coll(_K.ALL_REDUCE, 0, -1, 2),
    "_c10d_functional::all_reduce_": _coll(_K.ALL_REDUCE, 0, 0, 2),
    "_c10d_functional::all_reduce_coalesced": _coll(_K.ALL_REDUCE, 0, -1, 2),
    "_c10d_functional::all_gather_into_tensor": _coll(_K.ALL_GATHER, 0, -1, 2),
    "_c10d_functional::all_gather_into_tensor_out": _coll(_K.ALL_GATHER, 0, 3, 2),
    "_c10d_functional::all_gather_into_tensor_coalesced": _coll(_K.ALL_GATHER, 0, -1, 2),
    "_c10d_functional::reduce_scatter_tensor": _coll(_K.REDUCE_SCATTER, 0, -1, 3),
    "_c10d_functional::reduce_scatter_tensor_coalesced": _coll(_K.REDUCE_SCATTER, 0, -1, 3),
    "_c10d_functional::all_to_all_single": _coll(_K.ALL_TO_ALL, 0, -1, 3),
    "_c10d_functional::broadcast": _coll(_K.BROADCAST, 0, -1, 2),
    "_c10d_functional::broadcast_": _coll(_K.BROADCAST, 0, 0, 2),
    "_c10d_functional::all_reduce_coalesced_": _coll(_K.ALL_REDUCE, 0, 0, 2),
    "c10d_functional::all_reduce": _coll(_K.ALL_REDUCE, 0, -1, 3),
    "c10d_functional::all_reduce_coalesced": _coll(_K.ALL_REDUCE, 0, -1, 3),
    "c10d_functional::broadcast": _coll(_K.BROADCAST, 0, -1, 3),
    "c10d_functional::all_gather_into_tensor": _coll(_K.ALL_GATHER, 0, -1, 2),
    "c10d_functional::all_gather_into_tensor_coalesced": _coll(_K.ALL_GATHER, 0, -1, 2),
    "c10d_functional::reduce_scatter_tensor": _coll(_K.REDUCE_SCATTER, 0, -1, 3),
    "c10d_functional::reduce_scatter_tensor_coalesced": _coll(_K.REDUCE_SCATTER, 0, -1, 3),
    "c10d_functional::all_to_all_single": _coll(_K.ALL_TO_ALL, 0, -1, 4),
    "_c10d_functional::reduce_scatter_tensor_out": _coll(_K.REDUCE_SCATTER, 0, 4, 3),
    "symm_mem::multimem_all_reduce_": _coll(_K.ALL_REDUCE, 0, 0, 2),
    "symm_mem::multimem_one_shot_all_reduce": _coll(_K.ALL_REDUCE, 0, -1, 2),
    "symm_mem::multimem_one_shot_all_reduce_out": _coll(_K.ALL_REDUCE, 0, 3, 2),
    "symm_mem::multimem_one_shot_reduce_out": _coll(_K.REDUCE, 0, 4, 3),
    "symm_mem::multimem_all_gather_out": _coll(_K.ALL_GATHER, 0, 2, 1),
    "symm_mem::one_shot_all_reduce": _coll(_K.ALL_REDUCE, 0, -1, 2),
    "symm_mem::one_shot_all_reduce_out": _coll(_K.ALL_REDUCE, 0, 3, 2),
    "symm_mem::one_shot_all_reduce_copy": _coll(_K.ALL_REDUCE, 1, -1, 3),
    "symm_mem::one_shot_all_reduce_copy_out": _coll(_K.ALL_REDUCE, 1, 4, 3),
    "symm_mem::two_shot_all_reduce_": _coll(_K.ALL_REDUCE, 0, 0, 2),
    "symm_mem::two_shot_all_reduce_out": _coll(_K.ALL_REDUCE, 0, 3, 2),
    "symm_mem::reduce_scatter_out": _coll(_K.REDUCE_SCATTER, 0, 3, 1),
    "symm_mem::_low_contention_all_gather": _coll(_K.ALL_GATHER, 0, -1, 1),
    "symm_mem::_low_contention_reduce_scatter": _coll(_K.REDUCE_SCATTER, 0, -1, 2),
    "symm_mem::nvshmem_broadcast": _coll(_K.BROADCAST, 0, 0, 2),
    "symm_mem::nvshmem_all_to_all": _coll(_K.ALL_TO_ALL, 0, 1, 2),
    "symm_mem::all_to_all_vdev": _coll(_K.ALL_TO_ALL, 0, 1, 4),
    "symm_mem::all_to_all_vdev_2d": _coll(_K.ALL_TO_ALL, 0, 1, 4),
    "symm_mem::all_to_all_vdev_2d_offset": _coll(_K.ALL_TO_ALL, 0, 1, 4),
    "_C_custom_ar::all_reduce": _coll(_K.ALL_REDUCE, 1, 2),
    "_C_custom_ar::all_reduce_reg": _coll(_K.ALL_REDUCE, 1, 2),
}
"""Every communication operator by the name it has in a host trace."""

BARRIER_BYTES = 4
"""A barrier is an all-reduce of one float: so NCCL's process group does it
(``ProcessGroupNCCL::barrier``), and ASTRA-sim knows no barrier."""

WAITS = frozenset(
    {
        *("_c10d_functional::wait_tensor", "c10d_functional::wait_tensor"),
        "c10d::monitored_barrier_",
    }
)
"""Operators that wait for a communication that was started before."""

_FAMILIES = ("c10d::", "_c10d_functional", "c10d_functional::", "symm_mem::", "_dtensor::")
# Operators of these families that move no tensor: they wait, signal, check, or make handles.
_SILENT = WAITS | {
    *("_c10d_functional::_wrap_tensor_autograd", "_dtensor::mesh_get_process_group"),
    *("c10d::check_for_nan", "symm_mem::_async_input_mm", "symm_mem::_rendezvous"),
    *("symm_mem::get_remote_tensors", "symm_mem::memset32_", "symm_mem::stream_write_value32_"),
    *("symm_mem::nccl_put_signal", "symm_mem::nccl_wait_for_signal", "symm_mem::nccl_wait_signal"),
    "symm_mem::nvshmem_wait_for_signal",
}


def is_unknown_communication(name: str) -> bool:
    """Return whether an operator is of a family of communication, but none that is known."""
    return name.startswith(_FAMILIES) and not (name in COMMUNICATION_OPERATORS or name in _SILENT)


WHOLE = 1 << 62
"""End of a view whose extent is not known: the whole storage."""

_NUMBER_DTYPES = frozenset({"float64", "int64", "bool", "complex128"})
# What PyTorch makes of Python numbers (c10/core/ScalarType.h, wrapped numbers).


class TensorView(NamedTuple):
    """A tensor as one operator sees it.

    Attributes:
        storage: Storage id; a name in time, freed memory reuses it.
        begin: First byte inside the storage.
        end: One past the last byte.
        num_bytes: Bytes that the tensor's elements occupy.
        shape: Sizes.
        dtype: Public name such as "float32".
        device: "cpu", "cuda", ..., without an index.
    """

    storage: int
    begin: int
    end: int
    num_bytes: int
    shape: tuple[int, ...]
    dtype: str
    device: str

    @property
    def num_elements(self) -> int:
        """Number of elements."""
        count = 1
        for size in self.shape:
            count *= size
        return count

    @property
    def is_number(self) -> bool:
        """Whether this may be a Python number: no shape, and of a type that numbers become."""
        return not self.shape and self.dtype in _NUMBER_DTYPES


class BlockTensors:
    """The tensors of one block of a host trace, by their row.

    Tensors without elements are not among them.
    """

    def __init__(self, block: HostBlock) -> None:
        tensors_T = block.tensors_T
        self.position: list[int] = tensors_T["position"].tolist()
        self.storage: list[int] = tensors_T["storage"].tolist()
        self._begin = tensors_T["begin"].tolist()
        self._end = tensors_T["end"].tolist()
        self._bytes = tensors_T["bytes"].tolist()
        self._shape = tensors_T["shape"].tolist()
        self._dims = tensors_T["dims"].tolist()
        self._dtype = tensors_T["dtype"].tolist()
        self._device = tensors_T["device"].tolist()
        self._sizes = block.size_S.tolist()
        self._words = block.words

    def view(self, row: int) -> TensorView:
        """Return one tensor."""
        first = self._shape[row]
        return TensorView(
            self.storage[row],
            self._begin[row],
            self._end[row],
            self._bytes[row],
            tuple(self._sizes[first : first + self._dims[row]]),
            _dtype_name(self._words[self._dtype[row]]),
            self._words[self._device[row]],
        )


def _dtype_name(word: str) -> str:
    found = SPELLINGS.get(word)
    return UNKNOWN_DTYPE if found is None else found.name


class OpRole(IntEnum):
    """What a node of a host trace means for the data-flow graph."""

    SCOPE = 0
    """Has no kernel of its own (scope, autograd wrapper, composite): its children count."""
    VIEW = 1
    """Moves no data: folded away together with its children."""
    ALLOCATION = 2
    """Returns new, unwritten memory."""
    COMPUTE = 3
    """Runs a kernel; its children are part of it."""
    COMMUNICATION = 4
    """Sends or receives; its children are part of it."""
    GROUP = 5
    """Declares process groups."""


@dataclass(frozen=True, slots=True)
class Signature:
    """What the importer must know of an operator.

    Attributes:
        role: The operator's role.
        written: Positions of the arguments that are written.
        overwritten: Those among them whose old content is not read.
        reallocated: Those among them whose memory was allocated just before without an operator.
    """

    role: OpRole
    written: frozenset[int] = frozenset()
    overwritten: frozenset[int] = frozenset()
    reallocated: frozenset[int] = frozenset()


PROCESS_GROUP_INIT = "## process_group:init ##"

_ALLOCATIONS = ("aten::empty", "aten::new_empty", "aten::_empty_", "aten::resize_")
# FSDP2 resizes the storages of unsharded parameters, unseen, before it copies into them.
_REALLOCATED = frozenset({"fsdp::split_with_sizes_copy"})
_WRAPS = "_c10d_functional::_wrap_tensor_autograd"
"""Only gives a tensor another owner."""
_ALIAS = re.compile(r"Tensor(\[\])?\([a-z]")


@functools.lru_cache(maxsize=8192)
def signature(name: str, schema: str, triton: bool = False) -> Signature:
    """Return the signature of an operator.

    Args:
        name: Node name, such as "aten::add_".
        schema: Its schema, "" for scopes and autograd nodes.
        triton: Whether the node is a compiled Triton kernel, which has no schema.

    Raises:
        TraceError: If the schema is none that PyTorch writes.
    """
    if name in COMMUNICATION_OPERATORS:
        return Signature(OpRole.COMMUNICATION)
    if name == PROCESS_GROUP_INIT:
        return Signature(OpRole.GROUP)
    if triton:
        return Signature(OpRole.COMPUTE)
    qualified = schema.partition("(")[0]
    if is_unknown_communication(name):
        return Signature(OpRole.COMPUTE)
    if not schema or is_composite(qualified) or name.startswith(("profiler::", "c10d::")):
        return Signature(OpRole.SCOPE)
    try:
        return _from_schema(name, schema)
    except (ValueError, IndexError):
        raise TraceError(
            f"operator '{name[:80]}' has the schema '{schema[:80]}', which is none that PyTorch "
            "writes; collect the trace again."
        ) from None


def _has(name: str, trait: Trait) -> bool:
    row = find_operator(name) if name.startswith("aten::") else None
    return row is not None and trait in row.traits


def _from_schema(name: str, schema: str) -> Signature:
    arguments, results = _split(schema)
    written = frozenset(i for i, text in enumerate(arguments) if "!" in text.partition(")")[0])
    if (
        name in WAITS
        or name == _WRAPS
        or _has(name, Trait.HIDDEN_VIEW)
        or (not written and _ALIAS.search(results))
    ):
        return Signature(OpRole.VIEW)
    if name.startswith(_ALLOCATIONS):
        return Signature(OpRole.ALLOCATION, written)
    if not written and "Tensor" not in results:
        return Signature(OpRole.SCOPE)
    if _has(name, Trait.OVERWRITES):
        return Signature(OpRole.COMPUTE, written, written)
    outs = frozenset(i for i in written if _argument_name(arguments[i]).startswith("out"))
    return Signature(OpRole.COMPUTE, written, outs, outs if name in _REALLOCATED else frozenset())


def _split(schema: str) -> tuple[list[str], str]:
    """Return the arguments and the result part of a schema; "*" is no argument."""
    depth = 0
    arguments: list[str] = []
    begin = schema.index("(") + 1
    for at in range(begin, len(schema)):
        letter = schema[at]
        if letter in "([":
            depth += 1
        elif letter in ")]" and depth:
            depth -= 1
        elif letter in ",)" and not depth:
            arguments.append(schema[begin:at].strip())
            begin = at + 1
            if letter == ")":
                break
    return [text for text in arguments if text not in ("", "*")], schema[begin:]


def _argument_name(text: str) -> str:
    """Return the name in "Tensor(a!) self" or "int dim=0"."""
    return text.partition("=")[0].split()[-1]
