"""``layerdag info`` of a flow graph: sizes, categories, numbers and graph-level values."""

from collections import Counter
from typing import Any

import numpy as np

from layerdag.codec import AttributedGraph

_MOST_WORDS = 6


def graph_summary(graph: AttributedGraph) -> dict[str, Any]:
    """Return what a graph contains as plain JSON types."""
    width_L = np.bincount(graph.layer_N)
    types = Counter(graph.edge_type_names[code] for code in graph.edge_type_E.tolist())
    return {
        "name": graph.name,
        "nodes": graph.num_nodes,
        "edges": graph.edge_index_2E.shape[1],
        "edge_types": dict(types.most_common()),
        "layers": width_L.size,
        "widest_layer": int(width_L.max(initial=0)),
        "categories": {
            name: dict(Counter(column).most_common()) for name, column in graph.categories.items()
        },
        "numbers": {name: _range(value_N) for name, value_N in graph.numbers.items()},
        "values": dict(graph.conditions),
    }


def _range(value_N: np.ndarray) -> dict[str, float | int | None]:
    """Return least, largest, sum and number of what is there."""
    there = value_N[~np.isnan(value_N)]
    if not there.size:
        return {"present": 0, "min": None, "max": None, "sum": None}
    low, high, total = float(there.min()), float(there.max()), float(there.sum())
    return {"present": int(there.size), "min": low, "max": high, "sum": total}


def graph_lines(summary: dict[str, Any]) -> list[str]:
    """Return the summary as text."""
    types = _counts(summary["edge_types"])
    lines = [f"{summary['name']}: {summary['nodes']:,} nodes, {summary['edges']:,} edges ({types})"]
    lines.append(f"  {'layers':<14}{summary['layers']:,}, at most {summary['widest_layer']:,} wide")
    for name, counts in summary["categories"].items():
        lines.append(f"  {name:<14}{_counts(counts)}")
    for name, found in summary["numbers"].items():
        if found["present"]:
            absent = summary["nodes"] - found["present"]
            without = f"; {absent:,} nodes without" if absent else ""
            low, high, total = (f"{found[key]:.6g}" for key in ("min", "max", "sum"))
            lines.append(f"  {name:<14}{low} to {high}, sum {total}{without}")
    for name, value in summary["values"].items():
        shown = f"{value:.6g}" if isinstance(value, float) else value
        lines.append(f"  {name:<14}{shown} (of the graph)")
    return lines


def _counts(counts: dict[str, int]) -> str:
    """Return the most frequent words with their counts."""
    shown = [f"{word or '(none)'} {count:,}" for word, count in list(counts.items())[:_MOST_WORDS]]
    more = f", {len(counts) - _MOST_WORDS:,} more" if len(counts) > _MOST_WORDS else ""
    return ", ".join(shown) + more or "none"
