"""Limits that the training graphs show: codes, starting kinds, parents and children of a kind."""

import torch
from torch import Tensor, nn

from layerdag.graph import DAGBatch, GraphStatistics
from layerdag.models.autoregressive._counts import Counter


class Arity(nn.Module):
    """Degree limits of each kind, as masks on logits and as a count of what breaks them.

    A node of layer 0 has no parent, so its kind must have been seen without one; any other node has
    a first parent, and as many more as its kind allows and as exist before the first one. Should no
    kind fit (possible only for a graph unlike any in training), the limits yield to existence.

    A node that has all the children its kind may have is no candidate while there is another. That
    it gets the fewest its kind must have cannot be imposed, for nobody knows who is still to come:
    so breaches are counted when a graph is done.
    """

    starts_K: Tensor
    least_K: Tensor
    most_K: Tensor
    fewest_children_K: Tensor
    most_children_K: Tensor
    seen_F: Tensor

    def __init__(self, statistics: GraphStatistics) -> None:
        super().__init__()
        seen = [[degree for degree, _ in pairs] for pairs in statistics.in_degrees]
        inner = [[degree for degree in degrees if degree > 0] for degrees in seen]
        starts = torch.tensor([0 in degrees for degrees in seen])
        least = torch.tensor([min(degrees, default=_NO_LIMIT) for degrees in inner])
        most = torch.tensor([max(degrees, default=0) for degrees in inner])
        self.register_buffer("starts_K", starts, persistent=False)
        self.register_buffer("least_K", least, persistent=False)
        self.register_buffer("most_K", most, persistent=False)
        children = [[degree for degree, _ in pairs] for pairs in statistics.out_degrees]
        fewest_children = torch.tensor([min(degrees, default=0) for degrees in children])
        most_children = torch.tensor([max(degrees, default=_NO_LIMIT) for degrees in children])
        self.register_buffer("fewest_children_K", fewest_children, persistent=False)
        self.register_buffer("most_children_K", most_children, persistent=False)
        others = statistics.attributes[1:]
        flat = [count > 0 for counts in others for count in counts]
        self.sizes = [len(counts) for counts in others]
        self.register_buffer("seen_F", torch.tensor(flat, dtype=torch.bool), persistent=False)

    def limit_attributes(self, logits_BK: Tensor, index: int) -> Tensor:
        """Rule out codes of an attribute after the kind that no training node has.

        Args:
            logits_BK: Logits of the attribute.
            index: Its place among the attributes after the kind.
        """
        start = sum(self.sizes[:index])
        seen_K = self.seen_F[start : start + self.sizes[index]]
        return logits_BK.masked_fill(~seen_K, -torch.inf)

    def limit_kinds(self, logits_BK: Tensor, first_B: Tensor) -> Tensor:
        """Rule out kinds that cannot stand here.

        Args:
            logits_BK: Logits of the kind.
            first_B: Position of the first parent, which is also the number of nodes that can be
                parents; 0 in layer 0.
        """
        fits_BK = torch.where(
            first_B[:, None] == 0, self.starts_K, self.least_K <= first_B[:, None]
        )
        fits_BK = fits_BK | ~fits_BK.any(dim=1, keepdim=True)
        return logits_BK.masked_fill(~fits_BK, -torch.inf)

    def limit_degrees(
        self, logits_BK: Tensor, counter: Counter, kind_B: Tensor, first_B: Tensor
    ) -> Tensor:
        """Rule out in-degree codes none of whose counts the kind and the graph allow."""
        low_B, high_B = self._range(kind_B, first_B)
        fits_BK = (counter.lows_K1[:-1] <= high_B[:, None]) & (counter.lows_K1[1:] > low_B[:, None])
        return logits_BK.masked_fill(~fits_BK, -torch.inf)

    def clamp(self, degree_B: Tensor, kind_B: Tensor, first_B: Tensor) -> Tensor:
        """Return the in-degree moved into the range that the kind and the graph allow."""
        low_B, high_B = self._range(kind_B, first_B)
        return torch.minimum(torch.maximum(degree_B, low_B), high_B)

    def room(self, kind_B: Tensor, planned_B: Tensor | None) -> Tensor:
        """Return the largest number of children that a node of each kind may have.

        A plan is the number of children in the finished graph, so that no training node ever has
        more than it announced.

        Args:
            kind_B: Kind of each node.
            planned_B: Children that it announces; None in a model without plans.
        """
        most_B = self.most_children_K[kind_B]
        return most_B if planned_B is None else torch.minimum(most_B, planned_B)

    def breaches(self, batch: DAGBatch) -> Tensor:
        """Return the nodes of each graph with fewer or more children than any of their kind has.

        Shape (B,), float32; kinds that training has not seen have no limit.
        """
        kind_N = batch.x_NA[:, 0]
        children_N = torch.bincount(batch.edge_index_2E[0], minlength=batch.num_nodes)
        fits_N = self.fewest_children_K[kind_N] <= children_N
        fits_N = fits_N & (children_N <= self.most_children_K[kind_N])
        breaches_B = torch.zeros(batch.num_graphs, device=kind_N.device)
        return breaches_B.index_add(0, batch.graph_of_node(), (~fits_N).float())

    def _range(self, kind_B: Tensor, first_B: Tensor) -> tuple[Tensor, Tensor]:
        """Return the smallest and largest in-degree of each node; (0, 0) in layer 0."""
        high_B = torch.minimum(self.most_K[kind_B].clamp(min=1), first_B)
        return torch.minimum(self.least_K[kind_B], high_B), high_B


_NO_LIMIT = 1 << 40
