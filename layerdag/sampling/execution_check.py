"""Execution as a constraint: programs are run, on fake tensors, while they are drawn.

A graph whose newest call refuses its inputs can become no program, and neither can one that ends in
anything but a loss in which every result has a part. The sampler goes on with other particles of
the same program instead (``layerdag.models.fast.sampling_inputs``).

Shape letters: A node attributes, B rows, N positions, X edges.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import final

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from layerdag.errors import DataError
from layerdag.graph.attributed_graph import AttributedGraph
from layerdag.graph.formats.program_json import CALL, SIZES
from layerdag.models.base import PartialCheck
from layerdag.programs.assembly import assemble
from layerdag.programs.forward_program import Program
from layerdag.programs.inference import FAILS, ShapeInference
from layerdag.programs.operators import in_place
from layerdag.programs.validity import runs
from layerdag.runtime.rng import derive_seed
from layerdag.schema.attributes import CategoryAttribute
from layerdag.schema.schema import GraphSchema
from layerdag.schema.size_tables import FAMILY, SizeTables
from layerdag.validation.rules import Finding


@final
class ExecutionCheck(PartialCheck):
    """Runs the nodes of programs as they are drawn; the inference remembers earlier requests."""

    def __init__(self, schema: GraphSchema, inference: ShapeInference) -> None:
        words = {
            a.name: (column, a.values)
            for column, a in enumerate(schema.attributes)
            if isinstance(a, CategoryAttribute)
        }
        (self._call_column, self._calls), (self._sizes_column, self._sizes) = (
            words[CALL],
            words[SIZES],
        )
        self._places = [_places(name) for name in schema.edge_types]
        self._overwrites = np.array([in_place(call.partition(" ")[0]) for call in self._calls])
        self._inference = inference
        self.start(0)

    def start(self, rows: int) -> None:
        """Begin with so many empty programs."""
        self._type_BN = np.zeros((rows, 0), dtype=np.int64)
        self._used_BN = np.zeros((rows, 0), dtype=bool)

    def add(
        self,
        x_BA: Int[Tensor, "B A"],
        row_X: Int[Tensor, " X"],
        parent_X: Int[Tensor, " X"],
        type_X: Int[Tensor, " X"],
    ) -> Bool[Tensor, " B"]:
        """Add a node to every program and return which of them still run."""
        rows = x_BA.shape[0]
        held: defaultdict[int, dict[int, int]] = defaultdict(dict)
        edges = zip(row_X.tolist(), parent_X.tolist(), type_X.tolist(), strict=True)
        for row, parent, kind in edges:
            for place in self._places[kind]:
                held[row][place] = int(self._type_BN[row, parent])
        calls = x_BA[:, self._call_column].tolist()
        sizes = x_BA[:, self._sizes_column].tolist()
        type_B = np.array(
            [self._result(calls[row], sizes[row], held[row]) for row in range(rows)],
            dtype=np.int64,
        )
        self._used_BN[row_X.numpy(), parent_X.numpy()] = True
        self._type_BN = np.concatenate([self._type_BN, type_B[:, None]], axis=1)
        used_B = self._overwrites[np.array(calls, dtype=np.int64)]
        self._used_BN = np.concatenate([self._used_BN, used_B[:, None]], axis=1)
        return torch.from_numpy(type_B != FAILS)

    def may_end(self) -> Bool[Tensor, " B"]:
        """Return which programs end in a loss in which all other results have a part."""
        if not self._type_BN.shape[1]:
            return torch.zeros(self._type_BN.shape[0], dtype=torch.bool)
        whole_B = self._used_BN[:, :-1].all(axis=1)
        loss_B = [self._inference.is_loss(number) for number in self._type_BN[:, -1].tolist()]
        return torch.from_numpy(whole_B & np.array(loss_B, dtype=bool))

    def select(self, row_R: Int[Tensor, " R"]) -> None:
        """Keep the rows ``row_R``."""
        index_R = row_R.cpu().numpy()
        self._type_BN, self._used_BN = self._type_BN[index_R], self._used_BN[index_R]

    def _result(self, call: int, sizes: int, held: dict[int, int]) -> int:
        if sorted(held) != list(range(len(held))):
            return FAILS
        inputs = tuple(held[place] for place in range(len(held)))
        return self._inference.result(self._calls[call], self._sizes[sizes], inputs)


def _places(edge_type: str) -> tuple[int, ...]:
    """Return the places of arguments that an edge type names; none if it names none."""
    parts = edge_type.split("+")
    return tuple(map(int, parts)) if all(part.isdigit() for part in parts) else ()


_TABLES, _REAL_RUNS = 32, 4
"""Tables of sizes that are tried for a program, and those with which it is run for real."""


def drawn_program(
    graph: AttributedGraph, tables: SizeTables, seed: int, wanted: Mapping[str, int]
) -> Program:
    """Return a drawn graph as a program that runs, with numbers for its sizes.

    Numbers are drawn as training programs have them; the first table counts with which it is a
    training step, on fake tensors and for real. Entries in ``wanted`` that the program does not
    have are left out. Raises DataError if it is no training step; says why.
    """
    found: list[Finding] = []
    real_runs = _REAL_RUNS
    for trial in range(_TABLES):
        rng = np.random.default_rng(derive_seed(seed, "sizes", trial))
        program = _with_sizes(graph, tables, rng, wanted)
        found = program.check(content=True)
        if not found:
            return program
        if found[0].rule.id == "program-content":
            real_runs -= 1
            if not real_runs:
                break
        elif runs(found):
            break  # no other table helps
    asked = ", ".join(f"{name}={number}" for name, number in wanted.items())
    raise DataError(
        f"{graph.name}: is no training step{f' with {asked}' if asked else ''}: {found[0].found}."
    )


def _with_sizes(
    graph: AttributedGraph,
    tables: SizeTables,
    rng: np.random.Generator,
    wanted: Mapping[str, int],
) -> Program:
    family = str(graph.conditions.get(FAMILY, ""))
    drawn: dict[str, int] = {}

    def draw(entry: str) -> int:
        drawn[entry] = tables.draw(entry, family, rng, drawn)
        return drawn[entry]

    program = assemble(graph, draw)
    # Entries are numbered anew in the order in which they were drawn.
    renamed = dict(zip(drawn, program.sizes, strict=True))
    sizes = dict(program.sizes)
    for old, new in renamed.items():
        if new in wanted:
            same = (name for name in tables.same(old, family) if name in renamed)
            sizes |= dict.fromkeys((renamed[name] for name in same), wanted[new])
    sizes |= {name: number for name, number in wanted.items() if name in sizes}
    return replace(program, sizes=sizes)
