"""Graphs as files: a JSON of our own that loses nothing, and GraphML for other tools."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from layerdag._runtime import read_parsed, write_bytes
from layerdag.codec import AttributedGraph
from layerdag.errors import GraphError
from layerdag.graph import Condition

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
