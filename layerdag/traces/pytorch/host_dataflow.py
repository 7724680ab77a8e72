"""Data flow of a host trace: operators, dependencies through memory, process groups.

Dependencies between operations from the memory they touch: read-after-write, and order.

Operations are gone through in program order, and for each storage the last writers of its byte
ranges are kept. Storage ids are names in time: freed memory is handed out again under the same id,
so a storage that is allocated (by an allocation, a result that is no argument) forgets its past.
A Python number in an operator's arguments may appear as a tensor without shape whose memory nobody
was seen to allocate. Beside a tensor with a shape it counts as a number; else it is taken for the
result of an earlier operator only if it fits exactly.
The cost is linear in operations plus dependencies.

From the nodes of a host trace to the operations that do work, without building the call tree.

Nodes arrive in exit order and their ids give the order of entry. Together these two orders are the
call tree of a thread: a node encloses exactly those earlier ones of its thread whose ids are
larger. (Checked on about 32 traces: equal to nesting by the profiler's time stamps in every case;
the recorded parents are wrong in gloo runs, where spans end on other threads.) So one stack for
each thread suffices: when a node ends, the operations above its id on the stack are its
descendants, to be kept if the node is only a wrapper and dropped if the node is the work itself.
"""

import ctypes
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from layerdag.errors import TraceError
from layerdag.hardware.dtypes import find_dtype
from layerdag.runtime.native import library
from layerdag.runtime.notes import Note, NoteCollector, NoteKind
from layerdag.traces.analysis import WORLD
from layerdag.traces.builder import ragged
from layerdag.traces.pytorch.forward_calls import NO_TEXTS, Texts, argument_texts
from layerdag.traces.pytorch.host_trace import HostBlock, OpSchema, argument_values, attribute
from layerdag.traces.pytorch.operators import (
    COMMUNICATION_OPERATORS,
    WHOLE,
    BlockTensors,
    CommunicationOperator,
    OpRole,
    Signature,
    TensorView,
    is_unknown_communication,
    signature,
)
from layerdag.traces.trace import Attribute

Ranks = tuple[int, ...]

MAX_RANKS = 1 << 20
"""No group is larger: a trace may claim any size, and all ranks of a group are written down."""


@dataclass(frozen=True)
class ProcessGroups:
    """The groups of one job.

    Attributes:
        ranks: Ranks of each group by its integer name; "0" is the world. Empty for one process.
        alias: PyTorch's name of each group that this rank belongs to -> the integer name.
    """

    ranks: Mapping[str, Ranks]
    alias: Mapping[str, str]

    def only(self) -> str | None:
        """Return the name of the group where there is but one, else None."""
        return next(iter(self.ranks)) if len(self.ranks) == 1 else None


def declared_groups(texts: Iterable[str], source: str) -> dict[str, Ranks]:
    """Return the ranks of each group by PyTorch's name, from ``process_group:init`` nodes.

    An empty list of ranks means all of them, also for groups other than the default one.

    Raises:
        TraceError: If a text is not the list that PyTorch writes, or a group is too large.
    """
    try:
        rows = [row for text in texts for row in json.loads(text)]
        found = {
            _name(row["pg_name"]): (_ranks(row["ranks"]), int(row["group_size"])) for row in rows
        }
    except (
        *(ValueError, TypeError, KeyError, IndexError),
        *(OverflowError, RecursionError),
    ) as error:
        raise TraceError(
            f"{source}: the process groups are not listed as PyTorch writes them ({error}); "
            "collect the trace again."
        ) from error
    world = max((size for _, size in found.values()), default=0)
    if world > MAX_RANKS:
        raise TraceError(
            f"{source}: declares a process group of {world:,} ranks; layerdag reads groups of at "
            f"most {MAX_RANKS:,}. The trace is damaged, collect it again."
        )
    return {name: ranks or tuple(range(world)) for name, (ranks, _) in found.items()}


