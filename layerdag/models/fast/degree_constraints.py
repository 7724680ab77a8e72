"""Numbers of parents and children that training nodes of each kind have.

What holds for out-degrees is a component: as observed in training, or unlimited.

Shape letters: A node attributes, B graphs, E edges, F feature columns, K codes, N nodes.
"""

from abc import ABC, abstractmethod

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from layerdag.dag.dag import DAGBatch
from layerdag.dag.statistics import GraphStatistics
from layerdag.models.config import ConstraintConfig
from layerdag.models.layers import CountEncoder

_NO_LIMIT = 1 << 40


class OutDegreeLimit(nn.Module, ABC):
    """How many children a node may have."""

    @abstractmethod
    def capacity(
        self, kind_B: Int[Tensor, " B"], out_degree_B: Int[Tensor, " B"] | None
    ) -> Int[Tensor, " B"]:
        """Return the largest number of children that each node may have."""

    @abstractmethod
    def violations(self, batch: DAGBatch) -> Float[Tensor, " B"]:
        """Return the number of nodes per graph that break the limit, float32 of shape (B,)."""


class ObservedOutDegrees(OutDegreeLimit):
    """The out-degrees that training nodes of the same kind have.

    Kinds that do not occur in training have no limit.
    """

    min_children_K: Tensor
    max_children_K: Tensor

    def __init__(self, statistics: GraphStatistics) -> None:
        super().__init__()
        children = [[degree for degree, _ in pairs] for pairs in statistics.out_degrees]
        fewest_children = torch.tensor([min(degrees, default=0) for degrees in children])
        most_children = torch.tensor([max(degrees, default=_NO_LIMIT) for degrees in children])
        self.register_buffer("min_children_K", fewest_children, persistent=False)
        self.register_buffer("max_children_K", most_children, persistent=False)

    def capacity(
        self, kind_B: Int[Tensor, " B"], out_degree_B: Int[Tensor, " B"] | None
    ) -> Int[Tensor, " B"]:
        """Return the most children of the kind, or as many as predicted if that is fewer.

        The predicted out-degree is the number of children in the finished graph, so that no
        training node ever has more.
        """
        most_B = self.max_children_K[kind_B]
        return most_B if out_degree_B is None else torch.minimum(most_B, out_degree_B)

    def violations(self, batch: DAGBatch) -> Float[Tensor, " B"]:
        """Return the number of nodes per graph with an out-degree outside the range of the kind."""
        kind_N = batch.x_NA[:, 0]
        children_N = torch.bincount(batch.edge_index_2E[0], minlength=batch.num_nodes)
        fits_N = self.min_children_K[kind_N] <= children_N
        fits_N = fits_N & (children_N <= self.max_children_K[kind_N])
        violations_B = torch.zeros(batch.num_graphs, device=kind_N.device)
        return violations_B.index_add(0, batch.graph_of_node(), (~fits_N).float())


class UnlimitedOutDegrees(OutDegreeLimit):
    """Any number of children, whatever was predicted."""

    def capacity(
        self, kind_B: Int[Tensor, " B"], out_degree_B: Int[Tensor, " B"] | None
    ) -> Int[Tensor, " B"]:
        """Return a number that no graph reaches."""
        return torch.full_like(kind_B, _NO_LIMIT)

    def violations(self, batch: DAGBatch) -> Float[Tensor, " B"]:
        """Return zeros."""
        return torch.zeros(batch.num_graphs, device=batch.x_NA.device)


def out_degree_limit(config: ConstraintConfig, statistics: GraphStatistics) -> OutDegreeLimit:
    """Return the component that a config names."""
    if config.out_degree == "observed":
        return ObservedOutDegrees(statistics)
    return UnlimitedOutDegrees()


class DegreeConstraints(nn.Module):
    """Degree limits of each kind, as masks on logits and as a count of violations.

    A node of layer 0 has no parent, so its kind must be a source kind: one that some training node
    without parents has. Any other node has a first parent, and as many more as its kind allows and
    as exist before the first one. If no kind fits (possible only for a graph unlike any in
    training), the constraint is dropped.

    A node without remaining capacity for children is ruled out as a parent unless it is the only
    candidate. The smallest number of children cannot be imposed while a graph is being sampled,
    because later nodes are not known yet, so violations are counted in the finished graph.
    """

    source_K: Tensor
    min_parents_K: Tensor
    max_parents_K: Tensor
    observed_F: Tensor

    def __init__(self, statistics: GraphStatistics, config: ConstraintConfig | None = None) -> None:
        super().__init__()
        self.out_degree = out_degree_limit(config or ConstraintConfig(), statistics)
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
        """Return the largest number of children of each node; see ``OutDegreeLimit``."""
        return self.out_degree.capacity(kind_B, out_degree_B)

    def violations(self, batch: DAGBatch) -> Float[Tensor, " B"]:
        """Return the number of nodes per graph with an out-degree that is not allowed."""
        return self.out_degree.violations(batch)

    def _range(
        self, kind_B: Int[Tensor, " B"], first_B: Int[Tensor, " B"]
    ) -> tuple[Int[Tensor, " B"], Int[Tensor, " B"]]:
        """Return the smallest and largest in-degree of each node; (0, 0) in layer 0."""
        high_B = torch.minimum(self.max_parents_K[kind_B].clamp(min=1), first_B)
        return torch.minimum(self.min_parents_K[kind_B], high_B), high_B


def _bounds(counter: CountEncoder) -> tuple[Int[Tensor, " K"], Int[Tensor, " K"]]:
    lows_K1 = counter.lows_K1.long()
    return lows_K1[:-1], lows_K1[1:]
