"""Small graphs with names, for tests of data sets."""

import numpy as np

from layerdag.graph.attributed_graph import AttributedGraph


def chain(name: str, kinds: str, **conditions: float | str) -> AttributedGraph:
    """Return a path whose nodes have the letters of ``kinds``."""
    size = len(kinds)
    return AttributedGraph(
        name=name,
        categories={"kind": list(kinds)},
        numbers={},
        edge_index_2E=np.stack([np.arange(size - 1), np.arange(1, size)]),
        edge_type_E=np.zeros(size - 1, dtype=np.int64),
        conditions=conditions,
    )
