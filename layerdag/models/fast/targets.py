"""A batch of training graphs as the targets of teacher forcing, made on the host.

Sizes that follow from the graphs, such as the number of candidate parents, are known before the
device begins a step, so that it never waits for the host to read one.

Shape letters: A node attributes, B graphs, E edges, F feature columns, G groups of rows, L layers,
N nodes, P pairs, Q decisions, R rows, T tokens, Z attention blocks, q selected decisions.
"""

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from layerdag.dag.dag import DAGBatch
from layerdag.models.fast.encoder import TokenGraphs
from layerdag.models.fast.layout import (
    NEVER,
    AttentionBlocks,
    BatchLayout,
    CandidatePairs,
    Edges,
    ParentDecisionRows,
)
from layerdag.models.fast.tokens import Feature, structural_features
from layerdag.models.fused import NUMBER, POINTER, structure
from layerdag.models.layers import CountEncoder
from layerdag.runtime.native import library

NOT_A_TARGET = -100
"""Code of a row that only pads a batch; cross entropy leaves it out (``ignore_index``)."""


_Candidates = structure(
    "_Candidates",
    ("edges", NUMBER),
    ("parent child reference low high layer out_degree block used last pending", POINTER),
    ("decision candidate codes far_decision far_block far_code softmax chosen stub", POINTER),
)


@dataclass(frozen=True, eq=False)
class TrainingCandidates:
    """Candidate parents of every decision of a batch.

    A parent is drawn among the tokens of the window and the older blocks; where a block is drawn,
    among the tokens inside it, too. Each draw is a softmax over its pairs: tokens of windows, then
    tokens inside blocks, then blocks.
    """

    tokens: CandidatePairs  # decisions (edges) and candidate tokens
    codes_P4: Int[Tensor, "P 4"]  # features of these tokens
    blocks: CandidatePairs  # decisions and candidate blocks
    block_codes_P: Int[Tensor, " _"]  # code of the pending children of these blocks
    softmax_P: Int[Tensor, " _"]  # softmax of each pair of tokens and of blocks, tokens first
    chosen_G: Int[Tensor, " G"]  # the pair that was chosen in each softmax
    padding_G: Float[Tensor, " G"]  # 1 for softmaxes that only pad a batch, else 0

    @classmethod
    def from_graphs(
        cls,
        layout: BatchLayout,
        edges: Edges,
        out_degree_T: Int[Tensor, " T"],
        blocks: AttentionBlocks,
        dynamic: bool,
    ) -> tuple["TrainingCandidates", Int[Tensor, " E"]]:
        """Return the candidates of all parents of a batch, and the stub code of each true parent.

        The pairs are written by a compiled kernel (``native/train/candidates.c``); features of
        tokens are all 0 unless they are ``dynamic``.
        """
        decisions = ParentDecisionRows.from_edges(layout, edges)
        low_3E, high_3E = _candidate_ranges(layout, edges, decisions, blocks)
        length_3E = (high_3E - low_3E).clamp(min=0)
        near, inside, far = length_3E.sum(1).tolist()
        count = edges.parent_E.shape[0]
        pairs, softmaxes = near + inside, count + int(length_3E[1].count_nonzero())
        found = cls(
            tokens=CandidatePairs(low_3E.new_empty(pairs), low_3E.new_empty(pairs)),
            codes_P4=low_3E.new_zeros(pairs, 4),
            blocks=CandidatePairs(low_3E.new_empty(far), low_3E.new_empty(far)),
            block_codes_P=low_3E.new_empty(far),
            softmax_P=low_3E.new_empty(pairs + far),
            chosen_G=low_3E.new_full((softmaxes,), NEVER),
            padding_G=torch.zeros(softmaxes),
        )
        stub_E = torch.empty_like(edges.parent_E)
        pending_Z = out_degree_T.new_zeros(blocks.num_blocks)
        columns = {
            "parent": edges.parent_E,
            "child": edges.child_E,
            "reference": decisions.reference_Q,
            "low": low_3E,
            "high": high_3E,
            "layer": layout.layer_T,
            "out_degree": out_degree_T,
            "block": blocks.of_T,
            # How things stand when the next child comes; the kernel updates them.
            "used": torch.zeros_like(out_degree_T),
            "last": torch.full_like(out_degree_T, NEVER),
            "pending": pending_Z.index_add(0, blocks.of_T, out_degree_T),
            # What the kernel writes.
            "decision": found.tokens.decision_P,
            "candidate": found.tokens.candidate_P,
            "far_decision": found.blocks.decision_P,
            "far_block": found.blocks.candidate_P,
            "far_code": found.block_codes_P,
            "softmax": found.softmax_P,
            "chosen": found.chosen_G,
            "stub": stub_E,
        }
        if dynamic:
            columns["codes"] = found.codes_P4
        addresses = {name: column.data_ptr() for name, column in columns.items()}
        given = _Candidates(edges=count, **addresses)
        library().train_candidates(ctypes.byref(given), ctypes.c_int64(near), ctypes.c_int64(pairs))
        return found, stub_E


