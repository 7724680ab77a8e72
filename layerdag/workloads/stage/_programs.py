"""The program of each pipeline stage: tensors cut into stages, with collectives and messages."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import final

from layerdag.traces import Attribute, CollectiveType, NodeType, Trace, Wire
from layerdag.traces.chakra import NodeColumns
from layerdag.workloads.stage._collectives import collectives
from layerdag.workloads.stage._dims import Dim
from layerdag.workloads.stage._flags import StageFlags
from layerdag.workloads.stage._forms import Form, Layout, placeholder
from layerdag.workloads.stage._model import Tensor, tensors_of_step


def stage_programs(flags: StageFlags) -> tuple[Trace, ...]:
    """Return the program of each stage.

    Groups and peers are those of all its ranks: ``pg_name`` holds the degree, ``comm_src`` and
    ``comm_dst`` the stage.
    """
    cut = _Cut.of(tensors_of_step(flags), flags.pp)
    sizes = _Sizes(flags)
    return tuple(_Program(sizes, cut, stage).trace() for stage in range(flags.pp))


@final
@dataclass(frozen=True)
class _Message:
    """A tensor that another stage needs.

    Attributes:
        tensor: What is sent.
        shadow: What the other stage has in its place.
        tag: Number of the message.
    """

    tensor: Tensor
    shadow: Tensor
    tag: int


@final
@dataclass(frozen=True)
class _Cut:
    """The step cut into stages.

    Attributes:
        tensors: Those of each stage, with shadows of what others send.
        sent: Messages by what is sent.
        received: Messages by shadow.
    """

    tensors: tuple[list[Tensor], ...]
    sent: dict[Tensor, list[_Message]]
    received: dict[Tensor, _Message]

    @classmethod
    def of(cls, tensors: Iterable[Tensor], stages: int) -> "_Cut":
        """Cut a step."""
        by_stage: tuple[list[Tensor], ...] = tuple([] for _ in range(stages))
        for tensor in tensors:
            by_stage[tensor.stage].append(tensor)
        sent: dict[Tensor, list[_Message]] = defaultdict(list)
        received: dict[Tensor, _Message] = {}
        for stage, found in enumerate(by_stage):
            shadows: dict[Tensor, Tensor] = {}
            for tensor in found:
                tensor.sources = tuple(_near(source, stage, shadows) for source in tensor.sources)
            for remote, shadow in shadows.items():
                message = _Message(remote, shadow, len(received))
                received[shadow] = message
                sent[remote].append(message)
            found += shadows.values()
        return cls(by_stage, sent, received)


def _near(source: Tensor, stage: int, shadows: dict[Tensor, Tensor]) -> Tensor:
    """Return an operand as a stage has it."""
    if source.stage == stage:
        return source
    if source not in shadows:
        form = placeholder(source.form.result)
        shadows[source] = Tensor(f"shadow_{source.name}", form, stage)
    return shadows[source]


@final
@dataclass(frozen=True)
class _Cost:
    """An operator in numbers."""

    is_nothing: bool
    operations: int
    elements: int


@final
class _Sizes:
    """What forms are in numbers, each found once."""

    def __init__(self, flags: StageFlags) -> None:
        self._numbers = flags.numbers
        self._degrees = [degree for degree, ranks in flags.degrees.items() if ranks > 1]
        self._costs: dict[Form, _Cost] = {}
        self._collectives: dict[
            tuple[Layout, Layout], tuple[list[tuple[str, CollectiveType]], int]
        ] = {}

    def cost(self, form: Form) -> _Cost:
        """Return operations and elements of a form's result."""
        if form not in self._costs:
            operations = form.operations.value(self._numbers)
            elements = self._whole(form.result.elements)
            self._costs[form] = _Cost(not operations, _integer(operations), elements)
        return self._costs[form]

    def collectives(
        self, made: Layout, expected: Layout
    ) -> tuple[list[tuple[str, CollectiveType]], int]:
        """Return the collectives of an operand, and their size: the elements of what was made."""
        key = (made, expected)
        if key not in self._collectives:
            found = collectives(made, expected, self._degrees)
            self._collectives[key] = (found, self._whole(made.elements))
        return self._collectives[key]

    def _whole(self, dim: Dim) -> int:
        return _integer(dim.value(self._numbers))


def _integer(value: Fraction) -> int:
    """Return a number as STAGE writes it: a double, cut to an integer."""
    return int(float(value))


_Nodes = tuple[int, ...]


