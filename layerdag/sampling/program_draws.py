"""Draws of programs: they run while they are drawn, and have the numbers that are asked for."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import final

from layerdag.dag.dag import DAG
from layerdag.errors import DataError, UsageError
from layerdag.graph.attributed_graph import NUM_LAYERS, NUM_NODES, Condition
from layerdag.programs.inference import ShapeInference
from layerdag.programs.targets import TOLERANCE, Targets, solve_targets
from layerdag.runtime.rng import derive_seed
from layerdag.sampling.draw_policy import DrawPolicy, SampleDefects
from layerdag.sampling.execution_check import ExecutionCheck
from layerdag.sampling.generated import GeneratedGraph, GeneratedProgram
from layerdag.sampling.settings import GenerationSettings
from layerdag.schema.schema import GraphSchema, complete_conditions
from layerdag.schema.size_tables import DEPTH, FAMILY

BATCH_SIZE = 128
"""Programs side by side: they are short, so that more fit."""
COPY = 100
"""Faults of a program that repeats one of the data, so that it is hardly ever chosen."""
RETRIES_AS_ASKED = 4
"""Retries under the conditions of the first draw; later ones draw open conditions again."""
FURTHER = "communication"
"""A word of the seeds of further draws; another one would change the samples of a seed."""


@final
class ProgramDraws(DrawPolicy):
    """Draws of programs.

    One that does not run has faults; one that repeats a training program is a copy.
    """

    max_retries = 32
    draws_ahead = 16
    makes_files_ahead = True

    @classmethod
    def running(cls, schema: GraphSchema, settings: GenerationSettings) -> "ProgramDraws":
        """Return the draws of a request, which run programs while they are drawn."""
        return cls(schema, settings, ExecutionCheck(schema, ShapeInference()))

    def requested(self, seeds: Sequence[int]) -> list[dict[str, Condition]]:
        """See ``DrawPolicy.requested``."""
        rows = complete_conditions(self.schema, self.settings.conditions, seeds)
        if DEPTH not in self.settings.conditions:
            return rows
        # Sizes that were drawn beside a depth that is asked for may be those of another depth.
        drawn = {NUM_NODES, NUM_LAYERS} - self.settings.conditions.keys()
        return [{n: value for n, value in row.items() if n not in drawn} for row in rows]

    def drawn(self, name: str, seed: int, dag: DAG, truncated: bool) -> GeneratedGraph:
        """See ``DrawPolicy.drawn``."""
        return GeneratedProgram(
            name, seed, dag, truncated, self.schema, self.settings.sizes, drawn_with=seed
        )

    def batch_size(self, num: int) -> int:
        """See ``DrawPolicy.batch_size``."""
        share = math.ceil(num / (self.settings.processes or 1)) or 1
        return self.settings.batch_size or min(BATCH_SIZE, share)

    def known_conditions(self, row: Mapping[str, Condition]) -> Mapping[str, Condition]:
        """See ``DrawPolicy.known_conditions``.

        A depth that is asked for is reached by repeating units. Few families have deep programs:
        told of it, the model would draw another family.
        """
        if DEPTH not in self.settings.conditions:
            return row
        return {name: value for name, value in row.items() if name != DEPTH}

    def retry_conditions(
        self, row: Mapping[str, Condition], seed: int, trial: int, wanted: Mapping[str, Condition]
    ) -> Mapping[str, Condition]:
        """See ``DrawPolicy.retry_conditions``.

        Few programs have the conditions of a row that so many draws could not leave the data with,
        and none may have the size that a limit or a rare mixture of conditions leaves.
        """
        if trial < RETRIES_AS_ASKED:
            return row
        kept = {name: row[name] for name in (FAMILY,) if name in row}
        seeds = [derive_seed(seed, FURTHER, trial)]
        (drawn,) = complete_conditions(self.schema, {**kept, **wanted}, seeds)
        return {name: value for name, value in drawn.items() if name in row}

    def faults(
        self, dags: Sequence[DAG], rows: Sequence[Mapping[str, Condition]], each: int = 1
    ) -> list[int]:
        """See ``DrawPolicy.faults``; a copy counts as ``COPY``."""
        return [COPY * copied for copied in self.schema.are_copies([dag.to("cpu") for dag in dags])]

    def judged(
        self, graphs: Sequence[GeneratedGraph], rows: Sequence[Mapping[str, Condition]]
    ) -> tuple[list[GeneratedGraph], list[SampleDefects]]:
        """See ``DrawPolicy.judged``."""
        found: list[GeneratedGraph] = []
        defects: list[SampleDefects] = []
        copies = self.schema.are_copies([graph.dag for graph in graphs])
        for graph, copied, row in zip(graphs, copies, rows, strict=True):
            assert isinstance(graph, GeneratedProgram)
            # A copy is drawn again, and need not be run.
            made = replace(graph, is_copy=True) if copied else self._checked(graph, row)
            found.append(made)
            defects.append(SampleDefects(copies=True) if copied else _defects(made))
        return found, defects

    def _checked(self, graph: GeneratedProgram, row: Mapping[str, Condition]) -> GeneratedProgram:
        """Return a sample with its program, which has been run; as it is if that does not run.

        The program has the numbers that are asked for, or those nearest to them.
        """
        targets = self.settings.targets or Targets()
        if DEPTH in self.settings.conditions:
            targets = replace(targets, depth=_depth(row))
        try:
            program = graph.program
        except DataError:
            return graph
        if not targets.asked():
            return replace(graph, checked=program)
        try:
            found = solve_targets(program, targets, tuple(self.settings.sizes))
        except (DataError, UsageError) as error:
            # Without it the sample would be a program that does not have what was asked for.
            return replace(graph, unmet=str(error))
        wrong = found.program.check(content=True)
        if wrong:
            return replace(graph, unmet=f"{found.program.name}: {wrong[0].found}.")
        return replace(graph, checked=found.program, reached=found.reached)


def _defects(graph: GeneratedProgram) -> SampleDefects:
    if graph.unmet:  # better than a copy, and drawn again as often as one that is far off
        return SampleDefects(size=math.inf)
    if graph.checked is None:
        return SampleDefects(1, size=math.inf)
    miss = max((each.miss for each in graph.reached), default=0.0)
    return SampleDefects(size=miss if miss > TOLERANCE else 0.0)


def _depth(row: Mapping[str, Condition]) -> int | None:
    """Return the number of units that a program shall have, None for any."""
    asked = row.get(DEPTH)
    return round(asked) if isinstance(asked, int | float) and asked > 0.5 else None
