"""Count what a flow graph contains."""

from collections import Counter
from typing import Any

import numpy as np

from layerdag.graph.attributed_graph import AttributedGraph
from layerdag.graph.formats.program_json import CALL, is_program, operator_of


def graph_summary(graph: AttributedGraph) -> dict[str, Any]:
    """Return what a graph contains as plain JSON types."""
    words = dict(graph.categories)
    if is_program(graph):  # of patterns of arguments hardly two are the same
        words = {"operators": list(map(operator_of, words[CALL]))}
    width_L = np.bincount(graph.layer_N)
    types = Counter(graph.edge_type_names[code] for code in graph.edge_type_E.tolist())
    return {
        "name": graph.name,
        "nodes": graph.num_nodes,
        "edges": graph.edge_index_2E.shape[1],
        "edge_types": dict(types.most_common()),
        "layers": width_L.size,
        "widest_layer": int(width_L.max(initial=0)),
        "categories": {name: dict(Counter(column).most_common()) for name, column in words.items()},
        "numbers": {name: _range(value_N) for name, value_N in graph.numbers.items()},
        "values": dict(graph.conditions),
    }


def _range(value_N: np.ndarray) -> dict[str, float | int | None]:
    there = value_N[~np.isnan(value_N)]
    if not there.size:
        return {"present": 0, "min": None, "max": None, "sum": None}
    low, high, total = float(there.min()), float(there.max()), float(there.sum())
    return {"present": int(there.size), "min": low, "max": high, "sum": total}
