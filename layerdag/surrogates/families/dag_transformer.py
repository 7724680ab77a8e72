"""A transformer over DAGs.

A transformer over DAGs: attention along reachability, encoded depth, messages along edges.

After Luo, Thost and Shi, "Transformers over Directed Acyclic Graphs" (NeurIPS 2023, arXiv
2210.13148): a node attends only to nodes that reach it or that it reaches, and its depth is encoded
with sinusoids. Here half of the heads look at ancestors and the other half at descendants, so that
the two are told apart, and every block also passes messages along the edges, as GraphGPS does
(Rampasek et al., NeurIPS 2022), which carries edge types.

Shape letters: B graphs, D width of a state, E edges, N nodes, T targets.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, cast

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor, nn

from layerdag.dag.dag import DAG, GraphSizes
from layerdag.errors import DataError, UsageError
from layerdag.graph.topology import longest_path_layers
from layerdag.models.layers import sinusoids
from layerdag.surrogates.families.networks import (
    GraphNetwork,
    NetworkSettings,
    NetworkSurrogate,
    bidirectional,
    fit_one,
    pooled,
    two_layers,
)

if TYPE_CHECKING:
    from torch_geometric.data import Batch, Data

MOST_NODES = 8192
"""Of a graph whose attention fits into a gigabyte or two."""


def layers_and_ancestors(
    num_nodes: int, edge_index_2E: Int[Tensor, "2 E"]
) -> tuple[Int[Tensor, " N"], UInt8[Tensor, " P"]]:
    """Return the longest-path layer of each node, and its ancestors as bits.

    Bits are packed row by row; row i holds one bit for each node, set where that node reaches i by
    a path of at least one edge.

    Raises:
        DataError: If the graph has more than ``MOST_NODES`` nodes.
        GraphError: If it has a cycle.
    """
    if num_nodes > MOST_NODES:
        raise DataError(
            f"A graph has {num_nodes:,} nodes; attention among all of them takes at most "
            f"{MOST_NODES:,}. Use the family 'boosting' or 'message_passing'."
        )
    source_E, target_E = edge_index_2E.numpy()
    layer_N = longest_path_layers(num_nodes, edge_index_2E.numpy())
    width = -(-num_nodes // 8)
    row_NW = np.zeros((num_nodes, width), dtype=np.uint8)
    own_N = np.arange(num_nodes)
    self_NW = np.zeros((num_nodes, width), dtype=np.uint8)
    self_NW[own_N, own_N // 8] = 128 >> (own_N % 8)
    # Edges by the layer of their target: every row is complete before it is passed on.
    order_E = np.argsort(layer_N[target_E], kind="stable")
    for source, target in zip(source_E[order_E].tolist(), target_E[order_E].tolist(), strict=True):
        row_NW[target] |= row_NW[source] | self_NW[source]
    bits = np.unpackbits(row_NW, axis=1, count=num_nodes)
    return torch.from_numpy(layer_N), torch.from_numpy(np.packbits(bits.reshape(-1)))


def ancestors_of(bits_P: UInt8[Tensor, " P"], num_nodes: int) -> Bool[Tensor, "N N"]:
    """Return the unpacked bits: element (i, j) is set where j is an ancestor of i."""
    bits = np.unpackbits(bits_P.numpy(), count=num_nodes * num_nodes)
    return torch.from_numpy(bits.astype(bool).reshape(num_nodes, num_nodes))


@dataclass(frozen=True)
class TransformerSettings(NetworkSettings):
    """How to build and train the transformer.

    Attributes:
        width: Number of features of a node; a multiple of ``heads``.
        rounds: Number of blocks.
        epochs: Passes over the training graphs.
        heads: Of the attention, an even number.
        dropout: Fraction of the features of a block's output that training leaves out.
    """

    width: int = 32
    rounds: int = 2
    epochs: int = 15
    heads: int = 2
    dropout: float = 0.1

    def __post_init__(self) -> None:
        if self.heads < 2 or self.heads % 2 or self.width % self.heads:
            raise UsageError(
                f"The transformer has {self.heads} heads and {self.width} features; heads must be "
                "even, for one half looks at ancestors and the other at descendants, and divide "
                "the features."
            )


class DAGAttention(nn.Module):
    """Attention of each node to its ancestors (half of the heads) or descendants, and itself."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.queries_keys_values = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(
        self, h_ND: Float[Tensor, "N D"], masks: Sequence[Float[Tensor, "2 1 _ _"]]
    ) -> Float[Tensor, "N D"]:
        """Return what each node heard.

        Args:
            h_ND: States of the nodes of all graphs, end to end.
            masks: For each graph, 0 where a node sees another and minus infinity elsewhere, for
                the heads that look at ancestors and for those that look at descendants.
        """
        sizes = [mask.shape[-1] for mask in masks]
        heard = []
        for rows_nD, mask in zip(self.queries_keys_values(h_ND).split(sizes), masks, strict=True):
            queries, keys, values = (
                rows_nD.unflatten(1, (3, 2, self.heads // 2, -1)).permute(1, 2, 3, 0, 4).unbind()
            )
            one = nn.functional.scaled_dot_product_attention(queries, keys, values, mask)
            heard.append(one.flatten(0, 1).transpose(0, 1).flatten(1))
        return cast(Tensor, self.out(torch.cat(heard)))


class _Block(nn.Module):
    def __init__(self, settings: TransformerSettings) -> None:
        super().__init__()
        width = settings.width
        self.attention = DAGAttention(width, settings.heads)
        self.down, self.up = bidirectional(width)
        self.map = two_layers(width, 2 * width, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.dropout = nn.Dropout(settings.dropout)

    def forward(
        self,
        h_ND: Float[Tensor, "N D"],
        edge_index_2E: Int[Tensor, "2 E"],
        edge_ED: Float[Tensor, "E D"],
        masks: Sequence[Float[Tensor, "2 1 _ _"]],
    ) -> Float[Tensor, "N D"]:
        """Return updated node states."""
        h_ND = h_ND + self.dropout(self.attention(self.norms[0](h_ND), masks))
        now_ND = self.norms[1](h_ND)
        heard_ND = self.down(now_ND, edge_index_2E, edge_ED)
        heard_ND = heard_ND + self.up(now_ND, edge_index_2E, edge_ED)
        h_ND = h_ND + self.dropout(heard_ND)
        return cast(Tensor, h_ND + self.dropout(self.map(self.norms[2](h_ND))))


class DAGTransformer(GraphNetwork):
    """Maps a batch of graphs to a standardized number for each of its targets.

    Batches need ``x``, ``u``, ``edge_index``, ``edge_attr``, as ``layerdag.datasets.to_pyg`` makes
    them. ``prepared`` adds layers and ancestors to a graph once; else every batch finds them anew.

    Args:
        sizes: Number of codes of each attribute and of edge types.
        settings: Of the blocks.
        outputs: Number of targets.
    """

    def __init__(
        self, sizes: GraphSizes, settings: TransformerSettings | None = None, outputs: int = 1
    ) -> None:
        super().__init__()
        settings = settings or TransformerSettings()
        width = settings.width
        self.embed_attribute = nn.ModuleList(nn.Embedding(k, width) for k in sizes.attributes)
        self.embed_position = nn.Linear(len(sizes.attributes), width)
        self.embed_edge_type = nn.Embedding(sizes.edge_types, width)
        self.embed_depth = nn.Linear(width // 2 * 2, width)
        self.blocks = nn.ModuleList(_Block(settings) for _ in range(settings.rounds))
        self.norm = nn.LayerNorm(width)
        self.head = two_layers(3 * width, width, out=outputs)

    def forward(self, batch: "Batch") -> Float[Tensor, "B ..."]:
        """Return standardized predictions, shape (B,), or (B, T) of several targets."""
        from torch_geometric.data import Batch

        if "ancestors" not in batch:
            batch = Batch.from_data_list([self.prepared(one) for one in batch.to_data_list()])
        h_ND = self.embed_position(batch.u)
        for column, table in enumerate(self.embed_attribute):
            h_ND = h_ND + table(batch.x[:, column])
        width = h_ND.shape[1]
        h_ND = h_ND + self.embed_depth(sinusoids(batch.layer.to(h_ND.dtype), width))
        edge_ED = self.embed_edge_type(batch.edge_attr[:, 0])
        masks = _masks(batch)
        for block in self.blocks:
            h_ND = block(h_ND, batch.edge_index, edge_ED, masks)
        return cast(Tensor, self.head(pooled(self.norm(h_ND), batch))).squeeze(1)

    def prepared(self, data: "Data") -> "Data":
        """Return the graph with ``layer`` (N,) and ``ancestors``, packed bits."""
        data.layer, data.ancestors = layers_and_ancestors(int(data.num_nodes), data.edge_index)
        return data


def _masks(batch: "Batch") -> list[Tensor]:
    sizes = batch.ptr.diff().tolist()
    ends = np.cumsum([0, *(-(-n * n // 8) for n in sizes)]).tolist()
    masks = []
    for n, (first, last) in zip(sizes, pairwise(ends), strict=True):
        above_nn = ancestors_of(batch.ancestors[first:last], n)
        above_nn.fill_diagonal_(True)
        seen = torch.stack([above_nn, above_nn.T])[:, None]
        masks.append(torch.zeros(seen.shape).masked_fill_(~seen, -torch.inf))
    return masks


@dataclass(frozen=True, eq=False)
class TransformerSurrogate(NetworkSurrogate):
    """A trained transformer over DAGs."""

    @property
    def family(self) -> str:
        """The name "dag_transformer"."""
        return "dag_transformer"

    @staticmethod
    def build(sizes: GraphSizes, settings: TransformerSettings, outputs: int = 1) -> DAGTransformer:
        """Return a transformer with initial weights."""
        return DAGTransformer(sizes, settings, outputs)


def fit_dag_transformer(
    dags: Sequence[DAG],
    target_B: np.ndarray,
    sizes: GraphSizes,
    *,
    seed: int = 0,
    settings: TransformerSettings | None = None,
) -> TransformerSurrogate:
    """Fit the transformer; the weights of the epoch with the least validation loss are kept.

    Raises:
        UsageError: If there are fewer than two graphs, or a target is not finite.
        DataError: If a code lies outside ``sizes``, or a graph is too large.
    """
    chosen = settings or TransformerSettings()
    return fit_one(TransformerSurrogate, dags, target_B, sizes, chosen, seed)
