"""Generators of anybody: their graphs in codes of a data set, and the registry of generators.

A generator is an object with ``fit(data)``, which gets a ``GraphDataset``, and ``sample(num,
seed)``, which returns graphs: DAGs in codes of that data set's schema, ``AttributedGraph`` or
directed graphs of networkx, whose node attributes are words and numbers.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np

from layerdag.dag.dag import DAG
from layerdag.datasets.dataset import GraphDataset
from layerdag.datasets.encoding import encoded
from layerdag.datasets.folder import with_words
from layerdag.errors import DataError, UsageError
from layerdag.graph.attributed_graph import AttributedGraph
from layerdag.runtime.registry import Registry
from layerdag.schema.attributes import CategoryAttribute
from layerdag.schema.schema import GraphSchema


@runtime_checkable
class GraphGenerator(Protocol):
    """What can be registered as a generator."""

    def fit(self, data: GraphDataset) -> Any:
        """Learn from ``data.graphs["train"]``."""

    def sample(self, num: int, seed: int) -> Iterable[Any]:
        """Return ``num`` graphs, the same ones for the same seed."""


def _check_generator(name: str, value: Any) -> None:
    if not (callable(getattr(value, "fit", None)) and callable(getattr(value, "sample", None))):
        raise UsageError(
            f"The generator '{name}' needs the methods fit(data) and sample(num, seed), found "
            f"{value!r:.80}."
        )


GENERATORS: Registry[Any] = Registry("generator", "layerdag.generators", _check_generator)
"""Generators by name: a class whose constructor needs nothing, or an object."""

G = TypeVar("G")


def register_generator(name: str) -> Callable[[G], G]:
    """Return a decorator that adds a class with ``fit`` and ``sample`` as the generator ``name``.

    Raises:
        UsageError: If a method is missing.
    """

    def registered(generator: G) -> G:
        GENERATORS.register(name, generator)
        return generator

    return registered


def fitted_generator(name: str, data: GraphDataset) -> GraphGenerator:
    """Return the generator ``name`` after it has learned from a data set.

    Raises:
        ConfigError: If nothing has that name.
    """
    found = GENERATORS.get(name)
    generator: GraphGenerator = found() if isinstance(found, type) else found
    generator.fit(data)
    return generator


@dataclass(frozen=True, eq=False)
class CodedSamples:
    """Samples in codes of a data set.

    Attributes:
        dags: Nodes in layer order; None where a graph has a cycle or cannot be written in the words
            of the data set, which is no valid graph.
        reasons: Why, one sentence for each of these.
    """

    dags: tuple[DAG | None, ...]
    reasons: tuple[str, ...] = ()

    @property
    def usable(self) -> list[DAG]:
        """The graphs that metrics can look at."""
        return [dag for dag in self.dags if dag is not None]


def coded(
    graphs: Iterable[Any],
    schema: GraphSchema | None,
    renamed: Mapping[str, Mapping[str, str]] | None = None,
) -> CodedSamples:
    """Return graphs of any kind in codes of a schema.

    Args:
        graphs: DAGs with codes of the schema, samples, attributed graphs, workloads, paths or
            directed graphs of networkx; None stands for something that is no graph.
        schema: What the codes mean; None takes DAGs alone.
        renamed: Words that the data set has instead of others: new -> old, by attribute.

    Raises:
        UsageError: If something is no graph.
    """
    new = {
        name: {old: word for word, old in table.items()} for name, table in (renamed or {}).items()
    }
    dags: list[DAG | None] = []
    reasons = []
    for number, graph in enumerate(graphs):
        try:
            dags.append(_coded(graph, f"graph {number}", schema, new))
        except DataError as error:
            dags.append(None)
            reasons.append(str(error))
    return CodedSamples(tuple(dags), tuple(reasons))


def _coded(
    graph: Any, name: str, schema: GraphSchema | None, new: Mapping[str, Mapping[str, str]]
) -> DAG | None:
    """Return one graph in codes of a schema."""
    if graph is None:
        raise DataError(f"{name}: is no graph.")
    if isinstance(graph, DAG):
        return graph.in_layer_order()
    if schema is None:
        raise UsageError(
            "Only a data set says what words and numbers become in codes; pass a GraphDataset as "
            "the real graphs, or DAGs of one schema."
        )
    if hasattr(graph, "nodes") and hasattr(graph, "edges") and hasattr(graph, "is_directed"):
        graph = from_networkx(graph, name)
    elif hasattr(graph, "graph") and not hasattr(graph, "schema"):  # a stored sample
        graph = graph.graph
    if isinstance(graph, AttributedGraph):
        graph = _fitting(with_words(graph, new), schema)
    return encoded([graph], schema)[0]


def _fitting(graph: AttributedGraph, schema: GraphSchema) -> AttributedGraph:
    """Return a graph with the attributes of a schema; one that it lacks is absent."""
    words: dict[str, list[str]] = {}
    numbers: dict[str, np.ndarray] = {}
    for attribute in schema.attributes:
        name = attribute.name
        if not isinstance(attribute, CategoryAttribute):
            numbers[name] = graph.numbers.get(name, np.full(graph.num_nodes, np.nan))
        elif name in graph.numbers:
            words[name] = ["" if np.isnan(v) else f"{v:g}" for v in graph.numbers[name].tolist()]
        else:
            words[name] = list(graph.categories.get(name) or [""] * graph.num_nodes)
    return replace(graph, categories=words, numbers=numbers)


def from_networkx(graph: Any, name: str = "graph") -> AttributedGraph:
    """Return a directed graph of networkx; an edge has its type in the attribute ``type``.

    A node attribute that is a number wherever it is stated is numeric, every other one is a word.

    Raises:
        UsageError: If the graph is not directed.
    """
    if not graph.is_directed():
        raise UsageError(f"{name}: is an undirected graph; pass a networkx.DiGraph.")
    index = {node: i for i, node in enumerate(graph.nodes)}
    rows = [values for _, values in graph.nodes(data=True)]
    keys = list(dict.fromkeys(str(key) for row in rows for key in row))
    columns = {key: [row.get(key) for row in rows] for key in keys}
    numeric = {key for key, column in columns.items() if _is_numeric(column)}
    edges = [(index[a], index[b], str(v.get("type", ""))) for a, b, v in graph.edges(data=True)]
    types = tuple(dict.fromkeys(kind for *_, kind in edges if kind)) or ("data",)
    pairs = [[a for a, _, _ in edges], [b for _, b, _ in edges]]
    return AttributedGraph(
        name=name,
        categories={k: _words(columns[k]) for k in keys if k not in numeric},
        numbers={
            k: np.array([np.nan if v is None else float(v) for v in columns[k]]) for k in numeric
        },
        edge_index_2E=np.array(pairs, dtype=np.int64).reshape(2, -1),
        edge_type_E=np.array([types.index(kind or types[0]) for *_, kind in edges], dtype=np.int64),
        edge_type_names=types,
    )


def _is_numeric(column: Sequence[Any]) -> bool:
    stated = [value for value in column if value is not None]
    return all(isinstance(v, int | float | np.number) and not isinstance(v, bool) for v in stated)


def _words(column: Sequence[Any]) -> list[str]:
    return ["" if value is None else str(value) for value in column]
