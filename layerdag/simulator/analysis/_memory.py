"""Local memory of each rank over time, by liveness of the tensors that its trace names.

A node may name its tensors in the attributes ``inputs`` and ``outputs``, string lists of names and
sizes in bytes in turn (``name, bytes, name, bytes, ...``), as STAGE writes them and ASTRA-sim's
``track-local-mem`` reads them. A tensor is live from the issue of its writer (of several, the one
of lowest id) to the end of the last node that uses it. What no node writes before it is read
(weights, inputs) is live for the whole run, what no node reads (results) until the rank's end. A
node without these lists holds its ``tensor_size``, the bytes that it touches, while it runs: a
lower bound.
"""

from dataclasses import dataclass

import numpy as np

from layerdag.errors import SimulationError
from layerdag.graph import pointers
from layerdag.simulator import SimulationResult
from layerdag.traces import Trace
from layerdag.traces.chakra import value_of


@dataclass(frozen=True, eq=False)
class LocalMemory:
    """Peak of the local memory of each rank.

    Attributes:
        peak_bytes_R: int64 (R,).
        peak_ns_R: int64 (R,), first tick at which the peak is held.
        listed_R: float64 (R,), share of nodes that name their tensors; where it is below 1, the
            peak is a lower bound.
    """

    peak_bytes_R: np.ndarray
    peak_ns_R: np.ndarray
    listed_R: np.ndarray

    def summary(self) -> dict[str, object]:
        """Return the peaks as ``--json`` writes them."""
        return {
            "peak_memory_bytes": {str(r): int(size) for r, size in enumerate(self.peak_bytes_R)},
            "peak_memory_at": {str(r): int(time) for r, time in enumerate(self.peak_ns_R)},
            "nodes_with_tensors": {
                str(r): float(fraction) for r, fraction in enumerate(self.listed_R)
            },
        }

    def line(self) -> str:
        """Return the highest peak and how much of it is known, for the terminal."""
        rank = int(np.argmax(self.peak_bytes_R))
        bound = "" if self.listed_R.min() == 1 else ", a lower bound"
        return (
            f"peak local memory {self.peak_bytes_R[rank] / 1e9:.3f} GB on rank {rank}{bound} "
            f"({self.listed_R.mean():.0%} of nodes name their tensors)"
        )

    def over(self, capacity_bytes: int) -> str:
        """Return a sentence on the first rank whose peak exceeds the capacity, "" for none."""
        over = np.flatnonzero(self.peak_bytes_R > capacity_bytes)
        if not over.size:
            return ""
        rank = int(over[0])
        return (
            f"rank {rank} holds {int(self.peak_bytes_R[rank])} bytes at "
            f"{int(self.peak_ns_R[rank])} ns, more than the capacity of {capacity_bytes} bytes "
            f"({over.size} of {len(self.peak_bytes_R)} ranks exceed it); shard more or enlarge it."
        )


@dataclass(frozen=True, eq=False)
class _Tensors:
    """Tensors of one trace: T of them, U uses (reads and writes) sorted by tensor."""

    bytes_T: np.ndarray
    use_ptr_T1: np.ndarray
    row_U: np.ndarray
    written_T: np.ndarray  # whether a node writes it before any reads it
    read_T: np.ndarray
    first_write_T: np.ndarray  # row; meaningless where written_T is False
    bytes_N: np.ndarray  # what a node without lists holds while it runs
    listed: float


def local_memory(result: SimulationResult) -> LocalMemory:
    """Return the peak local memory of each rank.

    Raises:
        SimulationError: If a list of tensors is no list of names and sizes; names file and node.
    """
    program = result.program
    tensors = [
        _tensors(result.program.workload.traces[int(np.argmax(program.class_of_rank == index))])
        for index in range(len(program.classes))
    ]
    peaks = [
        _peak(
            tensors[program.class_of_rank[rank]],
            result.issue_ns[result.rows(rank)],
            result.finish_ns[result.rows(rank)],
        )
        for rank in range(result.num_ranks)
    ]
    listed = np.array([tensors[index].listed for index in program.class_of_rank])
    peak_R2 = np.array(peaks, dtype=np.int64)
    return LocalMemory(peak_R2[:, 0], peak_R2[:, 1], listed)


