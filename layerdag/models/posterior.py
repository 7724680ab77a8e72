"""The posterior p(conditions | graph): an inverse model that predicts the labels of a graph.

A label carries little information about a graph, so the generator p(graph | label) learns their
relation slowly, whereas p(label | graph) can be learned from a few hundred graphs. The posterior is
trained along with the generator on the same batches, with parameters of its own, and sampling uses
it to choose among several candidates.

Shape letters: A node attributes, B graphs, C numeric conditions, D width of a state, E edges, F
feature columns, K codes, M categorical conditions, N nodes.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from layerdag.dag.dag import DAGBatch, GraphSizes
from layerdag.models.base import LossTerm
from layerdag.models.fused import pool, product_dtype
from layerdag.models.layers import (
    CountEncoder,
    MessagePassingLayer,
    SumEmbedding,
    dropout,
    segment_log_sum_exp,
    segment_max,
    segment_mean,
)

# Number of graph sizes among the inputs (nodes, layers, edges), and a typical logarithm of one.
_SIZES, _LOG_SIZE = 3, 3.0

# Bounds of the predicted standard deviation; the lower one keeps few graphs from dominating.
_MIN_STD, _MAX_STD = 0.1, 3.0


class Posterior(nn.Module):
    """p(conditions | graph): message passing along and against the edges, pooled over the graph.

    A numeric condition is normal with a mean and a standard deviation that depend on the graph, and
    a categorical condition is categorical. Conditions are independent given the graph.

    With the plain likelihood a condition predicted with a standard deviation of 0.1 would have a
    hundred times the gradient of one predicted with 1, and the network would learn to count nodes
    instead of predicting labels. So the gradient of each numeric condition is multiplied by its
    variance: beta-NLL with beta 1 (Seitzer et al., arXiv 2203.09168, equation 5), which fits means
    as least squares does and gives all graphs equal weight. The value of the loss is still the
    negative log-likelihood. The numbers of nodes, layers and edges are inputs beside the pooled
    features and are not dropped out.

    Parameter names (``answer``, ``rounds``) are those of published checkpoints.
    """

    def __init__(
        self, sizes: GraphSizes, width: int = 96, rounds: int = 3, rate: float = 0.1
    ) -> None:
        super().__init__()
        self.sizes, self.rate = sizes, rate
        self.counter = CountEncoder(exact=8, largest=4096)
        counts = [self.counter.num_codes] * 3
        self.codes = SumEmbedding([*sizes.attributes, *counts], width)
        self.rounds = nn.ModuleList(
            MessagePassingLayer(width, sizes.edge_types) for _ in range(rounds)
        )
        outputs = 2 * sizes.numeric_conditions + sum(sizes.category_conditions)
        self.answer = nn.Sequential(
            nn.Linear(3 * width + _SIZES, width), nn.GELU(), nn.Linear(width, outputs)
        )

    def loss(self, batch: DAGBatch, generator: torch.Generator | None) -> LossTerm:
        """Return the negative log-likelihood of the known conditions, one count per graph."""
        total = -self.log_likelihood(batch, generator).sum()
        return LossTerm(total, float(batch.num_graphs))

    def log_likelihood(
        self, batch: DAGBatch, generator: torch.Generator | None = None
    ) -> Float[Tensor, " B"]:
        """Return the log-probability of the known conditions of each graph, nats, shape (B,)."""
        # Never in bfloat16: small differences matter, and the cost is a small part of a step.
        with torch.autocast(batch.x_NA.device.type, enabled=False):
            numbers, *categories = self._outputs(batch, generator)
            total_B = self._numbers(numbers, batch.numeric_BC)
            for logits_BK, code_B in zip(categories, batch.category_BM.T, strict=True):
                log_prob_B = -F.cross_entropy(logits_BK, code_B.clamp(min=0), reduction="none")
                total_B = total_B + log_prob_B.masked_fill(code_B < 0, 0.0)
            return total_B

    def means(self, batch: DAGBatch) -> Float[Tensor, "B C"]:
        """Return the mean of each numeric condition given the graph, shape (B, C)."""
        with torch.autocast(batch.x_NA.device.type, enabled=False):
            means_BC, _ = self._outputs(batch, None)[0].chunk(2, dim=1)
            return means_BC

    def _outputs(self, batch: DAGBatch, generator: torch.Generator | None) -> tuple[Tensor, ...]:
        x_ND = dropout(self.codes(self._codes(batch)), self.rate, generator)
        for layer in self.rounds:
            x_ND = x_ND + layer(x_ND, batch.edge_index_2E, batch.edge_type_E)
        pooled_BD = dropout(_pool(x_ND, batch), self.rate, generator)
        inputs_BD = torch.cat([pooled_BD, _log_sizes(batch)], dim=1)
        widths = [2 * self.sizes.numeric_conditions, *self.sizes.category_conditions]
        return self.answer(inputs_BD).split(widths, dim=1)

    def _codes(self, batch: DAGBatch) -> Int[Tensor, "N F"]:
        source_E, target_E = batch.edge_index_2E
        ones_E, zero_N = torch.ones_like(source_E), torch.zeros_like(batch.layer_N)
        degrees = (zero_N.index_add(0, end_E, ones_E) for end_E in (source_E, target_E))
        counts_N3 = torch.stack([*degrees, batch.layer_N], dim=1)
        return torch.cat([batch.x_NA, self.counter.encode(counts_N3)], dim=1)

    @staticmethod
    def _numbers(output_BF: Tensor, numeric_BC: Tensor) -> Tensor:
        mean_BC, raw_BC = output_BF.chunk(2, dim=1)
        std_BC = _MIN_STD + (_MAX_STD - _MIN_STD) * raw_BC.sigmoid()
        known_BC = ~numeric_BC.isnan()
        value_BC = torch.where(known_BC, numeric_BC, mean_BC.detach())
        density_BC = torch.distributions.Normal(mean_BC, std_BC, validate_args=False)
        log_prob_BC = density_BC.log_prob(value_BC).masked_fill(~known_BC, 0.0)
        scaled_BC = log_prob_BC * std_BC.detach().square()
        return (scaled_BC + (log_prob_BC - scaled_BC).detach()).sum(1)  # its gradient alone


def _log_sizes(batch: DAGBatch) -> Float[Tensor, "B 3"]:
    """Return the logarithms of the numbers of nodes, layers and edges (from 1) of each graph.

    Shape (B, 3), shifted to about zero.
    """
    graph_N = batch.graph_of_node()
    zero_B = torch.zeros_like(batch.node_ptr[:-1])
    layers_B = zero_B.scatter_reduce(0, graph_N, batch.layer_N + 1, "amax")
    edges_B = zero_B.index_add(
        0, graph_N[batch.edge_index_2E[1]], torch.ones_like(batch.edge_index_2E[1])
    )
    sizes_B3 = torch.stack([batch.node_ptr.diff(), layers_B, edges_B + 1], dim=1)
    return sizes_B3.float().log() - _LOG_SIZE


def _pool(x_ND: Float[Tensor, "N D"], batch: DAGBatch) -> Float[Tensor, "B 3*D"]:
    """Return mean, maximum and log-sum-exp over the nodes of each graph, shape (B, 3 F)."""
    if product_dtype(x_ND) == x_ND.dtype:
        return pool(x_ND, batch.node_ptr)
    graph_N = batch.graph_of_node()
    max_BD = segment_max(x_ND, graph_N, batch.num_graphs)
    log_sum_BD = segment_log_sum_exp(x_ND, graph_N, max_BD)
    return torch.cat([segment_mean(x_ND, graph_N, batch.node_ptr.diff()), max_BD, log_sum_BD], 1)
