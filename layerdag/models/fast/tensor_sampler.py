"""A sampler in torch: on any device, with guidance, and from given nodes.

Nodes of a prefix stand in place of drawn ones, the same in every graph of a request.

Shape letters: A node attributes, B graphs, D width of a state, F feature columns, J position
buckets, K codes, N nodes, O options, P pairs, Q decisions, R rows, T tokens, U uniforms, X selected
graphs.
"""

import math
from bisect import bisect_right
from dataclasses import dataclass, replace
from typing import final

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from layerdag.dag.partial import Prefix
from layerdag.models.base import SampleRequest, SampleResult
from layerdag.models.draws import sample_from_logits
from layerdag.models.fast.candidates import CandidateSampler, EdgesToParents, NodeCandidates
from layerdag.models.fast.encoder import ParentList
from layerdag.models.fast.layout import NEVER
from layerdag.models.fast.particles import NATS_PER_FIRST, NODE_CANDIDATES, ParticleWeights
from layerdag.models.fast.sampler import NextLayers, Sampler, SamplerModules
from layerdag.models.fast.sampler_state import EncoderCache, RandomSlot, SamplerState


@dataclass(frozen=True, eq=False)
class GivenNodes:
    """The nodes of a prefix by their positions, which count from 1.

    Attributes:
        prefix: First layers of every graph.
        device: Of the sampler.
    """

    prefix: Prefix
    device: torch.device

    def covers(self, position: int) -> bool:
        """Return whether the node at ``position`` is given."""
        return position <= self.prefix.num_nodes

    def layer_size(self, position: int) -> int:
        """Return the number of nodes of the layer of the node at ``position``."""
        return self.prefix.layer_sizes[int(self.prefix.dag.layer_N[position - 1])]

    def codes(self, position: int, rows: int) -> Int[Tensor, "B A"]:
        """Return the attribute codes of the node at ``position``, once for each graph."""
        return self.prefix.dag.x_NA[position - 1].to(self.device).expand(rows, -1)

    def reserved(self, position: int) -> int:
        """Return the number of given children after the drawn nodes of the node at ``position``."""
        return self.prefix.reserved[position - 1] if self.prefix.reserved else 0

    def node(self, position: int, rows: int) -> NodeCandidates:
        """Return the node at ``position`` as the one candidate of each graph, without states."""
        graph_B = torch.arange(rows, device=self.device)
        parents = self.prefix.parents[position - 1]
        edges = tuple(
            EdgesToParents(
                graph_B, torch.full_like(graph_B, parent + 1), torch.full_like(graph_B, edge_type)
            )
            for parent, edge_type in parents
        )
        first_B = edges[0].parent_X if edges else torch.zeros_like(graph_B)
        kind_B = self.codes(position, rows)[:, 0]
        nothing = torch.zeros((0, 0), device=self.device)
        degree_B = torch.full_like(graph_B, len(parents))
        return NodeCandidates(graph_B, first_B, kind_B, degree_B, edges, nothing, nothing)

    def kept_in(self, result: SampleResult) -> SampleResult:
        """Return completed graphs whose given nodes have their own positions inside bins."""
        return replace(result, dags=tuple(self.prefix.kept_in(dag) for dag in result.dags))


