"""Run a program's nodes: on fake tensors to check them, or for real.

Every size is derived from the shapes that arrive at a node, so that a program runs, or fails at a
node that can be named, for any table of sizes.
"""

import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, cast, final

import torch
from torch import Tensor, nn

from layerdag.capturing.fake_tensors import RememberingFakeMode
from layerdag.errors import DataError
from layerdag.programs.nodes import EDGE, EDGES, ForwardGraph, Leaf, Node, Symbol, Word
from layerdag.programs.operators import GETITEM, LEAVES, operator
from layerdag.programs.sizes import evaluate

MakeLeaf = Callable[[Leaf, tuple[int, ...]], Tensor]
"""Makes the tensor of a leaf, given its shape as numbers."""

_MAX_ELEMENTS = 2**44  # 64 TiB of float32: more is a mistake in the table of sizes


@final
class NodeError(DataError):
    """A node of a program that cannot run."""

    def __init__(self, program: ForwardGraph, at: int, reason: str) -> None:
        node = program.nodes[at]
        place = f" of module {node.module}" if node.module else ""
        super().__init__(f"{program.name}: node {at} ({node.operator}{place}) cannot run: {reason}")
        self.at, self.reason = at, reason


def fake_leaf(leaf: Leaf, shape: tuple[int, ...]) -> Tensor:
    """Make a leaf of zeros: a parameter, or a tensor, of the mode that is on."""
    tensor = torch.zeros(shape, dtype=getattr(torch, leaf.dtype))
    if leaf.kind == "parameter" and tensor.is_floating_point():
        return nn.Parameter(tensor, requires_grad=leaf.trained)
    return tensor


def run_node(node: Node, inputs: Sequence[Any], sizes: Mapping[str, int], make: MakeLeaf) -> Any:
    """Run one node; ``make`` makes, or returns, the tensors of its leaves in order.

    Raises:
        DataError: If a size has no value, or inputs are of the wrong kind; PyTorch's own errors
            where an operator refuses its arguments.
    """
    called = _Call(inputs, sizes, make, sum(part == EDGE for part in node.parts()))
    positional = [called.value(given) for given in node.arguments]
    if node.operator in LEAVES:
        return positional[0]
    if node.operator == GETITEM:
        parts, at = positional
        listed = isinstance(parts, list | tuple) and isinstance(at, int)
        if not (listed and 0 <= at < len(parts)):
            raise DataError(f"there is no part {at} in what its input returns.")
        return parts[at]
    keywords = {name: called.value(given) for name, given in node.keywords}
    if any(not isinstance(tensor, Tensor) for tensor in inputs):
        raise DataError("an input is a list of tensors; take one of them by getitem.")
    result = operator(node.operator)(*positional, **keywords)
    # Called from Python it returns a view, of which nothing can be detached in place; where PyTorch
    # itself calls it, for a tensor of a number, the tensor.
    return positional[0] if node.operator == _LIFTED else result


class _Call:
    """Makes the values of one call's arguments, in order.

    ``single`` inputs are arguments alone; the others are one list.
    """

    def __init__(
        self, inputs: Sequence[Any], sizes: Mapping[str, int], make: MakeLeaf, single: int
    ) -> None:
        self._sizes, self._make = sizes, make
        self._edges, self._listed = iter(inputs), len(inputs) - single
        tensors = [(at, value) for at, value in enumerate(inputs) if isinstance(value, Tensor)]
        self._shapes: dict[str, Sequence[int]] = {f"a{at}": value.shape for at, value in tensors}
        self._device = tensors[0][1].device if tensors else torch.device("cpu")
        self._made = 0

    def value(self, given: Any) -> Any:
        """Return the value of an argument."""
        if isinstance(given, tuple):
            return [self.value(part) for part in given]
        if isinstance(given, Symbol):
            return evaluate(given.size, self._shapes, self._sizes)
        if isinstance(given, Word):
            return self._device if given.kind == "device" else getattr(torch, given.name)
        if isinstance(given, Leaf):
            return self._leaf(given)
        if isinstance(given, str) and given == EDGE:
            return next(self._edges)
        if isinstance(given, str) and given == EDGES:
            return [next(self._edges) for _ in range(self._listed)]
        return given

    def _leaf(self, leaf: Leaf) -> Tensor:
        shape = tuple(evaluate(size, self._shapes, self._sizes) for size in leaf.shape)
        if math.prod(shape) > _MAX_ELEMENTS:
            raise DataError(f"a {leaf.kind} of {list(shape)} has more than 2**44 elements.")
        self._shapes[f"p{self._made}"] = shape
        self._made += 1
        return self._make(leaf, shape)


