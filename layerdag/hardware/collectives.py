"""Collectives: how formats, libraries and operators of PyTorch spell them, and who times them."""

from dataclasses import dataclass
from enum import IntEnum


class CollectiveType(IntEnum):
    """Chakra ``CollectiveCommType``; 0 is a real value, so absence must be kept apart."""

    ALL_REDUCE = 0
    REDUCE = 1
    ALL_GATHER = 2
    GATHER = 3
    SCATTER = 4
    BROADCAST = 5
    ALL_TO_ALL = 6
    REDUCE_SCATTER = 7
    REDUCE_SCATTER_BLOCK = 8
    BARRIER = 9
    INVALID = 99


@dataclass(frozen=True, slots=True)
class Collective:
    """A row of the table.

    Attributes:
        type: In a Chakra trace.
        kernel: What names of NCCL's kernels and arguments hold, letters alone and in lower case.
        hlo: Its operation in StableHLO and HLO, "" where there is none.
        simulated: Whether the simulator has algorithms for it.
        measured: Whether its times in a node were measured.
    """

    type: CollectiveType
    kernel: str
    hlo: str = ""
    simulated: bool = False
    measured: bool = False

    @property
    def name(self) -> str:
        """Such as "all_reduce"."""
        return self.type.name.lower()


_T = CollectiveType
COLLECTIVES = (
    Collective(_T.ALL_REDUCE, "allreduce", "all_reduce", simulated=True, measured=True),
    Collective(_T.ALL_GATHER, "allgather", "all_gather", simulated=True, measured=True),
    Collective(_T.REDUCE_SCATTER, "reducescatter", "reduce_scatter", simulated=True, measured=True),
    Collective(_T.ALL_TO_ALL, "alltoall", "all_to_all", simulated=True, measured=True),
    Collective(_T.BROADCAST, "broadcast", "collective_broadcast", simulated=True),
    Collective(_T.GATHER, "gather"),
    Collective(_T.SCATTER, "scatter"),
    Collective(_T.REDUCE, "reduce"),
    Collective(_T.BARRIER, "barrier"),
)
"""Every collective. A name that is a part of others comes after them."""


@dataclass(frozen=True, slots=True)
class CommunicationOperator:
    """How to read the arguments of one of PyTorch's operators that communicate.

    Attributes:
        kind: A collective by its name in ``COLLECTIVES``, "send" or "recv".
        sent: Position of the tensors that the rank gives, -1 for none.
        received: Position of the tensors that are written, -1 if the results are.
        group: Position of the group's name or of its list of ranks, -1 where the group is an opaque
            object.
    """

    kind: str
    sent: int
    received: int
    group: int = -1

    @property
    def name(self) -> str:
        """Its public name, such as "c10d::all_reduce", the same for all families."""
        return f"c10d::{self.kind}"

    @property
    def is_message(self) -> bool:
        """Whether it is a send or receive, which no other rank of its group takes part in."""
        return self.kind in ("send", "recv")

    @property
    def type(self) -> CollectiveType:
        """Of the collective; INVALID for a message."""
        return CollectiveType.INVALID if self.is_message else CollectiveType[self.kind.upper()]


PEER = 2
"""Position of the peer of a message; its tag follows."""