@final
class TensorSampler(Sampler):
    """Draws nodes by operations of torch."""

    def __init__(self, modules: SamplerModules, request: SampleRequest) -> None:
        super().__init__(modules, request)
        self.state = SamplerState.start(self.rows, self.device)
        key_width = modules.heads.pointer.key.out_features
        self.cache = EncoderCache(modules.encoder, modules.block, key_width, self.encoded_RD)
        self.weights: ParticleWeights | None = None
        if self.weighs:
            self.weights = ParticleWeights.start(modules.neighbors, self.rows, self.device)
        self.x_BA = modules.tokens.start_A.expand(self.rows, -1)
        self.newest = joined_edges((), self.device)
        self.given = None if request.prefix is None else GivenNodes(request.prefix, self.device)

    @staticmethod
    def supports(modules: SamplerModules, request: SampleRequest) -> bool:
        """Return that it can sample whatever is asked for."""
        return True

    def run(self) -> SampleResult:
        """Sample every graph to its end and return them in the order of the request."""
        result = super().run()
        return result if self.given is None else self.given.kept_in(result)

    def _encode(self, position: int) -> Float[Tensor, "R D"]:
        """Encode the newest token of every graph and append it to the cache."""
        modules, structure = self.modules, self.state.structure
        bucket = bisect_right(modules.conditions.position_buckets, position)
        before_RD, after_RD = self.vectors.before_BJD[:, bucket], self.vectors.after_BJD[:, bucket]
        if modules.remaining is not None:
            remaining_RD = modules.remaining(
                self.guidance.duplicate(structure.position_T),
                self.guidance.duplicate(structure.layer_T),
                self.vectors.sizes_B2,
            )
            before_RD, after_RD = before_RD + remaining_RD[0], after_RD + remaining_RD[1]
        x_RD = self.guidance.duplicate(modules.tokens(self.x_BA, structure)) + before_RD
        x_RD = self.cache.encode(x_RD, position, self._parents())
        encoded_RD: Tensor = modules.last_norm(x_RD) + after_RD
        self.cache.append(position, encoded_RD, modules.heads.pointer.key(encoded_RD))
        return encoded_RD

    def _parents(self) -> ParentList:
        """Return the parents of the newest nodes, for every encoder row."""
        row_P, parent_P = self.newest.candidate_X, self.newest.parent_X
        degree_R = self.guidance.duplicate(self.state.structure.degree_T)
        return ParentList(
            self.guidance.rows(row_P, self.rows), self.guidance.duplicate(parent_P), degree_R
        )

    def _next_layers(self, position: int) -> NextLayers:
        """Draw the size of the next layer of every graph, or take it from the prefix."""
        heads, structure = self.modules.heads, self.state.structure
        number_B = structure.layer_T + int(position > 1)
        if self.given is not None and self.given.covers(position):
            size_B = torch.full_like(number_B, self.given.layer_size(position))
        else:
            logits_BK = self.guidance.merge(
                heads.size_logits(
                    self.encoded_RD, self.guidance.duplicate(structure.position_T == 0)
                )
            )
            # Code 0 is a size of 0, which ends the graph.
            logits_BK[number_B < self.request.min_layers, 0] = -torch.inf
            slot = int(RandomSlot.LAYER_SIZE)
            u_B2 = self._uniforms(position, range(slot, slot + 2))
            size_B = heads.size.decode(sample_from_logits(logits_BK, u_B2[:, 0]), u_B2[:, 1])
        left_B, number_B, size_B = torch.stack([structure.left_T, number_B, size_B]).cpu()
        return NextLayers(left_B.numpy() == 0, number_B.numpy(), size_B.numpy())

    def _begin_nodes(self, position: int, size_B: Int[np.ndarray, " B"]) -> None:
        """Start the next node; where a layer is complete, a new layer of ``size_B`` nodes."""
        self.state.start_node(position, torch.from_numpy(size_B).to(self.device))

    def _select_rows(self, row_B: Int[np.ndarray, " B"]) -> None:
        """Keep the rows ``row_B``."""
        index_B = torch.from_numpy(row_B).to(self.device)
        encoder_R = self.guidance.rows(index_B, self.rows)
        self.state.select(index_B)
        self.cache.select(encoder_R)
        if row_B.shape[0] < self.rows:  # particles of a graph have the same conditions
            self.vectors = self.vectors.select(encoder_R)
        if self.weights is not None:
            self.weights.select(index_B)

    def _log_weights(self) -> Float[np.ndarray, " B"] | None:
        """Return the log weight of each row since it was last set to 0, nats; None: no weights."""
        return None if self.weights is None else self.weights.log_weight_B.cpu().numpy()

    def _reset_log_weights(self, row_X: Int[np.ndarray, " X"]) -> None:
        """Set the log weights of the rows ``row_X`` to 0."""
        if self.weights is not None:
            index_X = torch.from_numpy(row_X).to(self.device)
            self.weights.log_weight_B = self.weights.log_weight_B.index_fill(0, index_X, 0.0)

    def _add_nodes(self, position: int) -> None:
        """Take the next node from the prefix, or sample it decision by decision."""
        if self.given is not None and self.given.covers(position):
            self._add_given_nodes(position, self.given)
            return
        heads, state = self.modules.heads, self.state
        slot_codes_B3 = heads.count_codes.slots(state.structure.size_T, state.structure.index_T)
        context_RD = heads.context_state(self.encoded_RD, self.guidance.duplicate(slot_codes_B3))
        node = self._sample_nodes(position, context_RD)
        self._connect(node)
        degree_code_B = heads.in_degree.encode(node.degree_P)
        state_RD = heads.other_state(
            node.state_QD, self.guidance.duplicate(degree_code_B), node.parents_QD
        )
        codes, masks = [node.kind_P], self.masks
        allowed_BF = masks.graph_BF[self._samples()] & masks.given(0, node.kind_P)
        slot = int(RandomSlot.ATTRIBUTE)
        u_BU = self._uniforms(position, range(slot, slot + len(heads.other_readouts)))
        for index, readout in enumerate(heads.other_readouts):
            logits_BK = self.modules.constraints.limit_attributes(
                self.guidance.merge(readout(state_RD)), index
            )
            logits_BK = masks.limit(logits_BK, allowed_BF, index + 1)
            code_B = sample_from_logits(logits_BK, u_BU[:, index])
            state_RD = heads.after_other(state_RD, index, self.guidance.duplicate(code_B))
            allowed_BF = allowed_BF & masks.given(index + 1, code_B)
            codes.append(code_B)
        self.x_BA = torch.stack(codes, dim=1)
        out_degree_B = self._out_degrees(position, state_RD, node.kind_P)
        self._finish_nodes(position, self.x_BA, state.structure.layer_T, self.newest, out_degree_B)

    def _add_given_nodes(self, position: int, given: GivenNodes) -> None:
        """Add the next node of the prefix to every graph."""
        node = given.node(position, self.rows)
        self._connect(node)
        if self.weights is not None:
            self.weights.add_nodes(position, node, torch.zeros_like(self.weights.log_weight_B))
        out_degree_B = torch.zeros_like(node.kind_P)
        if self.modules.heads.out_degree is not None:
            out_degree_B = out_degree_B + given.prefix.out_degrees[position - 1]
        self.x_BA = given.codes(position, self.rows)
        self._finish_nodes(
            position,
            self.x_BA,
            self.state.structure.layer_T,
            self.newest,
            out_degree_B,
            given.reserved(position),
        )

    def _connect(self, node: NodeCandidates) -> None:
        """Connect the newest node of every graph with its parents."""
        self.state.sibling_B = node.first_P.masked_fill(node.first_P == 0, NEVER)
        for edges in node.edges:
            self.state.connect(edges.candidate_X, edges.parent_X)
        self.newest = joined_edges(node.edges, self.device)

    def _samples(self) -> Int[Tensor, " B"]:
        """Return the index of each row's sample."""
        return torch.from_numpy(self.sample_B).to(self.device)

    def _set_out_degrees(
        self, position: int, out_degree_B: Int[Tensor, " B"], capacity_B: Int[Tensor, " B"]
    ) -> None:
        """Set the number of children that the newest node is to have, and may have at most."""
        self.state.set_out_degree(position, out_degree_B, capacity_B)

    def _sample_nodes(self, position: int, context_RD: Float[Tensor, "R D"]) -> NodeCandidates:
        """Draw candidates for the next node of every graph, and keep one of each."""
        modules, weights = self.modules, self.weights
        sampler = CandidateSampler(
            modules.heads,
            modules.constraints,
            modules.type_sets,
            self.masks,
            self.cache,
            self.state,
            self.guidance,
            self._samples(),
            self._seeds(),
            position,
        )
        if weights is None:
            return sampler.draw(context_RD, 1)
        candidates = sampler.draw(context_RD, NODE_CANDIDATES)
        weight_BO = weights.of_candidates(candidates).unflatten(0, (-1, NODE_CANDIDATES))
        first_BO = ~weights.ancestries.occurred(candidates).view_as(weight_BO)
        slot = int(RandomSlot.CHOICE)
        option_B = sample_from_logits(
            weight_BO - NATS_PER_FIRST * first_BO,
            self._uniforms(position, range(slot, slot + 1))[:, 0],
        )
        first_B = torch.arange(self.rows, device=option_B.device) * NODE_CANDIDATES
        node = candidates.select(first_B + option_B, self.guidance)
        weights.add_nodes(position, node, weight_BO.logsumexp(1) - math.log(NODE_CANDIDATES))
        return node


def joined_edges(parts: tuple[EdgesToParents, ...], device: torch.device) -> EdgesToParents:
    """Return the edges of all parts, end to end."""
    empty = torch.zeros(0, dtype=torch.int64, device=device)
    return EdgesToParents(
        *(
            torch.cat([empty, *(getattr(edges, name) for edges in parts)])
            for name in ("candidate_X", "parent_X", "type_X")
        )
    )
