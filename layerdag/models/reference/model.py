"""``ReferenceLayerDAG`` and its sampler.

Sampling from the reference model: layer by layer, all graphs of a request at once.

Loops run over layers and denoising steps only. Every graph has its own stream of uniforms, and the
networks compute in double precision unless the model's ``sampling_precision`` says otherwise: the
last bits of a matrix product depend on the size of the batch, and in single precision they now and
then change a sampled code, so that a graph depends on the other graphs of its batch.

``model=reference``: LayerDAG as published (arXiv 2411.02322), with its known faults repaired.

Three networks with no shared parameter, trained on every prefix of every graph: layer size, node
attributes, edges. docs/explanation/method.md lists what was kept and what was repaired, and why.

Shape letters: A node attributes, B graphs, C numeric conditions, D width of a state, E edges, I
prefixes, K codes, M categorical conditions, N nodes, P pairs, R rows, S diffusion steps, V edges
among rows, W new nodes.
"""

import copy
import itertools
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from layerdag.dag.dag import DAGBatch, GraphSizes
from layerdag.dag.statistics import GraphStatistics
from layerdag.errors import UsageError
from layerdag.models.base import DAGModel, LossTerm, SampleRequest, SampleResult, require_request
from layerdag.models.conditions import Conditions
from layerdag.models.config import ReferenceConfig
from layerdag.models.draws import (
    SampleStreams,
    bin_positions,
    choose_with_one_of,
    guided,
    gumbel,
    sample_categorical,
)
from layerdag.models.layers import Segments, segment_pointers, segment_ranges
from layerdag.models.reference.denoisers import (
    DegreeCodes,
    EdgeDenoiser,
    LayerSizeNet,
    NodeDenoiser,
    Pairs,
    reverse_distribution,
    strided_timesteps,
)
from layerdag.models.reference.encoder import (
    LayerIndex,
    NewLayer,
    PartialGraphs,
    Prefixes,
    PrefixGraphs,
    PrefixIndex,
    all_prefixes,
    drop_conditions,
    prefixes,
    subsample_prefixes,
)
from layerdag.runtime.native import set_openmp_passive

PRECISIONS = {"float64": torch.float64, "float32": torch.float32}


@torch.no_grad()
def sample(model: "ReferenceLayerDAG", request: SampleRequest) -> SampleResult:
    """Sample one graph per seed.

    Acyclic and layer-consistent by construction: edges lead from earlier layers to a new one, and
    every node beyond layer 0 has a parent in the layer right before its own.
    """
    set_openmp_passive()
    device = next(model.parameters()).device
    sampler = _Sampler(sampling_copy(model), request, device)
    while sampler.active_B.any():
        sampler.grow()
    return sampler.result()


def sampling_copy(model: "ReferenceLayerDAG") -> "ReferenceLayerDAG":
    """Return a copy of the model in evaluation mode and in the precision of its sampling."""
    return copy.deepcopy(model).to(PRECISIONS[model.sampling_precision]).eval()


@dataclass(frozen=True, eq=False)
class _ActiveGraphs:
    """The active graphs, as prefixes for the networks."""

    partial: PrefixGraphs  # their nodes and edges
    node_R: Int[Tensor, " R"]  # node behind each row, numbered through all graphs
    conditions: tuple[Conditions, ...]  # their conditions, by guidance pass


