"""The table of rules on DAGs, one line a rule."""

from layerdag.evaluation.rules._base import Rule, Severity, rule_table

GRAPH_RULES = rule_table(
    Rule(
        "edge-range",
        Severity.ERROR,
        "An edge names a node that the graph does not have.",
        "Number the nodes of a graph from 0 without gaps.",
    ),
    Rule("acyclic", Severity.ERROR, "The edges contain a cycle.", "Remove the closing edge."),
    Rule(
        "layer-consistent",
        Severity.ERROR,
        "A node listed in a layer has no parent in the layer before.",
        "List nodes in layer order (DAG.in_layer_order), or repair the sampler.",
    ),
    Rule("no-double-edge", Severity.ERROR, "An edge occurs twice.", "Keep one of each edge."),
    Rule(
        "attribute-range",
        Severity.ERROR,
        "An attribute code lies outside the schema.",
        "Encode with the schema that the graphs are checked against.",
    ),
    Rule(
        "position-range",
        Severity.ERROR,
        "A position inside a bin lies outside [0, 1).",
        "Draw positions uniformly from [0, 1).",
    ),
    Rule(
        "not-empty", Severity.ERROR, "The graph has no node.", "Drop the graph or sample it again."
    ),
    Rule(
        "arity-seen",
        Severity.WARNING,
        "A node has more parents than any node of its kind in the training graphs.",
        "Limit in-degrees by kind, or train longer.",
    ),
    Rule(
        "source-seen",
        Severity.WARNING,
        "A node starts its graph although no node of its kind does in the training graphs.",
        "Give the node a parent, or train longer.",
    ),
    Rule(
        "connected",
        Severity.WARNING,
        "The graph falls into several weakly connected parts.",
        "Compare the share with that of real graphs; traces may have several parts.",
    ),
)
