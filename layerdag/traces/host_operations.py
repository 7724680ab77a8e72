"""From the nodes of a host trace to the operations that do work, without building the call tree.

Nodes arrive in exit order and their ids give the order of entry. Together these two orders are the
call tree of a thread: a node encloses exactly those earlier ones of its thread whose ids are
larger. (Checked on about 32 traces: equal to nesting by the profiler's time stamps in every case;
the recorded parents are wrong in gloo runs, where spans end on other threads.) So one stack for
each thread suffices: when a node ends, the operations above its id on the stack are its
descendants, to be kept if the node is only a wrapper and dropped if the node is the work itself.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from layerdag.traces.collectives import COMMUNICATION
from layerdag.traces.operators import Role, Signature, signature
from layerdag.traces.pytorch_et import HostNode, Values
from layerdag.traces.pytorch_groups import Ranks, declared_groups
from layerdag.traces.tensors import Access, tensors_at

GLOO_SPAN = "gloo:"


@dataclass(frozen=True, slots=True)
class Operation:
    """One operator that runs a kernel, communicates, or allocates.

    Attributes:
        id: Id of the node, ascending by start.
        name: Operator.
        role: COMPUTE, COMMUNICATION or ALLOCATION.
        rf_id: RecordFunction handle.
        tid: Thread number.
        arguments: All tensor arguments, in order.
        results: All tensor results, in order.
        reads: Tensors whose content is used.
        writes: Tensors whose content changes.
        fresh: Storages that come into being here.
        values: Raw argument values of a communication operator, else None.
        extra: Further attributes of the node.
    """

    id: int
    name: str
    role: Role
    rf_id: int
    tid: int
    arguments: tuple[Access, ...]
    results: tuple[Access, ...]
    reads: tuple[Access, ...]
    writes: tuple[Access, ...]
    fresh: frozenset[int]
    values: tuple[Any, ...] | None
    extra: dict[str, Any]


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

    stacks: dict[int, list[Operation]] = field(default_factory=dict)
    spans: list[tuple[int, str, int]] = field(default_factory=list)
    group_lists: list[str] = field(default_factory=list)
    inside: dict[int, int] = field(default_factory=dict)
    num_nodes: int = 0

    def add(self, node: HostNode) -> None:
        """Take in the node that ends next."""
        self.num_nodes += 1
        if node.name.startswith(GLOO_SPAN):
            self.spans.append((node.id, node.name, node.rf_id))
            self._drop_workers(node)
            return
        known = signature(node.name, node.schema, bool(node.extra.get("kernel_backend")))
        if known.role is Role.SCOPE:
            return
        if known.role is Role.GROUP:
            self.group_lists.extend(text for text in node.inputs.values if isinstance(text, str))
            return
        self._close(node, known)

    def _close(self, node: HostNode, known: Signature) -> None:
        """Settle what the ended node makes of the operations inside it."""
        stack = self.stacks.setdefault(node.tid, [])
        first = len(stack)
        while first and stack[first - 1].id > node.id:
            first -= 1
        inner = stack[first:]
        op = operation(node, known) if known.role is not Role.VIEW else None
        if known.role is not Role.COMMUNICATION and _only_wraps(node.name, op, inner):
            return
        del stack[first:]
        for other in inner:
            self.inside[other.rf_id] = node.rf_id
        if op is not None:
            stack.append(_absorb(op, inner))

    def _drop_workers(self, span: HostNode) -> None:
        """Drop what the backend's worker threads did inside a communication that ends now."""
        for tid, stack in self.stacks.items():
            while tid != span.tid and stack and stack[-1].id > span.id:
                stack.pop()


