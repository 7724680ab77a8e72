"""What the nodes of an unfolded job last, compute and move: numbers that every consumer can time.

The roofline of a simulator needs FLOPs and bytes of every operator. A sampled graph can lack them,
and communication that became work for want of a partner never had any. What is missing is filled
in from what the node does state, in this order:

1. Communication of a single rank is a copy: it reads and writes its own size.
2. An operator that states FLOPs only is timed by them: it moves one element.
3. An operator that states neither moves what the others of the job, by their median, move in its
   duration; one element where durations are missing, too.
4. An operator that states bytes only does one operation for each element it writes, having read
   as many (`layerdag.traces.pytorch.operators` counts element-wise operators like that).

A job in which no node states any cost gets none: it was learned from traces that have only times.
"""

from dataclasses import dataclass, replace

import numpy as np

from layerdag.codec._fold import HOST, MESSAGE
from layerdag.codec._placement import COLLECTIVE, COMPUTE, JobPlan
from layerdag.traces.chakra import START_BYTES, START_OPS

ELEMENT_BYTES = 4
MIN_BYTES = 1
# Of bytes, of operations, and of ns: the simulator runs no node longer than 11 days.
_MOST = 10**15
_MEMORY = ("MEM_LOAD", "MEM_STORE")


@dataclass(frozen=True, eq=False)
class NodeNumbers:
    """The numeric attributes of all nodes of a job, int64 (N,), 0 for absent.

    Attributes:
        duration_N: ns.
        flops_N: Floating-point operations.
        bytes_N: Bytes read and written.
        comm_bytes_N: Bytes of a message or collective.
        filled: Number of compute nodes whose FLOPs or bytes were filled in.
        lifted: Number of nodes that were made larger by ``with_time_at_start``.
    """

    duration_N: np.ndarray
    flops_N: np.ndarray
    bytes_N: np.ndarray
    comm_bytes_N: np.ndarray
    filled: int = 0
    lifted: int = 0


def node_numbers(plan: JobPlan) -> NodeNumbers:
    """Return the numbers of a job's nodes; what consumers need and the graph lacks is filled in."""
    found = NodeNumbers(
        duration_N=_whole(plan, "duration"),
        flops_N=_whole(plan, "flops"),
        bytes_N=_whole(plan, "bytes"),
        comm_bytes_N=_whole(plan, "comm_bytes"),
    )
    computes_N = np.array([kind == COMPUTE for kind in plan.kind_N])
    memory_N = np.array([kind in _MEMORY for kind in plan.kind_N])
    bytes_N = np.where(memory_N, np.maximum(found.bytes_N, MIN_BYTES), found.bytes_N)
    comm_bytes_N = np.where(
        computes_N | memory_N, found.comm_bytes_N, np.maximum(found.comm_bytes_N, MIN_BYTES)
    )
    found = replace(found, bytes_N=bytes_N, comm_bytes_N=comm_bytes_N)
    # What became compute by a repair is counted as that repair alone.
    meant_N = np.array([word == COMPUTE for word in plan.graph.categories["type"]])
    return _with_costs(found, computes_N, meant_N)


def _whole(plan: JobPlan, name: str) -> np.ndarray:
    """Return an attribute rounded to whole numbers, 0 for absent."""
    values = plan.graph.numbers.get(name)
    if values is None:
        return np.zeros(plan.graph.num_nodes, dtype=np.int64)
    known_N = np.nan_to_num(values, nan=0.0, posinf=_MOST, neginf=0.0)
    return np.rint(np.clip(known_N, 0, _MOST)).astype(np.int64)


def _with_costs(numbers: NodeNumbers, computes_N: np.ndarray, counted_N: np.ndarray) -> NodeNumbers:
    """Fill in FLOPs and bytes of the compute nodes; the rules stand at the top of the module."""
    flops_N, bytes_N = numbers.flops_N, numbers.bytes_N
    # Compute nodes have a size of communication only if they were communication.
    bytes_N = np.where(computes_N & (bytes_N == 0), 2 * numbers.comm_bytes_N, bytes_N)
    if not ((flops_N > 0) | (bytes_N > 0))[computes_N].any():
        return numbers
    bare_N = computes_N & (bytes_N == 0)
    moved_N = np.where(flops_N > 0, 0, _moved_in_time(numbers.duration_N, bytes_N, computes_N))
    bytes_N = np.where(bare_N, np.maximum(moved_N, ELEMENT_BYTES), bytes_N)
    idle_N = computes_N & (flops_N == 0)
    flops_N = np.where(idle_N, np.maximum(bytes_N // (2 * ELEMENT_BYTES), 1), flops_N)
    filled_N = counted_N & ((numbers.bytes_N == 0) | (numbers.flops_N == 0))
    return replace(numbers, flops_N=flops_N, bytes_N=bytes_N, filled=int(filled_N.sum()))


def _moved_in_time(
    duration_N: np.ndarray, bytes_N: np.ndarray, computes_N: np.ndarray
) -> np.ndarray:
    """Return what nodes of these durations move at the median rate of the compute nodes, int64."""
    told_N = computes_N & (duration_N > 0) & (bytes_N > 0)
    if not told_N.any():
        return np.zeros_like(bytes_N)
    rate = float(np.median(bytes_N[told_N] / duration_N[told_N]))
    return np.rint(np.minimum(rate * duration_N, _MOST)).astype(np.int64)


def with_time_at_start(plan: JobPlan, numbers: NodeNumbers) -> NodeNumbers:
    """Let what ranks start with last at least 1 ns.

    ASTRA-sim aborts where a node takes 0 ns at tick 0, and rounds times down: an operator on a few
    hundred bytes takes none. So the first operator of each rank's device, and a message or memory
    access that is its first communication, get a size that no device of today moves in less than
    1 ns (``START_BYTES``), unless the operator's FLOPs take as long.
    """
    opens_N = _opens_a_slot(plan)
    messages_N = np.array([kind == MESSAGE for kind in plan.kind_N])
    computes_N = np.array([kind == COMPUTE for kind in plan.kind_N])
    short_N = opens_N & ~messages_N & (numbers.bytes_N > 0) & (numbers.bytes_N < START_BYTES)
    short_N &= ~computes_N | (numbers.flops_N < START_OPS)
    small_N = opens_N & messages_N & (numbers.comm_bytes_N < START_BYTES)
    return replace(
        numbers,
        bytes_N=np.where(short_N, START_BYTES, numbers.bytes_N),
        comm_bytes_N=np.where(small_N, START_BYTES, numbers.comm_bytes_N),
        lifted=int((short_N | small_N).sum()),
    )


def _opens_a_slot(plan: JobPlan) -> np.ndarray:
    """Return which nodes start at tick 0 on the device or communication slot of a rank, bool (N,).

    Ready nodes start by ascending id, so these are the first of those that wait for nothing.
    Collectives are left out: they begin with a delay of their own.
    """
    opens_N = np.zeros(plan.graph.num_nodes, dtype=bool)
    device_N = plan.column("device")
    for stage in range(plan.num_stages):
        mine_N = plan.takes_part(stage)
        holds_N = plan.holds_slot(stage)
        free = [
            node
            for node in np.flatnonzero(mine_N).tolist()
            if not any(mine_N[parent] for parent, _ in plan.parents[node])
        ]
        works = (n for n in free if plan.kind_N[n] == COMPUTE and device_N[n] != HOST)
        holds = (n for n in free if holds_N[n])
        for first in (next(works, None), next(holds, None)):
            if first is not None and plan.kind_N[first] != COLLECTIVE:
                opens_N[first] = True
    return opens_N