# A line: collective, positions of what is sent, received and of the group, then the operators.
_COMMUNICATION = """
all_reduce 0 0 -1 c10d::allreduce_ c10d::allreduce_coalesced_
broadcast 0 0 -1 c10d::broadcast_
reduce 0 0 -1 c10d::reduce_
all_gather 1 0 -1 c10d::allgather_ c10d::_allgather_base_ c10d::allgather_coalesced_
all_gather 1 0 -1 c10d::allgather_into_tensor_coalesced_
reduce_scatter 1 0 -1 c10d::reduce_scatter_ c10d::_reduce_scatter_base_
reduce_scatter 1 0 -1 c10d::reduce_scatter_tensor_coalesced_
all_to_all 1 0 -1 c10d::alltoall_ c10d::alltoall_base_
gather 1 0 -1 c10d::gather_
scatter 1 0 -1 c10d::scatter_
barrier 0 -1 -1 c10d::barrier
send 0 -1 -1 c10d::send
recv -1 0 -1 c10d::recv_ c10d::recv_any_source_
all_reduce 0 -1 2 _c10d_functional::all_reduce _c10d_functional::all_reduce_coalesced
all_reduce 0 0 2 _c10d_functional::all_reduce_ _c10d_functional::all_reduce_coalesced_
all_gather 0 -1 2 _c10d_functional::all_gather_into_tensor
all_gather 0 3 2 _c10d_functional::all_gather_into_tensor_out
all_gather 0 -1 2 _c10d_functional::all_gather_into_tensor_coalesced
reduce_scatter 0 -1 3 _c10d_functional::reduce_scatter_tensor
reduce_scatter 0 -1 3 _c10d_functional::reduce_scatter_tensor_coalesced
reduce_scatter 0 4 3 _c10d_functional::reduce_scatter_tensor_out
all_to_all 0 -1 3 _c10d_functional::all_to_all_single
broadcast 0 -1 2 _c10d_functional::broadcast
broadcast 0 0 2 _c10d_functional::broadcast_
all_reduce 0 -1 3 c10d_functional::all_reduce c10d_functional::all_reduce_coalesced
broadcast 0 -1 3 c10d_functional::broadcast
all_gather 0 -1 2 c10d_functional::all_gather_into_tensor
all_gather 0 -1 2 c10d_functional::all_gather_into_tensor_coalesced
reduce_scatter 0 -1 3 c10d_functional::reduce_scatter_tensor
reduce_scatter 0 -1 3 c10d_functional::reduce_scatter_tensor_coalesced
all_to_all 0 -1 4 c10d_functional::all_to_all_single
all_reduce 0 0 2 symm_mem::multimem_all_reduce_ symm_mem::two_shot_all_reduce_
all_reduce 0 -1 2 symm_mem::multimem_one_shot_all_reduce symm_mem::one_shot_all_reduce
all_reduce 0 3 2 symm_mem::multimem_one_shot_all_reduce_out symm_mem::one_shot_all_reduce_out
all_reduce 0 3 2 symm_mem::two_shot_all_reduce_out
all_reduce 1 -1 3 symm_mem::one_shot_all_reduce_copy
all_reduce 1 4 3 symm_mem::one_shot_all_reduce_copy_out
reduce 0 4 3 symm_mem::multimem_one_shot_reduce_out
all_gather 0 2 1 symm_mem::multimem_all_gather_out
all_gather 0 -1 1 symm_mem::_low_contention_all_gather
reduce_scatter 0 3 1 symm_mem::reduce_scatter_out
reduce_scatter 0 -1 2 symm_mem::_low_contention_reduce_scatter
broadcast 0 0 2 symm_mem::nvshmem_broadcast
all_to_all 0 1 2 symm_mem::nvshmem_all_to_all
all_to_all 0 1 4 symm_mem::all_to_all_vdev symm_mem::all_to_all_vdev_2d
all_to_all 0 1 4 symm_mem::all_to_all_vdev_2d_offset
all_reduce 1 2 -1 _C_custom_ar::all_reduce _C_custom_ar::all_reduce_reg
"""

COMMUNICATION_OPERATORS: dict[str, CommunicationOperator] = {
    name: CommunicationOperator(kind, *map(int, positions))
    for kind, *positions, names in (
        line.split(None, 4) for line in _COMMUNICATION.split("\n")[1:-1]
    )
    for name in names.split()
}
"""PyTorch's operators that communicate, by the names that they have in a host trace.

Several families appear, whatever the backend: ``c10d::*`` (the C++ process group; the group is an
opaque object), ``_c10d_functional::*`` (functional collectives; the group's name is an argument),
``c10d_functional::*`` (those of PyTorch 2.1 and 2.2, with the list of the group's ranks),
``symm_mem::*`` (symmetric memory, with the group's name) and ``_C_custom_ar::*`` (vLLM, without a
group)."""

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
