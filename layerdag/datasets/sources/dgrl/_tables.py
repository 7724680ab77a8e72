"""The tables of a family of the DGRL benchmark, CSV as of OGB without headers."""

import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import DTypeLike

from layerdag._runtime import read_parsed
from layerdag.errors import DataError


@dataclass(frozen=True, eq=False)
class Sizes:
    """Nodes and edges of each graph, int64 (B,)."""

    nodes_B: np.ndarray
    edges_B: np.ndarray

    @classmethod
    def of(cls, folder: Path, num_graphs: int | None) -> "Sizes":
        """Read the sizes of the first so many graphs.

        Raises:
            DataError: If a file is missing or holds no natural numbers, or the number is below 1.
        """
        if num_graphs is not None and num_graphs < 1:
            raise DataError(f"'num_graphs' must be at least 1, found {num_graphs}.")
        nodes_B = read_table(folder, "num-node-list", np.int64)[:num_graphs, 0]
        edges_B = read_table(folder, "num-edge-list", np.int64)[:num_graphs, 0]
        if min(nodes_B.min(initial=0), edges_B.min(initial=0)) < 0:
            raise DataError(f"{folder}: a number of nodes or edges is negative; download it again.")
        return cls(nodes_B, edges_B)

    def require(self, folder: Path, labels: int, nodes: int, edges: int) -> None:
        """Raise DataError unless the other tables are of these lengths."""
        lengths = (len(self.nodes_B), len(self.edges_B), labels)
        num_nodes, num_edges = int(self.nodes_B.sum()), int(self.edges_B.sum())
        if len(set(lengths)) > 1 or edges != num_edges or nodes != num_nodes:
            raise DataError(
                f"{folder}: the files speak of {lengths[0]}, {lengths[1]} and {lengths[2]} graphs "
                f"with {num_nodes} nodes and {num_edges} edges, but hold {nodes} and {edges}; "
                "download the family again."
            )


def read_table(folder: Path, name: str, kind: DTypeLike, max_rows: int | None = None) -> np.ndarray:
    """Read a CSV without a header as a matrix.

    Raises:
        DataError: If the file is missing or a cell is of another kind.
    """
    found = (folder / f"{name}.csv{ending}" for ending in ("", ".gz", ".xz"))
    path = next((path for path in found if path.is_file()), None)
    if path is None:
        raise DataError(f"{folder}: has no {name}.csv, .csv.gz or .csv.xz; download the family.")
    try:
        text = io.StringIO(read_parsed(path).decode())
        return np.loadtxt(text, dtype=kind, delimiter=",", ndmin=2, max_rows=max_rows)
    except (ValueError, OverflowError) as error:
        reason = str(error).splitlines()[0]
        raise DataError(f"{path}: cannot be read ({reason}); download it again.") from error


def distinct_edges(edges_2E: np.ndarray) -> np.ndarray:
    """Return the edges, each once, sorted by source and target."""
    order_E = np.lexsort((edges_2E[1], edges_2E[0]))
    sorted_2E = edges_2E[:, order_E]
    fresh_E = np.ones(len(order_E), dtype=bool)
    fresh_E[1:] = (sorted_2E[:, 1:] != sorted_2E[:, :-1]).any(axis=0)
    return sorted_2E[:, fresh_E]
