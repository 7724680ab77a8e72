"""Shape inference: the type of a call's result from the types of its inputs, without a program.

A type is what fake tensors have: shape, strides, dtype, and whether a gradient is wanted. Types are
numbered and each distinct call is run once, so that programs which are drawn node by node are
checked at the cost of a look-up.

Sizes are those of one table in which every entry has a number of its own, and numbers divide as in
models (heads divide widths). What runs there runs with any other such table: two sizes that are
equal by chance can hide no mistake.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, final

import torch
from torch import Tensor

from layerdag.capturing.fake_tensors import RememberingFakeMode
from layerdag.errors import DataError
from layerdag.graph.attributed_graph import AttributedGraph
from layerdag.graph.formats.program_json import CALL, SIZES, call_to_json, inputs_in_places
from layerdag.programs.execution import fake_leaf, quiet, run_node, switched
from layerdag.programs.nodes import Node, read_node

TensorType = tuple[tuple[int, ...], tuple[int, ...], str, bool]
"""Shape, strides, dtype, whether a gradient is wanted."""

ResultType = tuple[TensorType, ...]
"""Of a list of tensors, or of one."""

FAILS = -1
"""Number of no type: the call cannot run."""

_ENTRIES = 64
_WIDTHS = (3840, 48, 80, 64)
"""The hidden width, and halves of a head: two and four of each divide it."""


def distinct_sizes() -> dict[str, int]:
    """Return a table in which all entries of a role differ, and widths are whole in many parts."""
    table = {}
    for at in range(_ENTRIES):
        table[f"B{at}"] = 48 * (at + 1)
        table[f"n{at}"] = 96 + 32 * at
        table[f"w{at}"] = _WIDTHS[at] if at < len(_WIDTHS) else 144 + 96 * at
        table[f"r{at}"] = 1000 + 7 * at
        table[f"h{at}"] = (4, 8, 2, 16, 6, 12, 3, 24)[at % 8]
    return table


@final
class ShapeInference:
    """Types of results by number, with the sizes of ``distinct_sizes()`` by default."""

    def __init__(self, sizes: Mapping[str, int] | None = None) -> None:
        self._sizes = distinct_sizes() if sizes is None else sizes
        self._types: list[tuple[ResultType, bool]] = []
        self._numbers: dict[tuple[ResultType, bool], int] = {}
        self._results: dict[tuple[str, str, tuple[int, ...]], int] = {}
        self._nodes: dict[tuple[str, str, int], Node | None] = {}

    @cached_property
    def _mode(self) -> RememberingFakeMode:
        return RememberingFakeMode()

    def __getstate__(self) -> dict[str, Any]:
        """Return what another process goes on with, which makes a mode of its own."""
        return {name: value for name, value in vars(self).items() if name != "_mode"}

    def result(self, call: str, sizes: str, inputs: tuple[int, ...]) -> int:
        """Return the number of the type of a call's result, ``FAILS`` if it cannot run.

        Call and sizes are categories (``layerdag.graph.formats.program_json``); inputs are the
        numbers of their types, in their places.
        """
        key = (call, sizes, inputs)
        if key not in self._results:
            self._results[key] = self._run(call, sizes, inputs)
        return self._results[key]

    def results(self, graph: AttributedGraph) -> list[int]:
        """Return the number of the type of each node's result of a whole program.

        Raises:
            GraphError: If the inputs of a node are not in places.
        """
        found: list[int] = []
        calls = zip(graph.categories[CALL], graph.categories[SIZES], strict=True)
        for (call, sizes), inputs in zip(calls, inputs_in_places(graph), strict=True):
            found.append(self.result(call, sizes, tuple(found[at] for at in inputs)))
        return found

    def runs(self, graph: AttributedGraph) -> bool:
        """Return whether a program runs with these sizes and ends in a loss."""
        found = self.results(graph)
        return FAILS not in found and self.is_loss(found[-1])

    def is_loss(self, number: int) -> bool:
        """Return whether a type is that of a scalar that can be differentiated."""
        if number < 0:
            return False
        kinds, listed = self._types[number]
        shape, _, _, differentiable = kinds[0] if kinds else ((0,), (), "", False)
        return not listed and shape == () and differentiable

    def _run(self, call: str, sizes: str, inputs: tuple[int, ...]) -> int:
        node = self._node(call, sizes, len(inputs))
        if node is None or FAILS in inputs:
            return FAILS
        with (
            torch.inference_mode(False),  # samplers run in it, and no result would want a gradient
            torch.enable_grad(),
            quiet(),
            self._mode,
        ):
            try:
                tensors = [_made(*self._types[number]) for number in inputs]
                with switched(node.mode):
                    result = run_node(node, tensors, self._sizes, fake_leaf)
            except Exception:  # an operator's own refusals are of many classes
                return FAILS
            return self._number(result)

    def _node(self, call: str, sizes: str, inputs: int) -> Node | None:
        key = (call, sizes, inputs)
        if key not in self._nodes:
            try:
                data = {**call_to_json(call, sizes), "inputs": list(range(inputs))}
                self._nodes[key] = read_node(data, "a drawn node")
            except (DataError, ValueError, StopIteration):
                self._nodes[key] = None
        return self._nodes[key]

    def _number(self, result: Any) -> int:
        listed = not isinstance(result, Tensor)
        parts: Sequence[Any] = result if listed else [result]
        if not isinstance(parts, list | tuple) or not all(isinstance(p, Tensor) for p in parts):
            return FAILS
        types = (
            (tuple(p.shape), p.stride(), str(p.dtype).removeprefix("torch."), p.requires_grad)
            for p in parts
        )
        key = (tuple(types), listed)
        if key not in self._numbers:
            self._numbers[key] = len(self._types)
            self._types.append(key)
        return self._numbers[key]


def _made(kinds: ResultType, listed: bool) -> Tensor | list[Tensor]:
    parts = []
    for shape, stride, dtype, differentiable in kinds:
        tensor = torch.empty_strided(shape, stride, dtype=getattr(torch, dtype))
        # A result, not a leaf: operators that overwrite it may do so.
        parts.append(tensor.requires_grad_().clone() if differentiable else tensor)
    return parts if listed else parts[0]
