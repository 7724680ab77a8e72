"""What drawing graphs of a kind takes beside the model: limits, retries, what is wrong."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from layerdag.dag.dag import DAG
from layerdag.graph.attributed_graph import Condition
from layerdag.models.base import JointCodeMasks, PartialCheck
from layerdag.sampling.generated import GeneratedGraph
from layerdag.sampling.request_sizes import size_error
from layerdag.sampling.settings import GenerationSettings
from layerdag.schema.schema import GraphSchema, complete_conditions

BATCH_SIZE = 32
"""Graphs side by side where nothing else is asked for and each is wanted as soon as possible."""


@dataclass(frozen=True, order=True)
class SampleDefects:
    """What is wrong with a sample; the least of several is the best.

    Attributes:
        faults: Contradictions that decoding would repair; 1 for a program that does not run.
        copies: Whether it repeats a training program whose hash the schema keeps.
        size: Distance from the size, or the other numbers, that were asked for.
    """

    faults: int = 0
    copies: bool = False
    size: float = 0.0


@dataclass(frozen=True, eq=False)
class DrawPolicy:
    """Decides what is drawn, what is wrong and what a retry changes; flow graphs have no faults.

    ``check`` runs graphs while they are drawn. ``max_retries`` limits draws of a graph with faults,
    of which ``draws_ahead`` are made side by side; ``makes_files_ahead`` if making files takes as
    long as drawing.
    """

    schema: GraphSchema
    settings: GenerationSettings
    check: PartialCheck | None = None
    max_retries: ClassVar[int] = 8
    draws_ahead: ClassVar[int] = 1
    makes_files_ahead: ClassVar[bool] = False

    def requested(self, seeds: Sequence[int]) -> list[dict[str, Condition]]:
        """Return the conditions of each seed, open ones drawn.

        Raises VocabularyError if a wanted condition is unknown to the schema.
        """
        return complete_conditions(self.schema, self.settings.conditions, seeds)

    def drawn(self, name: str, seed: int, dag: DAG, truncated: bool) -> GeneratedGraph:
        """Return a sample."""
        return GeneratedGraph(name, seed, dag, truncated, self.schema)

    def batch_size(self, num: int) -> int:
        """Return how many of so many graphs are drawn side by side."""
        return self.settings.batch_size or BATCH_SIZE

    def possible_codes(self, rows: Sequence[Mapping[str, Condition]]) -> JointCodeMasks | None:
        """Return which codes nodes can have together; None for any."""
        return None

    def known_conditions(self, row: Mapping[str, Condition]) -> Mapping[str, Condition]:
        """Return conditions as the model knows them."""
        return row

    def retry_conditions(
        self, row: Mapping[str, Condition], seed: int, trial: int, wanted: Mapping[str, Condition]
    ) -> Mapping[str, Condition]:
        """Return the conditions of a further draw, of which some were asked for."""
        return row

    def faults(
        self, dags: Sequence[DAG], rows: Sequence[Mapping[str, Condition]], each: int = 1
    ) -> list[int]:
        """Return the faults of finished graphs.

        Rows are the conditions of each graph, or of each ``each`` graphs in a row.
        """
        return [0] * len(dags)

    def judged(
        self, graphs: Sequence[GeneratedGraph], rows: Sequence[Mapping[str, Condition]]
    ) -> tuple[list[GeneratedGraph], list[SampleDefects]]:
        """Return graphs with what was found out about them, and what is wrong with each.

        Sizes count where graphs are drawn again for them.
        """
        faults = self.faults([graph.dag for graph in graphs], rows)
        if not self.settings.redraws:
            return list(graphs), [SampleDefects(count) for count in faults]
        limit = self.settings.max_nodes
        return list(graphs), [
            SampleDefects(count, size=size_error(graph.dag, row, limit))
            for count, graph, row in zip(faults, graphs, rows, strict=True)
        ]
