"""Numbers of parents and children that training nodes of each kind have.

Shape letters: A node attributes, B graphs, E edges, F feature columns, K codes, N nodes.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from layerdag.dag.dag import DAGBatch
from layerdag.dag.statistics import GraphStatistics
from layerdag.models.config import ConstraintConfig
from layerdag.models.layers import CountEncoder

_NO_LIMIT = 1 << 40


class DegreeConstraints(nn.Module):
    """Degree limits of each kind, as masks on logits and as a count of violations.

    A node of layer 0 has no parent, so its kind must be a source kind: one that some training node
    without parents has. Any other node has a first parent, and as many more as its kind allows and
    as exist before the first one. If no kind fits (possible only for a graph unlike any in
    training), the constraint is dropped.

    A node without remaining capacity for children is ruled out as a parent unless it is the only
    candidate. The smallest number of children cannot be imposed while a graph is being sampled,
    because later nodes are not known yet, so violations are counted in the finished graph. Kinds
    that do not occur in training have no limit, and with ``out_degree="unlimited"`` no kind has.
    """

    min_children_K: Tensor
    max_children_K: Tensor
    source_K: Tensor
    min_parents_K: Tensor
    max_parents_K: Tensor
    observed_F: Tensor

    def __init__(self, statistics: GraphStatistics, config: ConstraintConfig | None = None) -> None:
        super().__init__()
        config = config or ConstraintConfig()
        self.limits_out_degree = config.out_degree == "observed"
        children = [[degree for degree, _ in pairs] for pairs in statistics.out_degrees]
        fewest = torch.tensor([min(degrees, default=0) for degrees in children])
        furthest = torch.tensor([max(degrees, default=_NO_LIMIT) for degrees in children])
        self.register_buffer("min_children_K", fewest, persistent=False)
        self.register_buffer("max_children_K", furthest, persistent=False)
        seen = [[degree for degree, _ in pairs] for pairs in statistics.in_degrees]
        inner = [[degree for degree in degrees if degree > 0] for degrees in seen]
        starts = torch.tensor([0 in degrees for degrees in seen])
        least = torch.tensor([min(degrees, default=_NO_LIMIT) for degrees in inner])
        most = torch.tensor([max(degrees, default=0) for degrees in inner])
        self.register_buffer("source_K", starts, persistent=False)
        self.register_buffer("min_parents_K", least, persistent=False)
        self.register_buffer("max_parents_K", most, persistent=False)
        others = statistics.attributes[1:]
        flat = [count > 0 for counts in others for count in counts]
        self.sizes = [len(counts) for counts in others]
        self.register_buffer("observed_F", torch.tensor(flat, dtype=torch.bool), persistent=False)

    def limit_attributes(self, logits_BK: Float[Tensor, "B K"], index: int) -> Float[Tensor, "B K"]:
        """Rule out codes of an attribute after the kind that no training node has.

        ``index`` counts the attributes after the kind.
        """
        start = sum(self.sizes[:index])
        seen_K = self.observed_F[start : start + self.sizes[index]]
        return logits_BK.masked_fill(~seen_K, -torch.inf)

    def limit_kinds(
        self, logits_BK: Float[Tensor, "B K"], first_B: Int[Tensor, " B"]
    ) -> Float[Tensor, "B K"]:
        """Rule out kinds that the node cannot have.

        The first parent's position is also the number of nodes that can be parents; 0 in layer 0.
        """
        fits_BK = torch.where(
            first_B[:, None] == 0, self.source_K, self.min_parents_K <= first_B[:, None]
        )
        fits_BK = fits_BK | ~fits_BK.any(dim=1, keepdim=True)
        return logits_BK.masked_fill(~fits_BK, -torch.inf)

    def limit_degrees(
        self,
        logits_BK: Float[Tensor, "B K"],
        counter: CountEncoder,
        kind_B: Int[Tensor, " B"],
        first_B: Int[Tensor, " B"],
    ) -> Float[Tensor, "B K"]:
        """Rule out in-degree codes none of whose counts the kind and the graph allow."""
        low_B, high_B = self._range(kind_B, first_B)
        fits_BK = (counter.lows_K1[:-1] <= high_B[:, None]) & (counter.lows_K1[1:] > low_B[:, None])
        return logits_BK.masked_fill(~fits_BK, -torch.inf)

    def clamp(
        self, degree_B: Int[Tensor, " B"], kind_B: Int[Tensor, " B"], first_B: Int[Tensor, " B"]
    ) -> Int[Tensor, " B"]:
        """Return the in-degree moved into the range that the kind and the graph allow."""
        low_B, high_B = self._range(kind_B, first_B)
        return torch.minimum(torch.maximum(degree_B, low_B), high_B)

    def capacity(
        self, kind_B: Int[Tensor, " B"], out_degree_B: Int[Tensor, " B"] | None
    ) -> Int[Tensor, " B"]:
        """Return the largest number of children of each node: of its kind, or as predicted.

        The predicted out-degree is the number of children in the finished graph, so that no
        training node ever has more. It is None in a model that predicts none.
        """
        if not self.limits_out_degree:
            return torch.full_like(kind_B, _NO_LIMIT)
        most_B = self.max_children_K[kind_B]
        return most_B if out_degree_B is None else torch.minimum(most_B, out_degree_B)

    def violations(self, batch: DAGBatch) -> Float[Tensor, " B"]:
        """Return the nodes of each graph with an out-degree outside the range of their kind."""
        kind_N = batch.x_NA[:, 0]
        violations_B = torch.zeros(batch.num_graphs, device=kind_N.device)
        if not self.limits_out_degree:
            return violations_B
        children_N = torch.bincount(batch.edge_index_2E[0], minlength=batch.num_nodes)
        fits_N = self.min_children_K[kind_N] <= children_N
        fits_N = fits_N & (children_N <= self.max_children_K[kind_N])
        return violations_B.index_add(0, batch.graph_of_node(), (~fits_N).float())

    def _range(self, kind_B: Tensor, first_B: Tensor) -> tuple[Tensor, Tensor]:
        """Return the smallest and largest in-degree of each node; (0, 0) in layer 0."""
        high_B = torch.minimum(self.max_parents_K[kind_B].clamp(min=1), first_B)
        return torch.minimum(self.min_parents_K[kind_B], high_B), high_B