def number_groups(declared: Iterable[Mapping[str, Ranks]]) -> dict[Ranks, str]:
    """Return an integer name for each distinct set of ranks that any rank declares.

    The world is "0"; the others are counted in the order of their ranks, so that all ranks of a
    job agree whatever PyTorch calls the groups.
    """
    sets = {ranks for groups in declared for ranks in groups.values()}
    largest = max(sets, key=len, default=())
    others = sorted(sets - {largest})
    names = {ranks: str(number) for number, ranks in enumerate(others, start=1)}
    return {largest: WORLD, **names} if sets else {}


def process_groups(declared: Mapping[str, Ranks], names: Mapping[Ranks, str]) -> ProcessGroups:
    """Return the groups of a job as one rank sees them.

    Args:
        declared: What the rank declares.
        names: The integer name of each set of ranks, from `number_groups` over all ranks.
    """
    return ProcessGroups(
        ranks={name: ranks for ranks, name in names.items()},
        alias={name: names[ranks] for name, ranks in declared.items()},
    )


def _ranks(value: object) -> Ranks:
    if not isinstance(value, list) or not all(type(n) is int and n >= 0 for n in value):
        raise ValueError(f"{value!r:.40} is no list of ranks")
    return tuple(value)


def _name(value: object) -> str:
    """Return a group's name; schema 1.0.3 wrote a (name, description) pair."""
    return str(value[0]) if isinstance(value, list | tuple) else str(value)


_NOTHING: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Operation:
    """One operator that runs a kernel, communicates, or allocates.

    Attributes:
        id: Id of the node, ascending by start.
        name: Operator.
        role: COMPUTE, COMMUNICATION_OPERATORS or ALLOCATION.
        rf_id: RecordFunction handle.
        tid: Thread number.
        arguments: All tensor arguments, in order.
        results: All tensor results, in order.
        reads: Tensors whose content is used.
        writes: Tensors whose content changes.
        fresh: Storages that are allocated here.
        values: Raw argument values of a communication operator, else None.
        group: Name of the process group, where a communication operator states it beside its
            arguments.
        num_ops: Floating-point operations where they are known; else they follow from the tensors.
        labels: Further text attributes of the node, such as the module that it belongs to.
        io: Values, shapes and types of inputs and outputs, as a node of Chakra states them.
    """

    id: int
    name: str
    role: OpRole
    rf_id: int
    tid: int
    arguments: tuple[TensorView, ...]
    results: tuple[TensorView, ...]
    reads: tuple[TensorView, ...]
    writes: tuple[TensorView, ...]
    fresh: frozenset[int]
    values: tuple[Any, ...] | None = None
    group: str | None = None
    num_ops: int | None = None
    labels: tuple[tuple[str, str], ...] = ()
    io: Texts = NO_TEXTS


