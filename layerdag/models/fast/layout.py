"""Layout of a batch: tokens, layers, attention blocks, edges, and the candidate parents of a node.

A graph becomes a sequence of tokens: a start token, then its nodes in layer order. The tokens of a
batch are concatenated without padding; only attention works on padded blocks of ``block``
consecutive tokens of one graph.

A parent is chosen from an interval of earlier tokens: the first parent from the layer before, every
further one from the tokens before the parent chosen last. Tokens in the attention window of the
decision are candidates; older tokens are grouped into blocks, and a second decision selects the
token inside the block. So there are at most two blocks of candidate tokens plus one candidate per
older block, and every earlier node can still be reached.

A pending child of a node is a *stub* (half-edge), as in the configuration model of random graphs.

Shape letters: B graphs, E edges, K codes, L layers, N nodes, P pairs, Q decisions, T tokens, Z
attention blocks, b tokens of a block, w window, z pooled blocks.
"""

from dataclasses import dataclass
from functools import lru_cache

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from layerdag.dag.dag import DAGBatch


@dataclass(frozen=True, eq=False)
class BatchLayout:
    """Positions of tokens and layers; every index counts through the whole batch."""

    graph_T: Int[Tensor, " T"]
    start_B: Int[Tensor, " B"]  # start token of each graph
    end_B: Int[Tensor, " B"]  # one past the last token of each graph
    token_N: Int[Tensor, " N"]
    layer_T: Int[Tensor, " T"]  # layer of each token, -1 for start tokens
    index_T: Int[Tensor, " T"]  # position of a token inside its layer, 0 for start tokens
    size_T: Int[Tensor, " T"]  # number of nodes of the token's layer, 1 for start tokens
    layer_start_N: Int[Tensor, " N"]  # first token of each node's layer
    parent_start_N: Int[Tensor, " N"]  # first token of the layer before; unused in layer 0
    first_token_L: Int[Tensor, " L"]  # first token of each layer of the batch
    layer_size_L: Int[Tensor, " L"]  # number of nodes of each layer

    @classmethod
    def from_batch(cls, batch: DAGBatch) -> "BatchLayout":
        """Return the layout of ``batch``, whose nodes must be in layer order."""
        graph_N = batch.graph_of_node()
        device = graph_N.device
        token_N = torch.arange(batch.num_nodes, device=device) + graph_N + 1
        number_B = torch.arange(batch.num_graphs, device=device)
        start_B = batch.node_ptr[:-1] + number_B
        num_tokens = batch.num_nodes + batch.num_graphs
        opens_N = torch.ones(batch.num_nodes, dtype=torch.bool, device=device)
        opens_N[1:] = (batch.layer_N.diff() != 0) | (graph_N.diff() != 0)
        first_L = opens_N.nonzero()[:, 0]
        end = torch.tensor([batch.num_nodes], device=device)
        layer_size_L = torch.cat([first_L, end]).diff()
        layer_of_N = opens_N.cumsum(0) - 1
        first_token_L = token_N[first_L]
        layer_T = torch.full((num_tokens,), -1, dtype=torch.int64, device=device)
        layer_T[token_N] = batch.layer_N
        index_T = torch.zeros_like(layer_T)
        index_T[token_N] = token_N - first_token_L[layer_of_N]
        size_T = torch.ones_like(layer_T)
        size_T[token_N] = layer_size_L[layer_of_N]
        return cls(
            graph_T=torch.zeros_like(layer_T)
            .index_put((start_B[1:],), torch.ones_like(start_B[1:]))
            .cumsum(0),
            start_B=start_B,
            end_B=batch.node_ptr[1:] + number_B + 1,
            token_N=token_N,
            layer_T=layer_T,
            index_T=index_T,
            size_T=size_T,
            layer_start_N=first_token_L[layer_of_N],
            parent_start_N=first_token_L[(layer_of_N - 1).clamp(min=0)],
            first_token_L=first_token_L,
            layer_size_L=layer_size_L,
        )

    @property
    def num_tokens(self) -> int:
        """Number of tokens of the batch, start tokens included."""
        return self.graph_T.shape[0]

    @property
    def position_T(self) -> Int[Tensor, " T"]:
        """Position of each token in its graph; 0 is the start token."""
        device = self.graph_T.device
        return torch.arange(self.num_tokens, device=device) - self.start_B[self.graph_T]


