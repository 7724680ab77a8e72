"""What both samplers take from a model and a request, and where they put what they draw.

``CompiledSampler`` draws in C between matrix products, on a processor and in single precision,
``TensorSampler`` in torch, elsewhere. Decisions, their order and their uniforms are the same.

Under guidance every graph has two rows of the encoder, a conditional and an unconditional one,
which share the discrete decisions. Here, as in ``TensorSampler``, the first half of all rows is
conditional; in ``CompiledSampler`` both rows of a graph follow each other.

Shape letters: A node attributes, B graphs, C numeric conditions, E edges, F feature columns, K
codes, M categorical conditions, N nodes, R rows, X selected graphs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor, nn

from layerdag.graph.topology import expand_ranges
from layerdag.models.base import Conditions, JointCodeMasks, SampleRequest, SampleResult
from layerdag.models.draws import assemble_dags, bin_positions, guided, slot_uniforms
from layerdag.models.fast.constraints import (
    AllowedCodes,
    DegreeConstraints,
    EdgeTypeSets,
    NeighborKinds,
)
from layerdag.models.fast.decisions import Heads
from layerdag.models.fast.encoder import Encoder
from layerdag.models.fast.tokens import (
    ConditionEncoder,
    ConditionVectors,
    RemainingSizes,
    TokenEmbedding,
)


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


@dataclass(frozen=True)
class Guidance:
    """Classifier-free guidance and temperature of one request.

    Attributes:
        weight: Of guidance; with 1 there are no unconditional rows.
        temperature: Divides the logits.
    """

    weight: float
    temperature: float

    @property
    def has_pairs(self) -> bool:
        """Whether there are unconditional rows."""
        return self.weight != 1.0

    @property
    def passes(self) -> int:
        """Rows of the encoder per graph."""
        return 2 if self.has_pairs else 1

    def duplicate(self, value_X: Shaped[Tensor, "X ..."]) -> Shaped[Tensor, "R ..."]:
        """Repeat the values for both rows of each pair."""
        return torch.cat([value_X, value_X]) if self.has_pairs else value_X

    def rows(self, index_X: Int[Tensor, " X"], count: int) -> Int[Tensor, " R"]:
        """Return the rows of the graphs (or candidates) ``index_X`` of ``count``."""
        return torch.cat([index_X, index_X + count]) if self.has_pairs else index_X

    def merge(self, logits_RK: Float[Tensor, "R K"]) -> Float[Tensor, "X K"]:
        """Merge the logits of both rows of each pair, and divide by the temperature.

        They are not normalized, which would add the same to the logits of all codes.
        """
        if not self.has_pairs:
            return logits_RK if self.temperature == 1 else logits_RK / self.temperature
        conditional, unconditional = logits_RK.chunk(2)
        return guided(conditional, unconditional, self.weight) / self.temperature


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


@dataclass(frozen=True, eq=False)
class CodeMasks:
    """The codes that nodes can have, by training and by the meaning of the codes.

    Attributes:
        allowed: The attributes that go together in training graphs.
        pairs_FF: Codes that one node can have together.
        graph_BF: Codes that the nodes of each sample can have; the last row is for padding.
    """

    allowed: AllowedCodes
    pairs_FF: Bool[Tensor, "F F"]
    graph_BF: Bool[Tensor, "B F"]

    @classmethod
    def from_allowed(
        cls, allowed: AllowedCodes, possible: JointCodeMasks | None, samples: int
    ) -> "CodeMasks":
        """Return the masks of a request for so many samples."""
        observed_FF = allowed.allowed_FF
        if possible is None:
            graph_BF = observed_FF.new_ones((samples + 1, observed_FF.shape[0]))
            return cls(allowed, observed_FF, graph_BF)
        padded_BF = torch.nn.functional.pad(possible.graph_BF, (0, 0, 0, 1), value=True)
        pairs_FF = observed_FF & possible.pairs_FF.to(observed_FF.device)
        return cls(allowed, pairs_FF, padded_BF.to(observed_FF.device))

    def given(self, attribute: int, code_B: Int[Tensor, " B"]) -> Bool[Tensor, "B F"]:
        """Return what nodes with these codes of an attribute may have in all attributes."""
        return self.pairs_FF[self.allowed.starts[attribute] + code_B]

    def limit(
        self, logits_BK: Float[Tensor, "B K"], allowed_BF: Bool[Tensor, "B F"], attribute: int
    ) -> Float[Tensor, "B K"]:
        """Rule out codes of an attribute; see ``AllowedCodes.limit``."""
        return self.allowed.limit(logits_BK, allowed_BF, attribute)


class RandomSlot(IntEnum):
    """Number of the first uniform of each decision about one node.

    Counts and parents use two consecutive slots (bin and position in the bin; block and token),
    attribute number i uses ``ATTRIBUTE + i``.
    """

    LAYER_SIZE = 0
    FIRST_PARENT = 2
    KIND = 4
    IN_DEGREE = 5
    OUT_DEGREE = 7
    ATTRIBUTE = 9
    FURTHER_PARENT = 1 << 16
    """First slot of ``SLOTS_PER_PARENT`` for each parent: its edge type, and the next parent."""

    CHOICE = (1 << 31) - 1
    """Which candidate for the node is kept."""

    RESAMPLING = 1 << 31
    """Which particles go on; only the first particle's is used."""

    POSITION_IN_BIN = 1 << 32
    """First slot of the positions of numeric attributes in their bins, one per attribute."""


SLOTS_PER_PARENT = 3

CANDIDATE_STEP = 0xD1B54A32D192ED03 - 2**64
"""Between the seeds of two candidates; odd, and no multiple of the steps between positions."""


