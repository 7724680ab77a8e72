"""Communication kernels in a profile: kind, size, group, peer.

Newer profiles describe a kernel of NCCL or RCCL by its arguments ("Collective name", "In msg
nelems", "dtype", "Process Group Ranks", since PyTorch 2.5 "Dst Rank" and "Src Rank", which are
global ranks); older ones only by its name, such as ``ncclDevKernel_AllGather_RING_LL`` or
``ncclKernel_AllReduce_RING_LL_Sum_f32``, and by the operator that launched it.

Kernels that communicate without NCCL are known by name: custom all-reduce of vLLM, SGLang,
FlashInfer and TensorRT-LLM, symmetric memory of PyTorch, DeepEP. What a profile does not show, such
as the size of coalesced collectives or the peers of batched messages, stays unknown.
"""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from layerdag.hardware.collectives import COLLECTIVES, COMMUNICATION_OPERATORS, CollectiveType
from layerdag.hardware.dtypes import find_dtype
from layerdag.traces.pytorch.kineto import Event, ranks_in
from layerdag.traces.pytorch.operators import TensorView
from layerdag.traces.trace import NodeType

# All that a profile shows of a kernel is the name that the compiler gave it, with its template
# arguments, so that it is searched for words; the arguments of NCCL, where there are any, win.
_LIBRARY = re.compile(r"^(nccl|rccl|mscclKernel|ncclx)", re.IGNORECASE)
_OWN_KERNELS: tuple[tuple[re.Pattern[str], CollectiveType | None], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), collective)
    for pattern, collective in (
        (r"deep_ep.*(dispatch|combine)", CollectiveType.ALL_TO_ALL),
        (r"cross_device_reduce", CollectiveType.ALL_REDUCE),
        (r"(all_?reduce)(?!.*reduce_?scatter)", CollectiveType.ALL_REDUCE),
        (r"all_?gather", CollectiveType.ALL_GATHER),
        (r"reduce_?scatter", CollectiveType.REDUCE_SCATTER),
        (r"all_?to_?all|all2all", CollectiveType.ALL_TO_ALL),
        (r"deep_ep|nvshmem|rocshmem|mscclpp|multimem|symm_mem|hccl|oneccl", None),
    )
)
_HELPERS = re.compile(r"notify|layout|barrier|clean", re.IGNORECASE)
_TOLD_WITHOUT_TYPE = frozenset({"tensorlist", "generictensor", "genericlist", "optionaltensorlist"})
_NO_TENSOR = frozenset({"scalar", "scalarlist", "", "none", "undefined"})


@dataclass(frozen=True, slots=True)
class KernelCommunication:
    """What a communication kernel does.

    Attributes:
        collective: INVALID for a message, and where it is not known.
        num_bytes: Size as ASTRA-sim counts it; None if the profile does not say.
        ranks: Members of the group; empty if the profile does not say.
        peer: Global rank at the other end of a message; None if the profile does not say.
    """

    type: NodeType
    collective: CollectiveType
    num_bytes: int | None
    ranks: tuple[int, ...]
    peer: int | None = None

    @property
    def name(self) -> str:
        """The public name of its node, such as "nccl::all_gather"."""
        if self.type is NodeType.COMM_COLL:
            return f"nccl::{self.collective.name.lower()}"
        return "nccl::send" if self.type is NodeType.COMM_SEND else "nccl::recv"

    @property
    def missing(self) -> str:
        """What is needed of it and the profile does not show, "" if nothing is missing."""
        if self.type is not NodeType.COMM_COLL and self.peer is None:
            return "peer"
        if self.type is NodeType.COMM_COLL and self.collective is CollectiveType.INVALID:
            return "collective"
        is_barrier = self.collective is CollectiveType.BARRIER
        return "size" if not self.num_bytes and not is_barrier else ""


def kernel_communication(
    kernel: Event, operators: tuple[Event, ...], groups: Mapping[str, tuple[int, ...]] | None = None
) -> KernelCommunication | None:
    """Return what a kernel communicates, None if it computes.

    ``operators`` are those around its launch, outermost first; ``groups`` the ranks of the groups
    that the profile declares, by their names.
    """
    if not _LIBRARY.match(kernel.name):
        return _own_kernel(kernel, operators)
    ranks = ranks_in(kernel.args.get("Process Group Ranks"))
    ranks = ranks or (groups or {}).get(str(kernel.args.get("Process Group Name")), ())
    size = _size(kernel, operators)
    collective_name = str(kernel.args.get("Collective name", ""))
    for name in (collective_name, kernel.name, *(op.name for op in reversed(operators))):
        plain = re.sub(r"[^a-z]", "", name.lower().rpartition("::")[2])
        for row in COLLECTIVES:
            if row.kernel in plain and "sendrecv" not in plain:
                return KernelCommunication(NodeType.COMM_COLL, row.type, size, ranks)
        if plain in ("send", "recv") or plain.endswith(("ncclsend", "ncclrecv")):
            kind_of = NodeType.COMM_SEND if "send" in plain else NodeType.COMM_RECV
            word = str(kernel.args.get("Dst Rank" if "send" in plain else "Src Rank"))
            is_rank = word.isascii() and word.isdecimal() and len(word) < 10
            peer = int(word) if is_rank else None
            return KernelCommunication(kind_of, CollectiveType.INVALID, size, ranks, peer)
    return KernelCommunication(NodeType.COMM_COLL, CollectiveType.INVALID, size, ranks)


