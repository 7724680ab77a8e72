"""``model=reference``: LayerDAG as published (arXiv 2411.02322), with its known faults repaired.

Three networks with no shared parameter, trained on every prefix of every graph: layer size, node
attributes, edges. docs/explanation/method.md lists what was kept and what was repaired, and why.

Shape letters: A node attributes, B graphs, C numeric conditions, D width of a state, E edges, I
prefixes, K codes, M categorical conditions, N nodes, P pairs, R rows, V edges among rows, W new
nodes.
"""

import torch
from jaxtyping import Int
from torch import Tensor, nn

from layerdag.errors import UsageError
from layerdag.graph import DAGBatch, GraphSizes, GraphStatistics
from layerdag.models import (
    NO_PREFIX,
    Conditions,
    DAGModel,
    LossTerm,
    SampleRequest,
    SampleResult,
)
from layerdag.models.diffusion._conditioning import drop_conditions
from layerdag.models.diffusion._config import ReferenceConfig
from layerdag.models.diffusion._degree_codes import DegreeCodes
from layerdag.models.diffusion._edge_denoiser import EdgeDenoiser, Pairs
from layerdag.models.diffusion._encoder import PrefixGraphs
from layerdag.models.diffusion._layer_size import LayerSizeNet
from layerdag.models.diffusion._node_denoiser import NodeDenoiser
from layerdag.models.diffusion._prefixes import (
    LayerIndex,
    Prefixes,
    PrefixIndex,
    all_prefixes,
    prefixes,
    subsample_prefixes,
)
from layerdag.models.diffusion._sampler import sample
from layerdag.models.layers import segment_pointers, segment_ranges


class ReferenceLayerDAG(DAGModel):
    """Layerwise autoregressive diffusion with a prefix encoder per decision.

    Args:
        sizes: Of the data set.
        statistics: Of the training graphs.
        config: Every setting; by default those of configs/model/reference.yaml.
    """

    def __init__(
        self, sizes: GraphSizes, statistics: GraphStatistics, config: ReferenceConfig | None = None
    ) -> None:
        super().__init__()
        self.config = config = config or ReferenceConfig()
        self.degrees = DegreeCodes(statistics)
        self.budget = config.budget
        self.sampling_precision: str = config.sampling_precision
        columns = (*sizes.attributes, len(self.degrees))
        counts = (*statistics.attributes, self.degrees.counts)
        self.layer_size = LayerSizeNet(sizes, statistics, columns, config.layer_size)
        self.node = NodeDenoiser(sizes, counts, config.node)
        self.edge = EdgeDenoiser(sizes, statistics, columns, config.edge)

    def objective_parameters(self) -> dict[tuple[str, ...], list[nn.Parameter]]:
        """Return the parameters of the three networks; none is shared."""
        return {
            ("layer_size",): list(self.layer_size.parameters()),
            ("node",): list(self.node.parameters()),
            ("edge",): list(self.edge.parameters()),
        }

    def losses(self, batch: DAGBatch, generator: torch.Generator) -> dict[str, LossTerm]:
        """Return the three losses; one whose network is frozen is left out while training.

        Layer size: exact negative log-likelihood, a decision per prefix. Node and edge: cross
        entropy of the clean value at a random timestep, a decision per attribute and per new node.
        Sums and counts are of all prefixes, estimated where only a part was looked at.
        """
        layers = LayerIndex.of(batch)
        items = everything = all_prefixes(layers)
        if self.budget:
            cost_I = _cost(batch, layers, items)
            items = subsample_prefixes(items, cost_I, self.budget, generator)
        conditions = Conditions(batch.numeric_BC, batch.category_BM)
        if self.training:
            rate = self.config.conditioning.dropout
            conditions = drop_conditions(conditions, rate, generator)
        code_NA = self.codes(batch)
        terms = {}
        if _is_wanted(self.layer_size):
            terms["layer_size"] = self._layer_size_loss(batch, layers, items, conditions, code_NA)
        inner = items.where(items.depth_I < layers.count_B[items.graph_I])
        if _is_wanted(self.node):
            partial = _partial(batch, prefixes(batch, layers, inner, 0), inner, code_NA)
            new_R, ptr = _new_nodes(layers, inner)
            state_ID = self.node.encoder(partial, conditions)
            terms["node"] = self.node.loss(state_ID, code_NA[new_R], ptr, generator)
        if _is_wanted(self.edge):
            later = inner.where(inner.depth_I > 0)
            rows = prefixes(batch, layers, later, 1)
            pairs, x0_P = _pairs(batch, rows)
            partial = _partial(batch, rows, later, code_NA)
            terms["edge"] = self.edge.loss(partial, conditions, pairs, x0_P, generator)
        fraction = len(items) / len(everything)
        return {name: LossTerm(t.total / fraction, t.count / fraction) for name, t in terms.items()}

    def require_options(self, *, steps: int | None, best_of: int, temperature: float = 1.0) -> None:
        """Refuse a choice among several graphs, and more denoising steps than there are."""
        super().require_options(steps=steps, best_of=best_of, temperature=temperature)
        most = max(self.node.steps, self.edge.steps)
        if steps is not None and not 1 <= steps <= most:
            raise UsageError(
                f"'steps' must be from 1 to {most}, the steps this model was trained with, found "
                f"{steps}."
            )

    def sample(self, request: SampleRequest) -> SampleResult:
        """Sample one graph per seed; see ``layerdag.models.diffusion._sampler``."""
        self.require_options(
            steps=request.steps, best_of=request.best_of, temperature=request.temperature
        )
        if request.prefix is not None:
            raise UsageError(NO_PREFIX)
        return sample(self, request)

    def codes(self, batch: DAGBatch) -> Int[Tensor, "N A"]:
        """Return the attribute codes with the in-degree's as last column, shape (N, A + 1)."""
        degree_N = torch.bincount(batch.edge_index_2E[1], minlength=batch.num_nodes)
        return torch.cat([batch.x_NA, self.degrees.encode(degree_N).unsqueeze(1)], dim=1)

    def _layer_size_loss(
        self,
        batch: DAGBatch,
        layers: LayerIndex,
        items: PrefixIndex,
        conditions: Conditions,
        code_NA: Int[Tensor, "N A"],
    ) -> LossTerm:
        """Return the negative log-likelihood of the size of the layer after each prefix."""
        partial = _partial(batch, prefixes(batch, layers, items, 0), items, code_NA)
        logits_IK = self.layer_size(partial, conditions)
        size_I = _new_nodes(layers, items)[1].diff()
        total = -self.layer_size.log_probability(logits_IK, size_I).sum()
        return LossTerm(total, torch.tensor(len(items), device=total.device))


