"""How many nodes keep the laws of layers, along the depth of graphs that come some at a time."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class DepthRow:
    """Figures of the nodes in one depth bin.

    Attributes:
        first_layer: First layer of the depth bin.
        last_layer: Last layer of the depth bin.
        nodes: Number of nodes in it.
        consistent: Share of them that keep "layer-consistent".
        seen: Share that keep "arity-seen" and "source-seen"; None without training statistics.
    """

    first_layer: int
    last_layer: int
    nodes: int
    consistent: float
    seen: float | None


class DepthCounts:
    """Counts of nodes by their layer.

    Args:
        rows: Number of depth bins, with about equally many nodes.
    """

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._count_CL = np.zeros((3, 0), dtype=np.int64)
        self._knows_training = False

    def add(self, layer_N: np.ndarray, bad_nodes: dict[str, np.ndarray]) -> None:
        """Count nodes; those of layer -1, of cyclic graphs, are left out.

        Args:
            layer_N: Layer of each node.
            bad_nodes: Whether each node breaks a rule, by its id.
        """
        wrong_N = np.zeros(layer_N.size, dtype=bool)
        self._knows_training = "arity-seen" in bad_nodes
        if self._knows_training:
            wrong_N = bad_nodes["arity-seen"] | bad_nodes["source-seen"]
        inside_N = layer_N >= 0
        kept = [inside_N, inside_N & bad_nodes["layer-consistent"], inside_N & wrong_N]
        size = max(self._count_CL.shape[1], int(layer_N.max(initial=-1)) + 1)
        more = size - self._count_CL.shape[1]
        self._count_CL = np.pad(self._count_CL, ((0, 0), (0, more))) + np.stack(
            [np.bincount(layer_N[which], minlength=size) for which in kept]
        )

    def rows(self) -> Iterator[DepthRow]:
        """Yield the figures of each depth bin."""
        nodes_L, inconsistent_L, unseen_L = self._count_CL
        total = int(nodes_L.sum())
        if not total:
            return
        # The last layer of a bin is the quantile of the nodes' layers, the higher one of two.
        place_R = np.ceil(np.linspace(0, 1, self._rows + 1)[1:] * (total - 1))
        cuts = np.unique(np.searchsorted(np.cumsum(nodes_L), place_R, side="right"))
        first = 0
        for last in cuts.tolist():
            here = slice(first, last + 1)
            nodes = int(nodes_L[here].sum())
            unseen = float(1 - unseen_L[here].sum() / nodes) if self._knows_training else None
            consistent = float(1 - inconsistent_L[here].sum() / nodes)
            yield DepthRow(first, last, nodes, consistent, unseen)
            first = last + 1
