"""Canaries: strange graphs that take part in private tuning by a coin flip each.

Shape letters: M canaries, P tuned parameters.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from layerdag.graph import DAG, DAGBatch, GraphSizes, GraphStatistics
from layerdag.training import take_graphs
from layerdag.training.private._adapters import Adapters
from layerdag.training.private._gradients import Decisions
from layerdag.training.private._noise import SecretGenerator
from layerdag.training.private._units import Units

_NODES = 12
"""Of a canary."""


@dataclass(frozen=True, eq=False)
class Canaries:
    """Strange graphs, their coins, and the gradient of each under the public weights.

    Attributes:
        graphs: One for each canary; None of none.
        took_part_M: Their coins.
        gradient_MP: Of nats per node.
    """

    graphs: DAGBatch | None
    took_part_M: np.ndarray
    gradient_MP: np.ndarray

    @classmethod
    def drawn(cls, adapters: Adapters, count: int, generator: SecretGenerator) -> "Canaries":
        """Draw canaries and their coins.

        Args:
            adapters: Of a model with public weights, in evaluation mode.
            count: How many.
            generator: Of the coins; the graphs themselves are public.
        """
        if not count:
            return cls(None, np.zeros(0, bool), np.zeros((0, 0)))
        model = adapters.model
        graphs = canary_graphs(model.statistics, model.sizes, count)
        device = next(model.parameters()).device
        units = Units(graphs.to(device), np.arange(count), count)
        gradient_MP, _ = Decisions.of(adapters, units).gradients(np.ones(count, bool))
        return cls(graphs, generator.coins(count, 0.5), gradient_MP.numpy())

    def beside(self, units: Units, device: torch.device | str) -> Units:
        """Return units on a device, with a further one for each canary that takes part."""
        graphs, unit_B, count = units.graphs, units.unit_B, units.count
        if self.graphs is not None and self.took_part_M.any():
            own = take_graphs(self.graphs, torch.from_numpy(np.flatnonzero(self.took_part_M)))
            graphs = joined(graphs, own)
            unit_B = np.concatenate([unit_B, count + np.arange(own.num_graphs)])
            count += own.num_graphs
        return Units(graphs.to(device), unit_B, count)


def canary_graphs(statistics: GraphStatistics, sizes: GraphSizes, count: int) -> DAGBatch:
    """Return chains of one node again and again, without conditions.

    The node has the commonest code of each attribute but one, which has a rare code: private graphs
    hardly change how likely that is, so that a change tells of the canary.

    Args:
        statistics: Of the public graphs.
        sizes: Of the schema.
        count: How many; the rarest codes first, and again from the first where there are too few.
    """
    usual_A = [int(np.argmax(counts)) for counts in statistics.attributes]
    codes = [
        (counts[code] / max(sum(counts), 1), attribute, code)
        for attribute, counts in enumerate(statistics.attributes)
        for code in range(len(counts))
        if code != usual_A[attribute]
    ]
    rare = sorted(codes)[:count] or [(0.0, 0, 0)]
    chain_E = torch.arange(_NODES - 1)
    dags: list[DAG] = []
    for index in range(count):
        _, attribute, code = rare[index % len(rare)]
        row_A = [*usual_A[:attribute], code, *usual_A[attribute + 1 :]]
        edges_2E = torch.stack([chain_E, chain_E + 1])
        dags.append(DAG.build(torch.tensor([row_A] * _NODES), edges_2E).in_layer_order())
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
