"""Nodes of a prefix in place of drawn ones, the same in every graph of a request.

Shape letters: A node attributes, B graphs (the active ones), N nodes, X selected graphs.
"""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Int
from torch import Tensor

from layerdag.graph import Prefix
from layerdag.models import SampleResult
from layerdag.models.autoregressive.sampling._candidates import EdgesToParents, NodeCandidates


@dataclass(frozen=True, eq=False)
class GivenNodes:
    """The nodes of a prefix by their positions, which count from 1.

    Attributes:
        prefix: First layers of every graph.
        device: Of the sampler.
    """

    prefix: Prefix
    device: torch.device

    def covers(self, position: int) -> bool:
        """Return whether the node at ``position`` is given."""
        return position <= self.prefix.num_nodes

    def layer_size(self, position: int) -> int:
        """Return the number of nodes of the layer of the node at ``position``."""
        return self.prefix.layer_sizes[int(self.prefix.dag.layer_N[position - 1])]

    def codes(self, position: int, rows: int) -> Int[Tensor, "B A"]:
        """Return the attribute codes of the node at ``position``, once for each graph."""
        return self.prefix.dag.x_NA[position - 1].to(self.device).expand(rows, -1)

    def reserved(self, position: int) -> int:
        """Return the number of given children after the drawn nodes of the node at ``position``."""
        return self.prefix.reserved[position - 1] if self.prefix.reserved else 0

    def node(self, position: int, rows: int) -> NodeCandidates:
        """Return the node at ``position`` as the one candidate of each graph, without states."""
        graph_B = torch.arange(rows, device=self.device)
        parents = self.prefix.parents[position - 1]
        edges = tuple(
            EdgesToParents(
                graph_B, torch.full_like(graph_B, parent + 1), torch.full_like(graph_B, edge_type)
            )
            for parent, edge_type in parents
        )
        first_B = edges[0].parent_X if edges else torch.zeros_like(graph_B)
        kind_B = self.codes(position, rows)[:, 0]
        nothing = torch.zeros((0, 0), device=self.device)
        degree_B = torch.full_like(graph_B, len(parents))
        return NodeCandidates(graph_B, first_B, kind_B, degree_B, edges, nothing, nothing)

    def kept_in(self, result: SampleResult) -> SampleResult:
        """Return completed graphs whose given nodes have their own positions inside bins."""
        return replace(result, dags=tuple(self.prefix.kept_in(dag) for dag in result.dags))