_LIFTED = "aten.lift_fresh.default"

_MODES: dict[str, Callable[[], Any]] = {
    "no_grad": torch.no_grad,
    "autocast:bfloat16": lambda: torch.autocast("cpu", torch.bfloat16),
    "autocast:float16": lambda: torch.autocast("cpu", torch.float16),
}


@contextmanager
def switched(mode: Sequence[str]) -> Iterator[None]:
    """Restore the modes that a node was recorded under."""
    with ExitStack() as stack:
        for word in mode:
            stack.enter_context(_MODES[word]())
        yield


def run(program: ForwardGraph, make: MakeLeaf = fake_leaf) -> Iterator[Any]:
    """Run a program node by node under the mode that is on, and yield each result.

    Raises:
        NodeError: If a node cannot run.
    """
    results: list[Any] = []
    for at, node in enumerate(program.nodes):
        try:
            with switched(node.mode):
                result = run_node(node, [results[i] for i in node.inputs], program.sizes, make)
        except Exception as error:  # an operator's own refusals are of many classes
            first, *_ = str(error).strip().splitlines() or [type(error).__name__]
            raise NodeError(program, at, first[:300]) from error
        if not isinstance(result, Tensor | list | tuple):
            raise NodeError(program, at, f"it returns {type(result).__name__}, no tensor.")
        results.append(result)
        yield result


def run_fake(program: ForwardGraph) -> list[Any]:
    """Run a program on fake tensors, which have shapes but no content, and return all results.

    Raises:
        NodeError: If a node cannot run.
    """
    results: list[Any] = []
    made: list[tuple[Leaf, tuple[int, ...]]] = []
    leaves: list[MadeLeaves] = []

    def make(leaf: Leaf, shape: tuple[int, ...]) -> Tensor:
        made.append((leaf, shape))
        return fake_leaf(leaf, shape)

    with quiet(), RememberingFakeMode():
        for result in run(program, make):
            results.append(result)
            leaves.append(tuple(made))
            made.clear()
    vars(program)[_MADE] = dict(program.sizes), tuple(leaves)
    return results


MadeLeaves = tuple[tuple[Leaf, tuple[int, ...]], ...]
"""Leaves that a node reads, in the order in which it does, each with its shape."""

_MADE = "_made_leaves"
"""Where a program keeps them, with the table of sizes that it was run with."""


def made_leaves(program: ForwardGraph) -> Sequence[MadeLeaves]:
    """Return the leaves of each node; the program is run for them unless it was before.

    Raises:
        NodeError: If a node cannot run.
    """
    known = vars(program)
    if _MADE not in known or known[_MADE][0] != program.sizes:
        run_fake(program)
    return cast("tuple[MadeLeaves, ...]", known[_MADE][1])


def result_shapes(program: ForwardGraph) -> tuple[str, ...]:
    """Return the shape of what each node makes, "16 x 35 x 128", of several tensors one by one.

    Raises:
        NodeError: If a node cannot run.
    """
    return tuple(
        ", ".join(" x ".join(map(str, part.shape)) or "scalar" for part in tensors_of(result))
        for result in run_fake(program)
    )


def tensors_of(result: Any) -> Sequence[Tensor]:
    """Return the tensors of a node's result, which is one or a list of them."""
    return [result] if isinstance(result, Tensor) else result


def count_parameters(program: ForwardGraph) -> int:
    """Return the number of parameters, those that no node reads included.

    Raises:
        NodeError: If a node cannot run.
    """
    read = sum(
        math.prod(shape)
        for leaves in made_leaves(program)
        for leaf, shape in leaves
        if leaf.kind == "parameter"
    )
    return read + sum(
        math.prod(size for size in leaf.shape if isinstance(size, int))
        for _, leaf in program.unused
    )


@contextmanager
def quiet() -> Iterator[None]:
    """Keep PyTorch from logging the traceback of each operator that refuses its arguments."""
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    before, logger.disabled = logger.disabled, True  # a level would forget those of all loggers
    try:
        yield
    finally:
        logger.disabled = before