@dataclass(frozen=True, eq=False)
class AttentionWindow:
    """Padded blocks of queries with the tokens visible to them."""

    query_Zb: Int[Tensor, "Z b"]  # token of each slot, clamped behind the end of a graph
    key_Zw: Int[Tensor, "Z w"]  # tokens of the block's attention window, clamped likewise


_FAR_BLOCKS = 8
"""The number of means that later blocks see is a multiple of this; the extra ones are masked."""


@dataclass(frozen=True, eq=False)
class AttentionBlocks:
    """Blocks of consecutive tokens: attention covers the own block, the one before, pooled ones.

    First blocks of graphs have no block before them and are stored separately, with windows as wide
    as the longest graph of the batch needs: small graphs cost little.
    """

    block: int  # number of tokens per block
    of_T: Int[Tensor, " T"]  # block of each token
    offset_T: Int[Tensor, " T"]  # position of each token in its block
    slot_T: Int[Tensor, " T"]  # row of each token among the padded slots, first blocks first
    first: AttentionWindow  # windows of the first block of each graph: the block itself
    later: AttentionWindow  # windows of all other blocks: the block before and the block itself
    pooled_Zz: Int[Tensor, "Z z"]  # blocks that a later one sees as means: all but the last two
    pooled_valid_Zz: Bool[Tensor, "Z z"]  # which of these exist

    @classmethod
    def from_layout(cls, layout: BatchLayout, block: int) -> "AttentionBlocks":
        """Split the tokens of every graph into blocks."""
        device = layout.graph_T.device
        length_B = layout.end_B - layout.start_B
        blocks_B = (length_B + block - 1) // block
        first_B = blocks_B.cumsum(0) - blocks_B
        later_B = first_B - torch.arange(first_B.shape[0], device=device)
        graph_Z = torch.repeat_interleave(blocks_B - 1)
        local_Z = torch.arange(graph_Z.shape[0], device=device) - later_B[graph_Z] + 1
        start_Z = layout.start_B[graph_Z] + local_Z * block
        position_T, graph_T = layout.position_T, layout.graph_T
        local_T, offset_T = position_T // block, position_T % block
        longest = int(length_B.max())
        width = min(longest, block)
        later_T = later_B[graph_T] + local_T - 1
        # Products of few different shapes are compiled less often (``layers.Linear``).
        far = -(-max((longest - 1) // block - 1, 0) // _FAR_BLOCKS) * _FAR_BLOCKS
        far_z = torch.arange(far, device=device)
        tokens_w = torch.arange(-block, block, device=device)
        slot_T = torch.where(
            local_T == 0,
            graph_T * width + offset_T,
            length_B.shape[0] * width + later_T * block + offset_T,
        )
        last = layout.num_tokens - 1
        own_Bw = (layout.start_B[:, None] + tokens_w[block : block + width]).clamp(max=last)
        near_Zw = (start_Z[:, None] + tokens_w).clamp(max=last)
        return cls(
            block=block,
            of_T=first_B[graph_T] + local_T,
            offset_T=offset_T,
            slot_T=slot_T,
            first=AttentionWindow(own_Bw, own_Bw),
            later=AttentionWindow(near_Zw[:, block:], near_Zw),
            pooled_Zz=(first_B[graph_Z, None] + far_z).clamp(max=first_B[-1] + blocks_B[-1] - 1),
            pooled_valid_Zz=far_z < local_Z[:, None] - 1,
        )

    @property
    def num_blocks(self) -> int:
        """Number of blocks of the batch."""
        return self.first.query_Zb.shape[0] + self.later.query_Zb.shape[0]


@dataclass(frozen=True, eq=False)
class Edges:
    """Edges by child, the parents of a child in descending order: the order of their decisions.

    The first parent of a child is its last one in node order, which lies in the layer before.
    """

    parent_E: Int[Tensor, " E"]  # token of the source
    child_E: Int[Tensor, " E"]  # token of the target
    node_E: Int[Tensor, " E"]  # node of the target
    type_E: Int[Tensor, " E"]
    rank_E: Int[Tensor, " E"]  # 0 for a child's first parent, 1 for its second, ...
    degree_E: Int[Tensor, " E"]  # in-degree of the child
    in_degree_N: Int[Tensor, " N"]  # number of parents of each node
    out_degree_T: Int[Tensor, " T"]  # number of children of each token

    @classmethod
    def from_batch(cls, batch: DAGBatch, layout: BatchLayout) -> "Edges":
        """Sort the edges of ``batch`` by child, then by descending parent."""
        source_E, target_E = batch.edge_index_2E
        order_E = torch.argsort(target_E * batch.num_nodes - source_E)
        source_E, target_E = source_E[order_E], target_E[order_E]
        in_degree_N = torch.bincount(target_E, minlength=batch.num_nodes)
        first_N = in_degree_N.cumsum(0) - in_degree_N
        parent_E = layout.token_N[source_E]
        number_E = torch.arange(parent_E.shape[0], device=parent_E.device)
        return cls(
            parent_E=parent_E,
            child_E=layout.token_N[target_E],
            node_E=target_E,
            type_E=batch.edge_type_E[order_E],
            rank_E=number_E - first_N[target_E],
            degree_E=in_degree_N[target_E],
            in_degree_N=in_degree_N,
            out_degree_T=torch.bincount(parent_E, minlength=layout.num_tokens),
        )


STUB_CODES, OFFSET_CODES, GAP_CODES = 16, 10, 10
TOKEN_CODES = (STUB_CODES, OFFSET_CODES, GAP_CODES, GAP_CODES)
BLOCK_CODES = GAP_CODES
NEVER = -1


@dataclass(frozen=True, eq=False)
class ParentDecisionRows:
    """Decisions on one parent each, by token."""

    child_Q: Int[Tensor, " Q"]  # token that gets the parent
    low_Q: Int[Tensor, " Q"]  # first token that may be chosen
    high_Q: Int[Tensor, " Q"]  # one past the last token that may be chosen
    # Token to measure offsets from, ``NEVER`` for none: the parent chosen last for the same child,
    # or for a first parent that of the sibling before.
    reference_Q: Int[Tensor, " Q"]

    @classmethod
    def from_edges(cls, layout: BatchLayout, edges: Edges) -> "ParentDecisionRows":
        """Return the decision of each edge of a batch."""
        first_E = edges.rank_E == 0
        start_E = layout.start_B[layout.graph_T[edges.child_E]]
        before_E = torch.cat([edges.parent_E[:1], edges.parent_E[:-1]])
        sibling_T = torch.full((layout.num_tokens + 1,), NEVER, device=start_E.device)
        sibling_T[edges.child_E[first_E] + 1] = edges.parent_E[first_E]
        has_sibling_E = layout.index_T[edges.child_E] > 0
        sibling_E = sibling_T[edges.child_E].masked_fill(~has_sibling_E, NEVER)
        remaining_E = edges.degree_E - edges.rank_E
        return cls(
            child_Q=edges.child_E,
            low_Q=torch.where(first_E, layout.parent_start_N[edges.node_E], start_E + remaining_E),
            high_Q=torch.where(first_E, layout.layer_start_N[edges.node_E], before_E),
            reference_Q=torch.where(first_E, sibling_E, before_E),
        )


@dataclass(frozen=True, eq=False)
class CandidatePairs:
    """Candidate tokens or blocks of many decisions as one flat list of pairs."""

    decision_P: Int[Tensor, " P"]
    candidate_P: Int[Tensor, " P"]  # candidate token or block


def log_code(count: Int[Tensor, "*shape"]) -> Int[Tensor, "*shape"]:
    """Return 0, 1, 2, 3, 4, 5-6, 7-9, 10-16, 17-32 and beyond as ``GAP_CODES`` codes."""
    return torch.searchsorted(_log_borders(count.device), count.contiguous(), right=True)


@lru_cache(maxsize=8)  # a copy from the host may be no part of a recording
def _log_borders(device: torch.device) -> Int[Tensor, " K"]:
    with torch.inference_mode(mode=False):
        return torch.tensor([1, 2, 3, 4, 5, 7, 10, 17, 33], device=device)


def stub_code(
    used: Int[Tensor, "*shape"], out_degree: Int[Tensor, "*shape"]
) -> Int[Tensor, "*shape"]:
    """Return one of 16 codes for (children so far, pending children), each clamped to 3."""
    return used.clamp(max=3) * 4 + (out_degree - used).clamp(0, 3)


def offset_code(
    offset: Int[Tensor, "*shape"], has_reference: Bool[Tensor, "*shape"]
) -> Int[Tensor, "*shape"]:
    """Return one of 9 codes for the distance from a reference, or the last one without any."""
    return (offset.clamp(-4, 4) + 4).masked_fill(~has_reference, OFFSET_CODES - 1)
