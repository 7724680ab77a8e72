"""Communication operators of PyTorch: which argument is sent, received, group, peer and tag.

Two families appear in host traces, whatever the backend: ``c10d::*`` (the C++ process group; the
group is an opaque object) and ``_c10d_functional::*`` (functional collectives; the group's name is
an argument). The size of a message follows ASTRA-sim: all-reduce, reduce-scatter and all-to-all
count the whole buffer of a rank, all-gather the shard that a rank gives.
"""

from dataclasses import dataclass

from layerdag.traces import CollectiveType, NodeType


@dataclass(frozen=True, slots=True)
class CommunicationOperator:
    """How to read the arguments of one communication operator.

    Attributes:
        name: Public name, such as "c10d::all_reduce", the same for both families.
        type: COMM_COLL, COMM_SEND or COMM_RECV.
        collective: Collective type; INVALID for send and receive.
        sent: Position of the tensors that the rank gives, -1 for none.
        received: Position of the tensors that are written, -1 if the results are.
        group: Position of the group's name, -1 where the group is an opaque object.
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
    """Return a collective with its public name."""
    name = f"c10d::{kind.name.lower()}"
    return CommunicationOperator(name, NodeType.COMM_COLL, kind, sent, received, group)


def _message(name: str, kind: NodeType, sent: int, received: int) -> CommunicationOperator:
    """Return a send or receive, whose peer and tag are arguments 2 and 3."""
    return CommunicationOperator(
        name, kind, CollectiveType.INVALID, sent, received, group=-1, peer=2
    )


_K = CollectiveType

COMMUNICATION: dict[str, CommunicationOperator] = {
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
}
"""Every communication operator by the name it has in a host trace."""

WAITS = frozenset({"_c10d_functional::wait_tensor", "c10d::monitored_barrier_"})
"""Operators that wait for a communication that was started before."""
