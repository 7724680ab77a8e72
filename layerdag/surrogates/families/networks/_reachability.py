"""Which node of a DAG is reached from which, as packed bits."""

import numpy as np
import torch
from jaxtyping import Bool, Int, UInt8
from torch import Tensor

from layerdag.errors import DataError
from layerdag.graph import longest_path_layers

MOST_NODES = 8192
"""Of a graph whose attention fits into a gigabyte or two."""


def layers_and_ancestors(
    num_nodes: int, edge_index_2E: Int[Tensor, "2 E"]
) -> tuple[Int[Tensor, " N"], UInt8[Tensor, " P"]]:
    """Return the longest-path layer of each node, and its ancestors as bits.

    Bits are packed row by row; row i holds one bit for each node, set where that node reaches i by
    a path of at least one edge.

    Raises:
        DataError: If the graph has more than ``MOST_NODES`` nodes.
        GraphError: If it has a cycle.
    """
    if num_nodes > MOST_NODES:
        raise DataError(
            f"A graph has {num_nodes:,} nodes; attention among all of them takes at most "
            f"{MOST_NODES:,}. Use the family 'boosting' or 'message_passing'."
        )
    source_E, target_E = edge_index_2E.numpy()
    layer_N = longest_path_layers(num_nodes, edge_index_2E.numpy())
    width = -(-num_nodes // 8)
    row_NW = np.zeros((num_nodes, width), dtype=np.uint8)
    own_N = np.arange(num_nodes)
    self_NW = np.zeros((num_nodes, width), dtype=np.uint8)
    self_NW[own_N, own_N // 8] = 128 >> (own_N % 8)
    # Edges by the layer of their target: every row is complete before it is passed on.
    order_E = np.argsort(layer_N[target_E], kind="stable")
    for source, target in zip(source_E[order_E].tolist(), target_E[order_E].tolist(), strict=True):
        row_NW[target] |= row_NW[source] | self_NW[source]
    bits = np.unpackbits(row_NW, axis=1, count=num_nodes)
    return torch.from_numpy(layer_N), torch.from_numpy(np.packbits(bits.reshape(-1)))


def ancestors_of(bits_P: UInt8[Tensor, " P"], num_nodes: int) -> Bool[Tensor, "N N"]:
    """Return the unpacked bits: element (i, j) is set where j is an ancestor of i."""
    bits = np.unpackbits(bits_P.numpy(), count=num_nodes * num_nodes)
    return torch.from_numpy(bits.astype(bool).reshape(num_nodes, num_nodes))