class PendingOperation:
    """An operation that an enclosing one may still absorb.

    Attributes:
        id: Id of the node.
        kind: Name and schema.
        known: The operator's entry in the importer's table.
        is_communication: Whether this sends or receives.
        rf_id: RecordFunction handle.
        tid: Thread number.
        inputs: Tensor arguments with their positions; None until asked for.
        outputs: Tensor results.
        fresh: Storages that are allocated here.
        kept: Further tensors whose content changes.
        raw: The node as it is in the file, for communication only.
        text: The node's JSON, where its arguments are asked for.
    """

    __slots__ = (
        *(
            "fresh",
            "id",
            "inputs",
            "is_communication",
            "kept",
            "kind",
            "known",
            "outputs",
            "raw",
            "rf_id",
            "text",
            "tid",
        ),
        *("_rows", "_tensors"),
    )

    def __init__(
        self,
        ids: tuple[int, int, int],
        kind: OpSchema,
        known: Signature,
        tensors: BlockTensors,
        rows: tuple[int, int, int],
    ) -> None:
        self.id, self.rf_id, self.tid = ids
        self.kind, self.known = kind, known
        self.is_communication = known.role is OpRole.COMMUNICATION
        self._tensors: BlockTensors | None = tensors
        self._rows = rows
        self.kept: tuple[TensorView, ...] = ()
        self.raw: dict[str, Any] | None = None
        self.text: bytes | None = None
        self.fresh: Set[int] = self._allocated(tensors) or _NOTHING

    def reads_from(self, tensors: BlockTensors) -> bool:
        """Return whether this still looks its tensors up in a block."""
        return self._tensors is tensors

    def materialize(self) -> None:
        """Take the tensors out of the block, which is not needed any more."""
        if self._tensors is None:
            return
        first, middle, last = self._rows
        tensors = self._tensors
        self.inputs: list[tuple[int, TensorView]] = [
            (tensors.position[at], tensors.view(at)) for at in range(first, middle)
        ]
        self.outputs: tuple[TensorView, ...] = tuple(tensors.view(at) for at in range(middle, last))
        self._tensors = None

    def written(self) -> tuple[TensorView, ...]:
        """Return the tensors whose content changes."""
        self.materialize()
        if self.is_communication:
            return _unique((*self._received(), *self.kept))
        arguments = [tensor for at, tensor in self.inputs if at in self.known.written]
        return _unique((*arguments, *self.outputs))

    def operation(self) -> Operation:
        """Return the operation that this turned out to be."""
        writes = self.written()
        if self.raw is not None:
            arguments = self._sent()
            results, reads = self._received(), arguments
        else:
            arguments = tuple(tensor for _, tensor in self.inputs)
            results, reads = self.outputs, self._reads()
        return Operation(
            self.id,
            self.kind.name,
            self.known.role,
            self.rf_id,
            self.tid,
            arguments,
            results,
            reads,
            writes,
            frozenset(self.fresh),
            None if self.raw is None else tuple(argument_values(self.raw)),
            None if self.raw is None else attribute(self.raw, "pg_name"),
            io=self._texts(),
        )

    def _texts(self) -> Texts:
        if self.text is None:
            return NO_TEXTS
        try:
            return argument_texts(json.loads(self.text))
        except (ValueError, RecursionError) as error:
            raise TraceError(
                f"node {self.id} is no valid JSON ({error}); collect or copy the trace again."
            ) from error

    def _reads(self) -> tuple[TensorView, ...]:
        sized = any(tensor.shape for _, tensor in self.inputs)
        known = self.known
        return tuple(
            tensor
            for at, tensor in self.inputs
            if at not in known.overwritten
            and not (sized and at not in known.written and tensor.is_number)
        )

    def _sent(self) -> tuple[TensorView, ...]:
        sent = COMMUNICATION_OPERATORS[self.kind.name].sent
        return tuple(tensor for at, tensor in self.inputs if at == sent)

    def _received(self) -> tuple[TensorView, ...]:
        received = COMMUNICATION_OPERATORS[self.kind.name].received
        if received < 0:
            return self.outputs
        return tuple(tensor for at, tensor in self.inputs if at == received)

    def _allocated(self, tensors: BlockTensors) -> set[int]:
        first, middle, last = self._rows
        storage, position = tensors.storage, tensors.position
        if self.is_communication:
            communication = COMMUNICATION_OPERATORS[self.kind.name]
            if communication.received >= 0:
                return set()
            sent = {
                storage[at] for at in range(first, middle) if position[at] == communication.sent
            }
            return set(storage[middle:last]) - sent
        allocated = set(storage[middle:last]).difference(storage[first:middle])
        if self.known.reallocated:
            rows = range(first, middle)
            allocated.update(storage[at] for at in rows if position[at] in self.known.reallocated)
        return allocated


def _unique(tensors: tuple[TensorView, ...]) -> tuple[TensorView, ...]:
    return tuple(dict.fromkeys(tensors))


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


def queue_order(found: Dependencies, queues: Iterable[Sequence[int]]) -> Dependencies:
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


