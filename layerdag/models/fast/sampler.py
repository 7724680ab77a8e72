"""One node of every graph per step, each encoded once; particles of a graph, of which one is kept.

All graphs of a request are at the same position, so that caches are sliced and never padded. The
row of a finished graph is assigned to the padding sample, which is dropped, until enough rows are
inactive that compacting the caches pays off.

Here is what two samplers share: ends of graphs, replacement of particles, checks, output. How a
node is encoded and drawn is that of ``TensorSampler``, in torch on any device, or of
``CompiledSampler``, in C between matrix products. On a GPU each graph goes its own way
(``DeviceSampler``).

Shape letters: A node attributes, B graphs, C numeric conditions, D width of a state, J position
buckets, K codes, M categorical conditions, R rows, U uniforms, X selected graphs.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, UInt64
from torch import Tensor, nn

from layerdag.models.base import Conditions, PartialCheck, SampleRequest, SampleResult
from layerdag.models.draws import sample_from_logits, slot_uniforms
from layerdag.models.fast.candidates import EdgesToParents
from layerdag.models.fast.constraints import (
    AllowedCodes,
    DegreeConstraints,
    EdgeTypeSets,
    NeighborKinds,
)
from layerdag.models.fast.decisions import Heads
from layerdag.models.fast.encoder import Encoder
from layerdag.models.fast.particles import INTERVAL, resampled_rows
from layerdag.models.fast.sampler_state import CodeMasks, Guidance, OutputBuffer, RandomSlot
from layerdag.models.fast.tokens import (
    ConditionEncoder,
    ConditionVectors,
    RemainingSizes,
    TokenEmbedding,
)

_ACTIVE_FRACTION = 0.8


@dataclass(frozen=True, eq=False)
class SamplerModules:
    """The modules of a model that sampling needs.

    Attributes:
        tokens: Token embedding.
        conditions: Encoder of the conditions.
        remaining: Encoder of the nodes and layers still to come; None in a model without.
        encoder: The causal encoder.
        last_norm: Normalization of the encoder's output.
        heads: Readouts.
        constraints: Constraints taken from the training graphs.
        neighbors: The parents and children that training graphs have.
        allowed: The attributes that go together in training graphs.
        type_sets: The edge types that do.
        block: Number of tokens per attention block.
    """

    tokens: TokenEmbedding
    conditions: ConditionEncoder
    remaining: RemainingSizes | None
    encoder: Encoder
    last_norm: nn.LayerNorm
    heads: Heads
    constraints: DegreeConstraints
    neighbors: NeighborKinds
    allowed: AllowedCodes
    type_sets: EdgeTypeSets
    block: int


@dataclass(frozen=True, eq=False)
class NextLayers:
    """What is known of every graph before its next node, on the host.

    Attributes:
        complete_B: Whether the newest layer is complete, so that a new one would begin.
        number_B: Number of the new layer.
        size_B: Its size; 0 ends the graph.
    """

    complete_B: Bool[np.ndarray, " B"]
    number_B: Int[np.ndarray, " B"]
    size_B: Int[np.ndarray, " B"]


def condition_vectors(
    encoder: ConditionEncoder, request: SampleRequest, guidance: Guidance, device: torch.device
) -> ConditionVectors:
    """Return the condition vectors of each sample, under guidance then those without conditions."""
    conditions = Conditions(
        request.numeric_BC.to(device), request.category_BM.to(device), request.sizes_B2.to(device)
    )
    if guidance.has_pairs:
        conditions = conditions.followed_by(conditions.unknown())
    vectors: ConditionVectors = encoder(conditions)
    return vectors


class Sampler(ABC):
    """Sampler of the graphs of one request.

    Consecutive ``request.best_of`` graphs are the particles of one graph.

    Args:
        modules: Of the model.
        request: What to sample.
    """

    def __init__(self, modules: SamplerModules, request: SampleRequest) -> None:
        self.modules, self.request = modules, request
        self.device = modules.tokens.embedding.weight.device
        self.rows = len(request.seeds)
        self.guidance = Guidance(request.guidance, request.temperature)
        self.weighs = request.best_of > 1 and modules.neighbors.any_listed
        self.padding_sample = self.rows
        seeds = [*(seed % (1 << 64) for seed in request.seeds), 0]
        self.seed_B = np.array(seeds, dtype=np.uint64)
        self.sample_B = np.arange(self.rows)
        self.vectors = condition_vectors(modules.conditions, request, self.guidance, self.device)
        self.encoded_RD = self.vectors.after_BJD[:, 0]
        self.masks = CodeMasks.from_allowed(modules.allowed, request.possible, self.rows)
        self.output = OutputBuffer(self.seed_B, self.device)
        self.check, self.valid_B = request.check, np.ones(self.rows, dtype=bool)
        if self.check is not None:
            self.check.start(self.rows)

    def run(self) -> SampleResult:
        """Sample every graph to its end and return them in the order of the request."""
        position = 0
        while self.rows:
            self.encoded_RD = self._encode(position)
            if position and self._must_resample(position):
                self._resample(position)
            position += 1
            self._start_nodes(position)
            if self.rows:
                self._add_nodes(position)
        return self.output.result()

    @abstractmethod
    def _encode(self, position: int) -> Float[Tensor, "R D"]:
        """Encode the newest token of every graph and remember it."""

    @abstractmethod
    def _next_layers(self, position: int) -> "NextLayers":
        """Draw the size of the next layer of every graph."""

    @abstractmethod
    def _begin_nodes(self, position: int, size_B: Int[np.ndarray, " B"]) -> None:
        """Start the next node; where a layer is complete, a new layer of ``size_B`` nodes."""

    @abstractmethod
    def _add_nodes(self, position: int) -> None:
        """Draw the next node of every graph, and hand it to ``_finish_nodes``."""

    @abstractmethod
    def _set_out_degrees(
        self, position: int, out_degree_B: Int[Tensor, " B"], capacity_B: Int[Tensor, " B"]
    ) -> None:
        """Set the number of children that the newest node is to have, and may have at most."""

    @abstractmethod
    def _select_rows(self, row_B: Int[np.ndarray, " B"]) -> None:
        """Keep the rows ``row_B`` of what is known about graphs.

        A row keeps its place, moves to the front, or is copied over another one.
        """

    @abstractmethod
    def _log_weights(self) -> Float[np.ndarray, " B"] | None:
        """Return the log weight of each row since it was last set to 0, nats; None: no weights."""

    @abstractmethod
    def _reset_log_weights(self, row_X: Int[np.ndarray, " X"]) -> None:
        """Set the log weights of the rows ``row_X`` to 0."""

    def _must_resample(self, position: int) -> bool:
        """Return whether particles are to be replaced before the next node."""
        if self.request.best_of == 1:
            return False
        return not self.valid_B.all() or (self.weighs and position % INTERVAL == 0)

    def _resample(self, position: int) -> None:
        """Replace particles of little weight by copies of others of the same graph."""
        particles, row_X = self.request.best_of, self._due_rows(position)
        log_weight_B = self._log_weights()
        if log_weight_B is None:
            log_weight_B = np.zeros(self.rows)
        source_X = resampled_rows(
            self.sample_B[row_X],
            np.where(self.valid_B, log_weight_B, -np.inf)[row_X],
            particles,
            self.seed_B[:-1:particles],
            np.full(row_X.shape[0], position),
        )
        self._reset_log_weights(row_X)
        source_B = np.arange(self.rows)
        source_B[row_X] = row_X[source_X]
        if not np.array_equal(row_X[source_X], row_X):
            self.output.branch(self.sample_B[row_X], self.sample_B[source_B[row_X]])
            self._select(source_B)

    def _due_rows(self, position: int) -> Int[np.ndarray, " X"]:
        """Return the rows of the graphs that are resampled now.

        Between the intervals, these are the graphs of which a particle became invalid: a graph does
        not depend on those that are drawn beside it.
        """
        active_B = self.sample_B < self.padding_sample
        if not self.weighs or position % INTERVAL:
            graph_B = self.sample_B // self.request.best_of
            active_B &= np.isin(graph_B, graph_B[~self.valid_B])
        return np.flatnonzero(active_B)

    def _select(self, row_B: Int[np.ndarray, " B"]) -> None:
        """Keep the rows ``row_B``."""
        self._select_rows(row_B)
        index_B = torch.from_numpy(row_B)
        self.encoded_RD = self.encoded_RD[self.guidance.rows(index_B, self.rows).to(self.device)]
        self.valid_B = self.valid_B[row_B]
        if self.check is not None:
            self.check.select(index_B)

    def _seeds(self) -> UInt64[np.ndarray, " B"]:
        """Return the seed of the graph in each row."""
        return self.seed_B[self.sample_B]

    def _uniforms(self, position: int, slots: range) -> Float[Tensor, "B U"]:
        """Return uniforms for decisions at ``position``, shape (rows, slots)."""
        seed_B = self._seeds()
        uniform_BU = slot_uniforms(seed_B, np.full(seed_B.shape, position), slots)
        return uniform_BU.to(self.device)

    def _start_nodes(self, position: int) -> None:
        """Sample the sizes of new layers, retire finished graphs, and start the next node."""
        layers = self._next_layers(position)
        ended_B = layers.complete_B & (layers.size_B == 0)
        too_deep_B = layers.complete_B & (layers.number_B >= self.request.max_layers)
        truncated_B = (too_deep_B | (position > self.request.max_nodes)) & ~ended_B
        if self.check is not None:
            truncated_B |= ~self.valid_B | (ended_B & ~self.check.may_end().numpy())
        self.output.truncate(self.sample_B[truncated_B])
        self.sample_B = np.where(ended_B | truncated_B, self.padding_sample, self.sample_B)
        size_B = layers.size_B.clip(min=1)
        keep_X = np.flatnonzero(self.sample_B < self.padding_sample)
        if keep_X.shape[0] <= _ACTIVE_FRACTION * self.rows:
            self._select(keep_X)
            self.sample_B, size_B = self.sample_B[keep_X], size_B[keep_X]
            self.rows = keep_X.shape[0]
        self._begin_nodes(position, size_B)

    def _finish_nodes(
        self,
        position: int,
        x_BA: Int[Tensor, "B A"],
        layer_B: Int[Tensor, " B"],
        edges: EdgesToParents,
        out_degree_B: Int[Tensor, " B"],
        reserved: int = 0,
    ) -> None:
        """Set the children of the newest node of every graph, check it and put it out.

        Args:
            position: Of the node.
            x_BA: Codes of its attributes.
            layer_B: Layer of each node.
            edges: To all nodes from their parents.
            out_degree_B: Number of children, if it is predicted.
            reserved: Number of children that are not drawn.
        """
        predicted = self.modules.heads.out_degree is not None
        capacity_B = self.modules.constraints.capacity(
            x_BA[:, 0], out_degree_B if predicted else None
        )
        self._set_out_degrees(position, out_degree_B, capacity_B - reserved)
        if self.check is not None:
            valid_B = _checked(self.check, x_BA, edges).numpy()
            self.valid_B = (self.valid_B & valid_B) | (self.sample_B == self.padding_sample)
        sample_B = torch.from_numpy(self.sample_B).to(self.device)
        self.output.add_nodes(sample_B, x_BA, layer_B)
        sample_X, child_X = sample_B[edges.candidate_X], torch.full_like(edges.parent_X, position)
        self.output.add_edges(sample_X, edges.parent_X, child_X, edges.type_X)

    def _out_degrees(
        self, position: int, state_RD: Float[Tensor, "R D"], kind_B: Int[Tensor, " B"]
    ) -> Int[Tensor, " B"]:
        """Sample the out-degree of each node; 0 in a model without out-degree prediction."""
        heads = self.modules.heads
        if heads.out_degree is None or heads.plan_readout is None:
            return torch.zeros_like(kind_B)
        logits_BK = self.guidance.merge(heads.plan_readout(state_RD))
        slot = int(RandomSlot.OUT_DEGREE)
        u_B2 = self._uniforms(position, range(slot, slot + 2))
        return heads.out_degree.decode(sample_from_logits(logits_BK, u_B2[:, 0]), u_B2[:, 1])


def _checked(
    check: PartialCheck, x_BA: Int[Tensor, "B A"], edges: EdgesToParents
) -> Bool[Tensor, " B"]:
    """Return which graphs can still become valid with their newest node."""
    columns = (edges.candidate_X, edges.parent_X - 1, edges.type_X)
    return check.add(x_BA.cpu(), *(column.cpu() for column in columns))