class _Sampler:
    def __init__(
        self, model: "ReferenceLayerDAG", request: SampleRequest, device: torch.device
    ) -> None:
        self.model, self.request, self.device = model, request, device
        graphs = len(request.seeds)
        self.columns = len(model.node.marginal_AK)
        self.streams = SampleStreams(request.seeds, device)
        self.graphs = PartialGraphs(self.columns, device)
        self.active_B = torch.ones(graphs, dtype=torch.bool, device=device)
        self.truncated_B = torch.zeros_like(self.active_B)
        self.nodes_B = torch.zeros(graphs, dtype=torch.int64, device=device)
        self.conditions = Conditions(
            request.numeric_BC.to(device, PRECISIONS[model.sampling_precision]),
            request.category_BM.to(device),
        )

    def grow(self) -> None:
        """Sample the next layer of every active graph."""
        view = self._view()
        size_I = self._sizes(view)
        if not self.active_B.any():
            return
        view, size_I = self._view(), size_I[size_I > 0]
        code_WA, ptr = self._attributes(view, size_I)
        graph_W = torch.repeat_interleave(view.partial.graph_I, size_I)
        if self.graphs.depth == 0:
            none = size_I.new_zeros(0)
            code_WA[:, -1] = 0
            self.graphs.append(NewLayer(graph_W, code_WA, none, none, none))
        else:
            self._append_with_edges(view, code_WA, graph_W, ptr)
        self.nodes_B += torch.bincount(graph_W, minlength=self.nodes_B.numel())
        self.active_B &= ~self.truncated_B

    def result(self) -> SampleResult:
        """Return the finished graphs."""
        attributes = self.columns - 1
        uniform = self.streams.uniforms(self.nodes_B * attributes)
        u_NA = bin_positions(uniform).reshape(-1, attributes)
        dags = self.graphs.finished(u_NA, self.nodes_B.numel())
        return SampleResult(dags, tuple(self.truncated_B.tolist()))

    def _view(self) -> _ActiveGraphs:
        graphs = self.graphs
        graph_I = torch.nonzero(self.active_B).squeeze(1)
        prefix_B = self.active_B.cumsum(0) - 1
        node_R = torch.nonzero(self.active_B[graphs.graph_N]).squeeze(1)
        row_N = torch.zeros_like(graphs.graph_N)
        row_N[node_R] = torch.arange(node_R.numel(), device=self.device)
        edge_V = torch.nonzero(self.active_B[graphs.graph_N[graphs.edge_index_2E[1]]]).squeeze(1)
        graph_R = graphs.graph_N[node_R]
        partial = PrefixGraphs(
            code_NA=graphs.code_NA[node_R],
            graph_N=graph_R,
            node_R=torch.arange(node_R.numel(), device=self.device),
            prefix_R=prefix_B[graph_R],
            distance_R=graphs.depth - graphs.layer_N[node_R],
            graph_I=graph_I,
            depth_I=torch.full_like(graph_I, graphs.depth),
            edge_index_2V=row_N[graphs.edge_index_2E[:, edge_V]],
            edge_kind_V=graphs.edge_type_E[edge_V],
        )
        plain = self.request.guidance == 1.0
        conditions = (self.conditions,) if plain else (self.conditions, self.conditions.unknown())
        return _ActiveGraphs(partial, node_R, conditions)

    def _guided(
        self, view: _ActiveGraphs, predict: Callable[[Conditions], Tensor]
    ) -> Float[Tensor, "*shape"]:
        logits = [predict(conditions) for conditions in view.conditions]
        if len(logits) == 1:
            return logits[0]
        conditional, unconditional = logits
        return guided(conditional, unconditional, self.request.guidance)

    def _draw(self, view: _ActiveGraphs, count_I: Int[Tensor, " I"]) -> Float[Tensor, " _"]:
        count_B = torch.zeros_like(self.nodes_B)
        count_B[view.partial.graph_I] = count_I
        return self.streams.uniforms(count_B)

    def _sizes(self, view: _ActiveGraphs) -> Int[Tensor, " I"]:
        partial, request = view.partial, self.request
        logits_IK = self._guided(
            view, lambda conditions: self.model.layer_size(partial, conditions)
        )
        if self.graphs.depth == 0:
            logits_IK[:, 0] = float("-inf")
        uniform_I2 = self._draw(view, torch.full_like(partial.graph_I, 2)).reshape(-1, 2)
        wanted_I = self.model.layer_size.sample(logits_IK, uniform_I2)
        capacity_I = request.max_nodes - self.nodes_B[partial.graph_I]
        if self.graphs.depth >= request.max_layers:
            capacity_I = torch.zeros_like(capacity_I)
        size_I = torch.minimum(wanted_I, capacity_I)
        self.truncated_B[partial.graph_I] = size_I < wanted_I
        self.active_B[partial.graph_I] = size_I > 0
        return size_I

    def _attributes(
        self, view: _ActiveGraphs, size_I: Int[Tensor, " I"]
    ) -> tuple[Int[Tensor, "W A"], Int[Tensor, " I1"]]:
        """Draw the codes of the new nodes; return (codes with in-degree, pointers by item)."""
        node, columns = self.model.node, self.columns
        segments = Segments.from_ptr(segment_pointers(size_I))
        states = {
            id(conditions): node.encoder(view.partial, conditions) for conditions in view.conditions
        }
        times = strided_timesteps(node.steps, self.request.steps)
        time_SD = node.times(torch.tensor(times, device=self.device))
        uniform_R = self._draw(view, size_I * columns * len(times))
        uniform_WSA = uniform_R.reshape(-1, len(times), columns)
        code_WA = sample_categorical(
            node.marginal_AK.expand(len(uniform_WSA), -1, -1), uniform_WSA[:, 0]
        )
        for step, (now, then) in enumerate(itertools.pairwise(times)):
            # Plain annotations: those with shapes would be made again in every step.
            def predict(
                conditions: Conditions, code_WA: Tensor = code_WA, step: int = step
            ) -> Tensor:
                return node(states[id(conditions)] + time_SD[step], code_WA, segments)

            weights_WAK = reverse_distribution(
                self._guided(view, predict).softmax(-1),
                code_WA,
                node.marginal_AK,
                node.alpha_bar_S[now],
                node.alpha_bar_S[then],
            )
            code_WA = sample_categorical(weights_WAK, uniform_WSA[:, step + 1])
        return code_WA, segments.ptr

    def _append_with_edges(
        self,
        view: _ActiveGraphs,
        code_WA: Int[Tensor, "W A"],
        graph_W: Int[Tensor, " W"],
        ptr: Int[Tensor, " I1"],
    ) -> None:
        # There cannot be more parents than earlier nodes, nor none beyond layer 0.
        earlier_I = torch.bincount(view.partial.prefix_R, minlength=ptr.numel() - 1)
        wanted_W = self.model.degrees.decode(code_WA[:, -1]).clamp(min=1)
        most_W = torch.repeat_interleave(earlier_I, ptr.diff())
        in_degree_W = torch.minimum(wanted_W, most_W)
        code_WA[:, -1] = self.model.degrees.encode(in_degree_W)
        partial, pairs = _with_new_nodes(view.partial, code_WA, in_degree_W, ptr)
        state_P = self._edges(view, partial, pairs)
        chosen_P = state_P > 0
        source_V = view.node_R[pairs.source_P[chosen_P]]
        types_V = state_P[chosen_P] - 1
        self.graphs.append(NewLayer(graph_W, code_WA, source_V, pairs.new_P[chosen_P], types_V))

    def _edges(self, view: _ActiveGraphs, partial: PrefixGraphs, pairs: Pairs) -> Int[Tensor, " P"]:
        edge = self.model.edge
        pairs_per_prefix_I = torch.bincount(pairs.prefix_P, minlength=partial.graph_I.numel())
        marginal_PK = edge.marginals(pairs)[pairs.new_P]
        state_P = sample_categorical(marginal_PK, self._draw(view, pairs_per_prefix_I))
        times = strided_timesteps(edge.steps, self.request.steps)
        for now, then in itertools.pairwise(times):
            time_I = torch.full_like(partial.graph_I, now)

            def predict(
                conditions: Conditions, state_P: Tensor = state_P, time_I: Tensor = time_I
            ) -> Tensor:
                return edge(partial, conditions, pairs, state_P, time_I)

            uniform_P3 = self._draw(view, 3 * pairs_per_prefix_I).reshape(-1, 3)
            x0_P = sample_parents(self._guided(view, predict), pairs, uniform_P3[:, :2])
            state_P = _posterior(edge, x0_P, state_P, marginal_PK, (now, then), uniform_P3[:, 2])
        return state_P