GLOO_SPAN = "gloo:"
_SPAN_ROLE = len(OpRole)


@dataclass(frozen=True)
class HostOperations:
    """The work in one host trace.

    Attributes:
        operations: Ascending by id.
        spans: (id, name, rf_id) of the ``gloo:*`` spans, ascending by id.
        groups: Ranks of each process group by PyTorch's name.
        inside: RecordFunction handle of the kept operation that encloses, or is, a dropped one.
        num_nodes: Nodes of the file.
        source: File name for messages.
        notes: What was not understood.
        forward: The calls of the forward pass with their arguments, where these are kept.
    """

    operations: tuple[Operation, ...]
    spans: tuple[tuple[int, str, int], ...]
    groups: Mapping[str, Ranks]
    inside: Mapping[int, int]
    num_nodes: int
    source: str
    notes: tuple[Note, ...] = ()
    forward: Attribute | None = None


@dataclass
class _Collector:
    """What has been seen so far; one stack of operations for each thread."""

    source: str
    keep_arguments: bool = False
    stacks: dict[int, list[PendingOperation]] = field(default_factory=dict)
    spans: list[tuple[int, str, int]] = field(default_factory=list)
    group_lists: list[str] = field(default_factory=list)
    inside: dict[int, int] = field(default_factory=dict)
    num_nodes: int = 0
    known: list[Signature] = field(default_factory=list)
    roles: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int8))
    dtypes: Counter[str] = field(default_factory=Counter)
    ids: list[np.ndarray] = field(default_factory=list)
    parents: list[np.ndarray] = field(default_factory=list)

    def add(self, block: HostBlock) -> None:
        """Take in the nodes that end next."""
        self.num_nodes += len(block.nodes_N)
        if (block.tensors_T["bytes"] < 0).any():
            raise TraceError(
                f"{self.source}: a tensor has fewer than 0 elements; the trace is damaged, collect "
                "it again."
            )
        self.ids.append(block.nodes_N["id"])
        self.parents.append(block.nodes_N["parent"])
        self._learn(block.kinds)
        self._count_unknown(block)
        role_N = self.roles[block.nodes_N["kind"]]
        row_K = np.flatnonzero(role_N != OpRole.SCOPE)
        tensors = BlockTensors(block)
        ends = np.append(block.nodes_N["inputs"][1:], len(block.tensors_T))
        columns = [
            block.nodes_N[name][row_K].tolist()
            for name in ("id", "rf_id", "tid", "kind", "inputs", "outputs")
        ]
        columns += [ends[row_K].tolist(), role_N[row_K].tolist(), row_K.tolist()]
        for node, handle, tid, kind, first, middle, last, role, row in zip(*columns, strict=True):
            if role == OpRole.VIEW:
                self._close(node, handle, tid, block.kinds[kind].name, None)
            elif role == _SPAN_ROLE:
                self.spans.append((node, block.kinds[kind].name, handle))
                self._drop_workers(node, tid)
            elif role == OpRole.GROUP:
                texts = argument_values(self._raw(block, row))
                self.group_lists.extend(text for text in texts if isinstance(text, str))
            else:
                ids, rows = (node, handle, tid), (first, middle, last)
                op = PendingOperation(ids, block.kinds[kind], self.known[kind], tensors, rows)
                if role == OpRole.COMMUNICATION:
                    op.raw = self._raw(block, row)
                if self.keep_arguments:
                    op.text = block.text[block.nodes_N["begin"][row] : block.nodes_N["end"][row]]
                self._close(node, handle, tid, op.kind.name, op)
        for stack in self.stacks.values():
            for op in reversed(stack):
                if not op.reads_from(tensors):
                    break
                op.materialize()

    def _learn(self, kinds: list[OpSchema]) -> None:
        fresh = [
            signature(kind.name, kind.schema, kind.is_triton) for kind in kinds[len(self.known) :]
        ]
        if not fresh:
            return
        self.known += fresh
        self.roles = np.array(
            [
                _SPAN_ROLE if kind.name.startswith(GLOO_SPAN) else known.role
                for kind, known in zip(kinds, self.known, strict=True)
            ],
            np.int8,
        )

    def _count_unknown(self, block: HostBlock) -> None:
        counts = np.bincount(block.tensors_T["dtype"])
        for word in np.flatnonzero(counts).tolist():
            if find_dtype(block.words[word]) is None:
                self.dtypes[block.words[word]] += int(counts[word])

    def notes(self, operations: Iterable[Operation]) -> tuple[Note, ...]:
        """Return what was not understood, in the file and in the operations that were kept."""
        unknown = Counter(
            op.name
            for op in operations
            if op.role is OpRole.COMPUTE and is_unknown_communication(op.name)
        )
        notes = NoteCollector(self.source)
        for word, count in self.dtypes.items():
            effect = "not known; its bytes are those that the trace states"
            notes.add(NoteKind.DTYPE, word, effect, count=count)
        for word, count in unknown.items():
            effect = "communicates in a way that is not known; taken for computation"
            notes.add(NoteKind.COLLECTIVE, word, effect, count=count)
        self._note_ids(notes)
        return notes.notes

    def _note_ids(self, notes: NoteCollector) -> None:
        id_N, parent_N = np.concatenate(self.ids), np.concatenate(self.parents)
        id_U, count_U = np.unique(id_N, return_counts=True)
        for number, count in zip(id_U[count_U > 1], count_U[count_U > 1], strict=True):
            effect = "the id of several nodes; which of them is inside which is not known"
            notes.add(NoteKind.NODE, f"id {number}", effect, count=int(count))
        lost_N = ~np.isin(parent_N, id_U)
        if lost_N.any():
            first = int(np.argmax(lost_N))
            effect = "no node of the trace; what is inside what is told by the order of nodes"
            notes.add(
                NoteKind.NODE, f"parent {parent_N[first]}", effect,
                where=f"node {id_N[first]}", count=int(lost_N.sum()),
            )  # fmt: skip

    def _raw(self, block: HostBlock, row: int) -> dict[str, Any]:
        try:
            return block.json_of(row)
        except (ValueError, RecursionError) as error:
            number = block.nodes_N["id"][row]
            raise TraceError(
                f"{self.source}: node {number} is no valid JSON ({error}); collect or copy the "
                "trace again."
            ) from error

    def _close(
        self, node: int, handle: int, tid: int, name: str, op: PendingOperation | None
    ) -> None:
        stack = self.stacks.setdefault(tid, [])
        first = len(stack)
        while first and stack[first - 1].id > node:
            first -= 1
        if first < len(stack):
            inner = stack[first:]
            communicates = op is not None and op.is_communication
            if not communicates and _only_wraps(name, op, inner):
                called = [other for other in inner if other.kind.name == name]
                if called:  # a profile may name either as what launched a kernel
                    self.inside[handle] = called[-1].rf_id
                return
            del stack[first:]
            saved = None if op is None else _saved_copy(op, inner)
            if op is not None and saved is not None:
                inner.remove(saved)
                saved.id, op.id = op.id, saved.id  # the copy is made first
                stack.append(saved)
            for other in inner:
                self.inside[other.rf_id] = handle
            if op is not None:
                _absorb(op, inner)
        if op is not None:
            stack.append(op)

    def _drop_workers(self, node: int, tid: int) -> None:
        for other, stack in self.stacks.items():
            while other != tid and stack and stack[-1].id > node:
                stack.pop()


