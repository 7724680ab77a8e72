"""What both samplers take from a model and a request.

``CompiledSampler`` draws in C between matrix products, on a processor and in single precision,
``TensorSampler`` in torch, elsewhere. Decisions, their order and their uniforms are the same.

Under guidance every graph has two rows of the encoder, a conditional and an unconditional one,
which share the discrete decisions. Here, as in ``TensorSampler``, the first half of all rows is
conditional; in ``CompiledSampler`` both rows of a graph follow each other.

Shape letters: B graphs, C numeric conditions, F feature columns, K codes, M categorical
conditions, R rows, X selected graphs.
"""

from dataclasses import dataclass
from enum import IntEnum

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor, nn

from layerdag.models.base import JointCodeMasks, SampleRequest
from layerdag.models.conditions import Conditions
from layerdag.models.draws import guided
from layerdag.models.fast.allowed_codes import AllowedCodes
from layerdag.models.fast.decisions import Heads
from layerdag.models.fast.degree_constraints import DegreeConstraints
from layerdag.models.fast.edge_type_sets import EdgeTypeSets
from layerdag.models.fast.encoder import Encoder
from layerdag.models.fast.neighbor_kinds import NeighborKinds
from layerdag.models.fast.tokens import (
    ConditionEncoder,
    ConditionVectors,
    RemainingSizes,
    TokenEmbedding,
)


@dataclass(frozen=True, eq=False)
class SamplerModules:
    """The modules of a model that sampling needs."""

    tokens: TokenEmbedding  # token embedding
    conditions: ConditionEncoder  # encoder of the conditions
    # encoder of the nodes and layers still to come; None in a model without
    remaining: RemainingSizes | None
    encoder: Encoder  # the causal encoder
    last_norm: nn.LayerNorm  # normalization of the encoder's output
    heads: Heads  # readouts
    constraints: DegreeConstraints  # constraints taken from the training graphs
    neighbors: NeighborKinds  # the parents and children that training graphs have
    allowed: AllowedCodes  # the attributes that go together in training graphs
    type_sets: EdgeTypeSets  # the edge types that do
    block: int  # number of tokens per attention block


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
    """The codes that nodes can have, by training and by the meaning of the codes."""

    allowed: AllowedCodes  # the attributes that go together in training graphs
    pairs_FF: Bool[Tensor, "F F"]  # codes that one node can have together
    # codes that the nodes of each sample can have; the last row is for padding
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
