"""Graphs of any kind as codes of one schema, so that they can be compared and predicted."""

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

from layerdag.codec import AttributedGraph, job_graph, rank_classes
from layerdag.datasets.schema import GraphSchema
from layerdag.graph import DAG, DAGBatch
from layerdag.traces import Workload


class StoredGraphs(Sequence[DAG]):
    """Graphs that lie in files and are read when they are asked for."""

    @abstractmethod
    def batch(self, schema: GraphSchema) -> DAGBatch:
        """Return all graphs as one batch whose columns stay in the files."""

    @abstractmethod
    def conditioned_on(self, names: Sequence[str]) -> "StoredGraphs":
        """Return the graphs with these conditions alone."""


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


GraphLike = DAG | AttributedGraph | Workload | CodedGraph | str | Path
"""A graph in any form; a ``DAG`` must have codes of the schema in question, a path is read."""


def encoded(graphs: Iterable[GraphLike], schema: GraphSchema) -> list[DAG]:
    """Return graphs as codes of ``schema``; graphs with codes of another schema are translated.

    Raises:
        VocabularyError: If a graph has a word that the schema does not know.
        DataError: If a file cannot be read, or a graph lacks an attribute.
    """
    return [_encoded(graph, schema) for graph in graphs]


def translated(dags: Sequence[DAG], own: GraphSchema, schema: GraphSchema) -> list[DAG]:
    """Return graphs with codes of ``own`` as codes of ``schema``; raises as ``encoded``."""
    if speak_alike(own, schema):
        return list(dags)
    return [schema.encode(own.whole(own.decode(dag, f"graph {i}"))) for i, dag in enumerate(dags)]


def speak_alike(one: GraphSchema, other: GraphSchema) -> bool:
    """Return whether codes of nodes and edges mean the same in two schemas."""
    return one.attributes == other.attributes and one.edge_types == other.edge_types


def _encoded(graph: GraphLike, schema: GraphSchema) -> DAG:
    """Return one graph as codes of ``schema``."""
    if isinstance(graph, DAG):
        return graph
    if isinstance(graph, AttributedGraph):
        return schema.encode(graph)
    if isinstance(graph, Workload):
        return schema.encode(job_graph(graph.source, rank_classes(graph), graph.groups, {}))
    if isinstance(graph, CodedGraph):
        return graph.dag if speak_alike(graph.schema, schema) else schema.encode(graph.graph)
    from layerdag.datasets.files import read_graph

    return schema.encode(read_graph(graph))