def holds_memory(kind: OpSchema) -> bool:
    """Return whether the tensors of a kind of nodes matter for `host_operations`."""
    role = signature(kind.name, kind.schema, kind.is_triton).role
    return role in (OpRole.ALLOCATION, OpRole.COMPUTE, OpRole.COMMUNICATION)


def host_operations(
    blocks: Iterable[HostBlock], source: str = "<memory>", *, keep_arguments: bool = False
) -> HostOperations:
    """Return the operations that do work.

    Args:
        blocks: The nodes of one trace in exit order, as `read_host_blocks` yields them
            when asked for the tensors of kinds that `holds_memory`.
        source: File name for messages.
        keep_arguments: Whether operations keep their arguments as text.

    Raises:
        TraceError: If the process groups are not listed as PyTorch writes them.
    """
    collector = _Collector(source, keep_arguments)
    for block in blocks:
        collector.add(block)
    kept = sorted((op for stack in collector.stacks.values() for op in stack), key=_id)
    try:
        operations = tuple(op.operation() for op in kept)
    except TraceError as error:
        raise TraceError(f"{source}: {error}") from error
    return HostOperations(
        operations=operations,
        spans=tuple(sorted(collector.spans)),
        groups={**_listed_groups(operations), **declared_groups(collector.group_lists, source)},
        inside=collector.inside,
        num_nodes=collector.num_nodes,
        source=source,
        notes=collector.notes(operations),
    )


