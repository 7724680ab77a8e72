"""From the nodes of a host trace to the operations that do work and what each depends on.

**Operations.** Nodes arrive in exit order and their ids give the order of entry. Together these two
orders are the call tree of a thread: a node encloses exactly those earlier ones of its thread whose
ids are larger. (Checked on about 32 traces: equal to nesting by the profiler's time stamps in every
case; the recorded parents are wrong in gloo runs, where spans end on other threads.) So one stack
for each thread suffices: when a node ends, the operations above its id on the stack are its
descendants, to be kept if the node is only a wrapper and dropped if the node is the work itself.

**Dependencies** follow from the memory that operations touch: read-after-write, and order.
Operations are gone through in program order, and for each storage the last writers of its byte
ranges are kept. Storage ids are names in time: freed memory is handed out again under the same id,
so a storage that is allocated (by an allocation, or as a result that is not an argument) forgets
its past.
A Python number in an operator's arguments may appear as a tensor without shape whose allocation was
not seen. Beside a tensor with a shape it counts as a number; else it is taken for the result of an
earlier operator only if it fits exactly. The cost is linear in operations plus dependencies.
"""

import ctypes
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import pairwise
from operator import attrgetter
from typing import Any

import numpy as np

from layerdag.errors import TraceError
from layerdag.hardware.collectives import (
    COMMUNICATION_OPERATORS,
    CommunicationOperator,
    is_unknown_communication,
)
from layerdag.hardware.dtypes import find_dtype
from layerdag.runtime.native import library
from layerdag.runtime.notes import Note, NoteCollector, NoteKind
from layerdag.traces.analysis import WORLD
from layerdag.traces.builder import ragged
from layerdag.traces.pytorch.forward_calls import NO_TEXTS, Texts, argument_texts
from layerdag.traces.pytorch.host_trace import HostBlock, OpSchema, argument_values, attribute
from layerdag.traces.pytorch.operators import (
    WHOLE,
    BlockTensors,
    OpRole,
    Signature,
    TensorView,
    signature,
)
from layerdag.traces.trace import Attribute

Ranks = tuple[int, ...]

MAX_RANKS = 1 << 20
"""No group is larger: a trace may claim any size, and all ranks of a group are written down."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One operator that runs a kernel, communicates, or allocates.

    Attributes:
        id: Id of the node, ascending by start.
        role: COMPUTE, COMMUNICATION or ALLOCATION.
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

    @property
    def communication(self) -> CommunicationOperator | None:
        """How to read its arguments if it communicates."""
        return COMMUNICATION_OPERATORS.get(self.name)

    def value(self, position: int) -> Any:
        """Return an argument of a communication operator, None where it has none."""
        values = self.values or ()
        return values[position] if 0 <= position < len(values) else None

    def listed_ranks(self) -> Ranks:
        """Return the ranks that it lists as its group, none if it does not."""
        value = None if self.communication is None else self.value(self.communication.group)
        try:
            return _ranks(value)
        except ValueError:
            return ()


# --- process groups ------------------------------------------------------------------------------


@dataclass(frozen=True)
class ProcessGroups:
    """The groups of one job.

    Attributes:
        ranks: Ranks of each group by its integer name; "0" is the world. Empty for one process.
        alias: PyTorch's name of each group that this rank belongs to -> the integer name.
    """

    ranks: Mapping[str, Ranks]
    alias: Mapping[str, str]

    def of(self, op: Operation) -> str | None:
        """Return the integer name of a communication's group, None if the trace does not say."""
        name: Any = op.group
        if name is None and op.communication is not None:
            name = op.value(op.communication.group)
        if isinstance(name, list):
            name = str(op.listed_ranks())
        if isinstance(name, str) and name in self.alias:
            return self.alias[name]
        return next(iter(self.ranks)) if len(self.ranks) == 1 else None


