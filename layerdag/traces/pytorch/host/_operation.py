"""One operation of a host trace: its tensors, what it reads, writes and allocates."""

from collections.abc import Set
from dataclasses import dataclass
from typing import Any

from layerdag.traces.pytorch.host._files import argument_values, attribute
from layerdag.traces.pytorch.host._scan import OpSchema
from layerdag.traces.pytorch.operators import (
    COMMUNICATION,
    BlockTensors,
    OpRole,
    Signature,
    TensorView,
)

_NOTHING: frozenset[int] = frozenset()


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
        fresh: Storages that are allocated here.
        values: Raw argument values of a communication operator, else None.
        group: Name of the process group, where a communication operator states it beside its
            arguments.
        num_ops: Floating-point operations where they are known; else they follow from the tensors.
        labels: Further text attributes of the node, such as the module that it belongs to.
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
        )

    def _reads(self) -> tuple[TensorView, ...]:
        """Return the arguments whose content is used, which numbers beside tensors are not."""
        sized = any(tensor.shape for _, tensor in self.inputs)
        known = self.known
        return tuple(
            tensor
            for at, tensor in self.inputs
            if at not in known.overwritten
            and not (sized and at not in known.written and tensor.is_number)
        )

    def _sent(self) -> tuple[TensorView, ...]:
        """Return the tensors that a communication gives."""
        sent = COMMUNICATION[self.kind.name].sent
        return tuple(tensor for at, tensor in self.inputs if at == sent)

    def _received(self) -> tuple[TensorView, ...]:
        """Return the tensors that a communication writes."""
        received = COMMUNICATION[self.kind.name].received
        if received < 0:
            return self.outputs
        return tuple(tensor for at, tensor in self.inputs if at == received)

    def _allocated(self, tensors: BlockTensors) -> set[int]:
        """Return the storages that are allocated here: results that are no arguments."""
        first, middle, last = self._rows
        storage, position = tensors.storage, tensors.position
        if self.is_communication:
            communication = COMMUNICATION[self.kind.name]
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
    """Return the tensors without repetitions, in order."""
    return tuple(dict.fromkeys(tensors))