def sample_parents(
    logits_PK: Float[Tensor, "P K"], pairs: Pairs, uniform_P2: Float[Tensor, "P 2"]
) -> Int[Tensor, " P"]:
    """Draw the clean states of all pairs jointly: the parents of each new node.

    Independent draws of pairs give an unsure node no parent or two. Here a node gets exactly its
    in-degree of parents without replacement, in proportion to their odds of being one, and the
    first of them lies in the layer right before, which is what makes the new layer a layer.

    Args:
        logits_PK: Logits of no edge and of each edge type.
        pairs: The candidates.
        uniform_P2: In (0, 1); one picks the parents, one the edge type.

    Returns:
        int64 states, 0 for no edge, shape (Q,).
    """
    odds_P = logits_PK[:, 1:].logsumexp(-1) - logits_PK[:, 0]
    key_P = odds_P + gumbel(uniform_P2[:, 0])
    chosen_P = choose_with_one_of(key_P, pairs.new_P, pairs.in_degree_W, pairs.latest_P)
    type_P = sample_categorical(logits_PK[:, 1:].softmax(-1), uniform_P2[:, 1])
    return torch.where(chosen_P, type_P + 1, 0)


def _posterior(
    edge: EdgeDenoiser,
    x0_P: Int[Tensor, " P"],
    xt_P: Int[Tensor, " P"],
    marginal_PK: Float[Tensor, "P K"],
    times: tuple[int, int],
    uniform_P: Float[Tensor, " P"],
) -> Int[Tensor, " P"]:
    now, then = times
    known_PK = torch.nn.functional.one_hot(x0_P, marginal_PK.shape[1]).to(marginal_PK)
    weights_PK = reverse_distribution(
        known_PK, xt_P, marginal_PK, edge.alpha_bar_S[now], edge.alpha_bar_S[then]
    )
    return sample_categorical(weights_PK, uniform_P)


