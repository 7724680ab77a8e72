"""What sampling in torch remembers of graphs, of their tokens and of candidates.

All tensors have their shapes before the first node is drawn, so that the work of every round
touches the same addresses and can be recorded once and repeated. Where a row has nothing to write,
it writes to a last column that nobody reads.

Shape letters: A node attributes, B graphs, D width of a state, E edges, F feature columns, K codes,
P pairs, Q decisions, R rows, T tokens, U uniforms, X selected graphs, Z attention blocks, d width
of a head or key, p parents of a node.
Pairs are candidates of graphs, decisions those of rows of the encoder.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import IntEnum
from typing import TypeVar

import torch
from jaxtyping import Bool, Float, Float64, Int
from torch import Tensor

from layerdag.dag.dag import tensors_of
from layerdag.models.fast.layout import NEVER
from layerdag.models.fast.networks import FastNetworks
from layerdag.models.fast.sampling_inputs import Extent
from layerdag.models.fast.tokens import Feature

Rows = TypeVar("Rows", "GraphRows", "TokenRows", "CandidateRows")


class Phase(IntEnum):
    """What a row does next."""

    IDLE = 0
    """Nothing: its graph is finished, or it has none."""

    READY = 1
    """Starts its next node."""

    OPEN = 2
    """Draws parents of the candidates for its newest node."""


class Node(IntEnum):
    """Columns of what later decisions see of a node.

    Predicted children, children so far, how many more it may have, its last child, its layer, its
    kind, the state of its children (``KindAutomaton``), hashes of its ancestry (``particles``).
    """

    OUT_DEGREE = 0
    USED = 1
    ROOM = 2
    LAST = 3
    LAYER = 4
    KIND = 5
    CHILDREN = 6
    COLOR_0 = 7
    COLOR_1 = 8


@dataclass(frozen=True, eq=False)
class GraphRows:
    """One row per graph that is drawn."""

    sample_B: Int[Tensor, " B"]  # index of its sample
    seed_B: Int[Tensor, " B"]  # seed of its sample
    phase_B: Int[Tensor, " B"]
    # Whether a row that is ready waits until the host lets it go on. Until then it encodes the same
    # token in every round.
    held_B: Bool[Tensor, " B"]
    valid_B: Bool[Tensor, " B"]  # whether it can still become valid
    may_end_B: Bool[Tensor, " B"]  # whether it may end after its newest node
    truncated_B: Bool[Tensor, " B"]  # whether a limit ended it
    feature_BF: Int[Tensor, "B F"]  # structural features of the newest token (``Feature``)
    layer_start_B: Int[Tensor, " B"]  # first position of the newest token's layer
    before_start_B: Int[Tensor, " B"]  # first position of the layer before
    sibling_B: Int[Tensor, " B"]  # first parent of the newest node, ``NEVER`` without one
    parent_Bp: Int[Tensor, "B p"]  # parents of the newest node, then zeros
    type_Bp: Int[Tensor, "B p"]  # types of the edges from these
    code_BA: Int[Tensor, "B A"]  # attribute codes of the newest token
    log_weight_B: Float[Tensor, " B"]  # since the last resampling, nats
    edges_B: Int[Tensor, " B"]
    node_BTF: Int[Tensor, "B T _"]  # what later decisions see of each node (``Node``)
    ancestry_BT: Int[Tensor, "B T"]  # hash of each node's ancestry
    x_BTA: Int[Tensor, "B T A"]  # attribute codes of each node
    parent_BE: Int[Tensor, "B E"]  # position of the parent of each edge
    child_BE: Int[Tensor, "B E"]  # position of its child
    type_BE: Int[Tensor, "B E"]

    @classmethod
    def idle(cls, modules: FastNetworks, extent: Extent, parents: int) -> "GraphRows":
        """Return rows without graphs."""
        start_A, rows = modules.tokens.start_A, extent.rows
        sizes = {
            "B": rows,
            "T": extent.tokens + 1,
            "E": extent.edges + 1,
            "p": parents,
            "A": start_A.shape[0],
        }
        no_B = start_A.new_zeros(rows, dtype=torch.bool)
        return _zeros(
            cls,
            sizes,
            start_A,
            held_B=no_B.clone(),
            valid_B=~no_B,
            may_end_B=~no_B,
            truncated_B=no_B.clone(),
            feature_BF=start_A.new_zeros((rows, len(Feature))),
            code_BA=start_A.expand(rows, -1).clone(),
            log_weight_B=torch.zeros(rows, device=start_A.device),
            node_BTF=start_A.new_zeros((rows, sizes["T"], len(Node))),
        )

    def start(
        self,
        row_X: Int[Tensor, " X"],
        sample_X: Int[Tensor, " X"],
        seed_X: Int[Tensor, " X"],
        start_A: Int[Tensor, " A"],
    ) -> None:
        """Start the graphs of the samples ``sample_X`` in the rows ``row_X``."""
        self.sample_B[row_X], self.seed_B[row_X] = sample_X, seed_X
        self.phase_B[row_X] = int(Phase.READY)
        for flag_B, value in (
            (self.held_B, False),
            (self.valid_B, True),
            (self.may_end_B, True),
            (self.truncated_B, False),
        ):
            flag_B[row_X] = value
        for number_B, start in (
            (self.layer_start_B, 1),
            (self.before_start_B, 1),
            (self.sibling_B, NEVER),
            (self.log_weight_B, 0),
            (self.edges_B, 0),
        ):
            number_B[row_X] = start
        self.parent_Bp[row_X] = 0
        self.code_BA[row_X] = start_A
        self.feature_BF[row_X] = 0
        self.feature_BF[row_X, Feature.SIZE] = 1
        self.node_BTF[row_X, 0] = 0


@dataclass(frozen=True, eq=False)
class TokenRows:
    """One row per graph, or two under guidance: what decisions on parents keep of tokens."""

    key_RTd: Float[Tensor, "R T d"]  # keys of tokens as parents
    block_key_RZd: Float[Tensor, "R Z d"]  # their means over attention blocks
    projection_RTK: Float[Tensor, "R T _"]  # what tokens add to states as parents

    @classmethod
    def empty(
        cls, modules: FastNetworks, extent: Extent, rows: int, projections: int
    ) -> "TokenRows":
        """Return rows without tokens."""
        key_width = modules.heads.pointer.key.out_features
        blocks = extent.tokens // extent.block
        sizes = {"R": rows, "T": extent.tokens, "Z": blocks, "d": key_width, "K": projections}
        return _zeros(cls, sizes, modules.heads.context.weight)

    def pool(self) -> None:
        """Average over the first two attention blocks, which was left out while there were no more.

        Means of a block that is not complete are written again before they are read.
        """
        blocks = self.block_key_RZd.shape[1]
        self.block_key_RZd.copy_(self.key_RTd.unflatten(1, (blocks, -1)).mean(2))


@dataclass(frozen=True, eq=False)
class CandidateRows:
    """Candidates for the newest node of each row, the same number for each."""

    word_P: Int[Tensor, " P"]  # hash of its seed and position (``position_words``)
    uniform_PU: Float64[Tensor, "P U"]  # of the decisions of every node, then of the choice
    rank_P: Int[Tensor, " P"]  # number of parents that are settled
    first_P: Int[Tensor, " P"]  # first parent, 0 in layer 0
    kind_P: Int[Tensor, " P"]
    degree_P: Int[Tensor, " P"]
    type_state_P: Int[Tensor, " P"]  # state of the edge types drawn so far (``EdgeTypeSets``)
    last_P: Int[Tensor, " P"]  # parent chosen last
    parent_Pp: Int[Tensor, "P p"]  # parents; the last column is for those that are none
    type_Pp: Int[Tensor, "P p"]  # types of the edges from these
    kind_state_QD: Float[Tensor, "Q D"]  # states before the in-degree
    total_QD: Float[Tensor, "Q D"]  # what the parents add to states of further attributes
    chosen_QD: Float[Tensor, "Q D"]  # sum of what the parents add to the states of the next parent
    weight_P: Float[Tensor, " P"]  # log weight without the parents' own, nats
    parents_state_P: Int[Tensor, " P"]  # state of the parents' kinds so far (``KindAutomaton``)
    color_P2: Int[Tensor, "P 2"]  # sums of the parents' scrambled hashes at radius 0 and 1

    @classmethod
    def empty(
        cls, modules: FastNetworks, candidates: int, states: int, parents: int, uniforms: int
    ) -> "CandidateRows":
        """Return rows in which nothing is drawn; arguments are numbers of rows and columns."""
        start_A, weight = modules.tokens.start_A, modules.heads.context.weight
        sizes = {"P": candidates, "p": parents + 1, "2": 2}
        state_QD = weight.new_zeros((states, weight.shape[0]))
        return _zeros(
            cls,
            sizes,
            start_A,
            uniform_PU=start_A.new_zeros((candidates, uniforms), dtype=torch.float64),
            kind_state_QD=state_QD.clone(),
            total_QD=state_QD.clone(),
            chosen_QD=state_QD.clone(),
            weight_P=torch.zeros(candidates, device=start_A.device),
        )


def _zeros(kind: type[Rows], sizes: Mapping[str, int], like: Tensor, **given: Tensor) -> Rows:
    """Return rows of zeros of the shapes that the letters in their names say, but those given."""
    for name in (field.name for field in fields(kind) if field.name not in given):
        shape = [sizes[letter] for letter in name.rpartition("_")[2]]
        given[name] = like.new_zeros(shape)
    return kind(**given)


def copy_rows(rows: Rows, target_X: Int[Tensor, " X"], source_X: Int[Tensor, " X"]) -> None:
    """Replace the rows ``target_X`` by the rows ``source_X``."""
    for values in tensors_of(rows):
        values[target_X] = values[source_X]


def move_rows(
    rows: Rows, to: Rows, row_X: Int[Tensor, " X"], state_X: Int[Tensor, " X"] | None = None
) -> None:
    """Write the rows ``row_X`` into the first ones of ``to``, which may have room for more.

    The last column of graphs' tokens and edges, which nobody reads, goes along to where it is
    written over before it is read. ``state_X`` are the rows of states, where there are more of
    these than of the rest.
    """
    for name in (field.name for field in fields(rows)):
        kept_X = state_X if state_X is not None and name.endswith("_QD") else row_X
        kept = getattr(rows, name)[kept_X]
        getattr(to, name)[tuple(slice(size) for size in kept.shape)] = kept