def _listed_groups(operations: Iterable[Operation]) -> dict[str, Ranks]:
    """Return the groups that operators list rank by rank, as PyTorch 2.1 and 2.2 do."""
    found: dict[str, Ranks] = {}
    for op in operations:
        known = COMMUNICATION_OPERATORS.get(op.name)
        if known is not None and (ranks := listed_ranks(op, known)):
            found[str(ranks)] = ranks
    return found


def listed_ranks(op: Operation, known: CommunicationOperator) -> Ranks:
    """Return the ranks that an operator lists as its group, none if it does not."""
    values = op.values or ()
    value = values[known.group] if 0 <= known.group < len(values) else None
    try:
        return _ranks(value) if isinstance(value, list) else ()
    except ValueError:
        return ()


def _id(op: PendingOperation) -> int:
    return op.id


def _only_wraps(name: str, op: PendingOperation | None, inner: list[PendingOperation]) -> bool:
    """Return whether a node that ended only passed its work on to operations inside it.

    Communication is never absorbed by what happens to cause it. An operator on a tensor subclass
    (DTensor) calls the operator of the same name on other memory; an overload that does so on its
    own memory is the better of the two, for it shows numbers as numbers. Under autocast the copies
    in another dtype and the inner call are what runs.
    """
    if any(other.is_communication for other in inner):
        return True
    same = [other for other in inner if other.kind.name == name]
    if not same:
        return False
    if any(_casts(other, same) for other in inner):
        return True
    own = {tensor.storage for tensor in op.written()} if op is not None else set()
    return not any(tensor.storage in own for other in same for tensor in other.written())


def _casts(op: PendingOperation, called: list[PendingOperation]) -> bool:
    if op.kind.name != "aten::_to_copy":
        return False
    op.materialize()
    made = {tensor.storage for tensor in op.outputs if not tensor.is_number}
    for other in called:
        other.materialize()
    return any(tensor.storage in made for other in called for _, tensor in other.inputs)


def _saved_copy(op: PendingOperation, inner: list[PendingOperation]) -> PendingOperation | None:
    copies = [other for other in inner if other.kind.name == "aten::clone"]
    if not op.kind.name.endswith("_") or len(copies) != 1:
        return None
    copies[0].materialize()
    written = {tensor.storage for tensor in op.written()}
    return copies[0] if any(t.storage in written for _, t in copies[0].inputs) else None


def _absorb(op: PendingOperation, inner: list[PendingOperation]) -> None:
    """Give ``op`` the memory that the operations inside it allocated.

    Temporary memory of a kernel dies with it, but that of a communication may be read afterwards,
    when a result is copied out of it.
    """
    fresh = {storage for other in inner for storage in other.fresh}
    if fresh <= op.fresh:
        return
    op.fresh = op.fresh | fresh
    if op.is_communication:
        op.kept = tuple(t for other in inner for t in other.written() if t.storage in fresh)
