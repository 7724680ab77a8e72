"""Flow graphs: any other directed acyclic graphs with words and numbers."""

from dataclasses import dataclass
from typing import final

from layerdag.graph.attributed_graph import AttributedGraph
from layerdag.kinds.graph_kind import Card, GraphKind, ModelDefaults


@final
@dataclass(frozen=True, repr=False)
class FlowKind(GraphKind):
    """Flow graphs."""

    name = "flow"
    plural = "flow graphs"
    models = ModelDefaults("unlimited", "unlimited", encodes_sizes=False, draws_out_degrees=True)
    formats = ("graphml", "json")
    row_format = "json"
    card = Card(
        title="flow graphs",
        graphs="graphs",
        encoding="GraphML",
        target="the label",
        label="Label, predicted by the model, in the unit that labels of the private graphs have",
        files="One GraphML file for each graph.",
        pattern="*.graphml",
        media_type="application/xml",
    )

    def describes(self, graph: AttributedGraph) -> bool:
        """See ``GraphKind.describes``; any graph is one."""
        return True


FLOW = FlowKind()
