"""DAGs and batches of them as tensors, and their statistics."""

from layerdag.dag.dag import (
    DAG,
    DAGBatch,
    GraphSizes,
    color_rounds,
    graph_hash,
    graph_hashes,
    layers_of,
)
from layerdag.dag.graph_set import GraphSet
from layerdag.dag.partial import Gap, Prefix, Replacement, require_layers
from layerdag.dag.statistics import (
    MANY,
    MEASURED,
    SHARED_BY,
    GraphStatistics,
    KindMultisets,
    ListedNeighbors,
    all_distinct,
    condition_units,
    needed_programs,
    program_numbers,
    shared_statistics,
)

__all__ = [
    "DAG",
    "MANY",
    "MEASURED",
    "SHARED_BY",
    "DAGBatch",
    "Gap",
    "GraphSet",
    "GraphSizes",
    "GraphStatistics",
    "KindMultisets",
    "ListedNeighbors",
    "Prefix",
    "Replacement",
    "all_distinct",
    "color_rounds",
    "condition_units",
    "graph_hash",
    "graph_hashes",
    "layers_of",
    "needed_programs",
    "program_numbers",
    "require_layers",
    "shared_statistics",
]
