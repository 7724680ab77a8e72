"""What rounds of sampling work on: a request with what the model knows of it, and how many rows.

Shape letters: A node attributes, B graphs, N nodes, P pairs, Q decisions, R rows, X selected
graphs, p parents of a node.
Pairs are candidates of graphs, decisions those of rows of the encoder.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from layerdag.dag.partial import Prefix
from layerdag.models.base import SampleRequest
from layerdag.models.fast.sampler import CodeMasks, Guidance, SamplerModules
from layerdag.models.fast.tokens import ConditionVectors


@dataclass(frozen=True, eq=False)
class GivenTables:
    """The nodes of a prefix, by their positions, which count from 1; position 0 is no node.

    Attributes:
        layer_size_N: Nodes of each node's layer.
        kind_N: Kind.
        x_NA: Attribute codes.
        parent_Np: Positions of the parents, the last one first, then zeros.
        type_Np: Types of the edges from these.
        degree_N: Number of parents.
        out_degree_N: Number of children in the whole graph.
        reserved_N: Number of those that come after the drawn nodes.
    """

    layer_size_N: Int[Tensor, " N"]
    kind_N: Int[Tensor, " N"]
    x_NA: Int[Tensor, "N A"]
    parent_Np: Int[Tensor, "N p"]
    type_Np: Int[Tensor, "N p"]
    degree_N: Int[Tensor, " N"]
    out_degree_N: Int[Tensor, " N"]
    reserved_N: Int[Tensor, " N"]

    @classmethod
    def of(cls, prefix: Prefix, most_parents: int, device: torch.device) -> "GivenTables":
        """Return the tables of a prefix, with columns for so many parents."""
        dag, count = prefix.dag, prefix.num_nodes
        parent_Np, type_Np = torch.zeros((2, count + 1, most_parents), dtype=torch.int64)
        for node, edges in enumerate(prefix.parents):
            for rank, (parent, edge_type) in enumerate(edges):
                parent_Np[node + 1, rank] = parent + 1
                type_Np[node + 1, rank] = edge_type
        size_N = torch.tensor(prefix.layer_sizes)[dag.layer_N]
        degree_N = torch.tensor([len(edges) for edges in prefix.parents])
        out_degree_N = torch.tensor(prefix.out_degrees)
        reserved_N = torch.tensor(prefix.reserved or (0,) * count)
        columns = (
            size_N,
            dag.x_NA[:, 0],
            dag.x_NA,
            parent_Np[1:],
            type_Np[1:],
            degree_N,
            out_degree_N,
            reserved_N,
        )
        return cls(
            *(torch.cat([torch.zeros_like(c[:1]), c]).contiguous().to(device) for c in columns)
        )

    def covers(self, position_X: Int[Tensor, " X"]) -> Bool[Tensor, " X"]:
        """Return which positions are those of given nodes."""
        return position_X < self.degree_N.shape[0]

    def instead(
        self,
        table: str,
        position_X: Int[Tensor, " X"],
        drawn_X: Int[Tensor, "X ..."],
        rank_X: Int[Tensor, " X"] | None = None,
    ) -> Int[Tensor, "X ..."]:
        """Return what is given at positions, and what was drawn at others.

        Args:
            table: Name of the attribute.
            position_X: Of the nodes.
            drawn_X: What was drawn for each.
            rank_X: Of tables with a column for each parent, the column.
        """
        table_N: Tensor = getattr(self, table)
        row_X = position_X.clamp(max=table_N.shape[0] - 1)
        if rank_X is None:
            given_X = table_N[row_X]
        else:
            given_X = table_N[row_X, rank_X.clamp(max=table_N.shape[1] - 1)]
        covered_X = self.covers(position_X).view(-1, *(1,) * (drawn_X.dim() - 1))
        return given_X.where(covered_X, drawn_X)


@dataclass(frozen=True, eq=False)
class SamplingTask:
    """What rounds work on.

    Attributes:
        modules: Of the model.
        request: What to sample.
        guidance: Of the request.
        vectors: Condition vectors of every sample, under guidance then without conditions.
        masks: Codes that the nodes of each sample can have.
        given: Nodes that stand in place of drawn ones; None without a prefix.
        options: Candidates for each node.
        most_parents: The largest in-degree that a drawn node may have, or a given one has.
        hold_every: Nodes after which a row waits for the host; 0 is never.
    """

    modules: SamplerModules
    request: SampleRequest
    guidance: Guidance
    vectors: ConditionVectors
    masks: CodeMasks
    given: GivenTables | None
    options: int
    most_parents: int
    hold_every: int


@dataclass(frozen=True)
class Extent:
    """For how much there is room.

    Attributes:
        rows: Graphs side by side.
        tokens: Tokens of each, whole attention blocks.
        edges: Edges of each.
        block: Tokens of an attention block.
    """

    rows: int
    tokens: int
    edges: int
    block: int

    @property
    def pooled(self) -> int:
        """Attention blocks that can be seen as one mean: all but the newest two."""
        return max(self.tokens // self.block - 2, 0)


@dataclass(frozen=True, eq=False)
class RowNumbers:
    """Which rows belong together.

    Attributes:
        row_B: Number of each graph's row.
        row_R: Number of each row of the encoder.
        row_P: Row of each candidate's graph.
        row_Q: Row of the encoder of each candidate's states.
    """

    row_B: Int[Tensor, " B"]
    row_R: Int[Tensor, " R"]
    row_P: Int[Tensor, " P"]
    row_Q: Int[Tensor, " Q"]

    @classmethod
    def of(cls, task: SamplingTask, extent: Extent, device: torch.device) -> "RowNumbers":
        """Return the numbers of so many rows."""
        row_R = torch.arange(task.guidance.passes * extent.rows, device=device)
        row_Q = row_R.repeat_interleave(task.options)
        candidates = extent.rows * task.options
        return cls(row_R[: extent.rows], row_R, row_Q[:candidates], row_Q)