def _own_kernel(kernel: Event, operators: tuple[Event, ...]) -> KernelCommunication | None:
    """Return what a kernel outside NCCL communicates, None if its name does not look like it."""
    name = plain_kernel_name(kernel.name)
    like = [kind for pattern, kind in _OWN_KERNELS if pattern.search(name)]
    if kernel.category.lower() != "kernel" or not like:
        return None
    found, size = like[0], None
    if found is None or _HELPERS.search(name):
        found = CollectiveType.INVALID
    elif "deep_ep" not in name.lower():
        size = _size(kernel, operators)
    return KernelCommunication(NodeType.COMM_COLL, found, size, ())


def plain_kernel_name(name: str) -> str:
    """Return the qualified name of a kernel without result, arguments and template arguments."""
    depth = 0
    letters: list[str] = []
    for letter in name.removeprefix("void "):
        if letter == "(" and not depth and letters:
            break
        depth += (letter == "<") - (letter == ">")
        if not depth and letter != ">":
            letters.append(letter)
    return "".join(letters).strip() or name


ELEMENTS = ("In msg nelems", "Out msg nelems")
"""Details of a kernel that count the elements of its message."""


def _size(kernel: Event, operators: tuple[Event, ...]) -> int | None:
    told = find_dtype(str(kernel.args.get("dtype", "")))
    for name in ELEMENTS:
        count = kernel.args.get(name)
        if type(count) is int and count > 0:
            return None if told is None else count * told.bits // 8
    bits = None if told is None else told.bits
    sizes = [_given_bytes(operator, bits) for operator in operators]
    return max((size for size in sizes if size is not None), default=None)


def _given_bytes(operator: Event, bits: int | None) -> int | None:
    known = COMMUNICATION_OPERATORS.get(operator.name)
    if known is None:
        return tensor_bytes(operator.args, bits)
    at = known.sent if known.sent >= 0 else known.received
    given = {
        name: value[at : at + 1]
        for name in ("Input Dims", "Input type")
        if isinstance(value := operator.args.get(name), list)
    }
    return tensor_bytes(given, bits)


class _Argument(NamedTuple):
    """A tensor, or a list of tensors, among the arguments of an operator.

    Attributes:
        dims: As the profile has it.
        shapes: What of it is the shape of a tensor with at least one dimension.
        kind: The word for its type.
    """

    dims: Any
    shapes: list[list[int]]
    kind: str

    @property
    def is_odd(self) -> bool:
        """Whether it is neither a shape nor a list of shapes, and not empty."""
        if not self.dims or _is_shape(self.dims):
            return False
        parts = self.dims if isinstance(self.dims, list) else [self.dims]
        return any(part and not _is_shape(part) for part in parts)


def _arguments(args: Mapping[str, Any]) -> list[_Argument] | None:
    """Return the tensors among the arguments, None where the profile does not have them."""
    dims, kinds = args.get("Input Dims"), args.get("Input type")
    if not isinstance(dims, list) or not isinstance(kinds, list):
        return None
    found = []
    for shape, kind in zip(dims, map(str, kinds), strict=False):
        if kind.lower() not in _NO_TENSOR:
            parts = shape if isinstance(shape, list) and not _is_shape(shape) else [shape]
            found.append(_Argument(shape, [part for part in parts if _is_shape(part)], kind))
    return found


def _is_shape(value: Any) -> bool:
    if not isinstance(value, list) or not value:
        return False
    return all(type(size) is int and size >= 0 for size in value)


def tensor_bytes(args: Mapping[str, Any], bits: int | None = None) -> int | None:
    """Return the bytes of an operator's largest tensor argument.

    None where the profile has no shapes, or a type whose width is not known; ``bits`` of an element
    may be known from elsewhere.
    """
    arguments, sizes = _arguments(args), [0]
    for argument in arguments or ():
        count, dtype = sum(map(math.prod, argument.shapes)), find_dtype(argument.kind)
        width = bits if dtype is None else dtype.bits
        if argument.is_odd or (count and width is None):
            return None
        sizes.append(count * (width or 0) // 8)
    return None if arguments is None else max(sizes)


def shown_tensors(args: Mapping[str, Any]) -> list[TensorView]:
    """Return an operator's tensor arguments by shape and type.

    Empty where the profile has none, or one is not a tensor of a known type; lists are left out.
    """
    found = []
    for shape, _, kind in _arguments(args) or ():
        dtype = find_dtype(kind)
        if _is_shape(shape) and dtype is None:
            return []
        if _is_shape(shape) and dtype is not None:
            size = math.prod(shape) * dtype.bits // 8
            found.append(TensorView(0, 0, size, size, tuple(shape), dtype.name, ""))
    return found


def unknown_types(args: Mapping[str, Any]) -> Iterable[str]:
    """Yield the words among "Input type" of tensors that are not a known type."""
    for _, shapes, kind in _arguments(args) or ():
        is_typed = kind.lower() not in _TOLD_WITHOUT_TYPE
        if is_typed and any(map(math.prod, shapes)) and find_dtype(kind) is None:
            yield kind


def unknown_shapes(args: Mapping[str, Any]) -> Iterable[str]:
    """Yield what stands in the place of shapes or types of tensors without being one."""
    for found in (args.get("Input Dims"), args.get("Input type")):
        if found is not None and not isinstance(found, list):
            yield str(found)
    yield from (str(each.dims) for each in _arguments(args) or () if each.is_odd)


def declared_ranks(distributed: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Return the ranks of each group in ``distributedInfo`` ("pg_config"), by its name."""
    rows = distributed.get("pg_config")
    found = {
        str(row["pg_name"]): ranks_in(row.get("ranks"))
        for row in (rows if isinstance(rows, list) else ())
        if isinstance(row, dict) and "pg_name" in row
    }
    return {name: ranks for name, ranks in found.items() if ranks}
