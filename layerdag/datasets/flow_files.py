"""Flow graphs as files: GraphML for other tools, and a lossless JSON of our own."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from layerdag.datasets.raw import RawGraph
from layerdag.errors import GraphError
from layerdag.files import atomic_path, write_text
from layerdag.graph.dag import Condition

JSON_FORMAT = "layerdag-graph-1"

_MALFORMED = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)


def write_json(path: str | Path, graph: RawGraph) -> None:
    """Write names, numbers (null for absent), typed edges and conditions as one JSON object."""
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
    write_text(path, json.dumps(document) + "\n")


def read_json(path: str | Path) -> RawGraph:
    """Read a graph that ``write_json`` wrote; the file is not trusted.

    Raises:
        GraphError: If the file is not of this format, or contradicts itself.
    """
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
        if data.get("format") != JSON_FORMAT:
            raise ValueError(f"its format is {data.get('format')!r}, not {JSON_FORMAT!r}")
        names = tuple(str(name) for name in data["edge_type_names"])
        return RawGraph(
            name=str(data["name"]),
            categories={k: [str(w) for w in words] for k, words in data["categories"].items()},
            numbers={
                k: np.array([math.nan if v is None else float(v) for v in values])
                for k, values in data["numbers"].items()
            },
            units={str(k): str(v) for k, v in data["units"].items()},
            edge_index_2E=np.array(data["edges"], dtype=np.int64).reshape(-1, 2).T,
            edge_type_E=np.array([names.index(t) for t in data["edge_types"]], dtype=np.int64),
            edge_type_names=names,
            conditions=_conditions(data["conditions"]),
        ).checked()
    except GraphError:
        raise
    except (
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        OverflowError,
        RecursionError,
    ) as error:
        raise GraphError(
            f"{path}: is not a graph in layerdag's JSON ({error}); write it with layerdag sample."
        ) from error


def write_graphml(path: str | Path, graph: RawGraph) -> None:
    """Write GraphML; absent numbers are left out of their node."""
    import networkx

    target = networkx.DiGraph(**dict(graph.conditions))
    for node in range(graph.num_nodes):
        attributes: dict[str, Any] = {k: words[node] for k, words in graph.categories.items()}
        values = {k: float(v[node]) for k, v in graph.numbers.items()}
        attributes.update({k: v for k, v in values.items() if not math.isnan(v)})
        target.add_node(str(node), **attributes)
    for (source, to), code in zip(
        graph.edge_index_2E.T.tolist(), graph.edge_type_E.tolist(), strict=True
    ):
        target.add_edge(str(source), str(to), type=graph.edge_type_names[code])
    with atomic_path(path) as draft:
        networkx.write_graphml(target, draft)


def read_graphml(path: str | Path) -> RawGraph:
    """Read a directed GraphML file: string attributes are categories, numbers are numbers.

    Edges with a positive "distance" (carried by a loop to a later iteration) are left out, as a DAG
    needs. An edge attribute "type" gives the edge type.

    Raises:
        GraphError: If the file is no directed GraphML or has no node.
    """
    from xml.etree.ElementTree import ParseError

    import networkx

    try:
        source = networkx.read_graphml(path)
    except (ParseError, networkx.NetworkXError, KeyError, ValueError, TypeError) as error:
        raise GraphError(f"{path}: is not readable GraphML ({error}); check the file.") from error
    if not source.is_directed():
        raise GraphError(f"{path}: the graph is undirected; a DAG needs edgedefault='directed'.")
    place = {node: index for index, node in enumerate(source.nodes)}
    kept = {
        (place[a], place[b]): str(data.get("type", "data"))
        for a, b, data in source.edges(data=True)
        if not _positive(data.get("distance", data.get("Distance", 0)))
    }
    names = tuple(sorted({*kept.values(), "data"}))
    categories, numbers = _columns([data for _, data in source.nodes(data=True)])
    return RawGraph(
        name=Path(path).stem,
        categories=categories,
        numbers=numbers,
        edge_index_2E=np.array(list(kept), dtype=np.int64).reshape(-1, 2).T,
        edge_type_E=np.array([names.index(t) for t in kept.values()], dtype=np.int64),
        edge_type_names=names,
        conditions=_conditions(source.graph),
    ).checked()


def _columns(
    rows: list[Mapping[str, Any]],
) -> tuple[dict[str, list[str]], dict[str, np.ndarray]]:
    """Sort the attributes of all nodes into categories and numbers; a graph has at least one."""
    names = sorted({name for row in rows for name in row})
    categories: dict[str, list[str]] = {}
    numbers: dict[str, np.ndarray] = {}
    for name in names:
        values = [row.get(name) for row in rows]
        if all(
            v is None or (isinstance(v, int | float) and not isinstance(v, bool)) for v in values
        ):
            numbers[name] = np.array([math.nan if v is None else float(v) for v in values])
        else:
            categories[name] = ["" if v is None else str(v) for v in values]
    if not categories:
        categories["kind"] = ["node"] * len(rows)
    return categories, numbers


def _conditions(data: Mapping[str, Any]) -> dict[str, Condition]:
    """Keep numbers and strings."""
    found: dict[str, Condition] = {}
    for name, value in data.items():
        if isinstance(value, int | float) and not isinstance(value, bool):
            found[str(name)] = float(value)
        elif isinstance(value, str):
            found[str(name)] = value
    return found


def _positive(value: object) -> bool:
    """Return whether an attribute is a number above 0."""
    try:
        return float(str(value)) > 0
    except ValueError:
        return False