def _candidate_ranges(
    layout: BatchLayout, edges: Edges, decisions: ParentDecisionRows, blocks: AttentionBlocks
) -> tuple[Tensor, Tensor]:
    """Return the first candidates of each decision, and one past the last ones.

    The rows are tokens of the window, tokens of the true parent's block if that is an older one,
    and older blocks.
    """
    parent_E, low_E, high_E = edges.parent_E, decisions.low_Q, decisions.high_Q
    seen_E = decisions.child_Q - 1
    far_end_E, own_E = blocks.of_T[seen_E] - 1, blocks.offset_T[seen_E]
    has_other_E = layout.position_T[seen_E] >= blocks.block  # a block before its own
    window_E = seen_E - own_E - blocks.block * has_other_E
    start_E = parent_E - blocks.offset_T[parent_E]
    inside_high_E = torch.minimum(high_E, start_E + blocks.block)
    low_3E = torch.stack(
        [torch.maximum(low_E, window_E), torch.maximum(low_E, start_E), blocks.of_T[low_E]]
    )
    high_3E = torch.stack(
        [
            high_E,
            inside_high_E.masked_fill(parent_E >= window_E, 0),
            torch.minimum(far_end_E, blocks.of_T[(high_E - 1).clamp(min=0)] + 1),
        ]
    )
    return low_3E, high_3E


@dataclass(frozen=True)
class CountCodes:
    """How counts are encoded; ``out_degree`` is None where out-degrees are not predicted."""

    layer_size: CountEncoder
    in_degree: CountEncoder
    out_degree: CountEncoder | None

    def slots(
        self, size: Int[Tensor, "*shape"], index: Int[Tensor, "*shape"]
    ) -> Int[Tensor, "*shape 3"]:
        """Return the codes of a place in a layer, shape (..., 3): size, index, nodes to come."""
        return self.layer_size.encode(torch.stack([size, index, size - index], dim=-1))


@dataclass(frozen=True, eq=False)
class ChosenCodes:
    """What every decision chose, as codes; ``NOT_A_TARGET`` in rows that only pad a batch.

    A count is drawn as a bin and then as one of the counts in it, all alike: the rest of -log p
    depends on no weight.
    """

    attribute_NA: Int[Tensor, "N A"]
    out_degree_N: Int[Tensor, " N"]  # out-degrees; zeros where they are not predicted
    degree_q: Int[Tensor, " q"]  # in-degrees of the nodes that have parents
    type_E: Int[Tensor, " E"]
    size_R: Int[Tensor, " R"]  # sizes of layers, then the ends of graphs
    # -log p of counts given their bins, summed: out-degrees, in-degrees, layer sizes
    inside_3: Float[Tensor, " 3"]


