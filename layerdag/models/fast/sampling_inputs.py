"""What both samplers take from a model and a request.

``CompiledSampler`` draws in C between matrix products, on a processor and in single precision,
``TensorSampler`` in torch, elsewhere. Decisions, their order and their uniforms are the same.

Under guidance every graph has two rows of the encoder, a conditional and an unconditional one,
which share the discrete decisions. Here, as in ``TensorSampler``, the first half of all rows is
conditional; in ``CompiledSampler`` both rows of a graph follow each other.

Shape letters: A node attributes, B graphs, C numeric conditions, F feature columns, K codes, M
categorical conditions, P pairs, Q decisions, R rows, X selected graphs.
Pairs are candidates of graphs, decisions those of rows of the encoder.
"""

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Shaped, UInt64
from torch import Tensor

from layerdag.models.base import SampleRequest
from layerdag.models.conditions import Conditions
from layerdag.models.draws import guided
from layerdag.models.fast.allowed_codes import AllowedCodes
from layerdag.models.fast.networks import FastNetworks
from layerdag.models.fast.tokens import ConditionVectors


@dataclass(frozen=True)
class Guidance:
    """Classifier-free guidance and temperature of one request."""

    weight: float  # of guidance; with 1 there are no unconditional rows
    temperature: float  # divides the logits

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


@dataclass(frozen=True, eq=False)
class CodeMasks:
    """The codes that nodes can have, by training and by the meaning of the codes."""

    allowed: AllowedCodes  # the attributes that go together in training graphs
    pairs_FF: Bool[Tensor, "F F"]  # codes that one node can have together
    graph_BF: Bool[Tensor, "B F"]  # codes of the nodes of each sample; the last row is padding

    def given(self, attribute: int, code_B: Int[Tensor, " B"]) -> Bool[Tensor, "B F"]:
        """Return what nodes with these codes of an attribute may have in all attributes."""
        return self.pairs_FF[self.allowed.starts[attribute] + code_B]


NODE_CANDIDATES = 8
"""Candidates for each node of a particle, of which one is kept."""


@dataclass(frozen=True, eq=False)
class SamplingTask:
    """A request with what the model knows of it."""

    modules: FastNetworks  # of the model
    request: SampleRequest  # what to sample
    guidance: Guidance  # of the request
    vectors: ConditionVectors  # of every sample, under guidance then without conditions
    masks: CodeMasks  # codes that the nodes of each sample can have
    seed_B: UInt64[np.ndarray, " B"]  # of each sample, then 0 for padding
    weighs: bool  # whether candidates are weighed by their neighbors
    options: int  # candidates for each node
    max_parents: int  # the largest in-degree that a node may have
    hold_every: int = 0  # nodes after which a row waits for the host; 0 is never

    @classmethod
    def of(cls, modules: FastNetworks, request: SampleRequest) -> "SamplingTask":
        """Return the task of sampling a request."""
        device, possible = modules.tokens.start_A.device, request.possible
        guidance = Guidance(request.guidance, request.temperature)
        numbers = (request.numeric_BC, request.category_BM, request.sizes_B2)
        conditions = Conditions(*(each.to(device) for each in numbers))
        if guidance.has_pairs:
            conditions = conditions.followed_by(conditions.unknown())
        pairs_FF = modules.allowed.allowed_FF
        graph_BF = pairs_FF.new_ones((len(request.seeds) + 1, pairs_FF.shape[0]))
        if possible is not None:
            pairs_FF = pairs_FF & possible.pairs_FF.to(device)
            graph_BF[:-1] = possible.graph_BF
        weighs = request.best_of > 1 and modules.neighbors.any_listed
        return cls(
            modules,
            request,
            guidance,
            modules.conditions(conditions),
            CodeMasks(modules.allowed, pairs_FF, graph_BF),
            np.array([*(seed % (1 << 64) for seed in request.seeds), 0], dtype=np.uint64),
            weighs,
            options=NODE_CANDIDATES if weighs else 1,
            max_parents=max(int(modules.constraints.max_parents_K.max()), 1),
        )


@dataclass(frozen=True)
class Extent:
    """For how much there is room."""

    rows: int  # graphs side by side
    tokens: int  # tokens of each, whole attention blocks
    edges: int
    block: int  # tokens of an attention block

    @property
    def pooled(self) -> int:
        """Attention blocks that can be seen as one mean: all but the newest two."""
        return max(self.tokens // self.block - 2, 0)


@dataclass(frozen=True, eq=False)
class RowNumbers:
    """Which rows belong together."""

    row_B: Int[Tensor, " B"]  # number of each graph's row
    row_R: Int[Tensor, " R"]  # number of each row of the encoder
    row_P: Int[Tensor, " P"]  # row of each candidate's graph
    row_Q: Int[Tensor, " Q"]  # row of the encoder of each candidate's states

    @classmethod
    def of(cls, task: SamplingTask, extent: Extent, device: torch.device) -> "RowNumbers":
        """Return the numbers of so many rows."""
        row_R = torch.arange(task.guidance.passes * extent.rows, device=device)
        row_Q = row_R.repeat_interleave(task.options)
        candidates = extent.rows * task.options
        return cls(row_R[: extent.rows], row_R, row_Q[:candidates], row_Q)


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
