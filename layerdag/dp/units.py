"""Units of privacy: which graphs belong to one run or one owner.

Shape letters: B graphs, G graphs of a micro-batch, U units.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from layerdag.dag.dag import DAGBatch
from layerdag.errors import DataError
from layerdag.runtime.tables import read_table
from layerdag.training.batches import in_order, take_graphs

_COLUMNS = ("graph", "owner")
_BATCH_GRAPHS, _BATCH_NODES = 256, 3000


@dataclass(frozen=True, eq=False)
class Units:
    """Graphs by their unit."""

    graphs: DAGBatch
    unit_B: np.ndarray  # unit of each graph, from 0 on
    count: int  # number of units

    @classmethod
    def from_owners(cls, graphs: DAGBatch, owners: Sequence[str]) -> "Units":
        """Return the units of some graphs."""
        assert len(owners) == graphs.num_graphs, (len(owners), graphs.num_graphs)
        number = {owner: index for index, owner in enumerate(dict.fromkeys(owners))}
        return cls(graphs, np.array([number[owner] for owner in owners], np.int64), len(number))

    @property
    def nodes_U(self) -> Float[Tensor, " U"]:
        """Number of nodes of each unit, double precision."""
        sizes_B = self.graphs.node_ptr.diff().double().cpu()
        return torch.zeros(self.count, dtype=torch.float64).index_add(
            0, torch.from_numpy(self.unit_B), sizes_B
        )

    def batches(self, chosen_U: np.ndarray) -> Iterator[tuple[DAGBatch, Int[Tensor, " G"]]]:
        """Yield the graphs of some units in micro-batches, with the unit of each graph."""
        wanted_G = np.flatnonzero(chosen_U[self.unit_B])
        sizes_B = self.graphs.node_ptr.diff().cpu().numpy()
        order_G = wanted_G[np.argsort(sizes_B[wanted_G], kind="stable")]
        for graphs_G in in_order(order_G, sizes_B, _BATCH_GRAPHS, _BATCH_NODES):
            units_G = torch.from_numpy(self.unit_B)[graphs_G]
            yield take_graphs(self.graphs, graphs_G), units_G.to(self.graphs.x_NA.device)


def read_owners(file: Path, names: Sequence[str]) -> list[str]:
    """Return the owner of each graph.

    The file is a CSV with the columns ``graph`` and ``owner``.

    Raises:
        DataError: If the file cannot be read, or does not say who owns a graph.
    """
    owner_of: dict[str, str] = {}
    for line, row in read_table(file, _COLUMNS).rows():
        name, owner = row["graph"], row["owner"]
        if owner_of.setdefault(name, owner) != owner:
            raise DataError(
                f"{file}: line {line}: graph '{name:.80}' has two owners; keep one of them."
            )
    missing = [name for name in names if name not in owner_of]
    if missing:
        raise DataError(
            f"{file}: does not say who owns {missing[0]} ({len(missing)} graphs in all); give "
            "every graph of the training part a line."
        )
    return [owner_of[name] for name in names]