def _with_new_nodes(
    prefix: PrefixGraphs,
    code_WA: Int[Tensor, "W A"],
    in_degree_W: Int[Tensor, " W"],
    ptr: Int[Tensor, " I1"],
) -> tuple[PrefixGraphs, Pairs]:
    items, rows = prefix.graph_I.numel(), prefix.node_R.numel()
    prefix_W, new_W = segment_ranges(ptr[:-1], ptr.diff())
    order_R = torch.argsort(prefix.prefix_R, stable=True)
    size_I = torch.bincount(prefix.prefix_R, minlength=items)
    first_I = size_I.cumsum(0) - size_I
    candidates_W = size_I[prefix_W]
    new_P, position_P = segment_ranges(first_I[prefix_W], candidates_W)
    source_P = order_R[position_P]
    row_W = rows + new_W
    partial = PrefixGraphs(
        code_NA=torch.cat([prefix.code_NA, code_WA]),
        graph_N=torch.cat([prefix.graph_N, prefix.graph_I[prefix_W]]),
        node_R=torch.cat([prefix.node_R, row_W]),
        prefix_R=torch.cat([prefix.prefix_R, prefix_W]),
        distance_R=torch.cat([prefix.distance_R, torch.zeros_like(row_W)]),
        graph_I=prefix.graph_I,
        depth_I=prefix.depth_I,
        edge_index_2V=prefix.edge_index_2V,
        edge_kind_V=prefix.edge_kind_V,
    )
    pairs = Pairs(
        source_P=source_P,
        target_P=row_W[new_P],
        new_P=new_P,
        prefix_P=prefix_W[new_P],
        latest_P=prefix.distance_R[source_P] == 1,
        in_degree_W=in_degree_W,
        candidates_W=candidates_W,
    )
    return partial, pairs


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
        layers = LayerIndex.from_batch(batch)
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
        """Sample one graph per seed; see ``layerdag.models.reference.model``."""
        require_request(request)
        self.require_options(
            steps=request.steps, best_of=request.best_of, temperature=request.temperature
        )
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
        partial = _partial(batch, prefixes(batch, layers, items, 0), items, code_NA)
        logits_IK = self.layer_size(partial, conditions)
        size_I = _new_nodes(layers, items)[1].diff()
        total = -self.layer_size.log_probability(logits_IK, size_I).sum()
        return LossTerm(total, torch.tensor(len(items), device=total.device))


def _is_wanted(network: nn.Module) -> bool:
    return not torch.is_grad_enabled() or any(p.requires_grad for p in network.parameters())


def _partial(
    batch: DAGBatch, rows: Prefixes, items: PrefixIndex, code_NA: Int[Tensor, "N A"]
) -> PrefixGraphs:
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
    rows_I = layers.end_of(items.graph_I, items.depth_I) - batch.node_ptr[items.graph_I]
    return rows_I * (1 + _new_nodes(layers, items)[1].diff())


def _pairs(batch: DAGBatch, rows: Prefixes) -> tuple[Pairs, Int[Tensor, " P"]]:
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
