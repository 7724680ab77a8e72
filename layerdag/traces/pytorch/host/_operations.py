"""From the nodes of a host trace to the operations that do work, without building the call tree.

Nodes arrive in exit order and their ids give the order of entry. Together these two orders are the
call tree of a thread: a node encloses exactly those earlier ones of its thread whose ids are
larger. (Checked on about 32 traces: equal to nesting by the profiler's time stamps in every case;
the recorded parents are wrong in gloo runs, where spans end on other threads.) So one stack for
each thread suffices: when a node ends, the operations above its id on the stack are its
descendants, to be kept if the node is only a wrapper and dropped if the node is the work itself.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from layerdag.errors import TraceError
from layerdag.traces.pytorch import Ranks, declared_groups
from layerdag.traces.pytorch.host._files import argument_values
from layerdag.traces.pytorch.host._operation import Operation, PendingOperation
from layerdag.traces.pytorch.host._scan import HostBlock, OpSchema
from layerdag.traces.pytorch.operators import BlockTensors, OpRole, Signature, signature

GLOO_SPAN = "gloo:"
_SPAN_ROLE = len(OpRole)


@dataclass(frozen=True)
class HostOperations:
    """The work in one host trace.

    Attributes:
        operations: Ascending by id.
        spans: (id, name, rf_id) of the ``gloo:*`` spans, ascending by id.
        groups: Ranks of each process group by PyTorch's name.
        inside: RecordFunction handle of the kept operation that encloses a dropped one.
        num_nodes: Nodes of the file.
        source: File name for messages.
    """

    operations: tuple[Operation, ...]
    spans: tuple[tuple[int, str, int], ...]
    groups: Mapping[str, Ranks]
    inside: Mapping[int, int]
    num_nodes: int
    source: str


@dataclass
class _Collector:
    """What has been seen so far; one stack of operations for each thread."""

    source: str
    stacks: dict[int, list[PendingOperation]] = field(default_factory=dict)
    spans: list[tuple[int, str, int]] = field(default_factory=list)
    group_lists: list[str] = field(default_factory=list)
    inside: dict[int, int] = field(default_factory=dict)
    num_nodes: int = 0
    known: list[Signature] = field(default_factory=list)
    roles: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int8))

    def add(self, block: HostBlock) -> None:
        """Take in the nodes that end next."""
        self.num_nodes += len(block.nodes_N)
        self._learn(block.kinds)
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
                self._close(node, handle, tid, op.kind.name, op)
        for stack in self.stacks.values():
            for op in reversed(stack):
                if not op.reads_from(tensors):
                    break
                op.materialize()

    def _learn(self, kinds: list[OpSchema]) -> None:
        """Classify the kinds that are new."""
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

    def _raw(self, block: HostBlock, row: int) -> dict[str, Any]:
        """Return a node as it is in the file."""
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
        """Decide what the node that ends makes of the operations inside it."""
        stack = self.stacks.setdefault(tid, [])
        first = len(stack)
        while first and stack[first - 1].id > node:
            first -= 1
        if first < len(stack):
            inner = stack[first:]
            communicates = op is not None and op.is_communication
            if not communicates and _only_wraps(name, op, inner):
                return
            del stack[first:]
            for other in inner:
                self.inside[other.rf_id] = handle
            if op is not None:
                _absorb(op, inner)
        if op is not None:
            stack.append(op)

    def _drop_workers(self, node: int, tid: int) -> None:
        """Drop what the backend's worker threads did inside a communication that ends now."""
        for other, stack in self.stacks.items():
            while other != tid and stack and stack[-1].id > node:
                stack.pop()


def holds_memory(kind: OpSchema) -> bool:
    """Return whether the tensors of a kind of nodes matter for `host_operations`."""
    role = signature(kind.name, kind.schema, kind.is_triton).role
    return role in (OpRole.ALLOCATION, OpRole.COMPUTE, OpRole.COMMUNICATION)


def host_operations(blocks: Iterable[HostBlock], source: str = "<memory>") -> HostOperations:
    """Return the operations that do work.

    Args:
        blocks: The nodes of one trace in exit order, as `read_host_blocks` yields them
            when asked for the tensors of kinds that `holds_memory`.
        source: File name for messages.

    Raises:
        TraceError: If the process groups are not listed as PyTorch writes them.
    """
    collector = _Collector(source)
    for block in blocks:
        collector.add(block)
    kept = sorted((op for stack in collector.stacks.values() for op in stack), key=_id)
    return HostOperations(
        operations=tuple(op.operation() for op in kept),
        spans=tuple(sorted(collector.spans)),
        groups=declared_groups(collector.group_lists, source),
        inside=collector.inside,
        num_nodes=collector.num_nodes,
        source=source,
    )


def _id(op: PendingOperation) -> int:
    """Return the id of an operation."""
    return op.id


def _only_wraps(name: str, op: PendingOperation | None, inner: list[PendingOperation]) -> bool:
    """Return whether a node that ended only passed its work on to operations inside it.

    Communication is never absorbed by what happens to cause it. An operator on a tensor subclass
    (DTensor) calls the operator of the same name on other memory; an overload that does so on its
    own memory is the better of the two, for it shows numbers as numbers.
    """
    if any(other.is_communication for other in inner):
        return True
    same = [other for other in inner if other.kind.name == name]
    if not same:
        return False
    own = {tensor.storage for tensor in op.written()} if op is not None else set()
    return not any(tensor.storage in own for other in same for tensor in other.written())


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
