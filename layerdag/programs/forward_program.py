"""The forward program of a model: calls of operators, sizes as expressions, a table of sizes.

A traced training step is a function of a program and a plan: the backward pass, the
optimizer and all communication follow from running it (``layerdag.programs.steps``).
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from layerdag.errors import DataError
from layerdag.graph.formats.repeated_blocks import RepeatedBlock, fold, repeated_blocks, unfold
from layerdag.programs.depth import deepened
from layerdag.programs.execution import count_parameters
from layerdag.programs.module import ProgramModule
from layerdag.programs.nodes import (
    ForwardGraph,
    Leaf,
    node_to_json,
    read_node,
    require_fields,
    value_from_json,
    value_to_json,
)
from layerdag.programs.operators import LEAVES
from layerdag.programs.python_source import python_lines
from layerdag.programs.sizes import ROLES, is_entry
from layerdag.programs.validity import check
from layerdag.runtime.files import write_text
from layerdag.runtime.json_shape import parse_json, plain_reason
from layerdag.runtime.reading import read_parsed
from layerdag.validation.rules import Finding

if TYPE_CHECKING:
    from layerdag.capturing.captured_step import CapturedStep

FORMAT = "layerdag-program/1"
_SHAPE: Mapping[str, Any] = {
    "format": str,
    "name?": str,
    "sizes": {str: int},
    "outputs?": [int],
    "order?": [str],
    "unused?": [[object]],
    "units?": [str],
    "notes?": [str],
    "nodes?": [object],
}


@final
@dataclass(frozen=True)
class Program(ForwardGraph):
    """A forward program with its table of sizes; for its fields see ``ForwardGraph``.

    Attributes:
        notes: What was recorded but cannot be kept exactly, as sentences.
    """

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

    def deepen(self, times: int | Sequence[int]) -> "Program":
        """Return the program with each of its repeatable units ``times`` times in a row.

        Several numbers are those of one repeatable unit after the other; 0 leaves a unit out.

        A unit can be repeated if it maps a tensor to one of the same shape and dtype, as blocks of
        transformers do (``layerdag.programs.depth``).

        Raises:
            NodeError: If a node cannot run with the table of sizes.
            UsageError: If no unit can be repeated, or ``times`` is not possible.
        """
        return deepened(self, times)

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
        """Return the program as JSON data, without loss; repeated blocks are written once."""
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
        if not isinstance(data, Mapping) or data.get("format") != FORMAT:
            raise DataError(f"{source} is no program: its 'format' must be '{FORMAT}'.")
        require_fields(data, _SHAPE, source)
        lists = ("outputs", "order", "unused", "units", "notes", "nodes")
        data = {"name": "program", **{name: [] for name in lists}, **data}
        try:
            nodes = unfold(data["nodes"])
        except (ValueError, RecursionError) as error:
            raise DataError(f"{source} cannot be read: {plain_reason(error)}.") from error
        unused = []
        for entry in data["unused"]:
            if len(entry) != 2 or not isinstance(entry[0], str):
                raise DataError(f"{source}: 'unused' holds [name, leaf] pairs.")
            leaf = value_from_json(entry[1], f"{source}: unused {entry[0]}")
            if not isinstance(leaf, Leaf):
                raise DataError(f"{source}: unused {entry[0]} is no parameter.")
            unused.append((entry[0], leaf))
        return cls(
            name=data["name"],
            nodes=tuple(read_node(node, f"{source}: node {at}") for at, node in enumerate(nodes)),
            sizes=dict(data["sizes"]),
            outputs=tuple(data["outputs"]),
            order=tuple(data["order"]),
            unused=tuple(unused),
            units=tuple(data["units"]),
            notes=tuple(data["notes"]),
        )

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
        """Return why this is no step that runs; see ``layerdag.programs.validity.check``."""
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
