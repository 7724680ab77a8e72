"""Sends and receives lowered to kernel nodes, and checked as the reference checks them."""

import numpy as np

from layerdag.errors import SimulationError
from layerdag.simulator.engine._nodes import NodeColumns, NodeKind
from layerdag.traces import NodeType, Trace

TAG_MODULUS = 500_000_000
MAX_TAG = 2**31 - 1

_ENDS = (
    (NodeType.COMM_SEND, NodeKind.SEND, "comm_dst", "comm_src"),
    (NodeType.COMM_RECV, NodeKind.RECV, "comm_src", "comm_dst"),
)
"""Type, kind, the attribute with the other rank, and the one with the rank of the trace itself."""


def lower_messages(nodes: NodeColumns, num_ranks: int, slowest: float) -> None:
    """Fill the columns of sends and receives.

    Args:
        nodes: Columns under construction.
        num_ranks: Ranks of the cluster.
        slowest: Lowest rate of the cluster in bytes per ns.

    Raises:
        SimulationError: If an attribute is missing or out of bounds; names file and node.
    """
    for type_, kind, peer, _ in _ENDS:
        wanted = nodes.type_N == type_
        if not wanted.any():
            continue
        rows = np.flatnonzero(wanted)
        rank = nodes.attribute(peer, wanted)
        outside = (rank < 0) | (rank >= num_ranks)
        if outside.any():
            found = int(rank[np.argmax(outside)])
            raise nodes.error_at(
                rows[outside], f"has {peer} {found}, but ranks are 0 to {num_ranks - 1}"
            )
        size = nodes.attribute("comm_size", wanted)
        if (size <= 0).any():
            raise nodes.error_at(rows[size <= 0], "has no positive comm_size; give its bytes")
        nodes.check_time(rows, size, slowest)
        tag = nodes.attribute("comm_tag", wanted)
        odd = (tag < 0) | (tag > MAX_TAG)
        if odd.any():
            found = int(tag[np.argmax(odd)])
            raise nodes.error_at(rows[odd], f"has comm_tag {found}; tags are 0 to {MAX_TAG}")
        nodes.kind_N[wanted] = kind
        nodes.peer_N[wanted] = rank
        nodes.duration_or_bytes_N[wanted] = size
        nodes.tag_N[wanted] = tag % TAG_MODULUS


def stated_ranks(trace: Trace) -> frozenset[int]:
    """Return the ranks that sends state as their own in comm_src, and receives in comm_dst."""
    found: set[int] = set()
    for type_, _, _, own in _ENDS:
        is_end_N = trace.type_N == type_
        if is_end_N.any():
            value_N, present_N = trace.integers(own)
            found |= set(value_N[is_end_N & present_N].tolist())
    return frozenset(found)


def foreign_end(trace: Trace, rank: int) -> SimulationError:
    """Return the error about the first message of ``rank`` that states another rank as its own."""
    for type_, _, _, own in _ENDS:
        value_N, present_N = trace.integers(own)
        wrong_N = (trace.type_N == type_) & present_N & (value_N != rank)
        if wrong_N.any():
            row = int(np.argmax(wrong_N))
            break
    what, who = ("send", "sender") if type_ == NodeType.COMM_SEND else ("receive", "receiver")
    return SimulationError(
        f"rank {rank}: {trace.source}: node {int(trace.id_N[row])} is a {what} with {own} "
        f"{int(value_N[row])}, but stands in the trace of rank {rank}; a {what} belongs to its "
        f"{who}, so write {rank} or leave {own} out."
    )
