"""Communication kernels of NCCL and RCCL in a profile: kind, size, group.

Newer profiles describe a kernel by its arguments ("Collective name", "In msg nelems", "dtype",
"Process Group Ranks"); older ones only by its name, such as ``ncclDevKernel_AllGather_RING_LL`` or
``ncclKernel_AllReduce_RING_LL_Sum_f32``, and by the operator that launched it.
"""

import json
import math
import re
from dataclasses import dataclass
from typing import Any

from layerdag.traces import CollectiveType, NodeType
from layerdag.traces.pytorch.device._kineto import Event

_KERNEL = re.compile(r"^(nccl|rccl|mscclKernel|ncclx)", re.IGNORECASE)
_KINDS: tuple[tuple[str, CollectiveType], ...] = (
    ("allreduce", CollectiveType.ALL_REDUCE),
    ("reducescatter", CollectiveType.REDUCE_SCATTER),
    ("allgather", CollectiveType.ALL_GATHER),
    ("alltoall", CollectiveType.ALL_TO_ALL),
    ("broadcast", CollectiveType.BROADCAST),
    ("gather", CollectiveType.GATHER),
    ("scatter", CollectiveType.SCATTER),
    ("reduce", CollectiveType.REDUCE),
    ("barrier", CollectiveType.BARRIER),
)
_WIDTHS = {
    "double": 8, "long int": 8, "long": 8, "float": 4, "int": 4, "float32": 4, "float64": 8,
    "c10::half": 2, "c10::bfloat16": 2, "half": 2, "bfloat16": 2, "byte": 1, "bool": 1,
    "unsigned char": 1, "signed char": 1, "short": 2, "short int": 2, "int64": 8, "int32": 4,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class KernelCommunication:
    """What a communication kernel does.

    Attributes:
        type: COMM_COLL, COMM_SEND or COMM_RECV.
        collective: Collective type; INVALID for a message.
        num_bytes: Size as ASTRA-sim counts it; 0 if the profile does not say.
        ranks: Members of the group; empty if the profile does not say.
        peer: Peer of a message, -1 if unknown.
    """

    type: NodeType
    collective: CollectiveType
    num_bytes: int
    ranks: tuple[int, ...]
    peer: int = -1


def kernel_communication(kernel: Event, operators: tuple[Event, ...]) -> KernelCommunication | None:
    """Return what a kernel communicates, None if it computes.

    Args:
        kernel: Device event.
        operators: The operators around its launch, outermost first.
    """
    if not _KERNEL.match(kernel.name):
        return None
    collective_name = str(kernel.args.get("Collective name", ""))
    names = [collective_name, kernel.name, *(operator.name for operator in reversed(operators))]
    ranks = _ranks(kernel.args.get("Process Group Ranks"))
    for name in names:
        plain = re.sub(r"[^a-z]", "", name.lower().rpartition("::")[2])
        for kind, collective in _KINDS:
            if kind in plain and "sendrecv" not in plain:
                size = _size(kernel, operators)
                return KernelCommunication(NodeType.COMM_COLL, collective, size, ranks)
        if plain in ("send", "recv") or plain.endswith(("ncclsend", "ncclrecv")):
            kind_of = NodeType.COMM_SEND if "send" in plain else NodeType.COMM_RECV
            size = _size(kernel, operators)
            return KernelCommunication(kind_of, CollectiveType.INVALID, size, ranks)
    # A grouped send and receive moves data both ways: ASTRA-sim's nearest notion is all-to-all.
    size = _size(kernel, operators)
    return KernelCommunication(NodeType.COMM_COLL, CollectiveType.ALL_TO_ALL, size, ranks)


def _size(kernel: Event, operators: tuple[Event, ...]) -> int:
    """Return the bytes that a rank gives, from the kernel's arguments or the operator's tensors."""
    count, dtype = kernel.args.get("In msg nelems"), str(kernel.args.get("dtype", "")).lower()
    if isinstance(count, int) and count > 0:
        return count * _WIDTHS.get(dtype, 4)
    sizes = [tensor_bytes(operator.args) for operator in operators]
    return max(sizes, default=0)


def tensor_bytes(args: dict[str, Any]) -> int:
    """Return the bytes of an operator's largest tensor argument ("Input Dims", "Input type")."""
    shapes, kinds = args.get("Input Dims"), args.get("Input type")
    if not isinstance(shapes, list) or not isinstance(kinds, list):
        return 0
    return max((_bytes(s, str(k)) for s, k in zip(shapes, kinds, strict=False)), default=0)


def _bytes(shape: Any, kind: str) -> int:
    """Return the bytes of one tensor, or of the tensors of one list."""
    if not isinstance(shape, list) or not shape:
        return 0
    width = _WIDTHS.get(kind.lower(), 4 if "tensor" in kind.lower() else 0)
    shapes = [shape] if _is_shape(shape) else [inner for inner in shape if _is_shape(inner)]
    return sum(math.prod(sizes) for sizes in shapes) * width


def _is_shape(value: Any) -> bool:
    """Return whether a value is the shape of a tensor with elements in at least one dimension."""
    return isinstance(value, list) and bool(value) and all(isinstance(n, int) for n in value)


def _ranks(value: object) -> tuple[int, ...]:
    """Return the ranks in a text such as "[0, 1, 2]"; cut-off lists ("...") count as unknown."""
    try:
        ranks: Any = json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        return ()
    known = isinstance(ranks, list) and all(type(rank) is int and rank >= 0 for rank in ranks)
    return tuple(ranks) if known else ()