def declared_groups(texts: Iterable[str], source: str) -> dict[str, Ranks]:
    """Return the ranks of each group by PyTorch's name, from ``process_group:init`` nodes.

    An empty list of ranks means all of them, also for groups other than the default one.

    Raises:
        TraceError: If a text is not the list that PyTorch writes, or a group is too large.
    """
    found: dict[str, tuple[Ranks, int]] = {}
    try:
        for row in (row for text in texts for row in json.loads(text)):
            name = row["pg_name"]  # schema 1.0.3 wrote a (name, description) pair
            name = str(name[0]) if isinstance(name, list) else str(name)
            found[name] = _ranks(row["ranks"]), int(row["group_size"])
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


def _ranks(value: object) -> Ranks:
    if not isinstance(value, list) or not all(type(n) is int and n >= 0 for n in value):
        raise ValueError(f"{value!r:.40} is no list of ranks")
    return tuple(value)


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
    """Return the groups of a job as the rank that declares some of them sees them.

    ``names`` are those of `number_groups` over all ranks.
    """
    return ProcessGroups(
        ranks={name: ranks for ranks, name in names.items()},
        alias={name: names[ranks] for name, ranks in declared.items()},
    )


# --- operations ----------------------------------------------------------------------------------


class PendingOperation:
    """An operation that an enclosing one may still absorb.

    Its tensors stay in the block where it was read until they are asked for or the block goes.

    Attributes:
        fresh: Storages that are allocated here.
        kept: Further tensors whose content changes.
        raw: The node as it is in the file, for communication only.
        text: The node's JSON, where its arguments are asked for.
    """

    __slots__ = (
        *("_rows", "_tensors", "communication", "fresh", "id", "inputs", "kept", "kind", "known"),
        *("outputs", "raw", "rf_id", "text", "tid"),
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
        self.communication = None
        if known.role is OpRole.COMMUNICATION:
            self.communication = COMMUNICATION_OPERATORS[kind.name]
        self._tensors: BlockTensors | None = tensors
        self._rows = rows
        self.kept: tuple[TensorView, ...] = ()
        self.raw: dict[str, Any] | None = None
        self.text: bytes | None = None
        self.fresh: Set[int] = self._allocated(tensors)

    def _allocated(self, tensors: BlockTensors) -> Set[int]:
        first, middle, last = self._rows
        storage, position = tensors.storage, tensors.position
        inputs, results = range(first, middle), storage[middle:last]
        if self.communication is not None:
            if self.communication.received >= 0:
                return frozenset()
            sent = self.communication.sent
            return set(results).difference(storage[at] for at in inputs if position[at] == sent)
        allocated = set(results).difference(storage[first:middle])
        if self.known.reallocated:
            again = self.known.reallocated
            allocated.update(storage[at] for at in inputs if position[at] in again)
        return allocated or frozenset()

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

    def _at(self, positions: Set[int]) -> tuple[TensorView, ...]:
        return tuple(tensor for at, tensor in self.inputs if at in positions)

    def written(self) -> tuple[TensorView, ...]:
        """Return the tensors whose content changes."""
        self.materialize()
        if self.communication is None:
            found = (*self._at(self.known.written), *self.outputs)
        else:
            found = (*self._received(self.communication), *self.kept)
        return tuple(dict.fromkeys(found))

    def _received(self, communication: CommunicationOperator) -> tuple[TensorView, ...]:
        received = communication.received
        return self.outputs if received < 0 else self._at({received})

    def operation(self) -> Operation:
        """Return the operation that this turned out to be."""
        writes = self.written()
        if self.communication is not None:
            arguments = reads = self._at({self.communication.sent})
            results = self._received(self.communication)
        else:
            arguments, results = tuple(tensor for _, tensor in self.inputs), self.outputs
            sized = any(tensor.shape for tensor in arguments)
            written, overwritten = self.known.written, self.known.overwritten
            reads = tuple(
                tensor
                for at, tensor in self.inputs
                if at not in overwritten and not (sized and at not in written and tensor.is_number)
            )
        texts = NO_TEXTS
        if self.text is not None:
            try:
                texts = argument_texts(json.loads(self.text))
            except (ValueError, RecursionError) as error:
                raise _no_json(self.id, error) from error
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
            io=texts,
        )


