"""The graphs of one split, read from mapped files when they are asked for."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import overload

import numpy as np
import torch

from layerdag.datasets import StoredGraphs
from layerdag.datasets.schema import GraphSchema
from layerdag.graph import DAG, Condition, DAGBatch


@dataclass(frozen=True, eq=False)
class PackedGraphs(StoredGraphs):
    """B graphs that lie end to end in arrays; ``layerdag.datasets.sources.packed`` says how.

    Attributes:
        columns: x, u, layer, edges and edge_types of these graphs alone.
        node_ptr: int64 (B+1,), from 0.
        edge_ptr: int64 (B+1,), from 0.
        numbers_BC: Numeric conditions, NaN for unknown.
        words_BM: Codes of the other conditions, -1 for unknown.
        number_names: Names of the numeric conditions.
        words: Words of the others by name.
    """

    columns: Mapping[str, np.ndarray]
    node_ptr: np.ndarray
    edge_ptr: np.ndarray
    numbers_BC: np.ndarray
    words_BM: np.ndarray
    number_names: tuple[str, ...]
    words: Mapping[str, tuple[str, ...]]

    def __len__(self) -> int:
        """Return the number of graphs."""
        return len(self.node_ptr) - 1

    @overload
    def __getitem__(self, index: int) -> DAG: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[DAG, ...]: ...

    def __getitem__(self, index: int | slice) -> DAG | tuple[DAG, ...]:
        """Return one graph, or some of them, read from the files."""
        if isinstance(index, slice):
            return tuple(self._graph(i) for i in range(*index.indices(len(self))))
        place = index + len(self) if index < 0 else index
        if not 0 <= place < len(self):
            raise IndexError(f"there are {len(self)} graphs, found {index}")
        return self._graph(place)

    def __iter__(self) -> Iterator[DAG]:
        """Yield the graphs, holding none of them."""
        return (self._graph(i) for i in range(len(self)))

    def _graph(self, i: int) -> DAG:
        """Return one graph."""
        nodes = slice(int(self.node_ptr[i]), int(self.node_ptr[i + 1]))
        edges = slice(int(self.edge_ptr[i]), int(self.edge_ptr[i + 1]))
        edges_E2 = self.columns["edges"][edges].astype(np.int64) - nodes.start
        return DAG.build(
            _int64(self.columns["x"][nodes]),
            torch.from_numpy(np.ascontiguousarray(edges_E2.T)),
            edge_type_E=_int64(self.columns["edge_types"][edges]),
            u_NA=torch.from_numpy(np.array(self.columns["u"][nodes])),
            conditions=self.conditions(i),
            layer_N=_int64(self.columns["layer"][nodes]),
        )

    def conditions(self, i: int) -> dict[str, Condition]:
        """Return what is known of graph ``i``."""
        numbers = zip(self.number_names, self.numbers_BC[i].tolist(), strict=True)
        known: dict[str, Condition] = {name: y for name, y in numbers if y == y}
        coded = zip(self.words.items(), self.words_BM[i].tolist(), strict=True)
        return known | {name: words[code] for (name, words), code in coded if code >= 0}

    def conditioned_on(self, names: Sequence[str]) -> "PackedGraphs":
        """Return the graphs with these conditions alone."""
        numbers = [i for i, name in enumerate(self.number_names) if name in names]
        kept = [i for i, name in enumerate(self.words) if name in names]
        return replace(
            self,
            numbers_BC=self.numbers_BC[:, numbers],
            words_BM=self.words_BM[:, kept],
            number_names=tuple(self.number_names[i] for i in numbers),
            words={name: words for name, words in self.words.items() if name in names},
        )

    def batch(self, schema: GraphSchema) -> DAGBatch:
        """Return all graphs as one batch; codes and edges are whole numbers of the files' types."""
        known = set(schema.condition_names)
        rows = [
            {name: value for name, value in self.conditions(i).items() if name in known}
            for i in range(len(self))
        ]
        numeric_BC, category_BM = schema.encode_conditions(rows)
        x, u, layer, edges, types = (
            torch.from_numpy(self.columns[name])
            for name in ("x", "u", "layer", "edges", "edge_types")
        )
        return DAGBatch(
            x_NA=x,
            u_NA=u,
            layer_N=layer,
            edge_index_2E=edges.T,
            edge_type_E=types,
            node_ptr=torch.from_numpy(self.node_ptr),
            edge_ptr=torch.from_numpy(self.edge_ptr),
            numeric_BC=numeric_BC,
            category_BM=category_BM,
        )


def _int64(values: np.ndarray) -> torch.Tensor:
    """Return whole numbers as models and data sets have them."""
    return torch.from_numpy(values.astype(np.int64))
