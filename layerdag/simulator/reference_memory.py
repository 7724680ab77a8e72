"""Local memory as ASTRA-sim's ``track-local-mem`` tells it: its peak, and its files for Perfetto.

A tensor is held from the issue of the node that writes it, from tick 0 where it is read before, to
the end of its last reader; one that nobody reads is held to the end. Tensors of 0 bytes do not
count. This differs from ``analysis.local_memory``, where what was there before the run (weights) is
held for the whole run.
"""

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from layerdag.errors import SimulationError, UsageError
from layerdag.runtime.files import write_text
from layerdag.simulator.analysis import tensor_lists
from layerdag.simulator.run import SimulationResult
from layerdag.traces.trace import Trace

_MIB = 1 << 20
_UNITS = ("B", "KB", "MB", "GB", "TB")
_UNDEFINED = ("UNDEFINED", 2**64 - 1)
_BEFORE_NS = (0, 10)
"""When the reference has a tensor written that is read before any node writes it."""
_LIFETIMES, _USAGE, _HEAP = 1_000_000, 2_000_000, 3_000_000
"""What is added to the number of a rank for the further rows of its timeline."""
_LONGEST_NAME = 20


@dataclass(frozen=True)
class _Use:
    """A node that reads or writes a tensor."""

    start: int
    end: int
    node: str
    id: int


@dataclass
class _Tensor:
    """A tensor of a rank."""

    name: str
    size: int
    written: _Use
    reads: list[_Use] = field(default_factory=list)


@dataclass(frozen=True)
class RankMemory:
    """Local memory of one rank.

    Attributes:
        rank: The rank.
        tensors: In the order in which they appear.
        usage: Bytes that are held from each tick on.
    """

    rank: int
    tensors: tuple[_Tensor, ...]
    usage: dict[int, int]

    @property
    def peak(self) -> int:
        """The most bytes that are held at a tick."""
        return max(self.usage.values(), default=0)

    def events(self) -> Iterator[dict[str, Any]]:
        """Yield the events of the reference's file.

        Tensors are numbered in the order in which they appear; the reference numbers them in the
        order of a hash table.
        """
        for number, tensor in enumerate(self.tensors):
            for use in tensor.reads:
                yield from self._pair(number, tensor, "tensorRead", use)
        for number, tensor in enumerate(self.tensors):
            yield from self._pair(number, tensor, "tensorWrite", tensor.written)
        for number, tensor in enumerate(self.tensors):
            yield self._lifetime(number, tensor, "B", tensor.written.start)
        for number, tensor in enumerate(self.tensors):
            if tensor.reads:
                yield self._lifetime(number, tensor, "E", tensor.reads[-1].end)
        for tick, held in self.usage.items():
            yield {
                "name": "GPU Memory Usage (MB)", "cat": "GPU Memory", "ph": "C", "ts": tick / 1000,
                "pid": self.rank + _USAGE, "args": {"Memory_MB": held / _MIB},
            }  # fmt: skip
        yield from self._heap()

    def _pair(self, number: int, tensor: _Tensor, kind: str, use: _Use) -> Iterator[dict[str, Any]]:
        args = {"size": tensor.size, "node_name": use.node, "node_id": use.id}
        for phase, tick in (("B", use.start), ("E", use.end)):
            yield {
                "name": tensor.name, "cat": kind, "ph": phase, "ts": tick / 1000,
                "pid": self.rank, "tid": number, "args": args,
            }  # fmt: skip

    def _lifetime(self, number: int, tensor: _Tensor, phase: str, tick: int) -> dict[str, Any]:
        return {
            "name": tensor.name, "cat": "tensorLifetime", "ph": phase, "ts": tick / 1000,
            "pid": self.rank + _LIFETIMES, "tid": number, "args": {"size": tensor.size},
        }  # fmt: skip

    def _heap(self) -> Iterator[dict[str, Any]]:
        """Yield tensors by how long they live, the longest first."""
        pid, last = self.rank + _HEAP, max(self.usage, default=0)
        for name, label, more in (
            ("process_name", "Tensor Lifetime Heap", {}),
            ("thread_name", "Longest Lifetime → Shortest Lifetime", {"tid": 0}),
        ):
            yield {"name": name, "ph": "M", "pid": pid, **more, "args": {"name": label}}
        lives = [
            (tensor, (tensor.reads[-1].end if tensor.reads else last) - tensor.written.start)
            for tensor in self.tensors
        ]
        lives.sort(key=lambda life: -life[1])
        spread = (lives[0][1] - lives[-1][1]) if lives else 0
        largest = max((tensor.size for tensor in self.tensors), default=1)
        for tensor, life in lives:
            share = (life - lives[-1][1]) / spread if spread else 0.0
            position, heat = int(share * (len(lives) - 1)), int(tensor.size / largest * 255)
            label = tensor.name
            label = f"{label[: _LONGEST_NAME - 3]}..." if len(label) > _LONGEST_NAME else label
            yield {
                "name": f"{label} ({f'{tensor.size / _MIB:.6f}'[:5]} MB)", "cat": "tensorHeatmap",
                "ph": "X", "ts": tensor.written.start / 1000, "dur": life / 1000, "pid": pid,
                "tid": position, "cname": f"#{heat:02X}64{255 - heat:02X}",
                "args": {
                    "tensor_name": tensor.name, "size_bytes": tensor.size,
                    "size_mb": tensor.size / _MIB, "lifetime_ns": life, "position": position,
                },
            }  # fmt: skip
        yield {
            "name": "Tensor Lifetime Heatmap", "cat": "tensorHeatmap", "ph": "i", "ts": 0,
            "pid": pid, "s": "p",
            "args": {
                "description": "Tensors arranged by lifetime duration (longest at bottom)",
                "total_tensors": len(lives), "displayed_tensors": len(lives),
            },
        }  # fmt: skip


