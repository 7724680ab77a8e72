"""Jobs: training steps as one graph of all ranks, made of execution traces."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, final

from layerdag.codec.folding import CATEGORIES, OPEN_VOCABULARIES, VOCABULARIES
from layerdag.codec.vocabulary import require_operators
from layerdag.graph.attributed_graph import AttributedGraph
from layerdag.kinds.graph_kind import Card, GraphKind, ModelDefaults

WORLD_SIZE = "world_size"
"""Condition of jobs: their number of ranks."""


@final
@dataclass(frozen=True, repr=False)
class JobKind(GraphKind):
    """Jobs."""

    name = "trace"
    plural = "jobs"
    has_traces = True
    # The words were looked at when the job was folded; the number of ranks is a word, too.
    known_words = (*CATEGORIES, WORLD_SIZE)
    largest_number = 1 << 63
    models = ModelDefaults("observed", "unlimited", encodes_sizes=True, draws_out_degrees=False)
    formats = ("et", "graphml", "json")
    row_format = "et"
    caution = (
        "The model drew the numbers of each node on their own: FLOPs, bytes and durations of "
        "related nodes need not agree."
    )
    card = Card(
        title="execution traces",
        graphs="traces of jobs",
        encoding="Chakra",
        target="the step time in seconds",
        label="Step time in seconds, predicted by the model",
        files="One Chakra trace for each rank of each job.",
        pattern="*/*.et",
        media_type="application/octet-stream",
    )

    def describes(self, graph: AttributedGraph) -> bool:
        """See ``GraphKind.describes``."""
        return graph.categories.keys() >= set(CATEGORIES)

    def with_vocabularies(self, graph: AttributedGraph) -> AttributedGraph:
        """See ``GraphKind.with_vocabularies``."""
        return replace(graph, open_vocabularies=OPEN_VOCABULARIES, vocabularies=VOCABULARIES)

    def require_public(self, graphs: Sequence[AttributedGraph], source: str) -> None:
        """See ``GraphKind.require_public``."""
        require_operators(graphs, source)

    def kept_as_read(self, graphs: Sequence[AttributedGraph]) -> Sequence[AttributedGraph]:
        """See ``GraphKind.kept_as_read``."""
        return graphs

    def comparable(self, sample: Any) -> Any:
        """See ``GraphKind.comparable``; of a program it is its training step."""
        return sample.schema.kind.step_of(sample)


JOB = JobKind()