def _peak(tensors: _Tensors, issue_N: np.ndarray, finish_N: np.ndarray) -> tuple[int, int]:
    """Return (bytes, tick) of the peak; at one tick, what ends is freed before what begins."""
    start_T = np.where(tensors.written_T, issue_N[tensors.first_write_T], 0)
    last_use_T = np.zeros(0, dtype=np.int64)
    if len(start_T):
        last_use_T = np.maximum.reduceat(finish_N[tensors.row_U], tensors.use_ptr_T1[:-1])
    kept_T = ~(tensors.written_T & tensors.read_T)
    end_T = np.where(kept_T, finish_N.max(), last_use_T)
    size = np.concatenate([tensors.bytes_T, tensors.bytes_N])
    start = np.concatenate([start_T, issue_N])
    end = np.concatenate([end_T, finish_N])
    lasting = end > start
    change = np.concatenate([size[lasting], -size[lasting]])
    time = np.concatenate([start[lasting], end[lasting]])
    if not len(time):
        return 0, 0
    order = np.lexsort((change, time))
    held = np.cumsum(change[order])
    top = int(np.argmax(held))
    return int(held[top]), int(time[order][top])


def _tensors(trace: Trace) -> _Tensors:
    """Return the tensors of a trace, rows in ascending node id."""
    order = np.argsort(trace.id_N, kind="stable")
    row_of = np.empty_like(order)
    row_of[order] = np.arange(len(order))
    index_of: dict[str, int] = {}
    sizes: list[int] = []
    uses: list[tuple[int, int, bool]] = []
    listed_N = np.zeros(trace.num_nodes, dtype=bool)
    for attribute, writes in (("inputs", False), ("outputs", True)):
        for position, pairs in _lists(trace, attribute):
            listed_N[row_of[position]] = True
            for name, size in pairs:
                index = index_of.setdefault(name, len(sizes))
                if index == len(sizes):
                    sizes.append(0)
                sizes[index] = max(sizes[index], size)
                uses.append((index, int(row_of[position]), writes))
    use_U3 = np.array(sorted(uses), dtype=np.int64).reshape(-1, 3)
    tensor_U, row_U, writes_U = use_U3[:, 0], use_U3[:, 1], use_U3[:, 2] == 1
    count = len(sizes)
    first_write_T, first_read_T = (np.full(count, trace.num_nodes) for _ in range(2))
    np.minimum.at(first_write_T, tensor_U[writes_U], row_U[writes_U])
    np.minimum.at(first_read_T, tensor_U[~writes_U], row_U[~writes_U])
    # What is read first, such as a weight that its optimizer updates, was there before.
    written_T = first_write_T < first_read_T
    touched_N = np.maximum(trace.integers("tensor_size")[0][order], 0)
    return _Tensors(
        bytes_T=np.array(sizes, dtype=np.int64),
        use_ptr_T1=pointers(np.bincount(tensor_U, minlength=count)),
        row_U=row_U,
        written_T=written_T,
        read_T=first_read_T < trace.num_nodes,
        first_write_T=np.minimum(first_write_T, trace.num_nodes - 1),
        bytes_N=np.where(listed_N, 0, touched_N),
        listed=float(listed_N.mean()),
    )


def _lists(trace: Trace, name: str) -> list[tuple[int, list[tuple[str, int]]]]:
    """Return (position in the trace, its tensors) of each node that carries the list ``name``."""
    table = trace.attributes
    if name not in trace.strings:
        return []
    row_A = np.flatnonzero(table.name_A == trace.strings.index(name))
    node_A = np.searchsorted(table.ptr_N1, row_A, side="right") - 1
    found = []
    for row, node in zip(row_A.tolist(), node_A.tolist(), strict=True):
        try:
            pairs = _pairs(value_of(table, row, trace.strings))
        except ValueError:
            raise SimulationError(
                f"{trace.source}: node {int(trace.id_N[node])} has an attribute '{name}' that is "
                "no string list of names and bytes in turn; repair or drop it."
            ) from None
        found.append((node, pairs))
    return found


def _pairs(value: object) -> list[tuple[str, int]]:
    """Return names with sizes in bytes of "name, bytes, name, bytes, ...", or raise ValueError."""
    if not isinstance(value, tuple) or len(value) % 2:
        raise ValueError
    pairs = []
    for name, size in zip(value[::2], value[1::2], strict=True):
        number = float(str(size))
        if not 0 <= number < 2**62:  # refuses NaN too
            raise ValueError
        pairs.append((str(name), int(number)))
    return pairs
