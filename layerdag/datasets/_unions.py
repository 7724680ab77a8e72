"""Layers of many graphs at once: one vectorized step per layer of the deepest graph."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from layerdag.graph import DAG, longest_path_layers


def union_layers(sizes: Sequence[int], edges: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return the longest-path layer of each node of each graph.

    Args:
        sizes: Number of nodes of each graph.
        edges: Source and target of each edge of each graph, int64 (2, E).

    Raises:
        GraphError: If a graph has a cycle; node numbers count through all graphs.
    """
    start_B = np.cumsum([0, *sizes])
    shifted = [
        edges_2E + start for edges_2E, start in zip(edges, start_B[:-1].tolist(), strict=True)
    ]
    union_2E = np.concatenate([np.zeros((2, 0), np.int64), *shifted], axis=1)
    layer_N = longest_path_layers(int(start_B[-1]), union_2E)
    return np.split(layer_N, start_B[1:-1]) if sizes else []


def layers_of(dags: Sequence[DAG]) -> list[Tensor]:
    """Return ``dag.layers()`` of each graph. Raises GraphError if a graph has a cycle."""
    edges = [dag.edge_index_2E.numpy() for dag in dags]
    found = union_layers([dag.num_nodes for dag in dags], edges)
    return [torch.from_numpy(layer_N) for layer_N in found]


def in_layer_order(dags: Sequence[DAG]) -> list[DAG]:
    """Return ``dag.in_layer_order()`` of each graph. Raises GraphError if a graph has a cycle."""
    return [
        dag.permuted(torch.argsort(layer_N, stable=True))
        for dag, layer_N in zip(dags, layers_of(dags), strict=True)
    ]
