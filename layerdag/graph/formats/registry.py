"""Columns from rows of attributes; layerdag's own JSON of graphs, both ways."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from layerdag.errors import GraphError
from layerdag.graph.attributed_graph import AttributedGraph, Condition
from layerdag.runtime.files import write_bytes
from layerdag.runtime.reading import read_parsed


def columns_of(
    rows: Sequence[Mapping[str, str]], kinds: Mapping[str, bool] | None = None
) -> tuple[dict[str, list[str]], dict[str, np.ndarray]]:
    """Return the attributes of all nodes as categories and numbers; there is at least one category.

    Args:
        rows: Attributes of each node as text; what a node lacks is "" or NaN.
        kinds: Whether an attribute may be numeric, where that is known.
    """
    categories: dict[str, list[str]] = {}
    numbers: dict[str, np.ndarray] = {}
    for name in dict.fromkeys(name for row in rows for name in row):
        present = [row[name] for row in rows if name in row]
        if (kinds or {}).get(name, True) and all(map(is_number, present)):
            numbers[name] = np.array([float(row.get(name, "nan")) for row in rows])
        else:
            categories[name] = [row.get(name, "") for row in rows]
    if not categories:
        categories["kind"] = ["node"] * len(rows)
    return categories, numbers


def is_number(text: str) -> bool:
    """Return whether a text is a finite number."""
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


Value = str | bool | int | float


@dataclass(frozen=True, eq=False)
class GraphRows:
    """A graph as writers of other tools' formats see it.

    Attributes:
        name: Of the graph.
        ids: Name of each node in the file.
        rows: Attributes of each node; what a node lacks is left out.
        edges: Source, target and type of each edge.
        conditions: Graph-level values.
        looks: Attributes of each node for drawing, which a format may leave out; none if empty.
    """

    name: str
    ids: Sequence[str]
    rows: Sequence[Mapping[str, Value]]
    edges: Sequence[tuple[int, int, str]]
    conditions: Mapping[str, Condition] = field(default_factory=dict)
    looks: Sequence[Mapping[str, str]] = ()

    @classmethod
    def from_graph(cls, graph: AttributedGraph) -> "GraphRows":
        """Return the rows of a graph, whose nodes are numbered from 0."""
        numbers = {name: value_N.tolist() for name, value_N in graph.numbers.items()}
        rows = []
        for node in range(graph.num_nodes):
            row: dict[str, Value] = {k: column[node] for k, column in graph.categories.items()}
            values = {name: column[node] for name, column in numbers.items()}
            row.update({name: float(v) for name, v in values.items() if not math.isnan(v)})
            rows.append(row)
        kinds = graph.edge_type_E.tolist()
        pairs = zip(graph.edge_index_2E.T.tolist(), kinds, strict=True)
        return cls(
            name=graph.name,
            ids=tuple(map(str, range(graph.num_nodes))),
            rows=rows,
            edges=[(a, b, graph.edge_type_names[kind]) for (a, b), kind in pairs],
            conditions=graph.conditions,
        )


JSON_FORMAT = "layerdag-graph-1"

_MALFORMED = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)


def write_json(path: str | Path, graph: AttributedGraph) -> None:
    """Write names, numbers (null for absent), typed edges and conditions as one JSON object."""
    write_bytes(path, encode_json(graph))


def encode_json(graph: AttributedGraph) -> bytes:
    """Return the content of the file that ``write_json`` writes."""
    numbers = {
        name: [None if math.isnan(v) else v for v in values.tolist()]
        for name, values in graph.numbers.items()
    }
    document = {
        "format": JSON_FORMAT,
        "name": graph.name,
        "categories": dict(graph.categories),
        "numbers": numbers,
        "units": dict(graph.units),
        "edges": graph.edge_index_2E.T.tolist(),
        "edge_types": [graph.edge_type_names[code] for code in graph.edge_type_E.tolist()],
        "edge_type_names": list(graph.edge_type_names),
        "conditions": dict(graph.conditions),
    }
    return (json.dumps(document) + "\n").encode()


def read_json(path: str | Path) -> AttributedGraph:
    """Read a graph that ``write_json`` wrote; the file is not trusted.

    Raises:
        GraphError: If the file is not of this format, or contradicts itself.
    """
    return decode_json(read_parsed(path, GraphError), str(path))


def decode_json(content: bytes, source: str) -> AttributedGraph:
    """Return the graph in the content of a file; see ``read_json``."""
    try:
        data = json.loads(content)
        if data.get("format") != JSON_FORMAT:
            raise ValueError(f"its format is {data.get('format')!r}, not {JSON_FORMAT!r}")
        names = tuple(str(name) for name in data["edge_type_names"])
        return AttributedGraph(
            name=str(data["name"]),
            categories={k: [str(w) for w in column] for k, column in data["categories"].items()},
            numbers={
                k: np.array([math.nan if v is None else float(v) for v in values])
                for k, values in data["numbers"].items()
            },
            units={str(k): str(v) for k, v in data["units"].items()},
            edge_index_2E=np.array(data["edges"], dtype=np.int64).reshape(-1, 2).T,
            edge_type_E=_edge_types(data["edge_types"], names),
            edge_type_names=names,
            conditions=_conditions(data["conditions"]),
        ).checked()
    except GraphError:
        raise
    except _MALFORMED as error:
        raise GraphError(
            f"{source}: is not a graph in layerdag's JSON ({error}); write it with layerdag sample."
        ) from error


def _edge_types(types: Any, names: tuple[str, ...]) -> np.ndarray:
    """Return the position of each edge's type in the names of all."""
    for word in types:
        if word not in names:
            raise ValueError(f"edge_types has {word!r}, which edge_type_names lacks")
    return np.array([names.index(word) for word in types], dtype=np.int64)


def _conditions(data: Mapping[str, Any]) -> dict[str, Condition]:
    """Keep numbers and strings."""
    found: dict[str, Condition] = {}
    for name, value in data.items():
        if isinstance(value, int | float) and not isinstance(value, bool):
            found[str(name)] = float(value)
        elif isinstance(value, str):
            found[str(name)] = value
    return found
