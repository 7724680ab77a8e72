"""Layout of a batch: tokens, layers, attention blocks and edges.

A graph becomes a sequence of tokens: a start token, then its nodes in layer order. The tokens of a
batch are concatenated without padding; only attention works on padded blocks of ``block``
consecutive tokens of one graph.

Shape letters: B graphs, N nodes, T tokens, L layers of the batch, E edges, M attention blocks after
the first of their graph, b queries of a block, w keys of its window, F pooled blocks.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from layerdag.graph import DAGBatch


@dataclass(frozen=True, eq=False)
class Layout:
    """Positions of tokens and layers; every index counts through the whole batch.

    Attributes:
        graph_T: Graph of each token.
        start_B: Start token of each graph.
        end_B: One past the last token of each graph.
        token_N: Token of each node.
        layer_T: Layer of each token, -1 for start tokens.
        index_T: Position of a token inside its layer, 0 for start tokens.
        size_T: Number of nodes of the token's layer, 1 for start tokens.
        layer_start_N: First token of each node's layer.
        parent_start_N: First token of the layer before each node's layer; unused in layer 0.
        first_token_L: First token of each layer of the batch.
        layer_size_L: Number of nodes of each layer.
    """

    graph_T: Tensor
    start_B: Tensor
    end_B: Tensor
    token_N: Tensor
    layer_T: Tensor
    index_T: Tensor
    size_T: Tensor
    layer_start_N: Tensor
    parent_start_N: Tensor
    first_token_L: Tensor
    layer_size_L: Tensor

    @classmethod
    def of(cls, batch: DAGBatch) -> "Layout":
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
    def position_T(self) -> Tensor:
        """Position of each token in its graph; 0 is the start token."""
        device = self.graph_T.device
        return torch.arange(self.num_tokens, device=device) - self.start_B[self.graph_T]


@dataclass(frozen=True, eq=False)
class AttentionWindow:
    """Padded blocks of queries with the tokens visible to them.

    Attributes:
        query_Mb: Token of each padded slot, clamped where a graph's last block is not full.
        key_Mw: Tokens of the block's attention window, clamped likewise.
    """

    query_Mb: Tensor
    key_Mw: Tensor


@dataclass(frozen=True, eq=False)
class Blocks:
    """Blocks of consecutive tokens: attention covers the own block, the one before, pooled ones.

    First blocks of graphs have no block before them and are stored separately, with windows as wide
    as the longest graph of the batch needs: small graphs cost little.

    Attributes:
        block: Number of tokens per block.
        of_T: Block of each token.
        offset_T: Position of each token in its block.
        slot_T: Row of each token among the padded slots, first blocks before later ones.
        first: Windows of the first block of each graph: the block itself.
        later: Windows of all other blocks: the block before and the block itself.
        pooled_MF: Blocks that a later block attends to as one mean each: all but the last two.
        pooled_valid_MF: Which of these exist.
    """

    block: int
    of_T: Tensor
    offset_T: Tensor
    slot_T: Tensor
    first: AttentionWindow
    later: AttentionWindow
    pooled_MF: Tensor
    pooled_valid_MF: Tensor

    @classmethod
    def of(cls, layout: Layout, block: int) -> "Blocks":
        """Split the tokens of every graph into blocks."""
        device = layout.graph_T.device
        length_B = layout.end_B - layout.start_B
        blocks_B = (length_B + block - 1) // block
        first_B = blocks_B.cumsum(0) - blocks_B
        later_B = first_B - torch.arange(first_B.shape[0], device=device)
        graph_M = torch.repeat_interleave(blocks_B - 1)
        local_M = torch.arange(graph_M.shape[0], device=device) - later_B[graph_M] + 1
        start_M = layout.start_B[graph_M] + local_M * block
        position_T, graph_T = layout.position_T, layout.graph_T
        local_T, offset_T = position_T // block, position_T % block
        longest = int(length_B.max())
        width = min(longest, block)
        later_T = later_B[graph_T] + local_T - 1
        far_F = torch.arange(max((longest - 1) // block - 1, 0), device=device)
        tokens_w = torch.arange(-block, block, device=device)
        slot_T = torch.where(
            local_T == 0,
            graph_T * width + offset_T,
            length_B.shape[0] * width + later_T * block + offset_T,
        )
        last = layout.num_tokens - 1
        own_Bw = (layout.start_B[:, None] + tokens_w[block : block + width]).clamp(max=last)
        near_Mw = (start_M[:, None] + tokens_w).clamp(max=last)
        return cls(
            block=block,
            of_T=first_B[graph_T] + local_T,
            offset_T=offset_T,
            slot_T=slot_T,
            first=AttentionWindow(own_Bw, own_Bw),
            later=AttentionWindow(near_Mw[:, block:], near_Mw),
            pooled_MF=(first_B[graph_M, None] + far_F).clamp(max=first_B[-1] + blocks_B[-1] - 1),
            pooled_valid_MF=far_F < local_M[:, None] - 1,
        )

    @property
    def num_blocks(self) -> int:
        """Number of blocks of the batch."""
        return self.first.query_Mb.shape[0] + self.later.query_Mb.shape[0]


@dataclass(frozen=True, eq=False)
class Edges:
    """Edges by child, the parents of a child in descending order: the order of their decisions.

    The first parent of a child is its last one in node order, which lies in the layer before.

    Attributes:
        parent_E: Token of the source.
        child_E: Token of the target.
        node_E: Node of the target.
        type_E: Edge type.
        rank_E: 0 for a child's first parent, 1 for its second, ...
        degree_E: In-degree of the child.
        in_degree_N: Number of parents of each node.
        out_degree_T: Number of children of each token.
    """

    parent_E: Tensor
    child_E: Tensor
    node_E: Tensor
    type_E: Tensor
    rank_E: Tensor
    degree_E: Tensor
    in_degree_N: Tensor
    out_degree_T: Tensor

    @classmethod
    def of(cls, batch: DAGBatch, layout: Layout) -> "Edges":
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
