"""What is wrong with finished jobs, for the choice among candidates and for drawing again."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from layerdag.codec import COMMUNICATION, AttributedGraph, fitting_ranks, needed_repairs
from layerdag.datasets.schema import GraphSchema
from layerdag.graph import DAG, Condition
from layerdag.sampling.drawing._possible import knows_several_ranks
from layerdag.sampling.files import asked_ranks

SILENT = 10
"""Faults that a job of several ranks which exchange nothing counts as."""

USUAL = ("compute_without_cost", "collective_that_is_not_simulated")
"""Repairs that whole collections of real traces need, so that they are no fault of a sample."""


@dataclass(frozen=True)
class FaultCounter:
    """Counts the contradictions of jobs that decoding would repair (docs/reference/attributes.md).

    Attributes:
        schema: Of the model.
        communicate: Whether ranks of training jobs exchange something, so that silence is a fault.
    """

    schema: GraphSchema
    communicate: bool

    @property
    def usual(self) -> tuple[str, ...]:
        """Repairs that are not counted."""
        if knows_several_ranks(self.schema):
            return USUAL
        # All training jobs ran on one rank, whatever they exchanged with themselves.
        return (*USUAL, "collective_of_one_rank", "message_of_one_rank")

    def counts(
        self, dags: Sequence[DAG], rows: Sequence[Mapping[str, Condition]], each: int = 1
    ) -> list[int]:
        """Return the faults of finished graphs; 0 for graphs that are no jobs.

        Args:
            dags: Graphs.
            rows: Conditions of each graph, or of each ``each`` graphs in a row.
            each: Candidates that have the same conditions.
        """
        if self.schema.kind != "trace":
            return [0] * len(dags)
        jobs = (dag.to("cpu").with_conditions(rows[i // each]) for i, dag in enumerate(dags))
        return [self._of(self.schema.whole(self.schema.decode(job))) for job in jobs]

    def _of(self, graph: AttributedGraph) -> int:
        """Return the number of repairs of a job, and more if its ranks exchange nothing."""
        if not {"op", "type", "stage"} <= set(graph.categories):
            return 0
        wanted = asked_ranks(graph.conditions, None)
        fitting = fitting_ranks(graph, wanted)
        needed = needed_repairs(graph, fitting)
        found = sum(count for name, count in needed.items() if name not in self.usual)
        silent = wanted > 1 and COMMUNICATION.isdisjoint(graph.categories["type"])
        return found + fitting - wanted + SILENT * (silent and self.communicate)