def host_operations(nodes: Iterable[HostNode], source: str = "<memory>") -> HostOperations:
    """Return the operations that do work.

    Args:
        nodes: The nodes of one trace in exit order, as `read_host_nodes` yields them.
        source: File name for messages.

    Raises:
        TraceError: If the process groups are not listed as PyTorch writes them.
    """
    collector = _Collector()
    for node in nodes:
        collector.add(node)
    kept = [op for stack in collector.stacks.values() for op in stack]
    return HostOperations(
        operations=tuple(sorted(kept, key=lambda op: op.id)),
        spans=tuple(sorted(collector.spans)),
        groups=declared_groups(collector.group_lists, source),
        inside=collector.inside,
        num_nodes=collector.num_nodes,
        source=source,
    )


def _only_wraps(name: str, op: Operation | None, inner: list[Operation]) -> bool:
    """Return whether a node that ended only passed its work on to operations inside it.

    Communication is never swallowed by what happens to cause it. An operator on a tensor subclass
    (DTensor) calls the operator of the same name on other memory; an overload that does so on its
    own memory is the better of the two, for it shows numbers as numbers.
    """
    if any(other.role is Role.COMMUNICATION for other in inner):
        return True
    same = [other for other in inner if other.name == name]
    if not same:
        return False
    own = {tensor.storage for tensor in op.writes} if op is not None else set()
    return not any(tensor.storage in own for other in same for tensor in other.writes)


def _absorb(op: Operation, inner: list[Operation]) -> Operation:
    """Return ``op`` with the memory that the operations inside it brought into being.

    Temporary memory of a kernel dies with it, but that of a communication may be read afterwards,
    when a result is copied out of it.
    """
    fresh = frozenset(storage for other in inner for storage in other.fresh)
    if not fresh - op.fresh:
        return op
    if op.role is not Role.COMMUNICATION:
        return replace(op, fresh=op.fresh | fresh)
    kept = tuple(t for other in inner for t in other.writes if t.storage in fresh)
    return replace(op, fresh=op.fresh | fresh, writes=_unique((*op.writes, *kept)))


def operation(node: HostNode, known: Signature) -> Operation:
    """Return the operation of one node."""
    if known.role is Role.COMMUNICATION:
        return _communication(node)
    arguments = _flatten(node.inputs)
    sized = any(tensor.shape for _, tensor in arguments)
    results = tuple(tensor for _, tensor in _flatten(node.outputs))
    before = {tensor.storage for _, tensor in arguments}
    written = tuple(tensor for at, tensor in arguments if at in known.written)
    return Operation(
        node.id,
        node.name,
        known.role,
        node.rf_id,
        node.tid,
        tuple(tensor for _, tensor in arguments),
        results,
        tuple(
            tensor
            for at, tensor in arguments
            if at not in known.overwritten
            and not (sized and at not in known.written and tensor.is_number)
        ),
        _unique((*written, *results)),
        frozenset(tensor.storage for tensor in results if tensor.storage not in before)
        | frozenset(tensor.storage for at, tensor in arguments if at in known.reborn),
        None,
        node.extra,
    )


def _communication(node: HostNode) -> Operation:
    """Return the operation of a communication node."""
    known = COMMUNICATION[node.name]
    sent = tuple(tensors_at(node.inputs, known.sent)) if known.sent >= 0 else ()
    if known.received >= 0:
        received = tuple(tensors_at(node.inputs, known.received))
    else:
        received = tuple(tensor for _, tensor in _flatten(node.outputs))
    before = {tensor.storage for tensor in sent}
    fresh = frozenset() if known.received >= 0 else {t.storage for t in received} - before
    return Operation(
        node.id,
        node.name,
        Role.COMMUNICATION,
        node.rf_id,
        node.tid,
        sent,
        received,
        sent,
        received,
        frozenset(fresh),
        tuple(node.inputs.values),
        node.extra,
    )


def _flatten(held: Values) -> list[tuple[int, Access]]:
    """Return (position, tensor) of all tensors of an argument list."""
    return [
        (at, tensor)
        for at, kind in enumerate(held.types)
        if "Tensor" in kind
        for tensor in tensors_at(held, at)
    ]


def _unique(tensors: tuple[Access, ...]) -> tuple[Access, ...]:
    """Return the tensors without repetitions, in order."""
    return tuple(dict.fromkeys(tensors))
