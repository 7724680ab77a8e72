"""``model=reference``: LayerDAG as published (arXiv 2411.02322), with its known faults repaired.

Three networks with no shared parameter, trained on every prefix of every graph: layer size, node
attributes, edges. docs/explanation/method.md lists what was kept and what was repaired, and why.

Sampling goes layer by layer, all graphs of a request at once. Loops run over layers and denoising
steps only. Every graph has its own stream of uniforms, and the networks compute in double precision
unless the model's ``sampling_precision`` says otherwise: the last bits of a matrix product depend
on the size of the batch, and in single precision they now and then change a sampled code, so that a
graph depends on the other graphs of its batch.

Shape letters: A node attributes, B graphs, C numeric conditions, D width of a state, E edges, I
prefixes, K codes, M categorical conditions, N nodes, P pairs, R rows, S diffusion steps, W new
nodes.
"""

import copy
import itertools
from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

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
from layerdag.models.layers import Segments, segment_pointers
from layerdag.models.reference.diffusion import reverse_distribution, strided_timesteps
from layerdag.models.reference.networks import DegreeCodes, EdgeDenoiser, LayerSizeNet, NodeDenoiser
from layerdag.models.reference.prefixes import Pairs, PartialGraphs, Prefixes, PrefixGraphs
from layerdag.runtime.native import set_openmp_passive


class ReferenceLayerDAG(DAGModel):
    """Layerwise autoregressive diffusion with a prefix encoder per decision.

    Settings are by default those of configs/model/reference.yaml.
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
        every = Prefixes.all_of(batch, self.codes(batch))
        chosen = every.subsampled(self.budget, generator) if self.budget else every
        conditions = Conditions(batch.numeric_BC, batch.category_BM)
        if self.training:
            rate = self.config.conditioning.dropout
            conditions = drop_conditions(conditions, rate, generator)
        terms = {}
        if _is_wanted(self.layer_size):
            size_I = chosen.new_nodes()[1].diff()
            terms["layer_size"] = self.layer_size.loss(chosen.end_to_end(), conditions, size_I)
        inner = chosen.where(~chosen.is_whole_I)
        if _is_wanted(self.node):
            new_W, ptr = inner.new_nodes()
            state_ID = self.node.encoder(inner.end_to_end(), conditions)
            terms["node"] = self.node.loss(state_ID, inner.code_NA[new_W], ptr, generator)
        if _is_wanted(self.edge):
            partial = inner.where(inner.depth_I > 0).end_to_end(ahead=True)
            pairs, x0_P = Pairs.true_of(partial, batch)
            terms["edge"] = self.edge.loss(partial, conditions, pairs, x0_P, generator)
        fraction = len(chosen) / len(every)
        return {name: LossTerm(t.total / fraction, t.count / fraction) for name, t in terms.items()}

    def codes(self, batch: DAGBatch) -> Int[Tensor, "N A"]:
        """Return the attribute codes with the in-degree's as last column, shape (N, A + 1)."""
        degree_N = torch.bincount(batch.edge_index_2E[1], minlength=batch.num_nodes)
        return torch.cat([batch.x_NA, self.degrees.encode(degree_N).unsqueeze(1)], dim=1)

    def require_options(self, *, steps: int | None, best_of: int, temperature: float = 1.0) -> None:
        """Refuse a choice among several graphs, and more denoising steps than there are."""
        super().require_options(steps=steps, best_of=best_of, temperature=temperature)
        most = max(self.node.steps, self.edge.steps)
        if steps is not None and not 1 <= steps <= most:
            raise UsageError(
                f"'steps' must be from 1 to {most}, the steps this model was trained with, found "
                f"{steps}."
            )

    @torch.no_grad()
    def sample(self, request: SampleRequest) -> SampleResult:
        """Sample one graph per seed, acyclic and layer-consistent by construction.

        Edges lead from earlier layers to a new one, and every node beyond layer 0 has a parent in
        the layer right before its own.
        """
        require_request(request)
        self.require_options(
            steps=request.steps, best_of=request.best_of, temperature=request.temperature
        )
        set_openmp_passive()
        precision = getattr(torch, self.sampling_precision)
        networks = copy.deepcopy(self).to(precision).eval()
        sampler = LayerSampler(
            networks.layer_size, networks.node, networks.edge, self.degrees, request
        )
        return sampler.run()


