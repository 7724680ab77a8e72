"""The order in which graphs are trained: deterministic, bucketed by size, random access by epoch.

A data set is one ``DAGBatch`` with all its graphs; a micro-batch is a selection from it. The
batches of an epoch are a pure function of the seed and the epoch's number: resuming needs two
integers.
"""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from layerdag._runtime import numpy_generator
from layerdag.errors import ConfigError
from layerdag.graph import DAGBatch

# Sizes are blurred by this factor before sorting, so that batch mates change from epoch to epoch.
_BLUR = 1.5


@runtime_checkable
class BatchSource(Protocol):
    """What the training loop needs of its data."""

    def epoch_batches(self, epoch: int) -> Sequence[Tensor]:
        """Return the graph numbers of each micro-batch of an epoch, in order."""
        ...

    def load(self, graphs_G: Tensor) -> DAGBatch:
        """Return the micro-batch with these graphs."""
        ...


class BucketedSource:
    """Micro-batches of graphs of similar size, by number of graphs and of nodes.

    Args:
        data: All graphs.
        batch_graphs: Graphs of a micro-batch at most.
        batch_nodes: Nodes of a micro-batch at most; a larger graph comes alone.
        seed: Of the order.

    Raises:
        ConfigError: If there is no graph.
    """

    def __init__(self, data: DAGBatch, batch_graphs: int, batch_nodes: int, seed: int) -> None:
        if data.num_graphs == 0:
            raise ConfigError("The data set has no graph to train on; check its split.")
        self._data = data
        self._sizes_B = data.node_ptr.diff().cpu().numpy()
        self._limits = (batch_graphs, batch_nodes)
        self._seed = seed

    def epoch_batches(self, epoch: int) -> list[Tensor]:
        """Return the graph numbers of each micro-batch of ``epoch``; every graph occurs once."""
        rng = numpy_generator(self._seed, "order", epoch)
        blurred_B = self._sizes_B * _BLUR ** rng.random(self._sizes_B.size)
        batches = in_order(np.argsort(blurred_B, kind="stable"), self._sizes_B, *self._limits)
        return [batches[i] for i in rng.permutation(len(batches))]

    def load(self, graphs_G: Tensor) -> DAGBatch:
        """Return the micro-batch with these graphs."""
        return take_graphs(self._data, graphs_G)


def in_order(
    order_B: np.ndarray, sizes_B: np.ndarray, batch_graphs: int, batch_nodes: int
) -> list[Tensor]:
    """Cut the sequence ``order_B`` of graph numbers into micro-batches within both limits."""
    nodes_B = np.cumsum(sizes_B[order_B])
    batches, start = [], 0
    while start < order_B.size:
        before = nodes_B[start - 1] if start else 0
        fits = int(np.searchsorted(nodes_B, before + batch_nodes, side="right"))
        end = max(start + 1, min(start + batch_graphs, fits))
        batches.append(torch.from_numpy(order_B[start:end].astype(np.int64)))
        start = end
    return batches


def take_graphs(data: DAGBatch, graphs_G: Tensor) -> DAGBatch:
    """Return the batch of the graphs ``graphs_G``, in that order, without a loop over graphs."""
    graphs_G = graphs_G.to(data.node_ptr.device)
    node_ptr, rows_N = _ranges(data.node_ptr, graphs_G)
    edge_ptr, rows_E = _ranges(data.edge_ptr, graphs_G)
    shift_G = node_ptr[:-1] - data.node_ptr[graphs_G]
    shift_E = torch.repeat_interleave(shift_G, edge_ptr.diff(), output_size=rows_E.numel())
    return DAGBatch(
        # Columns in files may hold whole numbers of fewer bytes.
        x_NA=data.x_NA[rows_N].long(),
        u_NA=data.u_NA[rows_N],
        layer_N=data.layer_N[rows_N].long(),
        edge_index_2E=data.edge_index_2E[:, rows_E] + shift_E,
        edge_type_E=data.edge_type_E[rows_E].long(),
        node_ptr=node_ptr,
        edge_ptr=edge_ptr,
        numeric_BC=data.numeric_BC[graphs_G],
        category_BM=data.category_BM[graphs_G],
    )


def _ranges(ptr: Tensor, graphs_G: Tensor) -> tuple[Tensor, Tensor]:
    """Return (new pointers, old rows) of the chosen segments laid end to end."""
    lengths_G = ptr.diff()[graphs_G]
    new_ptr = torch.cat([ptr.new_zeros(1), lengths_G.cumsum(0)])
    shift_G = ptr[graphs_G] - new_ptr[:-1]
    total = int(new_ptr[-1])
    rows = torch.repeat_interleave(shift_G, lengths_G, output_size=total)
    return new_ptr, rows + torch.arange(total, device=ptr.device)
