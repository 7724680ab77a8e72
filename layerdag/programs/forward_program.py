"""The forward program of a model: calls of operators, sizes as expressions, a table of sizes.

A program is what a traced training step is a function of, beside its plan: the backward pass, the
optimizer and all communication follow from running it (``layerdag.programs.steps``).
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from layerdag.errors import DataError, UsageError
from layerdag.graph.formats.repeated_blocks import RepeatedBlock, fold, repeated_blocks, unfold
from layerdag.programs.depth import deepened
from layerdag.programs.execution import count_parameters
from layerdag.programs.module import ProgramModule
from layerdag.programs.nodes import (
    Leaf,
    Node,
    node_to_json,
    read_list,
    read_node,
    read_numbers,
    read_texts,
    value_from_json,
    value_to_json,
)
from layerdag.programs.operators import LEAVES
from layerdag.programs.python_source import python_lines
from layerdag.programs.sizes import ROLES, is_entry
from layerdag.programs.validity import check
from layerdag.runtime.files import write_text
from layerdag.runtime.json_shape import found_value, parse_json, plain_reason
from layerdag.runtime.reading import read_parsed
from layerdag.runtime.settings import did_you_mean
from layerdag.validation.rules import Finding

if TYPE_CHECKING:
    from layerdag.capturing.captured_step import CapturedStep

FORMAT = "layerdag-program/1"


@final
@dataclass(frozen=True)
class Program:
    """A forward program with its table of sizes.

    Attributes:
        name: Of the model.
        nodes: In program order; inputs of a node come before it.
        sizes: Number of each entry of the table of sizes.
        outputs: Positions of what the program returns: its loss, or outputs of an inference.
        order: Names of the parameters in the order of their registration; empty for that of use.
        unused: Parameters that no node reads: (name, leaf).
        units: Paths of the modules that ``fully_shard`` gathers at once.
        notes: What was recorded but cannot be kept exactly, as sentences.
    """

    name: str
    nodes: tuple[Node, ...]
    sizes: Mapping[str, int]
    outputs: tuple[int, ...]
    order: tuple[str, ...] = ()
    unused: tuple[tuple[str, Leaf], ...] = ()
    units: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        for name, number in self.sizes.items():
            if not is_entry(name) or type(number) is not int or not 0 < number <= 2**40:
                raise DataError(
                    f"{self.name}: '{name}' = {number!r} is no entry of a table of sizes; entries "
                    f"are numbers from 1 to 2**40 and begin with {', '.join(ROLES)}."
                )
        for at, node in enumerate(self.nodes):
            if any(not 0 <= i < at for i in node.inputs):
                raise DataError(
                    f"{self.name}: node {at} ({node.operator}) has input {list(node.inputs)[:8]}; "
                    "inputs are nodes before it."
                )
        if any(not 0 <= at < len(self.nodes) for at in self.outputs):
            raise DataError(f"{self.name}: its outputs {list(self.outputs)[:8]} are no nodes.")

    def __repr__(self) -> str:
        table = ", ".join(f"{name}={number}" for name, number in self.sizes.items())
        return f"Program({self.name!r}, {len(self)} calls, {table})"

    def __len__(self) -> int:
        """Return the number of calls."""
        return sum(node.operator not in LEAVES for node in self.nodes)

    def resize(self, **sizes: int) -> "Program":
        """Return the program with other numbers in its table, such as ``resize(B0=64)``.

        Raises:
            UsageError: If the table has no such entry.
        """
        for name in sizes:
            if name not in self.sizes:
                raise UsageError(
                    f"{self.name} has no size '{name}'.{did_you_mean(name, list(self.sizes))} "
                    f"Known: {', '.join(self.sizes)}."
                )
        return replace(self, sizes={**self.sizes, **sizes})

    def deepen(self, times: int | Sequence[int]) -> "Program":
        """Return the program with each of its repeatable units so many times in a row.

        Several numbers are those of one repeatable unit after the other; 0 leaves a unit out.

        A unit can be repeated if it maps a tensor to one of the same shape and dtype, as blocks of
        transformers do (``layerdag.programs.depth``).

        Raises:
            NodeError: If a node cannot run with the table of sizes.
            UsageError: If no unit can be repeated, or ``times`` is not possible.
        """
        nodes, changes = deepened(self, times)
        return replace(self, nodes=nodes, **changes)

    def operator_counts(self) -> dict[str, int]:
        """Return how many calls of each operator there are, the most frequent first."""
        calls = (node.operator for node in self.nodes if node.operator not in LEAVES)
        return dict(Counter(calls).most_common())

    def repeated_blocks(self) -> list[RepeatedBlock]:
        """Return the modules in a row that make the same calls, the outermost of nested ones."""
        return repeated_blocks([node_to_json(node) for node in self.nodes], 0, len(self.nodes))

    def parameters(self) -> int:
        """Return the number of parameters at the program's sizes.

        Raises:
            NodeError: If a node cannot run.
        """
        return count_parameters(self)

    def to_json(self) -> dict[str, Any]:
        """Return the program as JSON data, without loss; repeated blocks stand there once."""
        return {
            "format": FORMAT,
            "name": self.name,
            "sizes": dict(self.sizes),
            "outputs": list(self.outputs),
            "order": list(self.order),
            "unused": [[name, value_to_json(leaf)] for name, leaf in self.unused],
            "units": list(self.units),
            "notes": list(self.notes),
            "nodes": fold([node_to_json(node) for node in self.nodes]),
        }

    @classmethod
    def from_json(cls, data: Any, source: str = "the program") -> "Program":
        """Return the program of JSON data.

        Raises:
            DataError: If the data are no program; names the node.
        """
        return _read_program(data, source)

    @classmethod
    def load(cls, path: str | Path) -> "Program":
        """Return the program of a file, ``NAME.program.json`` or the same compressed.

        Raises:
            DataError: If the file holds no program; names the node.
        """
        try:
            data = parse_json(read_parsed(path))
        except (ValueError, RecursionError) as error:
            raise DataError(f"{path} is no JSON ({error}); it cannot hold a program.") from error
        return cls.from_json(data, str(path))

    def save(self, path: str | Path) -> Path:
        """Write the program to a file and return its path."""
        write_text(path, json.dumps(self.to_json(), separators=(",", ":")) + "\n")
        return Path(path)

    def check(self, training: bool = True, content: bool = False) -> list[Finding]:
        """Return why this is no training step that runs (``layerdag.programs.validity``).

        Args:
            training: Whether it must end in a loss that every parameter has a part in.
            content: Whether it is also run for real, unless its results are too large.
        """
        return check(self, training, content)

    def named(self, name: str) -> "Program":
        """Return the program under another name; what a run has found of its shapes stays known."""
        found = copy(self)
        object.__setattr__(found, "name", name)
        return found

    def module(self) -> ProgramModule:
        """Return a module that runs the program for real; ``example_inputs()`` fit it.

        Raises:
            NodeError: If a node cannot run with the table of sizes.
        """
        return ProgramModule(self)

    def step(self, **settings: Any) -> "CapturedStep":
        """Return one step on every rank of a plan, such as ``step(data=8, optimizer="adamw")``.

        Its ``workload()`` is what ``layerdag.simulate`` takes. Settings are those of
        ``layerdag.capture_model``.

        Raises:
            NodeError: If a node cannot run with the table of sizes.
            UsageError: If a setting is unknown or the plan does not fit.
        """
        from layerdag.programs.steps import derive_step  # needs PyTorch's distributed package

        return derive_step(self, **settings)

    def source(self) -> str:
        """Return the program as readable Python: a line for each call, a loop for equal blocks."""
        return "\n".join(python_lines(self))

    def print(self) -> None:
        """Print the program as readable Python."""
        print(self.source())  # noqa: T201 - what the method is for


def _read_program(data: Any, source: str) -> Program:
    if not isinstance(data, Mapping) or data.get("format") != FORMAT:
        raise DataError(f"{source} is no program: its 'format' must be '{FORMAT}'.")
    known = {"format", "name", "sizes", "outputs", "order", "unused", "units", "notes", "nodes"}
    for key in data:
        if key not in known:
            raise DataError(f"{source}: unknown key '{key}'.{did_you_mean(str(key), known)}")
    try:
        nodes = unfold(read_list(data, "nodes", source))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{source} cannot be read: {plain_reason(error)}.") from error
    sizes = _read_sizes(data.get("sizes"), source)
    unused = []
    for entry in read_list(data, "unused", source):
        if not isinstance(entry, list) or len(entry) != 2 or not isinstance(entry[0], str):
            raise DataError(f"{source}: 'unused' holds [name, leaf] pairs.")
        leaf = value_from_json(entry[1], f"{source}: unused {entry[0]}")
        if not isinstance(leaf, Leaf):
            raise DataError(f"{source}: unused {entry[0]} is no parameter.")
        unused.append((entry[0], leaf))
    return Program(
        name=str(data.get("name", "program")),
        nodes=tuple(read_node(node, f"{source}: node {at}") for at, node in enumerate(nodes)),
        sizes=sizes,
        outputs=tuple(read_numbers(data, "outputs", source)),
        order=tuple(read_texts(data, "order", source)),
        unused=tuple(unused),
        units=tuple(read_texts(data, "units", source)),
        notes=tuple(read_texts(data, "notes", source)),
    )


def _read_sizes(sizes: Any, source: str) -> dict[str, int]:
    if not isinstance(sizes, Mapping):
        raise DataError(f"{source}: 'sizes' must be an object of numbers.")
    for name, size in sizes.items():
        if type(size) is not int:
            raise DataError(
                f"{source}: size '{name}' is {found_value(size)}; write a whole number."
            )
    return dict(sizes)
