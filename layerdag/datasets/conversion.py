"""Graphs of any form as attributed graphs, for ``GraphDataset``, ``validate`` and ``write``.

Graphs as PyTorch Geometric ``Data``, both ways: ``x`` (attribute codes), ``u`` (positions inside
bins), ``layer`` (longest-path layer), ``edge_index``, ``edge_attr`` (edge types, one column), and
of the conditions ``y`` (the label, (1, 1) float32, NaN if unknown), ``numeric`` (1, C) and
``category`` (1, M) as the schema encodes them.
"""

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, Union, runtime_checkable

import numpy as np

from layerdag.codec.folding import job_graph, rank_classes
from layerdag.codec.formats import read_graph
from layerdag.dag.dag import DAG
from layerdag.errors import UsageError
from layerdag.graph.attributed_graph import AttributedGraph
from layerdag.graph.formats.rows import from_networkx, is_networkx
from layerdag.kinds.graph_kind import GraphKind
from layerdag.samples.stored import StoredSample
from layerdag.schema.schema import GraphSchema
from layerdag.traces.trace import Trace, Workload

if TYPE_CHECKING:
    import networkx as nx
    from torch_geometric.data import Data


@runtime_checkable
class CodedGraph(Protocol):
    """A graph with the schema of its codes, as sampling yields it."""

    @property
    def dag(self) -> DAG:
        """Codes."""

    @property
    def schema(self) -> GraphSchema:
        """What the codes mean."""

    @property
    def graph(self) -> AttributedGraph:
        """The same graph in names and numbers."""


GraphLike = Union[
    DAG, AttributedGraph, Workload, Trace, CodedGraph, StoredSample, "Data", "nx.DiGraph", str, Path
]
"""A graph in any form; a path is read. Codes of a ``DAG`` or ``Data`` are those of the schema in
question, or, where there is none yet, words of their own."""

ACCEPTED = (
    "DAGs, PyG Data, networkx graphs, attributed graphs, samples, workloads, traces and paths"
)


def of_kind(graph: GraphLike, kind: GraphKind) -> GraphLike:
    """Return a graph as it is compared with data of a kind.

    A sampled program is compared with jobs by its step; a stored step with programs by its program.
    """
    if isinstance(graph, StoredSample):
        return kind.stored_graph(graph)
    return kind.comparable(graph) if isinstance(graph, CodedGraph) else graph


def is_job(graph: GraphLike) -> bool:
    """Return whether something is the traces of a job, or a sampled job."""
    if isinstance(graph, Workload | Trace):
        return True
    return isinstance(graph, CodedGraph) and graph.schema.kind.has_traces


def is_pyg(thing: object) -> bool:
    """Return whether something is PyG's ``Data``, without importing PyG."""
    module = sys.modules.get("torch_geometric.data")
    return module is not None and isinstance(thing, module.Data)


def as_dag(graph: GraphLike) -> DAG | None:
    """Return the DAG of what holds codes without a schema; None for anything else."""
    if isinstance(graph, DAG):
        return graph
    return DAG.from_pyg(graph) if is_pyg(graph) else None


def attributed_graph(graph: GraphLike, name: str = "graph") -> AttributedGraph:
    """Return a graph of any form in names and numbers.

    Codes of a ``DAG`` or of PyG ``Data`` become words: "0", "1", ... Raises UsageError if it is no
    graph, and DataError if a path cannot be read, or ranks contradict each other.
    """
    return attributed_graphs([graph], [name])[0]


def attributed_graphs(
    graphs: Iterable[GraphLike], names: Sequence[str] | None = None
) -> list[AttributedGraph]:
    """Return ``attributed_graph`` of each; codes become words of equal length.

    Graphs without a name of their own get one of ``names``, by default "graph-" and the number.
    """
    given = list(graphs)
    dags = [as_dag(graph) for graph in given]
    sizes = _numbers_of_codes([dag for dag in dags if dag is not None])
    names = [f"graph-{i:05d}" for i in range(len(given))] if names is None else names
    return [
        _named(graph, name) if dag is None else _with_words(dag, name, sizes)
        for graph, dag, name in zip(given, dags, names, strict=True)
    ]


def _named(graph: GraphLike, name: str) -> AttributedGraph:
    if isinstance(graph, AttributedGraph):
        return graph
    if isinstance(graph, Trace):
        graph = Workload((graph,), {}, graph.source)
    if isinstance(graph, Workload):
        return job_graph(graph.source, rank_classes(graph), graph.groups, {})
    if isinstance(graph, str | Path):
        return read_graph(graph)
    if is_networkx(graph):
        return from_networkx(graph, str(graph.name or name))
    if isinstance(graph, CodedGraph | StoredSample):
        return graph.graph
    raise UsageError(f"Found a {type(graph).__name__} where a graph belongs; known are {ACCEPTED}.")


def _numbers_of_codes(dags: Sequence[DAG]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for dag in dags:
        for name, column_N in zip(_columns(dag), dag.x_NA.T, strict=True):
            sizes[name] = max(sizes.get(name, 0), int(column_N.max()) + 1 if len(column_N) else 0)
        if dag.num_edges:
            sizes["edge"] = max(sizes.get("edge", 0), int(dag.edge_type_E.max()) + 1)
    return sizes


def _columns(dag: DAG) -> list[str]:
    count = dag.x_NA.shape[1]
    return ["x"] if count == 1 else [f"x{i}" for i in range(count)]


def _words(count: int) -> tuple[str, ...]:
    width = len(str(max(count - 1, 0)))
    return tuple(f"{code:0{width}d}" for code in range(count))


def _with_words(dag: DAG, name: str, sizes: Mapping[str, int]) -> AttributedGraph:
    words = {column: _words(sizes[column]) for column in _columns(dag)}
    edge_types = sizes.get("edge", 1)
    return AttributedGraph(
        name=name,
        categories={
            column: [words[column][code] for code in codes_N.tolist()]
            for column, codes_N in zip(_columns(dag), dag.x_NA.T, strict=True)
        },
        numbers={},
        edge_index_2E=dag.edge_index_2E.cpu().numpy().astype(np.int64),
        edge_type_E=dag.edge_type_E.cpu().numpy().astype(np.int64),
        edge_type_names=("data",) if edge_types == 1 else _words(edge_types),
        conditions=dag.conditions,
        vocabularies=words,
    )


def to_pyg(dag: DAG, schema: GraphSchema) -> "Data":
    """Return a graph as PyG ``Data``; tensors are shared, not copied.

    Raises VocabularyError if the graph carries a condition that the schema does not know and
    GraphError if it has a cycle.
    """
    data = dag.to_pyg()
    data.numeric, data.category = schema.encode_conditions([dag.conditions])
    data.layer = dag.layer_N
    return data
