"""Dependencies between operations from the memory they touch: read-after-write, and order.

Operations are gone through in program order, and for each storage the last writers of its byte
ranges are kept. Storage ids are names in time: freed memory is handed out again under the same id,
so a storage that is allocated (by an allocation, a result that is no argument) forgets its past.
A Python number in an operator's arguments may appear as a tensor without shape whose memory nobody
was seen to allocate. Beside a tensor with a shape it counts as a number; else it is taken for the
result of an earlier operator only if it fits exactly.
The cost is linear in operations plus dependencies.
"""

import ctypes
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from layerdag._runtime import library
from layerdag.traces.chakra import ragged
from layerdag.traces.pytorch.host._operation import Operation
from layerdag.traces.pytorch.operators import WHOLE, OpRole, TensorView

MAX_SEGMENTS = 256
"""Byte ranges that are kept apart in one storage; beyond, its history is merged into one range."""


MAX_SEARCH = 50_000
"""Ancestors of one node that the transitive reduction looks at."""


@dataclass(frozen=True)
class Dependencies:
    """Dependencies of each node, as ascending positions of earlier nodes.

    Attributes:
        data: True data flow: the node reads what the other one wrote.
        order: The node overwrites what the other one read or wrote, and no data flows.
    """

    data: tuple[tuple[int, ...], ...]
    order: tuple[tuple[int, ...], ...]


@dataclass
class _Segment:
    """A byte range with its last writer (-1: written before the trace) and readers since."""

    begin: int
    end: int
    writer: int
    dtype: str
    readers: list[int] = field(default_factory=list)

    def feeds(self, tensor: TensorView) -> bool:
        """Return whether a read of the tensor reads from this range."""
        if tensor.is_number:
            fits = (self.begin, self.end) == (tensor.begin, tensor.end)
            return fits and self.dtype == tensor.dtype
        return tensor.begin < self.end and self.begin < tensor.end


class _Memory:
    """The live segments of each storage."""

    def __init__(self) -> None:
        self._segments: dict[int, list[_Segment]] = {}

    def forget(self, storage: int) -> None:
        """Drop the history of a storage that is allocated."""
        self._segments.pop(storage, None)

    def read(self, tensor: TensorView, reader: int) -> list[int]:
        """Record a read and return the writers of what is read."""
        segments = self._segments.setdefault(tensor.storage, [])
        met = [segment for segment in segments if segment.feeds(tensor)]
        if not met:
            met = [_Segment(tensor.begin, tensor.end, -1, tensor.dtype)]
            segments.extend(met)
        for segment in met:
            segment.readers.append(reader)
        return [segment.writer for segment in met if segment.writer >= 0]

    def write(self, tensor: TensorView, writer: int) -> list[int]:
        """Record a write and return all who wrote or read what is overwritten."""
        segments = self._segments.get(tensor.storage, [])
        begin, end = tensor.begin, tensor.end
        if len(segments) >= MAX_SEGMENTS:
            begin, end = 0, WHOLE
        before: list[int] = []
        kept = []
        for segment in segments:
            if not (begin < segment.end and segment.begin < end):
                kept.append(segment)
                continue
            before.append(segment.writer)
            before.extend(segment.readers)
            if segment.begin < begin or segment.end > end:
                kept.append(segment)
        kept.append(_Segment(begin, end, writer, tensor.dtype))
        self._segments[tensor.storage] = kept
        return [other for other in before if other >= 0]


def dependencies(operations: Sequence[Operation]) -> Dependencies:
    """Return the dependencies among the operations that are not allocations, by position.

    Args:
        operations: All operations of a rank in program order, allocations among them.
    """
    memory = _Memory()
    data: list[tuple[int, ...]] = []
    order: list[tuple[int, ...]] = []
    for op in operations:
        for storage in op.fresh:
            memory.forget(storage)
        if op.role is OpRole.ALLOCATION:
            continue
        here = len(data)
        sources = {writer for tensor in op.reads for writer in memory.read(tensor, here)}
        before = {other for tensor in op.writes for other in memory.write(tensor, here)}
        data.append(tuple(sorted(sources - {here})))
        order.append(tuple(sorted(before - sources - {here})))
    return Dependencies(tuple(data), tuple(order))


def in_turn(found: Dependencies, queues: Iterable[Sequence[int]]) -> Dependencies:
    """Add that the members of each queue start one after the other.

    Args:
        found: Dependencies of all nodes.
        queues: Ascending positions of the nodes that share a queue: the collectives of one
            process group (all ranks must start them in the same order), the kernels of a stream.
    """
    order = [set(parents) for parents in found.order]
    for queue in queues:
        for before, after in pairwise(queue):
            if before not in found.data[after]:
                order[after].add(before)
    return Dependencies(found.data, tuple(tuple(sorted(parents)) for parents in order))


def transitive_reduction(found: Dependencies) -> Dependencies:
    """Return the dependencies without the order edges that other dependencies imply.

    Data edges say who consumes what and stay; an order edge goes if its source is reached on
    another way. The search for such a way looks at no more than MAX_SEARCH ancestors of a node; an
    order edge beyond stays, which changes no order. The cost is linear in the number of nodes.
    """
    data, order = ragged(found.data), ragged(found.order)
    keep_E = np.ones(order.values.size, dtype=np.uint8)
    native = library()
    native.graph_reduce.restype = ctypes.c_int64
    columns = [data.ptr_N1, data.values, order.ptr_N1, order.values]
    status = native.graph_reduce(
        ctypes.c_int64(len(found.data)),
        *(ctypes.c_void_p(column.ctypes.data) for column in columns),
        ctypes.c_int64(MAX_SEARCH),
        ctypes.c_void_p(keep_E.ctypes.data),
    )
    if status < 0:
        raise MemoryError(f"no memory for the reduction of {len(found.data)} nodes")
    kept = iter(keep_E.tolist())
    reduced = tuple(tuple(p for p in parents if next(kept)) for parents in found.order)
    return Dependencies(found.data, reduced)
