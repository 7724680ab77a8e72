"""Sampled nodes and edges, flat through all graphs, as one DAG per graph.

Shape letters: A node attributes, B graphs, E edges, N nodes, n nodes of one graph.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from layerdag.graph import DAG


def bin_positions(uniform: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Return positions inside bins as float32 below 1, which rounding must not reach."""
    return uniform.float().clamp(max=1 - 2.0**-24)


def assemble_dags(
    x_NA: Int[Tensor, "N A"],
    u_NA: Float[Tensor, "N A"],
    nodes_B: Int[Tensor, " B"],
    edge_index_2E: Int[Tensor, "2 E"],
    edge_type_E: Int[Tensor, " E"],
    layer_N: Int[Tensor, " N"],
) -> tuple[DAG, ...]:
    """Split flat tensors into DAGs, edges sorted by (target, source).

    Args:
        x_NA: Attribute codes, nodes ordered by graph, then by layer.
        u_NA: Positions inside the bins.
        nodes_B: Number of nodes of each graph.
        edge_index_2E: Source and target, counted through all nodes; in any order.
        edge_type_E: Types of these edges.
        layer_N: Longest-path layer of each node.
    """
    graph_N = torch.repeat_interleave(nodes_B)
    order_E = torch.argsort(edge_index_2E[1] * x_NA.shape[0] + edge_index_2E[0])
    edge_index_2E, edge_type_E = edge_index_2E[:, order_E], edge_type_E[order_E]
    graph_E = graph_N[edge_index_2E[1]]
    edge_index_2E = edge_index_2E - (nodes_B.cumsum(0) - nodes_B)[graph_E]
    nodes = nodes_B.tolist()
    edges = torch.bincount(graph_E, minlength=len(nodes)).tolist()
    # Copies, so that one graph does not keep the tensors of all.
    return tuple(
        DAG.build(
            x_nA.clone(),
            pairs_2e.clone(),
            edge_type_E=type_e.clone(),
            u_NA=u_nA.clone(),
            layer_N=layer_n.clone(),
        )
        for x_nA, u_nA, pairs_2e, type_e, layer_n in zip(
            x_NA.split(nodes),
            u_NA.split(nodes),
            edge_index_2E.split(edges, dim=1),
            edge_type_E.split(edges),
            layer_N.split(nodes),
            strict=True,
        )
    )
