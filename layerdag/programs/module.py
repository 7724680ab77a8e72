"""A program as a module that runs: on a CPU, a GPU, or fake tensors."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, Protocol, final

import torch
from torch import Tensor, nn

from layerdag.errors import UsageError
from layerdag.programs.execution import MakeLeaf, made_leaves, run_node, switched
from layerdag.programs.nodes import ForwardGraph, Leaf
from layerdag.programs.operators import LEAVES, in_place

_SEED = 0


class _Held(NamedTuple):
    leaf: Leaf
    shape: tuple[int, ...]
    attribute: str


class _Segment(NamedTuple):
    """Nodes in a row that belong to one unit, or to the module itself."""

    unit: int | None
    first: int
    end: int
    taken: tuple[int, ...]  # nodes before, whose results are used inside
    given: tuple[int, ...]  # nodes inside, whose results are used after


@final
class ProgramUnit(nn.Module):
    """A part of a program that ``fully_shard`` gathers at once; it holds parameters of its own."""

    def __init__(self, owner: "ProgramModule") -> None:
        super().__init__()
        self.__dict__["owner"] = owner  # no child: it would hold its own parent

    def forward(self, segment: int, *taken: Tensor) -> tuple[Any, ...]:
        """Run a segment of the program on what it takes from before."""
        return tuple(self.__dict__["owner"].run_segment(segment, taken))


class Sharing(Protocol):
    """How tensor ranks share nodes."""

    def inputs(self, at: int, values: Sequence[Any]) -> list[Any]:
        """Return the inputs of a node as it takes them."""

    def result(self, at: int, value: Any) -> Any:
        """Return the result of a node as others take it."""


@final
class ProgramModule(nn.Module):
    """Runs a program; its parameters are random, drawn as PyTorch's layers draw theirs.

    Args:
        content: Whether parameters and inputs have numbers; not needed of fake tensors.

    Attributes:
        units: Parts that are gathered at once under ``fully_shard``.
        shared: How tensor ranks share its nodes; None where each runs all.

    Raises:
        NodeError: If a node cannot run with the program's table of sizes.
    """

    def __init__(self, program: ForwardGraph, content: bool = True) -> None:
        super().__init__()
        self.program = program
        self._drawn = content
        self.shared: Sharing | None = None
        unit_of = units_of_nodes(program)
        names = [name for name in program.units if name in set(unit_of)]
        position = {name: at for at, name in enumerate(names)}
        self._unit_N = [position.get(name) for name in unit_of]
        self.units = nn.ModuleList(ProgramUnit(self) for _ in names)
        self._held = [
            [_Held(leaf, shape, f"node{at}_{place}") for place, (leaf, shape) in enumerate(leaves)]
            for at, leaves in enumerate(made_leaves(program))
        ]
        self._register(position)
        self._segments = _segments(program, self._unit_N)
        self._results: dict[int, Any] = {}
        self._inputs: Iterator[Any] = iter(())

    def forward(self, *inputs: Tensor) -> Any:
        """Return the program's outputs: one alone as it is, several as a tuple.

        Args:
            *inputs: Tensors in the order of the program's input nodes (``example_inputs``).
        """
        expected = sum(node.operator == "input" for node in self.program.nodes)
        if len(inputs) != expected:
            raise UsageError(
                f"{self.program.name} takes {expected} inputs; {len(inputs)} are given "
                "(example_inputs() makes them)."
            )
        self._inputs, self._results = iter(inputs), {}
        for at, segment in enumerate(self._segments):
            taken = [self._results[i] for i in segment.taken]
            if segment.unit is None:
                made = self.run_segment(at, taken)
            else:
                made = self.units[segment.unit](at, *taken)
            self._results.update(zip(segment.given, made, strict=True))
        found = [self._results[i] for i in self.program.outputs]
        self._results = {}
        return found[0] if len(found) == 1 else tuple(found)

    def run_segment(self, at: int, taken: Sequence[Any]) -> list[Any]:
        """Run the nodes of a segment and return what later ones use."""
        segment, program = self._segments[at], self.program
        results = dict(zip(segment.taken, taken, strict=True))
        for number in range(segment.first, segment.end):
            node = program.nodes[number]
            if node.operator == "input":
                results[number] = next(self._inputs)
                continue
            held = iter(self._held[number])
            owner = self._owner(self._unit_N[number])

            def stored(leaf: Leaf, shape: tuple[int, ...], held: Iterator[_Held] = held,
                       owner: nn.Module = owner) -> Tensor:  # fmt: skip
                tensor = getattr(owner, next(held).attribute)
                assert isinstance(tensor, Tensor)
                return tensor

            with switched(node.mode):
                inputs = [results[i] for i in node.inputs]
                if self.shared is not None:
                    inputs = self.shared.inputs(number, inputs)
                found = run_node(node, inputs, program.sizes, stored)
                if self.shared is not None:
                    found = self.shared.result(number, found)
                results[number] = found
        return [results[i] for i in segment.given]

    def parameters_of(self, at: int) -> Iterator[tuple[nn.Module, str, nn.Parameter]]:
        """Yield the parameters of a node: the module that holds it, its name there, itself."""
        owner = self._owner(self._unit_N[at])
        for held in self._held[at]:
            tensor = getattr(owner, held.attribute)
            if isinstance(tensor, nn.Parameter):
                yield owner, held.attribute, tensor

    def example_inputs(self) -> list[Tensor]:
        """Return inputs of the right shapes: normal numbers, and zeros for indices and masks."""
        generator = self._generator()
        return [
            _content(node.arguments[0], held[0].shape, generator)
            for node, held in zip(self.program.nodes, self._held, strict=True)
            if node.operator == "input"
        ]

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, nn.Parameter]]:
        """Yield the parameters in the order in which the recorded model registered them."""
        found = list(super().named_parameters(prefix, recurse, remove_duplicate))
        rank = self._rank
        last = len(rank)
        return iter(sorted(found, key=lambda pair: rank.get(pair[0].rsplit(".", 1)[-1], last)))

    def _generator(self) -> torch.Generator | None:
        return torch.Generator().manual_seed(_SEED) if self._drawn else None

    def _owner(self, unit: int | None) -> nn.Module:
        return self if unit is None else self.units[unit]

    def _register(self, position: dict[str, int]) -> None:
        order = {name: at for at, name in enumerate(self.program.order)}
        generator = self._generator()
        todo: list[tuple[int, str, nn.Module, _Held]] = []
        for number, node in enumerate(self.program.nodes):
            if node.operator == "input":
                continue
            names = iter(node.names)
            for held in self._held[number]:
                named = held.leaf.kind in ("parameter", "buffer")
                name = next(names, "") if named or node.names else ""
                owner = self._owner(self._unit_N[number])
                todo.append((order.get(name, len(order)), name, owner, held))
        for at, (name, leaf) in enumerate(self.program.unused):
            owner = self._owner(position.get(self.program.unit_around(name)))
            shape = tuple(size for size in leaf.shape if isinstance(size, int))
            held = _Held(leaf, shape, f"unused{at}")
            todo.append((order.get(name, len(order)), name, owner, held))
        todo.sort(key=lambda entry: entry[0])
        self._rank = {entry[3].attribute: at for at, entry in enumerate(todo)}
        for _, _, owner, held in todo:
            tensor = _content(held.leaf, held.shape, generator)
            if held.leaf.kind == "parameter" and tensor.is_floating_point():
                parameter = nn.Parameter(tensor, requires_grad=held.leaf.trained)
                owner.register_parameter(held.attribute, parameter)
            else:
                owner.register_buffer(held.attribute, tensor)


def units_of_nodes(program: ForwardGraph) -> list[str]:
    """Return the unit of each node, "" for none.

    A leaf that several nodes read belongs to their unit if they agree, else to the module. What a
    unit calls of another one, such as an activation that all layers share, runs inside its own
    call, unless it has parameters.
    """
    found = [program.unit_around(node.module) for node in program.nodes]
    _take_in_shared(found, program)
    readers: dict[int, set[str]] = {}
    for at, node in enumerate(program.nodes):
        for i in node.inputs:
            readers.setdefault(i, set()).add(found[at])
    for at, node in enumerate(program.nodes):
        if node.operator in LEAVES:
            units = readers.get(at, set())
            found[at] = units.pop() if len(units) == 1 and node.operator != "input" else ""
    return found


def overwrites_other_units(program: ForwardGraph) -> bool:
    """Return whether an operator works in place on a result of another unit."""
    units = units_of_nodes(program)
    return any(
        in_place(node.operator) and any(units[i] != units[at] for i in node.inputs)
        for at, node in enumerate(program.nodes)
    )


def _take_in_shared(units: list[str], program: ForwardGraph) -> None:
    begins = [at for at in range(len(units)) if not at or units[at] != units[at - 1]]
    for first, end in pairwise(begins):
        around = units[first - 1] if first else ""
        row = range(first, end)
        owned = any(program.nodes[at].leaves for at in row)
        if around and units[first] and around == units[end] and not owned:
            units[first:end] = [around] * len(row)


def _segments(program: ForwardGraph, units: Sequence[int | None]) -> list[_Segment]:
    last_use = program.last_uses()
    bounds = [0] + [at for at in range(1, len(units)) if units[at] != units[at - 1]] + [len(units)]
    found = []
    for first, end in pairwise(bounds):
        used = (i for at in range(first, end) for i in program.nodes[at].inputs if i < first)
        given = tuple(at for at in range(first, end) if last_use[at] >= end)
        found.append(_Segment(units[first], first, end, tuple(dict.fromkeys(used)), given))
    return found


def random_leaves() -> MakeLeaf:
    """Return what makes the tensors of leaves one by one, as a module without an order has them."""
    weights, inputs = (torch.Generator().manual_seed(_SEED) for _ in range(2))

    def make(leaf: Leaf, shape: tuple[int, ...]) -> Tensor:
        return _content(leaf, shape, inputs if leaf.kind == "input" else weights)

    return make


def _content(leaf: Leaf, shape: tuple[int, ...], generator: torch.Generator | None) -> Tensor:
    """Return a leaf with numbers: the program's own or random ones; without a generator with none.

    Integers are zeros, which are valid indices for every table; booleans are true. Matrices are
    uniform as in PyTorch's layers, vectors are ones; a variance among the buffers may not be zero.
    """
    dtype = getattr(torch, leaf.dtype)
    if generator is None:
        return torch.empty(shape, dtype=dtype)
    if leaf.content is not None:
        return torch.tensor(leaf.content, dtype=dtype).reshape(shape).clone()  # no view
    if dtype is torch.bool or not (dtype.is_floating_point or dtype.is_complex):
        return torch.full(shape, dtype is torch.bool, dtype=dtype)
    if leaf.kind == "input":
        return torch.randn(shape, generator=generator).to(dtype)
    if len(shape) < 2:
        return torch.ones(shape, dtype=dtype)
    fan_in = max(1, int(torch.Size(shape[1:]).numel()))
    uniform = torch.rand(shape, generator=generator) * 2 - 1
    return (uniform / fan_in**0.5).to(dtype)
