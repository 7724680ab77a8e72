"""Caches, state, output.

Caches of sampling: the encoder's memory and the encodings of earlier tokens, each computed once.

Guidance while sampling: pairs of conditional and unconditional rows, and their logits.

Under guidance every graph has two rows of the encoder, the first half of all rows conditional and
the second half unconditional, which share the discrete decisions.

Collecting sampled nodes and edges step by step, and splitting them into graphs at the end.

The discrete state of sampling: structural features, out-degrees, uses and capacities.

Shape letters: A node attributes, B graphs, D width of a state, E edges, F feature columns, K codes,
N nodes, R rows, T tokens, X selected graphs, b tokens of a block, d width of a head or key.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from enum import IntEnum

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from layerdag.graph.topology import expand_ranges
from layerdag.models.base import JointCodeMasks, SampleResult
from layerdag.models.draws import assemble_dags, bin_positions, guided, slot_uniforms
from layerdag.models.fast.constraints import AllowedCodes
from layerdag.models.fast.encoder import Encoder, NewestTokens, ParentList, PositionBuffer
from layerdag.models.fast.layout import NEVER
from layerdag.models.fast.tokens import StructuralFeatures


class EncoderCache:
    """The encoder's memory, and encodings and pointer keys of earlier tokens, of every row."""

    def __init__(
        self, encoder: Encoder, block: int, key_width: int, like_RD: Float[Tensor, "R D"]
    ) -> None:
        rows, width = like_RD.shape
        self.encoder, self.block = encoder, block
        self.memory = encoder.start(like_RD)
        self.encoded, self.pointer_key, self.block_key = (
            PositionBuffer(rows, (size,), like_RD.dtype, like_RD.device)
            for size in (width, key_width, key_width)
        )

    def encode(
        self, x_RD: Float[Tensor, "R D"], position: int, parents: ParentList
    ) -> Float[Tensor, "R D"]:
        """Return the encoder's output for the newest token, from its input and its parents."""
        newest = NewestTokens(position, parents)
        x_RD, self.memory = self.encoder.step(x_RD, newest, self.memory)
        return x_RD

    def append(
        self, position: int, encoded_RD: Float[Tensor, "R D"], key_Rd: Float[Tensor, "R d"]
    ) -> None:
        """Store the encoding and the pointer key of the newest token."""
        self.encoded.write(position, encoded_RD)
        self.pointer_key.write(position, key_Rd)
        if position % self.block == self.block - 1:
            key_Rbd = self.pointer_key.data[:, position + 1 - self.block : position + 1]
            self.block_key.write(position // self.block, key_Rbd.mean(1))

    def select(self, row_R: Int[Tensor, " R"]) -> None:
        """Keep the rows ``row_R``."""
        self.memory = self.encoder.select(self.memory, row_R)
        for part in (self.encoded, self.pointer_key, self.block_key):
            part.select(row_R)


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

    def duplicate(self, value_X: Shaped[Tensor, "X ..."]) -> Shaped[Tensor, "R ..."]:
        """Repeat the values for both rows of each pair."""
        return torch.cat([value_X, value_X]) if self.has_pairs else value_X

    def rows(self, index_X: Int[Tensor, " X"], count: int) -> Int[Tensor, " R"]:
        """Return the rows of the graphs (or candidates) ``index_X`` of ``count``."""
        return torch.cat([index_X, index_X + count]) if self.has_pairs else index_X

    def merge(self, logits_RK: Float[Tensor, "R K"]) -> Float[Tensor, "X K"]:
        """Merge the logits of both rows of each pair, and divide by the temperature."""
        if not self.has_pairs:
            return logits_RK if self.temperature == 1 else logits_RK / self.temperature
        conditional, unconditional = torch.log_softmax(logits_RK, dim=1).chunk(2)
        return guided(conditional, unconditional, self.weight) / self.temperature


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
    """Nodes and edges of all samples, in the order of sampling.

    The last sample is the *padding sample*: rows of finished graphs write to it, and it is dropped.
    """

    def __init__(self, seed_B: np.ndarray, device: torch.device) -> None:
        self.seed_B = seed_B
        self.truncated_B = np.zeros(seed_B.shape[0], dtype=bool)
        empty = torch.zeros(0, dtype=torch.int64, device=device)
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
        nodes, edges = _on_cpu(_joined(self.nodes)), _on_cpu(_joined(self.edges))
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
        """Return nodes and edges of all samples, those of replaced samples left out."""
        nodes = [_on_cpu(_joined(self.nodes))] if self.nodes else []
        edges = [_on_cpu(_joined(self.edges))]
        source_B = torch.arange(self.seed_B.shape[0])
        for generation in reversed(self.generations):
            source_B = generation.source_B[source_B]
            nodes.append(_copies(generation.nodes, source_B))
            edges.append(_copies(generation.edges, source_B))
        return _joined(nodes[::-1]), _joined(edges[::-1])


def _joined(parts: Sequence[Columns]) -> Columns:
    """Return the rows of all parts, end to end."""
    return tuple(torch.cat(column) for column in zip(*parts, strict=True))


def _on_cpu(columns: Columns) -> Columns:
    return tuple(column.cpu() for column in columns)


def _copies(columns: Columns, source_B: Int[Tensor, " B"]) -> Columns:
    """Return, for each sample, the rows of the sample that it descends from."""
    order_N = torch.argsort(columns[0], stable=True)
    end_B = torch.bincount(columns[0], minlength=source_B.shape[0]).cumsum(0)
    start_B = torch.cat([end_B.new_zeros(1), end_B[:-1]])
    start_B, end_B = start_B[source_B], end_B[source_B]
    row_N = order_N[torch.from_numpy(expand_ranges(start_B.numpy(), end_B.numpy()))]
    sample_N = torch.repeat_interleave(torch.arange(source_B.shape[0]), end_B - start_B)
    return (sample_N, *(column[row_N] for column in columns[1:]))


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


@dataclass(eq=False)
class SamplerState:
    """One row per active graph, about its newest token.

    Attributes:
        structure: Structural features of the newest token.
        layer_start_B: First position of the newest token's layer.
        before_start_B: First position of the layer before.
        sibling_B: First parent of the newest node, ``NEVER`` without one.
        out_degree: Predicted number of children of each position.
        used: Number of children so far of each position.
        capacity: Remaining capacity for children of each position.
        last: Position of the last child, ``NEVER`` without one.
        layer: Layer of each position.
    """

    structure: StructuralFeatures
    layer_start_B: Int[Tensor, " B"]
    before_start_B: Int[Tensor, " B"]
    sibling_B: Int[Tensor, " B"]
    out_degree: PositionBuffer
    used: PositionBuffer
    capacity: PositionBuffer
    last: PositionBuffer
    layer: PositionBuffer

    @classmethod
    def start(cls, rows: int, device: torch.device) -> "SamplerState":
        """Return the state after the start token."""
        zero_B = torch.zeros(rows, dtype=torch.int64, device=device)
        structure = StructuralFeatures(
            **{field.name: zero_B for field in fields(StructuralFeatures)}
        )
        return cls(
            structure=replace(structure, size_T=zero_B + 1),
            layer_start_B=zero_B + 1,
            before_start_B=zero_B + 1,
            sibling_B=zero_B + NEVER,
            out_degree=PositionBuffer(rows, (), torch.int64, device),
            used=PositionBuffer(rows, (), torch.int64, device),
            capacity=PositionBuffer(rows, (), torch.int64, device),
            last=PositionBuffer(rows, (), torch.int64, device),
            layer=PositionBuffer(rows, (), torch.int64, device),
        )

    def select(self, row_R: Int[Tensor, " R"]) -> None:
        """Keep the rows ``row_R``."""
        for name in ("layer_start_B", "before_start_B", "sibling_B"):
            setattr(self, name, getattr(self, name)[row_R])
        kept = {f.name: getattr(self.structure, f.name)[row_R] for f in fields(StructuralFeatures)}
        self.structure = StructuralFeatures(**kept)
        for part in (self.out_degree, self.used, self.capacity, self.last, self.layer):
            part.select(row_R)

    def start_node(self, position: int, size_B: Int[Tensor, " B"]) -> None:
        """Start the next node; where a layer is complete, a new layer of ``size_B`` nodes."""
        old, new_layer_B = self.structure, self.structure.left_T == 0
        inner_B = new_layer_B & (old.position_T > 0)
        self.before_start_B = torch.where(inner_B, self.layer_start_B, self.before_start_B)
        self.layer_start_B = torch.where(new_layer_B, position, self.layer_start_B)
        self.sibling_B = self.sibling_B.masked_fill(new_layer_B, NEVER)
        size_B = torch.where(new_layer_B, size_B, old.size_T)
        index_B = (old.index_T + 1).masked_fill(new_layer_B, 0)
        self.structure = StructuralFeatures(
            degree_T=torch.zeros_like(index_B),
            out_degree_T=torch.zeros_like(index_B),
            size_T=size_B,
            index_T=index_B,
            left_T=size_B - index_B - 1,
            open_T=old.open_T,
            open_layer_T=old.open_layer_T.masked_fill(new_layer_B, 0),
            open_before_T=torch.where(new_layer_B, old.open_layer_T, old.open_before_T),
            position_T=torch.full_like(index_B, position),
            layer_T=old.layer_T + inner_B,
        )
        for part in (self.out_degree, self.used, self.capacity):
            part.write(position, 0)
        self.last.write(position, NEVER)
        self.layer.write(position, self.structure.layer_T)

    def connect(self, row_X: Int[Tensor, " X"], parent_X: Int[Tensor, " X"]) -> None:
        """Add one parent to the newest node of each of the rows ``row_X``."""
        structure = self.structure
        self.used.data[row_X, parent_X] += 1
        self.capacity.data[row_X, parent_X] -= 1
        self.last.data[row_X, parent_X] = structure.position_T[row_X]
        near_X = self.layer.data[row_X, parent_X] == structure.layer_T[row_X] - 1
        one_X = torch.ones_like(row_X)
        self.structure = replace(
            structure,
            degree_T=structure.degree_T.index_add(0, row_X, one_X),
            open_T=structure.open_T.index_add(0, row_X, -one_X),
            open_before_T=structure.open_before_T.index_add(0, row_X, -near_X.long()),
        )

    def set_out_degree(
        self, position: int, out_degree_B: Int[Tensor, " B"], capacity_B: Int[Tensor, " B"]
    ) -> None:
        """Set the predicted out-degree and the capacity for children of the newest node."""
        self.out_degree.write(position, out_degree_B)
        self.capacity.write(position, capacity_B)
        self.structure = replace(
            self.structure,
            out_degree_T=out_degree_B,
            open_T=self.structure.open_T + out_degree_B,
            open_layer_T=self.structure.open_layer_T + out_degree_B,
        )