def _no_json(node: object, error: Exception) -> TraceError:
    return TraceError(f"node {node} is no valid JSON ({error}); collect or copy the trace again.")


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
    calls, words = _CallStacks(source, keep_arguments), _UnknownWords(source)
    num_nodes = 0
    for block in blocks:
        num_nodes += len(block.nodes_N)
        words.add(block)
        calls.add(block)
    left = (op for stack in calls.stacks.values() for op in stack)
    try:
        operations = tuple(op.operation() for op in sorted(left, key=attrgetter("id")))
    except TraceError as error:
        raise TraceError(f"{source}: {error}") from error
    # PyTorch 2.1 and 2.2 list groups rank by rank among the arguments.
    groups = {str(ranks): ranks for op in operations if (ranks := op.listed_ranks())}
    return HostOperations(
        operations=operations,
        spans=tuple(sorted(calls.spans)),
        groups={**groups, **declared_groups(calls.group_lists, source)},
        inside=calls.inside,
        num_nodes=num_nodes,
        source=source,
        notes=words.notes(operations),
    )


_GLOO_SPAN = "gloo:"
_SPAN_ROLE = len(OpRole)


class _CallStacks:
    """The operations seen so far that no other has absorbed; one stack for each thread."""

    def __init__(self, source: str, keep_arguments: bool) -> None:
        self._source, self._keep_arguments = source, keep_arguments
        self._known: list[Signature] = []
        self._roles = np.zeros(0, np.int8)
        self.stacks: dict[int, list[PendingOperation]] = {}
        self.spans: list[tuple[int, str, int]] = []
        self.group_lists: list[str] = []
        self.inside: dict[int, int] = {}

    def add(self, block: HostBlock) -> None:
        """Take in the nodes that end next."""
        fresh = block.kinds[len(self._known) :]
        self._known += [signature(kind.name, kind.schema, kind.is_triton) for kind in fresh]
        roles = [
            _SPAN_ROLE if kind.name.startswith(_GLOO_SPAN) else known.role
            for kind, known in zip(fresh, self._known[len(self._roles) :], strict=True)
        ]
        self._roles = np.append(self._roles, np.array(roles, np.int8))
        role_N = self._roles[block.nodes_N["kind"]]
        row_K = np.flatnonzero(role_N != OpRole.SCOPE)
        tensors = BlockTensors(block)
        ends = np.append(block.nodes_N["inputs"][1:], len(block.tensors_T))
        columns = [
            block.nodes_N[name][row_K].tolist()
            for name in ("id", "rf_id", "tid", "kind", "inputs", "outputs")
        ]
        columns += [ends[row_K].tolist(), role_N[row_K].tolist(), row_K.tolist()]
        for node, handle, tid, number, first, middle, last, role, row in zip(*columns, strict=True):
            kind = block.kinds[number]
            if role == OpRole.VIEW:
                self._close(node, handle, tid, kind.name, None)
            elif role == _SPAN_ROLE:
                self.spans.append((node, kind.name, handle))
                for other, stack in self.stacks.items():
                    while other != tid and stack and stack[-1].id > node:
                        stack.pop()  # what a worker does during the span
            elif role == OpRole.GROUP:
                texts = argument_values(self._raw(block, row))
                self.group_lists.extend(text for text in texts if isinstance(text, str))
            else:
                ids, rows = (node, handle, tid), (first, middle, last)
                op = PendingOperation(ids, kind, self._known[number], tensors, rows)
                if role == OpRole.COMMUNICATION:
                    op.raw = self._raw(block, row)
                if self._keep_arguments:
                    op.text = block.text[block.nodes_N["begin"][row] : block.nodes_N["end"][row]]
                self._close(node, handle, tid, kind.name, op)
        for stack in self.stacks.values():
            for op in reversed(stack):
                if not op.reads_from(tensors):
                    break
                op.materialize()

    def _close(
        self, node: int, handle: int, tid: int, name: str, op: PendingOperation | None
    ) -> None:
        """End a node: drop the operations inside it, or leave these and drop the node."""
        stack = self.stacks.setdefault(tid, [])
        first = len(stack)
        while first and stack[first - 1].id > node:
            first -= 1
        if first < len(stack):
            inner = stack[first:]
            communicates = op is not None and op.communication is not None
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

    def _raw(self, block: HostBlock, row: int) -> dict[str, Any]:
        try:
            return block.json_of(row)
        except (ValueError, RecursionError) as error:
            fault = _no_json(block.nodes_N["id"][row], error)
            raise TraceError(f"{self._source}: {fault}") from error


