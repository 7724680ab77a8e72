"""Node-link JSON, as networkx and ProGraML write it and HLS data sets use it.

``{"directed": true, "graph": {...}, "nodes": [{"id": 0, ...}], "links": [{"source": 0, "target":
1, ...}]}``; "edges" for "links" is read as well. Control flow has loops: edges that close one are
left out, and counted as the graph-level value ``loop_edges``.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from layerdag._runtime import read_parsed
from layerdag.codec import AttributedGraph
from layerdag.datasets.files._columns import columns_of, is_number
from layerdag.errors import GraphError
from layerdag.graph import Condition

MOST_VALUES = 16
"""A list of more values than this is no attribute."""

_EDGE_TYPE = ("type", "flow", "edge_type", "etype", "deptype", "kind")
_FLOWS = {"0": "control", "1": "data", "2": "call"}
_BACK = ("is_back_edge", "back_edge", "distance")

Json = Mapping[str, Any]
Edges = dict[tuple[int, int], str]


def read_node_link(path: str | Path) -> AttributedGraph:
    """Read a directed graph; the file is not trusted.

    Texts and truth values of nodes are categories, numbers numbers; a short list becomes
    ``name_0``, ``name_1``, ..., a nested object ``name.key``. Scalars under "graph" are graph-level
    values, "label" among them.

    Raises:
        GraphError: If it is no such JSON, is undirected, has no node, or contradicts itself.
    """
    try:
        document = json.loads(read_parsed(path, GraphError))
        if document.get("directed") is False:
            raise GraphError(f"{path}: the graph is undirected; a DAG needs directed edges.")
        links = document.get("links", document.get("edges", ()))
        return _graph(path, document["nodes"], links, document.get("graph"))
    except KeyError as error:
        raise GraphError(f"{path}: is no node-link JSON: {error} is missing.") from error
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise GraphError(f"{path}: is no node-link JSON ({error}); check the file.") from error


def _graph(
    path: str | Path, nodes: Sequence[Json], links: Sequence[Json], values: object
) -> AttributedGraph:
    """Return the graph."""
    index_of = {str(node.get("id", at)): at for at, node in enumerate(nodes)}
    if len(index_of) != len(nodes):
        raise GraphError(f"{path}: two nodes have the same id; make ids unique.")
    edges, loops = _without_loops(len(nodes), *_edges(path, links, index_of))
    categories, numbers = columns_of(
        [dict(_flat("", {k: v for k, v in node.items() if k != "id"})) for node in nodes]
    )
    types = tuple(sorted({*edges.values(), "data"}))
    conditions: dict[str, Condition] = {"loop_edges": float(loops)} if loops else {}
    for name, text in _flat("", values if isinstance(values, dict) else {}):
        conditions[name] = float(text) if is_number(text) else text
    return AttributedGraph(
        name=Path(path).name.partition(".json")[0],
        categories=categories,
        numbers=numbers,
        edge_index_2E=np.array(sorted(edges), dtype=np.int64).reshape(-1, 2).T,
        edge_type_E=np.array([types.index(edges[edge]) for edge in sorted(edges)], dtype=np.int64),
        edge_type_names=types,
        conditions=conditions,
    ).checked()


def _flat(prefix: str, row: Json) -> Iterator[tuple[str, str]]:
    """Yield attributes as text; what is absent or no attribute is left out."""
    for name, value in row.items():
        key = f"{prefix}{name}"
        if isinstance(value, dict) and not prefix.count("."):
            yield from _flat(f"{key}.", value)
        elif isinstance(value, list) and len(value) <= MOST_VALUES:
            single = len(value) == 1
            parts = {key if single else f"{key}_{i}": part for i, part in enumerate(value)}
            yield from ((k, _text(v)) for k, v in parts.items() if _is_scalar(v))
        elif _is_scalar(value):
            yield key, _text(value)


def _is_scalar(value: object) -> bool:
    """Return whether a value is a text, a truth value or a finite number."""
    return isinstance(value, str | bool | int) or (
        isinstance(value, float) and math.isfinite(value)
    )


def _text(value: object) -> str:
    """Return a scalar as text."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _edges(
    path: str | Path, links: Sequence[Json], index_of: Mapping[str, int]
) -> tuple[Edges, int]:
    """Return the type of each edge, and how many are marked as closing a loop.

    Edges of several types between two nodes become one, whose type names them all.
    """
    types: dict[tuple[int, int], set[str]] = {}
    loops = 0
    for link in links:
        ends = str(link["source"]), str(link["target"])
        for end in ends:
            if end not in index_of:
                raise GraphError(f"{path}: an edge names node '{end}', which does not exist.")
        if any(is_number(_text(link.get(k, ""))) and float(link[k]) > 0 for k in _BACK) or any(
            link.get(k) is True for k in _BACK
        ):
            loops += 1
        else:
            types.setdefault((index_of[ends[0]], index_of[ends[1]]), set()).add(_type(link))
    return {edge: "+".join(sorted(found)) for edge, found in types.items()}, loops


def _type(link: Json) -> str:
    """Return the type of an edge."""
    for name in _EDGE_TYPE:
        if name in link and _is_scalar(link[name]):
            word = _text(link[name])
            return _FLOWS.get(word, word) if name == "flow" else word
    return "data"


def _without_loops(num_nodes: int, edges: Edges, loops: int) -> tuple[Edges, int]:
    """Leave out the edges to a node that is still being visited, depth first in order of ids."""
    targets: list[list[int]] = [[] for _ in range(num_nodes)]
    for source, target in sorted(edges):
        targets[source].append(target)
    state = bytearray(num_nodes)  # 0 new, 1 being visited, 2 done
    back: set[tuple[int, int]] = set()
    for root in range(num_nodes):
        stack = [(root, iter(targets[root]))] if not state[root] else []
        if stack:
            state[root] = 1
        while stack:
            node, rest = stack[-1]
            after = next(rest, None)
            if after is None:
                state[node] = 2
                stack.pop()
            elif state[after] == 1:
                back.add((node, after))
            elif not state[after]:
                state[after] = 1
                stack.append((after, iter(targets[after])))
    kept = {edge: kind for edge, kind in edges.items() if edge not in back}
    return kept, loops + len(back)