@dataclass(frozen=True, eq=False)
class Targets(TokenGraphs):
    """A batch of training graphs as the targets of teacher forcing, edges in order of decisions."""

    token_codes_TF: Int[Tensor, "T F"]  # codes of the encoder's input
    layer_T: Int[Tensor, " T"]  # layer of each token, 0 for start tokens
    bucket_T: Int[Tensor, " T"]  # position bucket of each token
    x_NA: Int[Tensor, "N A"]  # attribute codes
    token_N: Int[Tensor, " N"]
    slot_codes_N3: Int[Tensor, "N 3"]  # codes of each node's place in its layer
    first_stub_N: Int[Tensor, " N"]  # stub code of each node's first parent, 0 in layer 0
    in_degree_N: Int[Tensor, " N"]  # number of parents of each node
    degree_code_N: Int[Tensor, " N"]
    inner_q: Int[Tensor, " q"]  # nodes with parents
    first_q: Int[Tensor, " q"]  # edge to the first parent of each of them
    node_E: Int[Tensor, " E"]  # node of the target
    rank_E: Int[Tensor, " E"]  # 0 for a child's first parent, 1 for its second, ...
    open_code_E: Int[Tensor, " E"]  # code of the number of parents that follow
    size_token_R: Int[Tensor, " R"]  # token before each layer, then the last of each graph
    opens_graph_R: Bool[Tensor, " R"]  # which of these layers are the first of a graph
    candidates: TrainingCandidates  # candidate parents
    chosen: ChosenCodes  # what was chosen
    counts: Mapping[str, float]  # decisions by objective

    @classmethod
    def from_batch(
        cls,
        batch: DAGBatch,
        block: int,
        encode: Callable[[Tensor, Tensor], Tensor],
        bucket: Callable[[Tensor], Tensor],
        dynamic: bool,
        count_codes: CountCodes,
    ) -> "Targets":
        """Return the targets of a batch that lies on the host.

        ``encode`` returns the encoder's input, ``bucket`` the position buckets.
        """
        layout = BatchLayout.from_batch(batch)
        edges = Edges.from_batch(batch, layout)
        out_degree_T = edges.out_degree_T
        if count_codes.out_degree is None:
            out_degree_T = torch.zeros_like(out_degree_T)
        features_TF = structural_features(layout, edges, out_degree_T)
        position_T = features_TF[:, Feature.POSITION].contiguous()
        blocks = AttentionBlocks.from_layout(layout, block)
        first_q = (edges.rank_E == 0).nonzero()[:, 0]
        inner_q = edges.node_E[first_q]
        candidates, stub_E = TrainingCandidates.from_graphs(
            layout, edges, out_degree_T, blocks, dynamic
        )
        first_stub_N = torch.zeros_like(edges.in_degree_N)
        first_stub_N[inner_q] = stub_E[first_q]
        size_token_R = torch.cat([layout.first_token_L, layout.end_B]) - 1
        token_N, in_degree = layout.token_N, count_codes.in_degree
        return cls(
            token_codes_TF=encode(batch.x_NA, features_TF),
            graph_T=layout.graph_T,
            position_T=position_T,
            layer_T=features_TF[:, Feature.LAYER].contiguous(),
            bucket_T=bucket(position_T),
            in_degree_T=features_TF[:, Feature.DEGREE].contiguous(),
            blocks=blocks,
            x_NA=batch.x_NA,
            token_N=token_N,
            slot_codes_N3=count_codes.slots(layout.size_T[token_N], layout.index_T[token_N]),
            first_stub_N=first_stub_N,
            in_degree_N=edges.in_degree_N,
            degree_code_N=in_degree.encode(edges.in_degree_N),
            inner_q=inner_q,
            first_q=first_q,
            parent_E=edges.parent_E,
            child_E=edges.child_E,
            node_E=edges.node_E,
            rank_E=edges.rank_E,
            open_code_E=in_degree.encode(edges.degree_E - edges.rank_E - 1),
            size_token_R=size_token_R,
            opens_graph_R=layout.layer_T[size_token_R] < 0,
            candidates=candidates,
            chosen=_chosen_codes(batch.x_NA, layout, edges, inner_q, out_degree_T, count_codes),
            counts={
                "layer_size": float(size_token_R.shape[0]),
                "node": float(batch.num_nodes),
                "edge": float(batch.num_nodes),
                "condition": float(batch.num_graphs),
            },
        )


def _chosen_codes(
    x_NA: Tensor,
    layout: BatchLayout,
    edges: Edges,
    inner_q: Tensor,
    out_degree_T: Tensor,
    count_codes: CountCodes,
) -> ChosenCodes:
    size_R = torch.cat([layout.layer_size_L, torch.zeros_like(layout.end_B)])
    degree_q, out_degree_N = edges.in_degree_N[inner_q], out_degree_T[layout.token_N]
    counted = (
        (count_codes.out_degree, out_degree_N),
        (count_codes.in_degree, degree_q),
        (count_codes.layer_size, size_R),
    )
    zero = torch.zeros(())
    inside = [zero if counter is None else counter.inside(count) for counter, count in counted]
    out_degree = count_codes.out_degree
    return ChosenCodes(
        attribute_NA=x_NA,
        out_degree_N=out_degree_N if out_degree is None else out_degree.encode(out_degree_N),
        degree_q=count_codes.in_degree.encode(degree_q),
        type_E=edges.type_E,
        size_R=count_codes.layer_size.encode(size_R),
        inside_3=torch.stack(inside),
    )
