"""Programs: the calls of a forward pass that ends in a loss; its step follows from a plan."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from layerdag.errors import DataError
from layerdag.graph.attributed_graph import AttributedGraph
from layerdag.graph.formats import program_json
from layerdag.kinds.graph_kind import Card, GraphKind, ModelDefaults
from layerdag.runtime.settings import shorten

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
    known_words = (*program_json.ATTRIBUTES, EDGE)
    models = ModelDefaults("observed", "observed", encodes_sizes=True, draws_out_degrees=False)
    formats = ("et", "program", "graphml", "json")
    row_format = "program"
    card = Card(
        title="forward programs",
        graphs="forward programs",
        encoding="JSON and Chakra",
        target="the step time in seconds",
        label="Step time in seconds, predicted by the model",
        files="One JSON file for each program, beside the Chakra trace of its training step.",
        pattern=f"*/*{program_json.SUFFIX}",
        media_type="application/json",
    )

    def describes(self, graph: AttributedGraph) -> bool:
        """See ``GraphKind.describes``."""
        return graph.categories.keys() == set(program_json.ATTRIBUTES)

    def require_public(self, graphs: Sequence[AttributedGraph], source: str) -> None:
        """See ``GraphKind.require_public``; samples with operators of others could not run."""
        calls = {call for graph in graphs for call in graph.categories[program_json.CALL]}
        private = sorted(call for call in calls if not program_json.has_public_operator(call))
        if private:
            raise DataError(
                f"{source}: its programs have {len(private):,} different calls of operators that "
                f"are not PyTorch's, such as '{shorten(private[0].partition(' ')[0], 60)}'; "
                "samples could not run them, and checkpoints would hold their names. Leave these "
                "programs out."
            )

    def stored_graph(self, sample: "StoredSample") -> AttributedGraph:
        """See ``GraphKind.stored_graph``; of a derived job it is the program behind it."""
        return sample.program_graph or sample.graph

    def step_of(self, sample: Any) -> Any:
        """See ``GraphKind.step_of``."""
        return sample.job_graph


PROGRAM = ProgramKind()
