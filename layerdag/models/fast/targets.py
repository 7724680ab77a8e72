"""A batch of training graphs as the targets of teacher forcing, made on the host.

Sizes that follow from the graphs, such as the number of candidate parents, are known before the
device begins a step, so that it never waits for the host to read one.

Shape letters: A node attributes, B graphs, E edges, F feature columns, G groups of rows, L layers,
N nodes, P pairs, Q decisions, R rows, T tokens, Z attention blocks, q selected decisions.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from layerdag.dag.dag import DAGBatch
from layerdag.models.fast.layout import (
    NEVER,
    AttentionBlocks,
    BatchLayout,
    CandidatePairs,
    Edges,
    ParentDecisionRows,
    ParentHistory,
    TokenCodes,
    log_code,
    split_ranges,
    stub_code,
)
from layerdag.models.fast.tokens import StructuralFeatures
from layerdag.models.layers import CountEncoder

NOT_A_TARGET = -100
"""Code of a row that only pads a batch; cross entropy leaves it out (``ignore_index``)."""


@dataclass(frozen=True, eq=False)
class TrainingCandidates:
    """Candidate parents of every decision of a batch.

    A parent is drawn among the tokens of the window and the older blocks; where a block is drawn,
    among the tokens inside it, too. Each draw is a softmax over its pairs: tokens of windows, then
    tokens inside blocks, then blocks.

    Attributes:
        tokens: Decisions (edges) and candidate tokens.
        codes_P4: Features of these tokens.
        blocks: Decisions and candidate blocks.
        block_codes_P: Code of the pending children of these blocks.
        softmax_P: Softmax of each pair of tokens and of blocks, tokens first.
        chosen_G: The pair that was chosen in each softmax.
        padding_G: 1 for softmaxes (groups of pairs) that only pad a batch, else 0.
    """

    tokens: CandidatePairs
    codes_P4: Int[Tensor, "P 4"]
    blocks: CandidatePairs
    block_codes_P: Int[Tensor, " _"]
    softmax_P: Int[Tensor, " _"]
    chosen_G: Int[Tensor, " G"]
    padding_G: Float[Tensor, " G"]

    @classmethod
    def from_graphs(
        cls,
        layout: BatchLayout,
        edges: Edges,
        out_degree_T: Int[Tensor, " T"],
        blocks: AttentionBlocks,
        token_codes: TokenCodes,
    ) -> "TrainingCandidates":
        """Return the candidates of all parents of a batch; ``out_degree_T`` is predicted."""
        decisions = ParentDecisionRows.from_edges(layout, edges)
        parent_E, low_E, high_E = edges.parent_E, decisions.low_Q, decisions.high_Q
        window_E, far_end_E = split_ranges(decisions, layout, blocks)
        near = CandidatePairs.ranges(torch.maximum(low_E, window_E), high_E)
        far_high_E = torch.minimum(far_end_E, blocks.of_T[(high_E - 1).clamp(min=0)] + 1)
        far = CandidatePairs.ranges(blocks.of_T[low_E], far_high_E)
        is_far_E = parent_E < window_E
        far_q = is_far_E.nonzero()[:, 0]
        start_q = parent_E[far_q] - blocks.offset_T[parent_E[far_q]]
        inside = CandidatePairs.ranges(
            torch.maximum(low_E[far_q], start_q),
            torch.minimum(high_E[far_q], start_q + blocks.block),
        )
        near_target_E = parent_E.masked_fill(is_far_E, NEVER)
        far_target_E = blocks.of_T[parent_E].masked_fill(~is_far_E, NEVER)
        tokens = CandidatePairs(
            torch.cat([near.decision_P, far_q[inside.decision_P]]),
            torch.cat([near.candidate_P, inside.candidate_P]),
        )
        count = parent_E.shape[0]
        softmax_P = torch.cat([near.decision_P, count + inside.decision_P, far.decision_P])
        is_chosen_P = torch.cat(
            [
                near.candidate_P == near_target_E[near.decision_P],
                inside.candidate_P == parent_E[far_q[inside.decision_P]],
                far.candidate_P == far_target_E[far.decision_P],
            ]
        )
        pair_G = is_chosen_P.nonzero()[:, 0]
        chosen_G = torch.empty_like(pair_G).index_copy(0, softmax_P[pair_G], pair_G)
        return cls(
            tokens=tokens,
            codes_P4=_token_codes(layout, edges, out_degree_T, decisions, tokens, token_codes),
            blocks=far,
            block_codes_P=_block_codes(edges, out_degree_T, decisions, far, blocks),
            softmax_P=softmax_P,
            chosen_G=chosen_G,
            padding_G=torch.zeros(chosen_G.shape),
        )


def _token_codes(
    layout: BatchLayout,
    edges: Edges,
    out_degree_T: Int[Tensor, " T"],
    decisions: ParentDecisionRows,
    pairs: CandidatePairs,
    token_codes: TokenCodes,
) -> Int[Tensor, "P 4"]:
    """Return the features of candidate tokens at the time of each decision."""
    layer_T, candidate_P = layout.layer_T.clamp(min=0), pairs.candidate_P
    child_P = decisions.child_Q[pairs.decision_P]
    reference_P = decisions.reference_Q[pairs.decision_P]
    uses = ParentHistory(edges.parent_E, edges.child_E, layout.num_tokens, layout.num_tokens)
    used_P, last_P = uses.before(candidate_P, child_P)
    return token_codes(
        stub_code(used_P, out_degree_T[candidate_P]),
        candidate_P - reference_P,
        reference_P != NEVER,
        (child_P - last_P) * (last_P != NEVER),
        layer_T[child_P] - layer_T[candidate_P],
    )


def _block_codes(
    edges: Edges,
    out_degree_T: Int[Tensor, " T"],
    decisions: ParentDecisionRows,
    pairs: CandidatePairs,
    blocks: AttentionBlocks,
) -> Int[Tensor, " P"]:
    """Return the code of the pending children of candidate blocks at the time of each decision."""
    parent_E = blocks.of_T[edges.parent_E]
    uses = ParentHistory(parent_E, edges.child_E, blocks.num_blocks, out_degree_T.shape[0])
    used_P, _ = uses.before(pairs.candidate_P, decisions.child_Q[pairs.decision_P])
    out_degree_Z = torch.zeros_like(out_degree_T[:1]).new_zeros(blocks.num_blocks)
    out_degree_Z = out_degree_Z.index_add(0, blocks.of_T, out_degree_T)
    return log_code((out_degree_Z[pairs.candidate_P] - used_P).clamp(min=0))


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

    Attributes:
        attribute_NA: Attributes.
        out_degree_N: Out-degrees; zeros where they are not predicted.
        degree_q: In-degrees of the nodes that have parents.
        type_E: Edge types.
        size_R: Sizes of layers, then the ends of graphs.
        inside_3: -log p of counts given their bins, summed: out-degrees, in-degrees, layer sizes.
    """

    attribute_NA: Int[Tensor, "N A"]
    out_degree_N: Int[Tensor, " N"]
    degree_q: Int[Tensor, " q"]
    type_E: Int[Tensor, " E"]
    size_R: Int[Tensor, " R"]
    inside_3: Float[Tensor, " 3"]


