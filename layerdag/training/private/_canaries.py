"""Canaries: strange graphs that take part in private tuning by a coin flip each.

Shape letters: M canaries, P tuned parameters.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from layerdag._runtime import numpy_generator
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
    """Return chains of one node again and again, without conditions; the same at each call.

    Each chain has a node of its own, whose codes are drawn at random among those that go together:
    each canary pulls at another combination of tuned parameters, so that gradients of different
    canaries are far from parallel. A code of share f is drawn with a weight of sqrt(f (1 - f)), the
    scale of its parameters: codes that hardly move would tell nothing.

    Args:
        statistics: Of the public graphs.
        sizes: Of the schema.
        count: How many.
    """
    rng = numpy_generator(0, "canaries")
    chain_E = torch.arange(_NODES - 1)
    edges_2E = torch.stack([chain_E, chain_E + 1])
    dags: list[DAG] = []
    for _ in range(count):
        row_A = _random_node(statistics, rng)
        dags.append(DAG.build(torch.tensor([row_A] * _NODES), edges_2E).in_layer_order())
    numeric_BC = torch.full((count, sizes.numeric_conditions), torch.nan)
    category_BM = torch.full((count, len(sizes.category_conditions)), -1)
    return DAGBatch.of(dags, numeric_BC, category_BM)


def _random_node(statistics: GraphStatistics, rng: np.random.Generator) -> list[int]:
    """Draw a code for each attribute, among those that the earlier ones allow where they do."""
    row: list[int] = []
    for attribute, counts in enumerate(statistics.attributes):
        share_K = np.array(counts) / max(sum(counts), 1)
        weight_K = np.sqrt(share_K * (1 - share_K))
        fitting_K = weight_K * _allowed(statistics, row, attribute)
        if fitting_K.any():
            weight_K = fitting_K
        elif not weight_K.any():
            weight_K = np.array(counts) + 1e-9
        row.append(int(rng.choice(len(counts), p=weight_K / weight_K.sum())))
    return row


def _allowed(statistics: GraphStatistics, row: Sequence[int], attribute: int) -> np.ndarray:
    """Return which codes of an attribute go with those of all earlier ones, bool (K,)."""
    allowed_K = np.ones(len(statistics.attributes[attribute]), bool)
    for earlier, later in enumerate(statistics.allowed_codes[: len(row)]):
        lists = later[attribute - earlier - 1]
        if lists and lists[row[earlier]]:
            allowed_K &= np.isin(np.arange(allowed_K.size), lists[row[earlier]])
    return allowed_K


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
