"""Programs: the calls of a forward pass that ends in a loss; its step follows from a plan."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from layerdag.graph.attributed_graph import AttributedGraph
from layerdag.graph.formats import program_json
from layerdag.kinds.graph_kind import Card, GraphKind, ModelDefaults

if TYPE_CHECKING:
    from layerdag.samples.stored import StoredSample

EDGE = "edge"
"""Name of the types of edges among the words of a data set."""


@final
@dataclass(frozen=True, repr=False)
class ProgramKind(GraphKind):
    """Forward programs."""

    name = "program"
    plural = "programs"
    has_steps = True
    has_size_tables = True
    known_words = (*program_json.ATTRIBUTES, EDGE)
    models = ModelDefaults("observed", "observed", encodes_sizes=True, draws_out_degrees=False)
    formats = ("et", "program", "graphml", "json")
    row_format = "program"
    card = Card(
        title="forward programs",
        graphs="forward programs",
        encoding="JSON",
        target="the step time in seconds",
        label="Step time in seconds, predicted by the model",
        files="One JSON file for each program.",
        pattern=f"*{program_json.SUFFIX}",
        media_type="application/json",
    )

    def describes(self, graph: AttributedGraph) -> bool:
        """See ``GraphKind.describes``."""
        return graph.categories.keys() == set(program_json.ATTRIBUTES)

    def stored_graph(self, sample: "StoredSample") -> AttributedGraph:
        """See ``GraphKind.stored_graph``; of a derived job it is the program behind it."""
        return sample.program_graph or sample.graph

    def step_of(self, sample: Any) -> Any:
        """See ``GraphKind.step_of``."""
        return sample.job_graph


PROGRAM = ProgramKind()