def _only_wraps(name: str, op: PendingOperation | None, inner: list[PendingOperation]) -> bool:
    """Return whether a node that ended only passed its work on to operations inside it.

    Communication is never absorbed by what happens to cause it. An operator on a tensor subclass
    (DTensor) calls the operator of the same name on other memory; an overload that does so on its
    own memory is the better of the two, for it shows numbers as numbers. Under autocast the copies
    in another dtype and the inner call are what runs.
    """
    if any(other.communication is not None for other in inner):
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
    for each in (op, *called):
        each.materialize()
    made = {tensor.storage for tensor in op.outputs if not tensor.is_number}
    return any(tensor.storage in made for other in called for _, tensor in other.inputs)


def _saved_copy(op: PendingOperation, inner: list[PendingOperation]) -> PendingOperation | None:
    """Return the copy that an operator in place makes of its argument before, None if none."""
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
    if op.communication is not None:
        op.kept = tuple(t for other in inner for t in other.written() if t.storage in fresh)


class _UnknownWords:
    """What of the nodes of a file was not understood."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._dtypes: Counter[str] = Counter()
        self._ids: list[np.ndarray] = []
        self._parents: list[np.ndarray] = []

    def add(self, block: HostBlock) -> None:
        """Look through further nodes. Raises TraceError if a tensor has a negative size."""
        if (block.tensors_T["bytes"] < 0).any():
            raise TraceError(
                f"{self._source}: a tensor has fewer than 0 elements; the trace is damaged, "
                "collect it again."
            )
        self._ids.append(block.nodes_N["id"])
        self._parents.append(block.nodes_N["parent"])
        counts = np.bincount(block.tensors_T["dtype"])
        for word in np.flatnonzero(counts).tolist():
            if find_dtype(block.words[word]) is None:
                self._dtypes[block.words[word]] += int(counts[word])

    def notes(self, operations: Iterable[Operation]) -> tuple[Note, ...]:
        """Return the notes, also on the operations that were kept."""
        notes = NoteCollector(self._source)
        for word, count in self._dtypes.items():
            effect = "not known; its bytes are those that the trace states"
            notes.add(NoteKind.DTYPE, word, effect, count=count)
        for op in operations:
            if op.role is OpRole.COMPUTE and is_unknown_communication(op.name):
                effect = "communicates in a way that is not known; taken for computation"
                notes.add(NoteKind.COLLECTIVE, op.name, effect)
        id_N, parent_N = np.concatenate(self._ids), np.concatenate(self._parents)
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
        return notes.notes


# --- dependencies --------------------------------------------------------------------------------

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
        if tensor.is_number:
            fits = (self.begin, self.end) == (tensor.begin, tensor.end)
            return fits and self.dtype == tensor.dtype
        return tensor.begin < self.end and self.begin < tensor.end


class _Memory:
    def __init__(self) -> None:
        self._segments: dict[int, list[_Segment]] = {}

    def forget(self, storage: int) -> None:
        self._segments.pop(storage, None)

    def read(self, tensor: TensorView, reader: int) -> list[int]:
        segments = self._segments.setdefault(tensor.storage, [])
        met = [segment for segment in segments if segment.feeds(tensor)]
        if not met:
            met = [_Segment(tensor.begin, tensor.end, -1, tensor.dtype)]
            segments.extend(met)
        for segment in met:
            segment.readers.append(reader)
        return [segment.writer for segment in met if segment.writer >= 0]

    def write(self, tensor: TensorView, writer: int) -> list[int]:
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

    ``operations`` are all of a rank in program order, allocations among them.
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

    A queue has the ascending positions of the collectives of one process group: all ranks must
    start these in the same order.
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