def drop_conditions(conditions: Conditions, rate: float, generator: torch.Generator) -> Conditions:
    """Drop conditions as ``Conditions.dropped``; first one number per graph is drawn for all."""
    numeric_BC, category_BM = conditions.numeric_BC, conditions.category_BM
    device = numeric_BC.device
    all_B1 = torch.rand(numeric_BC.shape[0], 1, generator=generator, device=device)
    each_BC = torch.rand(numeric_BC.shape, generator=generator, device=device)
    each_BM = torch.rand(category_BM.shape, generator=generator, device=device)
    return conditions.dropped(torch.cat([each_BC, each_BM, all_B1], dim=1), rate)


def _is_wanted(network: nn.Module) -> bool:
    return not torch.is_grad_enabled() or any(p.requires_grad for p in network.parameters())


class LayerSampler:
    """Samples the graphs of a request."""

    def __init__(
        self,
        layer_size: LayerSizeNet,
        node: NodeDenoiser,
        edge: EdgeDenoiser,
        degrees: DegreeCodes,
        request: SampleRequest,
    ) -> None:
        self.layer_size, self.node, self.edge, self.degrees = layer_size, node, edge, degrees
        self.request = request
        graphs, like = len(request.seeds), node.marginal_AK
        self.columns, device = like.shape[0], like.device
        self.streams = SampleStreams(request.seeds, device)
        self.graphs = PartialGraphs(self.columns, device)
        self.active_B = torch.ones(graphs, dtype=torch.bool, device=device)
        self.truncated_B = torch.zeros_like(self.active_B)
        self.nodes_B = torch.zeros(graphs, dtype=torch.int64, device=device)
        known = Conditions(request.numeric_BC.to(like), request.category_BM.to(device))
        plain = request.guidance == 1.0
        self.conditions = (known,) if plain else (known, known.unknown())

    def run(self) -> SampleResult:
        """Sample layer after layer until all graphs have ended."""
        while self.active_B.any():
            self._grow()
        attributes = self.columns - 1
        uniform = self.streams.uniforms(self.nodes_B * attributes)
        u_NA = bin_positions(uniform).reshape(-1, attributes)
        dags = self.graphs.finished(u_NA, self.nodes_B.numel())
        return SampleResult(dags, tuple(self.truncated_B.tolist()))

    def _grow(self) -> None:
        """Sample the next layer of every active graph: its size, its nodes, the edges into it."""
        partial = self.graphs.prefixes(self.active_B)
        size_I = self._sizes(partial)
        if not self.active_B.any():
            return
        partial, size_I = self.graphs.prefixes(self.active_B), size_I[size_I > 0]
        prefix_W = torch.repeat_interleave(size_I)
        code_WA = self._attributes(partial, size_I)
        if self.graphs.depth == 0:
            code_WA[:, -1] = 0
            none = size_I.new_zeros(0)
            edges = (none, none, none)
        else:
            edges = self._edges(partial, code_WA, prefix_W)
        graph_W = partial.graph_I[prefix_W]
        self.graphs.append(graph_W, code_WA, *edges)
        self.nodes_B += torch.bincount(graph_W, minlength=self.nodes_B.numel())
        self.active_B &= ~self.truncated_B

    def _sizes(self, partial: PrefixGraphs) -> Int[Tensor, " I"]:
        """Draw the size of each graph's next layer; graphs end at 0 and at the request's limits."""
        graph_I, request = partial.graph_I, self.request
        logits_IK = self._guided([self.layer_size(partial, known) for known in self.conditions])
        if self.graphs.depth == 0:
            logits_IK[:, 0] = float("-inf")
        uniform_I2 = self._uniforms(partial, torch.full_like(graph_I, 2)).reshape(-1, 2)
        wanted_I = self.layer_size.sample(logits_IK, uniform_I2)
        capacity_I = request.max_nodes - self.nodes_B[graph_I]
        if self.graphs.depth >= request.max_layers:
            capacity_I = torch.zeros_like(capacity_I)
        size_I = torch.minimum(wanted_I, capacity_I)
        self.truncated_B[graph_I] = size_I < wanted_I
        self.active_B[graph_I] = size_I > 0
        return size_I

    def _attributes(self, partial: PrefixGraphs, size_I: Int[Tensor, " I"]) -> Int[Tensor, "W A"]:
        """Denoise the codes of the new nodes, their in-degrees included."""
        node, segments = self.node, Segments.from_ptr(segment_pointers(size_I))
        states = [node.encoder(partial, known) for known in self.conditions]
        times = strided_timesteps(node.steps, self.request.steps)
        time_SD = node.times(torch.tensor(times, device=size_I.device))
        uniform_R = self._uniforms(partial, size_I * self.columns * len(times))
        uniform_WSA = uniform_R.reshape(-1, len(times), self.columns)
        marginal_WAK = node.marginal_AK.expand(len(uniform_WSA), -1, -1)
        code_WA = sample_categorical(marginal_WAK, uniform_WSA[:, 0])
        for step, (now, then) in enumerate(itertools.pairwise(times)):
            predicted_WAK = self._guided(
                [node(state_ID + time_SD[step], code_WA, segments) for state_ID in states]
            ).softmax(-1)
            alpha_bar = node.alpha_bar_S[now], node.alpha_bar_S[then]
            weights_WAK = reverse_distribution(predicted_WAK, code_WA, node.marginal_AK, *alpha_bar)
            code_WA = sample_categorical(weights_WAK, uniform_WSA[:, step + 1])
        return code_WA

    def _edges(
        self, partial: PrefixGraphs, code_WA: Tensor, prefix_W: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Denoise the edges into the new nodes; return sources, new nodes and types.

        There cannot be more parents than earlier nodes, nor none beyond layer 0: the in-degrees
        among ``code_WA`` are corrected in place.
        """
        edge = self.edge
        earlier_I = torch.bincount(partial.prefix_R, minlength=partial.graph_I.numel())
        wanted_W = self.degrees.decode(code_WA[:, -1]).clamp(min=1)
        in_degree_W = torch.minimum(wanted_W, earlier_I[prefix_W])
        code_WA[:, -1] = self.degrees.encode(in_degree_W)
        partial = partial.with_new_nodes(code_WA, prefix_W)
        pairs = Pairs.of(partial, in_degree_W)
        pairs_I = torch.bincount(pairs.prefix_P, minlength=partial.graph_I.numel())
        marginal_PK = edge.marginals(pairs)
        state_P = sample_categorical(marginal_PK, self._uniforms(partial, pairs_I))
        for now, then in itertools.pairwise(strided_timesteps(edge.steps, self.request.steps)):
            time_I = torch.full_like(partial.graph_I, now)
            uniform_P3 = self._uniforms(partial, 3 * pairs_I).reshape(-1, 3)
            logits_PK = self._guided(
                [edge(partial, known, pairs, state_P, time_I) for known in self.conditions]
            )
            x0_P = sample_parents(logits_PK, pairs, uniform_P3[:, :2])
            known_PK = F.one_hot(x0_P, marginal_PK.shape[1]).to(marginal_PK)
            alpha_bar = edge.alpha_bar_S[now], edge.alpha_bar_S[then]
            weights_PK = reverse_distribution(known_PK, state_P, marginal_PK, *alpha_bar)
            state_P = sample_categorical(weights_PK, uniform_P3[:, 2])
        on_P = state_P > 0
        return partial.node_R[pairs.source_P[on_P]], pairs.new_P[on_P], state_P[on_P] - 1

    def _guided(self, logits: Sequence[Tensor]) -> Tensor:
        """Return the logits of all conditions, pushed away from those without any."""
        conditional, *others = logits
        return guided(conditional, others[0], self.request.guidance) if others else conditional

    def _uniforms(self, partial: PrefixGraphs, count_I: Int[Tensor, " I"]) -> Float[Tensor, " _"]:
        """Return the next uniforms of the graphs of some prefixes, so many of each."""
        count_B = torch.zeros_like(self.nodes_B)
        count_B[partial.graph_I] = count_I
        return self.streams.uniforms(count_B)


def sample_parents(
    logits_PK: Float[Tensor, "P K"], pairs: Pairs, uniform_P2: Float[Tensor, "P 2"]
) -> Int[Tensor, " P"]:
    """Draw the clean states of all pairs jointly: the parents of each new node.

    Independent draws of pairs give an unsure node no parent or two. Here a node gets exactly its
    in-degree of parents without replacement, in proportion to their odds of being one, and the
    first of them is in the layer right before, which is what makes the new layer a layer. One
    uniform picks the parents, one the edge type.
    """
    odds_P = logits_PK[:, 1:].logsumexp(-1) - logits_PK[:, 0]
    key_P = odds_P + gumbel(uniform_P2[:, 0])
    chosen_P = choose_with_one_of(key_P, pairs.new_P, pairs.in_degree_W, pairs.latest_P)
    type_P = sample_categorical(logits_PK[:, 1:].softmax(-1), uniform_P2[:, 1])
    return torch.where(chosen_P, type_P + 1, 0)
