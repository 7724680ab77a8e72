"""Writing graphs one after the other, and laying them down in another order at the end."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import numpy as np

from layerdag.graph import DAG, Condition, expand_ranges, pointers

_TYPES = {
    "x": np.int32,
    "u": np.float32,
    "layer": np.int32,
    "edges": np.int32,
    "edge_types": np.int16,
}
_ROWS_AT_ONCE = 1 << 20
_PER_NODE = ("x", "u", "layer")


@dataclass
class Spool:
    """Graphs in the order in which they came, as raw files.

    Attributes:
        folder: Where the files are.
        attributes: Number of node attributes.
        nodes: Number of nodes of each graph.
        edges: Number of edges of each graph.
        conditions: Of each graph.
    """

    folder: Path
    attributes: int
    nodes: list[int] = field(default_factory=list)
    edges: list[int] = field(default_factory=list)
    conditions: list[Mapping[str, Condition]] = field(default_factory=list)
    _files: dict[str, IO[bytes]] = field(default_factory=dict)

    @contextmanager
    def writing(self) -> Iterator["Spool"]:
        """Keep the files open inside the block."""
        self._files = {name: (self.folder / f"{name}.raw").open("wb") for name in _TYPES}
        try:
            yield self
        finally:
            for file in self._files.values():
                file.close()

    def add(self, dag: DAG) -> None:
        """Append a graph in layer order."""
        self.nodes.append(dag.num_nodes)
        self.edges.append(dag.num_edges)
        self.conditions.append(dag.conditions)
        columns = {
            "x": dag.x_NA,
            "u": dag.u_NA,
            "layer": dag.layer_N,
            "edges": dag.edge_index_2E.T,
            "edge_types": dag.edge_type_E,
        }
        for name, tensor in columns.items():
            self._files[name].write(np.ascontiguousarray(tensor.numpy(), _TYPES[name]).tobytes())

    def lay_down(self, target: Path, order: np.ndarray, splits: Sequence[int]) -> None:
        """Write the arrays of a packed data set.

        Args:
            target: Its folder.
            order: Number of each graph, those of a split together.
            splits: Number of graphs of each split, in order.
        """
        node_ptr, edge_ptr = (
            pointers(np.array(sizes)[order]) for sizes in (self.nodes, self.edges)
        )
        np.save(target / "node_ptr.npy", node_ptr)
        np.save(target / "edge_ptr.npy", edge_ptr)
        for name in _TYPES:
            self._lay(target, name, order)
        first_of_split = node_ptr[pointers(splits)[:-1]]
        first_B = np.repeat(first_of_split, splits)
        self._number_through(target, node_ptr[:-1] - first_B, edge_ptr)

    def _lay(self, target: Path, name: str, order: np.ndarray) -> None:
        """Write one array in the order of the graphs."""
        sizes = np.array(self.nodes if name in _PER_NODE else self.edges)
        raw = self._raw(name, int(sizes.sum()))
        kind = raw.dtype
        if name == "x" and int(raw.max(initial=0)) <= np.iinfo(np.int16).max:
            kind = np.dtype(np.int16)
        made = np.lib.format.open_memmap(
            target / f"{name}.npy", mode="w+", dtype=kind, shape=raw.shape
        )
        starts, done = pointers(sizes)[:-1][order], 0
        for first, last in _chunks(sizes[order]):
            begin = starts[first:last]
            rows = expand_ranges(begin, begin + sizes[order[first:last]])
            made[done : done + rows.size] = raw[rows]
            done += rows.size
        made.flush()

    def _raw(self, name: str, rows: int) -> np.ndarray:
        """Return a raw file as an array."""
        width = {"x": (self.attributes,), "u": (self.attributes,), "edges": (2,)}.get(name, ())
        if not rows:
            return np.zeros((0, *width), _TYPES[name])
        path = self.folder / f"{name}.raw"
        return np.memmap(path, dtype=_TYPES[name], mode="r", shape=(rows, *width))

    def _number_through(self, target: Path, shift_B: np.ndarray, edge_ptr: np.ndarray) -> None:
        """Let edges count nodes from the first one of their split."""
        if not edge_ptr[-1]:
            return
        edges = np.load(target / "edges.npy", mmap_mode="r+")
        for first, last in _chunks(np.diff(edge_ptr)):
            shift_E = np.repeat(shift_B[first:last], np.diff(edge_ptr[first : last + 1]))
            edges[edge_ptr[first] : edge_ptr[last]] += shift_E.astype(np.int32)[:, None]
        edges.flush()

    def remove(self) -> None:
        """Delete the raw files."""
        for name in _TYPES:
            (self.folder / f"{name}.raw").unlink(missing_ok=True)


def _chunks(sizes: np.ndarray) -> Iterator[tuple[int, int]]:
    """Yield first and last graph of runs of graphs of bounded size."""
    ptr, first = pointers(sizes), 0
    while first < len(sizes):
        last = int(np.searchsorted(ptr, ptr[first] + _ROWS_AT_ONCE, side="right")) - 1
        last = min(max(last, first + 1), len(sizes))
        yield first, last
        first = last