def reference_memory(result: SimulationResult) -> Iterator[RankMemory]:
    """Yield the local memory of each rank.

    Raises:
        SimulationError: If a node does not name its tensors, where the reference stops, too.
    """
    for rank in range(result.num_ranks):
        yield _rank_memory(result, rank)


def _rank_memory(result: SimulationResult, rank: int) -> RankMemory:
    trace, rows = result.program.workload.traces[rank], result.rows(rank)
    inputs, outputs = (_every(trace, name) for name in ("inputs", "outputs"))
    order = np.argsort(trace.id_N, kind="stable")
    issue_N, finish_N = result.issue_ns[rows], result.finish_ns[rows]
    names = trace.names()
    tensors: dict[str, _Tensor] = {}
    # The reference writes down what a node uses when it ends.
    for row in np.lexsort((trace.id_N[order], finish_N)).tolist():
        position = int(order[row])
        node = (names[position], int(trace.id_N[position]))
        use = _Use(int(issue_N[row]), int(finish_N[row]), *node)
        for name, size in inputs.get(position, ()):
            if size:
                there = _Tensor(name, size, _Use(*_BEFORE_NS, *_UNDEFINED))
                tensors.setdefault(name, there).reads.append(use)
        for name, size in outputs.get(position, ()):
            if size:
                tensors.setdefault(name, _Tensor(name, size, use))
    return RankMemory(rank, tuple(tensors.values()), _usage(list(tensors.values())))


def _usage(tensors: list[_Tensor]) -> dict[int, int]:
    """Return the bytes that are held after each tick at which a tensor begins or ends."""
    change: dict[int, int] = defaultdict(int)
    for tensor in tensors:
        change[tensor.written.start] += tensor.size
        if tensor.reads:
            change[tensor.reads[-1].end] -= tensor.size
    held, usage = 0, {}
    for tick in sorted(change):
        held += change[tick]
        usage[tick] = held
    return usage


def _every(trace: Trace, name: str) -> dict[int, list[tuple[str, int]]]:
    """Return the tensors of each node by its position."""
    found = dict(tensor_lists(trace, name))
    if len(found) < trace.num_nodes:
        missing = next(i for i in range(trace.num_nodes) if i not in found)
        raise SimulationError(
            f"{trace.source}: node {int(trace.id_N[missing])} has no attribute '{name}', which "
            "track-local-mem needs on every node, and without which ASTRA-sim stops; set "
            "track-local-mem to 0."
        )
    return found


def in_units(size: int) -> str:
    """Return a number of bytes as the reference prints it: "144.94 MB", of 2**20 bytes."""
    value, unit = float(size), 0
    while value >= 1024 and unit + 1 < len(_UNITS):
        value, unit = value / 1024, unit + 1
    return f"{value:.2f} {_UNITS[unit]}"


def write_memory(found: RankMemory, prefix: str) -> Path:
    """Write ``PREFIX.<rank>.json``, for Perfetto.

    Raises:
        UsageError: If another file lies there.
    """
    path = Path(f"{prefix}.{found.rank}.json")
    if path.exists() and '"traceEvents"' not in path.read_text(errors="replace")[:100]:
        raise UsageError(f"{path}: holds no memory trace and is not replaced; move it away.")
    write_text(path, json.dumps({"traceEvents": list(found.events())}, indent=2))
    return path
