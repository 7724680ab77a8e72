"""Graphs with a gap, and new layers for it."""

import numpy as np
import torch
from random_graphs import random_dag

from layerdag.dag.dag import DAG
from layerdag.dag.partial import Gap, Prefix

KINDS = 4
EDGE_TYPES = 2


def random_gap(seed: int, layer_sizes: tuple[int, ...] = (2, 3, 2, 3, 2, 3)) -> Gap:
    """Return a gap between the first and the last two layers of a random graph."""
    rng = np.random.default_rng(seed)
    dag = random_dag(rng, [*layer_sizes], [KINDS, 3], extra_edges=1.5, num_edge_types=EDGE_TYPES)
    return Gap.from_dag(dag, 2, 2)


def begun(gap: Gap, layer_sizes: tuple[int, ...], seed: int = 0) -> DAG:
    """Return the layers before a gap and new ones of these sizes."""
    rng = np.random.default_rng(seed)
    first = Prefix.from_dag(gap.dag, gap.first_layer).dag
    layers = [first.layer_N]
    edges = [first.edge_index_2E]
    for number, size in enumerate(layer_sizes, start=gap.first_layer):
        before = (torch.cat(layers) == number - 1).nonzero()[:, 0].numpy()
        nodes = sum(len(layer) for layer in layers)
        parent = torch.from_numpy(rng.choice(before, size))
        edges.append(torch.stack([parent, torch.arange(nodes, nodes + size)]))
        layers.append(torch.full((size,), number))
    new_NA = torch.from_numpy(rng.integers(0, [KINDS, 3], (sum(layer_sizes), 2)))
    edges_2E = torch.cat(edges, dim=1)
    further = edges_2E.shape[1] - first.num_edges
    return DAG.build(
        torch.cat([first.x_NA, new_NA]),
        edges_2E,
        edge_type_E=torch.cat([first.edge_type_E, torch.zeros(further, dtype=torch.int64)]),
        layer_N=torch.cat(layers),
    )