Columns = tuple[Tensor, ...]
"""Rows of nodes or edges by columns; the first is the sample of each."""


@dataclass(frozen=True, eq=False)
class _Generation:
    """What was drawn before a branching.

    Attributes:
        nodes: Sample, attribute codes and layer of each node.
        edges: Sample, parent, child and type of each edge.
        source_B: The sample that each sample descends from.
    """

    nodes: Columns
    edges: Columns
    source_B: Int[Tensor, " B"]


class OutputBuffer:
    """Nodes and edges of all samples, in the order of sampling, on the host.

    The last sample is the *padding sample*: rows of finished graphs write to it, and it is dropped.
    """

    def __init__(self, seed_B: np.ndarray) -> None:
        self.seed_B = seed_B
        self.truncated_B = np.zeros(seed_B.shape[0], dtype=bool)
        empty = torch.zeros(0, dtype=torch.int64)
        self.nodes: list[tuple[Tensor, ...]] = []
        self.edges: list[tuple[Tensor, ...]] = [(empty, empty, empty, empty)]
        self.generations: list[_Generation] = []

    def add_nodes(
        self, sample_B: Int[Tensor, " B"], x_BA: Int[Tensor, "B A"], layer_B: Int[Tensor, " B"]
    ) -> None:
        """Append the newest node of the samples ``sample_B``."""
        self.nodes.append((sample_B, x_BA, layer_B))

    def add_edges(
        self,
        sample_X: Int[Tensor, " X"],
        parent_X: Int[Tensor, " X"],
        child_X: Int[Tensor, " X"],
        type_X: Int[Tensor, " X"],
    ) -> None:
        """Append one edge for each of the samples ``sample_X``; positions count from 1."""
        self.edges.append((sample_X, parent_X - 1, child_X - 1, type_X))

    def branch(self, sample_X: Int[np.ndarray, " X"], source_X: Int[np.ndarray, " X"]) -> None:
        """Replace all of the samples ``sample_X`` by what the samples ``source_X`` have so far."""
        if not self.nodes:
            return
        source_B = torch.arange(self.seed_B.shape[0])
        source_B.numpy()[sample_X] = source_X
        nodes, edges = _joined(self.nodes), _joined(self.edges)
        self.generations.append(_Generation(nodes, edges, source_B))
        self.nodes, self.edges = [], [tuple(column[:0] for column in self.edges[0])]

    def truncate(self, sample_X: Int[np.ndarray, " X"]) -> None:
        """Mark the samples ``sample_X`` as truncated by a limit of the request."""
        self.truncated_B[sample_X] = True

    def result(self) -> SampleResult:
        """Return the graphs without the padding sample; positions inside bins are uniform.

        Raises:
            ValueError: If a graph has no node, as when weights overflow.
        """
        count = self.seed_B.shape[0] - 1
        if not (self.nodes or self.generations):
            raise ValueError("no graph has a node, as where every probability is NaN")
        nodes, edges = self._histories()
        sample_N = nodes[0]
        layer_N = nodes[2]
        order_N = torch.argsort(sample_N, stable=True)
        nodes_B = torch.bincount(sample_N, minlength=count)[:count]
        if not nodes_B.all():
            raise ValueError("a graph has no node, as where every probability is NaN")
        order_N = order_N[: int(nodes_B.sum())]
        x_NA = nodes[1][order_N]
        start_B = nodes_B.cumsum(0) - nodes_B
        position_N = torch.arange(order_N.shape[0]) - torch.repeat_interleave(start_B, nodes_B)
        slots = range(RandomSlot.POSITION_IN_BIN, RandomSlot.POSITION_IN_BIN + x_NA.shape[1])
        u_NA = slot_uniforms(self.seed_B[sample_N[order_N].numpy()], position_N.numpy() + 1, slots)
        columns = torch.stack(edges)
        sample_E, parent_E, child_E, type_E = columns[:, columns[0] < count]
        edge_index_2E = torch.stack([parent_E, child_E]) + start_B[sample_E]
        dags = assemble_dags(
            x_NA, bin_positions(u_NA), nodes_B, edge_index_2E, type_E, layer_N[order_N]
        )
        return SampleResult(dags, tuple(self.truncated_B[:count].tolist()))

    def _histories(self) -> tuple[Columns, Columns]:
        nodes = [_joined(self.nodes)] if self.nodes else []
        edges = [_joined(self.edges)]
        source_B = torch.arange(self.seed_B.shape[0])
        for generation in reversed(self.generations):
            source_B = generation.source_B[source_B]
            nodes.append(_copies(generation.nodes, source_B))
            edges.append(_copies(generation.edges, source_B))
        return _joined(nodes[::-1]), _joined(edges[::-1])


def _joined(parts: Sequence[Columns]) -> Columns:
    return tuple(torch.cat(column) for column in zip(*parts, strict=True))


def _copies(columns: Columns, source_B: Int[Tensor, " B"]) -> Columns:
    order_N = torch.argsort(columns[0], stable=True)
    end_B = torch.bincount(columns[0], minlength=source_B.shape[0]).cumsum(0)
    start_B = torch.cat([end_B.new_zeros(1), end_B[:-1]])
    start_B, end_B = start_B[source_B], end_B[source_B]
    row_N = order_N[torch.from_numpy(expand_ranges(start_B.numpy(), end_B.numpy()))]
    sample_N = torch.repeat_interleave(torch.arange(source_B.shape[0]), end_B - start_B)
    return (sample_N, *(column[row_N] for column in columns[1:]))
