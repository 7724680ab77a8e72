"""One operation of a host trace: its tensors, what it reads, writes and brings into being."""

from collections.abc import Set
from dataclasses import dataclass
from typing import Any

from layerdag.traces.pytorch.host._files import argument_values, attribute
from layerdag.traces.pytorch.host._scan import Kind
from layerdag.traces.pytorch.operators import COMMUNICATION, Access, BlockTensors, Role, Signature

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
        fresh: Storages that come into being here.
        values: Raw argument values of a communication operator, else None.
        group: Name of the process group, where a communication operator states it beside its
            arguments.
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
    values: tuple[Any, ...] | None = None
    group: str | None = None


class PendingOperation:
    """An operation that an enclosing one may still swallow.

    Attributes:
        id: Id of the node.
        kind: Name and schema.
        known: What the importer knows of the operator.
        is_communication: Whether this sends or receives.
        rf_id: RecordFunction handle.
        tid: Thread number.
        inputs: Tensor arguments with their positions; None until asked for.
        outputs: Tensor results.
        fresh: Storages that come into being here.
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
        kind: Kind,
        known: Signature,
        tensors: BlockTensors,
        rows: tuple[int, int, int],
    ) -> None:
        self.id, self.rf_id, self.tid = ids
        self.kind, self.known = kind, known
        self.is_communication = known.role is Role.COMMUNICATION
        self._tensors: BlockTensors | None = tensors
        self._rows = rows
        self.kept: tuple[Access, ...] = ()
        self.raw: dict[str, Any] | None = None
        self.fresh: Set[int] = self._born(tensors) or _NOTHING

    def stands_in(self, tensors: BlockTensors) -> bool:
        """Return whether this still looks its tensors up in a block."""
        return self._tensors is tensors

    def settle(self) -> None:
        """Take the tensors out of the block, which is not needed any more."""
        if self._tensors is None:
            return
        first, middle, last = self._rows
        tensors = self._tensors
        self.inputs: list[tuple[int, Access]] = [
            (tensors.position[at], tensors.access(at)) for at in range(first, middle)
        ]
        self.outputs: tuple[Access, ...] = tuple(tensors.access(at) for at in range(middle, last))
        self._tensors = None

    def written(self) -> tuple[Access, ...]:
        """Return the tensors whose content changes."""
        self.settle()
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

    def _reads(self) -> tuple[Access, ...]:
        """Return the arguments whose content is used, which numbers beside tensors are not."""
        sized = any(tensor.shape for _, tensor in self.inputs)
        known = self.known
        return tuple(
            tensor
            for at, tensor in self.inputs
            if at not in known.overwritten
            and not (sized and at not in known.written and tensor.is_number)
        )

    def _sent(self) -> tuple[Access, ...]:
        """Return the tensors that a communication gives."""
        sent = COMMUNICATION[self.kind.name].sent
        return tuple(tensor for at, tensor in self.inputs if at == sent)

    def _received(self) -> tuple[Access, ...]:
        """Return the tensors that a communication writes."""
        received = COMMUNICATION[self.kind.name].received
        if received < 0:
            return self.outputs
        return tuple(tensor for at, tensor in self.inputs if at == received)

    def _born(self, tensors: BlockTensors) -> set[int]:
        """Return the storages that come into being here: results that are no arguments."""
        first, middle, last = self._rows
        storage, position = tensors.storage, tensors.position
        if self.is_communication:
            told = COMMUNICATION[self.kind.name]
            if told.received >= 0:
                return set()
            sent = {storage[at] for at in range(first, middle) if position[at] == told.sent}
            return set(storage[middle:last]) - sent
        born = set(storage[middle:last]).difference(storage[first:middle])
        if self.known.reborn:
            rows = range(first, middle)
            born.update(storage[at] for at in rows if position[at] in self.known.reborn)
        return born


def _unique(tensors: tuple[Access, ...]) -> tuple[Access, ...]:
    """Return the tensors without repetitions, in order."""
    return tuple(dict.fromkeys(tensors))