def _is_wanted(network: nn.Module) -> bool:
    """Return whether a loss is evaluated, or some parameter of its network is being trained."""
    return not torch.is_grad_enabled() or any(p.requires_grad for p in network.parameters())


def _partial(
    batch: DAGBatch, rows: Prefixes, items: PrefixIndex, code_NA: Int[Tensor, "N A"]
) -> PrefixGraphs:
    """Return the prefixes as input of the networks."""
    return PrefixGraphs(
        code_NA=code_NA,
        graph_N=batch.graph_of_node(),
        node_R=rows.node_R,
        prefix_R=rows.prefix_R,
        distance_R=rows.distance_R,
        graph_I=items.graph_I,
        depth_I=items.depth_I,
        edge_index_2V=rows.edge_index_2V,
        edge_kind_V=rows.edge_type_V,
    )


def _new_nodes(
    layers: LayerIndex, items: PrefixIndex
) -> tuple[Int[Tensor, " W"], Int[Tensor, " I1"]]:
    """Return (nodes, ptr) of the layer after each prefix; it is empty after a whole graph."""
    start_I = layers.end_of(items.graph_I, items.depth_I)
    whole_I = items.depth_I == layers.count_B[items.graph_I]
    next_I = torch.where(whole_I, items.depth_I, items.depth_I + 1)
    size_I = layers.end_of(items.graph_I, next_I) - start_I
    return segment_ranges(start_I, size_I)[1], segment_pointers(size_I)


def _cost(batch: DAGBatch, layers: LayerIndex, items: PrefixIndex) -> Int[Tensor, " I"]:
    """Return the rows and candidate edges of each prefix."""
    rows_I = layers.end_of(items.graph_I, items.depth_I) - batch.node_ptr[items.graph_I]
    return rows_I * (1 + _new_nodes(layers, items)[1].diff())


def _pairs(batch: DAGBatch, rows: Prefixes) -> tuple[Pairs, Int[Tensor, " P"]]:
    """Return all pairs of an earlier and a new node, with their true states."""
    new_W = torch.nonzero(rows.distance_R == 0).squeeze(1)
    prefix_W = rows.prefix_R[new_W]
    new_count_I = torch.bincount(prefix_W, minlength=rows.num_prefixes)
    candidates_W = (rows.row_ptr.diff() - new_count_I)[prefix_W]
    new_P, source_P = segment_ranges(rows.row_ptr[:-1][prefix_W], candidates_W)
    # The true edges into new node w start at its first pair, at the source's place in its graph.
    node_W = rows.node_R[new_W]
    target_E = batch.edge_index_2E[1].contiguous()
    first_W = torch.searchsorted(target_E, node_W)
    edges_W = torch.searchsorted(target_E, node_W, right=True) - first_W
    new_V, edge_V = segment_ranges(first_W, edges_W)
    first_node_W = rows.node_R[rows.row_ptr[:-1][prefix_W]]
    first_pair_W = candidates_W.cumsum(0) - candidates_W
    pair_V = first_pair_W[new_V] + batch.edge_index_2E[0, edge_V] - first_node_W[new_V]
    x0_P = torch.zeros_like(source_P)
    x0_P[pair_V] = batch.edge_type_E[edge_V] + 1
    pairs = Pairs(
        source_P=source_P,
        target_P=new_W[new_P],
        new_P=new_P,
        prefix_P=prefix_W[new_P],
        latest_P=rows.distance_R[source_P] == 1,
        in_degree_W=edges_W,
        candidates_W=candidates_W,
    )
    return pairs, x0_P