@dataclass(frozen=True, eq=False)
class Targets:
    """A batch of training graphs as the targets of teacher forcing.

    Attributes:
        token_codes_TF: Codes of the encoder's input.
        graph_T: Graph of each token.
        position_T: Position of each token in its graph; 0 is the start token.
        layer_T: Layer of each token, 0 for start tokens.
        bucket_T: Position bucket of each token.
        in_degree_T: Number of parents of each token.
        blocks: Attention blocks.
        x_NA: Attribute codes.
        token_N: Token of each node.
        slot_codes_N3: Codes of each node's place in its layer.
        first_stub_N: Stub code of each node's first parent, 0 in layer 0.
        in_degree_N: Number of parents of each node.
        degree_code_N: Its code.
        inner_q: Nodes with parents.
        first_q: Edge to the first parent of each of them.
        parent_E: Token of the source of each edge, in the order of decisions.
        child_E: Token of the target.
        node_E: Node of the target.
        rank_E: 0 for a child's first parent, 1 for its second, ...
        open_code_E: Code of the number of parents that follow.
        size_token_R: Token after which each layer begins, then the last token of each graph.
        opens_graph_R: Which of these layers are the first of a graph.
        candidates: Candidate parents.
        chosen: What was chosen.
        counts: Decisions by objective.
    """

    token_codes_TF: Int[Tensor, "T F"]
    graph_T: Int[Tensor, " T"]
    position_T: Int[Tensor, " T"]
    layer_T: Int[Tensor, " T"]
    bucket_T: Int[Tensor, " T"]
    in_degree_T: Int[Tensor, " T"]
    blocks: AttentionBlocks
    x_NA: Int[Tensor, "N A"]
    token_N: Int[Tensor, " N"]
    slot_codes_N3: Int[Tensor, "N 3"]
    first_stub_N: Int[Tensor, " N"]
    in_degree_N: Int[Tensor, " N"]
    degree_code_N: Int[Tensor, " N"]
    inner_q: Int[Tensor, " q"]
    first_q: Int[Tensor, " q"]
    parent_E: Int[Tensor, " E"]
    child_E: Int[Tensor, " E"]
    node_E: Int[Tensor, " E"]
    rank_E: Int[Tensor, " E"]
    open_code_E: Int[Tensor, " E"]
    size_token_R: Int[Tensor, " R"]
    opens_graph_R: Bool[Tensor, " R"]
    candidates: TrainingCandidates
    chosen: ChosenCodes
    counts: Mapping[str, float]

    @classmethod
    def from_batch(
        cls,
        batch: DAGBatch,
        block: int,
        encode: Callable[[Tensor, StructuralFeatures], Tensor],
        bucket: Callable[[Tensor], Tensor],
        token_codes: TokenCodes,
        count_codes: CountCodes,
        out_degree_N: Int[Tensor, " N"] | None = None,
    ) -> "Targets":
        """Return the targets of a batch that lies on the host.

        Args:
            batch: The graphs.
            block: Tokens of an attention block.
            encode: Codes of the encoder's input from attributes of nodes and structure.
            bucket: Position buckets of positions.
            token_codes: Features of candidate parents.
            count_codes: Codes of counts.
            out_degree_N: Predicted out-degrees; None: those of the graphs.
        """
        layout = BatchLayout.from_batch(batch)
        edges = Edges.from_batch(batch, layout)
        out_degree_T = edges.out_degree_T
        if out_degree_N is not None:
            out_degree_T = out_degree_T.index_copy(0, layout.token_N, out_degree_N)
        if count_codes.out_degree is None:
            out_degree_T = torch.zeros_like(out_degree_T)
        structure = StructuralFeatures.from_layout(layout, edges, out_degree_T)
        blocks = AttentionBlocks.from_layout(layout, block)
        first_q = (edges.rank_E == 0).nonzero()[:, 0]
        inner_q, parent_q = edges.node_E[first_q], edges.parent_E[first_q]
        uses = ParentHistory(edges.parent_E, edges.child_E, layout.num_tokens, layout.num_tokens)
        used_q, _ = uses.before(parent_q, edges.child_E[first_q])
        first_stub_N = torch.zeros_like(edges.in_degree_N)
        first_stub_N[inner_q] = stub_code(used_q, out_degree_T[parent_q])
        size_token_R = torch.cat([layout.first_token_L, layout.end_B]) - 1
        token_N, in_degree = layout.token_N, count_codes.in_degree
        return cls(
            token_codes_TF=encode(batch.x_NA, structure),
            graph_T=layout.graph_T,
            position_T=structure.position_T,
            layer_T=structure.layer_T,
            bucket_T=bucket(structure.position_T),
            in_degree_T=structure.degree_T,
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
            candidates=TrainingCandidates.from_graphs(
                layout, edges, out_degree_T, blocks, token_codes
            ),
            chosen=_chosen_codes(batch.x_NA, layout, edges, inner_q, out_degree_T, count_codes),
            counts={
                "layer_size": float(size_token_R.shape[0]),
                "node": float(batch.num_nodes),
                "edge": float(batch.num_nodes),
                "condition": float(batch.num_graphs),
            },
        )


def _chosen_codes(
    x_NA: Int[Tensor, "N A"],
    layout: BatchLayout,
    edges: Edges,
    inner_q: Int[Tensor, " q"],
    out_degree_T: Int[Tensor, " T"],
    count_codes: CountCodes,
) -> ChosenCodes:
    """Return what every decision of a batch chose."""
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
