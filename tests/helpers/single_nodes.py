"""Nodes of a given graph as a sampler would draw them, for the tests beside this file."""

import torch

from layerdag.dag.dag import DAGBatch
from layerdag.models.fast.candidates import EdgesToParents, NodeCandidates


def node_of(batch: DAGBatch, node: int, copies: int = 1) -> NodeCandidates:
    """Return one node of a graph as so many candidates, with what weights read of it."""
    source_E, target_E = batch.edge_index_2E
    copy_P, none = torch.arange(copies), torch.zeros(copies, dtype=torch.int64)
    edges = tuple(
        EdgesToParents(copy_P, torch.full((copies,), int(parent) + 1), none)
        for parent in source_E[target_E == node]
    )
    kind_P, states = batch.x_NA[node, :1].repeat(copies), torch.zeros(0, 0)
    return NodeCandidates(none, none, kind_P, none + len(edges), edges, states, states)
