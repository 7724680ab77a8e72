"""Small random DAGs for tests and benchmarks."""

import numpy as np
import torch

from layerdag.dag.dag import DAG
from layerdag.graph.topology import pointers


def random_dag(
    rng: np.random.Generator,
    layer_sizes: list[int],
    cardinalities: list[int],
    *,
    extra_edges: float = 0.3,
    num_edge_types: int = 1,
) -> DAG:
    """Draw a DAG with exactly the given layer sizes.

    Each node beyond layer 0 gets one parent in the layer before, and on average ``extra_edges``
    further parents anywhere earlier. Nodes come in layer order.

    Args:
        rng: Source of randomness.
        layer_sizes: Number of nodes of each layer, all >= 1.
        cardinalities: Number of codes of each attribute.
        extra_edges: Mean number of further parents a node.
        num_edge_types: Edge types are drawn uniformly from this many.
    """
    sizes_L = np.asarray(layer_sizes, dtype=np.int64)
    start_L = pointers(sizes_L)[:-1]
    layer_N = np.repeat(np.arange(sizes_L.size), sizes_L)
    num_nodes = layer_N.size
    inner = np.flatnonzero(layer_N > 0)
    before = layer_N[inner] - 1
    parent = start_L[before] + (rng.random(inner.size) * sizes_L[before]).astype(np.int64)
    child = rng.choice(inner, size=rng.poisson(extra_edges * inner.size)) if inner.size else inner
    earlier = (rng.random(child.size) * start_L[layer_N[child]]).astype(np.int64)
    pairs = np.stack([np.concatenate([parent, earlier]), np.concatenate([inner, child])])
    edge_index_2E = np.unique(pairs, axis=1)
    x_NA = np.stack([rng.integers(0, k, num_nodes) for k in cardinalities], axis=1)
    return DAG.build(
        torch.from_numpy(x_NA.astype(np.int64)),
        torch.from_numpy(edge_index_2E),
        edge_type_E=torch.from_numpy(rng.integers(0, num_edge_types, edge_index_2E.shape[1])),
    ).in_layer_order()
