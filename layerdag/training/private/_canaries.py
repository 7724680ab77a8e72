"""Canaries: random graphs that take part in private tuning by a coin flip each.

Shape letters: M canaries.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from layerdag._runtime import numpy_generator
from layerdag.graph import DAG, DAGBatch, GraphSizes
from layerdag.models import DAGModel
from layerdag.models.autoregressive import FastLayerDAG
from layerdag.training import take_graphs
from layerdag.training.private._gradients import graph_nats
from layerdag.training.private._lower_bound import LowerBound, guess_half, lower_bound
from layerdag.training.private._noise import SecretGenerator
from layerdag.training.private._units import Units

_NODES = 12
"""Of a canary: one operator again and again, which no real graph is like."""


@dataclass(frozen=True, eq=False)
class Canaries:
    """Random graphs, their coins, and their likelihood before tuning.

    Attributes:
        graphs: One for each canary; None of none.
        took_part_M: Their coins.
        before_M: Nats of each under the public weights.
    """

    graphs: DAGBatch | None
    took_part_M: np.ndarray
    before_M: np.ndarray

    @classmethod
    def drawn(cls, model: DAGModel, count: int, generator: SecretGenerator) -> "Canaries":
        """Draw canaries and their coins.

        Args:
            model: With public weights, in evaluation mode.
            count: How many.
            generator: Of the coins; the graphs themselves are public.
        """
        if not count or not isinstance(model, FastLayerDAG):
            return cls(None, np.zeros(0, bool), np.zeros(0))
        graphs = random_graphs(model.sizes, count)
        return cls(graphs, generator.coins(count, 0.5), _nats(model, graphs))

    def beside(self, units: Units, device: torch.device | str) -> Units:
        """Return units on a device, with a further one for each canary that takes part."""
        graphs, unit_B, count = units.graphs, units.unit_B, units.count
        if self.graphs is not None and self.took_part_M.any():
            own = take_graphs(self.graphs, torch.from_numpy(np.flatnonzero(self.took_part_M)))
            graphs = joined(graphs, own)
            unit_B = np.concatenate([unit_B, count + np.arange(own.num_graphs)])
            count += own.num_graphs
        return Units(graphs.to(device), unit_B, count)

    def audited(self, model: DAGModel, delta: float) -> LowerBound:
        """Return the lower bound of epsilon that an attacker finds who sees the tuned weights."""
        assert self.graphs is not None
        gain_M = self.before_M - _nats(model, self.graphs)
        guesses, right = guess_half(gain_M, self.took_part_M)
        return lower_bound(len(gain_M), guesses, right, delta)


def random_graphs(sizes: GraphSizes, count: int) -> DAGBatch:
    """Return graphs of one random operator each, in a chain, without conditions.

    Args:
        sizes: Of the schema.
        count: How many; the same number gives the same graphs.
    """
    rng = numpy_generator(0, "canaries", count)
    kinds = rng.permutation(np.arange(count) % sizes.attributes[0])
    dags: list[DAG] = []
    for kind in kinds.tolist():
        codes = [kind, *(int(rng.integers(size)) for size in sizes.attributes[1:])]
        x_NA = torch.tensor([codes] * _NODES)
        chain_E = torch.arange(_NODES - 1)
        dags.append(
            DAG.build(
                x_NA,
                torch.stack([chain_E, chain_E + 1]),
                edge_type_E=torch.full((_NODES - 1,), int(rng.integers(sizes.edge_types))),
            ).in_layer_order()
        )
    numeric_BC = torch.full((count, sizes.numeric_conditions), torch.nan)
    category_BM = torch.full((count, len(sizes.category_conditions)), -1)
    return DAGBatch.of(dags, numeric_BC, category_BM)


def joined(first: DAGBatch, second: DAGBatch) -> DAGBatch:
    """Return the graphs of two batches as one."""
    nodes, edges = first.num_nodes, first.edge_index_2E.shape[1]
    pairs: Sequence[tuple[Tensor, Tensor]] = (
        (first.x_NA, second.x_NA),
        (first.u_NA, second.u_NA),
        (first.layer_N, second.layer_N),
    )
    x_NA, u_NA, layer_N = (torch.cat(pair) for pair in pairs)
    return DAGBatch(
        x_NA=x_NA,
        u_NA=u_NA,
        layer_N=layer_N,
        edge_index_2E=torch.cat([first.edge_index_2E, second.edge_index_2E + nodes], dim=1),
        edge_type_E=torch.cat([first.edge_type_E, second.edge_type_E]),
        node_ptr=torch.cat([first.node_ptr, second.node_ptr[1:] + nodes]),
        edge_ptr=torch.cat([first.edge_ptr, second.edge_ptr[1:] + edges]),
        numeric_BC=torch.cat([first.numeric_BC, second.numeric_BC]),
        category_BM=torch.cat([first.category_BM, second.category_BM]),
    )


@torch.no_grad()
def _nats(model: DAGModel, graphs: DAGBatch) -> np.ndarray:
    """Return the nats of each graph."""
    device = next(model.parameters()).device
    rows = (take_graphs(graphs, torch.tensor([i])) for i in range(graphs.num_graphs))
    return np.array([float(graph_nats(model, one.to(device))) for one in rows])