@final
class _Program:
    """The nodes of one stage; operators that compute nothing are left out.

    A tensor has an operator and, before it, the collectives of its operands; node numbers follow
    STAGE's, where an operator precedes its collectives.
    """

    def __init__(self, sizes: _Sizes, cut: _Cut, stage: int) -> None:
        self._sizes = sizes
        self._cut = cut
        self._tensors = cut.tensors[stage]
        self._columns = NodeColumns(f"stage {stage}")
        self._number: dict[Tensor, int] = {}
        self._outputs: dict[Tensor, _Nodes] = {}
        self._count = 0

    def trace(self) -> Trace:
        """Return all nodes as a trace."""
        for tensor in self._tensors:
            self._number[tensor] = self._count
            self._count += self._nodes_of(tensor)
        for tensor in self._tensors:
            self._write(tensor)
        schema = Attribute("schema", Wire.STRING, "symbolic_tensor_network")
        return replace(self._columns.trace(), metadata=(schema,))

    def _nodes_of(self, tensor: Tensor) -> int:
        """Return how many nodes a tensor has."""
        communicated = sum(len(self._of(tensor, index)[0]) for index in range(len(tensor.sources)))
        sent = len(self._cut.sent.get(tensor, ()))
        return self._is_node(tensor) + communicated + sent

    def _is_node(self, tensor: Tensor) -> bool:
        """Whether a tensor is computed or received, and not only passed on."""
        return tensor in self._cut.received or not self._sizes.cost(tensor.form).is_nothing

    def _of(self, tensor: Tensor, index: int) -> tuple[list[tuple[str, CollectiveType]], int]:
        """Return the collectives of an operand and their size."""
        made = tensor.sources[index].form.result
        return self._sizes.collectives(made, tensor.form.operands[index])

    def _output(self, tensor: Tensor) -> _Nodes:
        """Return the nodes that end when a tensor is there."""
        if tensor not in self._outputs:
            own = (self._number[tensor],)
            self._outputs[tensor] = own if self._is_node(tensor) else self._inputs(tensor)
        return self._outputs[tensor]

    def _inputs(self, tensor: Tensor) -> _Nodes:
        """Return the nodes that a tensor's operator waits for."""
        number = self._number[tensor] + self._is_node(tensor)
        found: list[int] = []
        for index, source in enumerate(tensor.sources):
            count = len(self._of(tensor, index)[0])
            number += count
            found += (number - 1,) if count else self._output(source)
        for other in tensor.after:
            found += self._output(other)
        return tuple(dict.fromkeys(found))

    def _write(self, tensor: Tensor) -> None:
        """Write a tensor's nodes, in the order of their numbers."""
        number, cost = self._number[tensor], self._sizes.cost(tensor.form)
        if tensor in self._cut.received:
            message = self._cut.received[tensor]
            self._message("comm_src", message.tensor.stage, cost.elements, message.tag)
            self._add(number, f"{tensor.name}_Y_RECV", NodeType.COMM_RECV, ())
            return
        if not cost.is_nothing:
            self._attributes(tensor.form.kind, cost)
            self._add(number, f"{tensor.name}_COMP", NodeType.COMP, self._inputs(tensor))
            number += 1
        for index, word in zip(range(len(tensor.sources)), ("X1COMM", "X2_COMM"), strict=False):
            number = self._collectives(tensor, index, number, f"{tensor.name}_{word}")
        for message in self._cut.sent.get(tensor, ()):
            self._message("comm_dst", message.shadow.stage, cost.elements, message.tag)
            self._add(number, f"{tensor.name}_Y_SEND", NodeType.COMM_SEND, self._output(tensor))
            number += 1

    def _collectives(self, tensor: Tensor, index: int, number: int, name: str) -> int:
        """Write the collectives of an operand, one after the other; return the next number."""
        kinds, size = self._of(tensor, index)
        before = self._output(tensor.sources[index]) if kinds else ()
        for degree, kind in kinds:
            columns = self._columns
            columns.attribute("is_cpu_op", Wire.BOOL, 0)
            columns.attribute("comm_size", Wire.INT64, size)
            columns.attribute("comm_type", Wire.INT64, kind)
            columns.attribute("pg_name", Wire.STRING, columns.text(degree))
            self._add(number, name, NodeType.COMM_COLL, before)
            before = (number,)
            number += 1
        return number

    def _attributes(self, kind: str, cost: _Cost) -> None:
        columns = self._columns
        columns.attribute("num_ops", Wire.INT64, cost.operations)
        columns.attribute("tensor_size", Wire.UINT64, cost.elements)
        columns.attribute("op_type", Wire.STRING, columns.text(kind))

    def _message(self, end: str, stage: int, size: int, tag: int) -> None:
        self._columns.attribute("comm_size", Wire.INT64, size)
        self._columns.attribute("comm_tag", Wire.INT32, tag)
        self._columns.attribute(end, Wire.INT32, stage)

    def _add(self, number: int, name: str, kind: NodeType, after: _Nodes) -> None:
        self._columns.add(number, name, kind, (after, ()), (0, 0))
