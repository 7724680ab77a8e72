"""WfFormat 1.5 from any flow graph.

Where a file goes from one task to another, the graph says only how many bytes a task reads and
writes in all. Each edge gets a file of its own, of the smaller of the shares of both ends, and what
remains comes from a file outside, or goes into one, so that the sums are those of the graph.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from layerdag._runtime import write_text
from layerdag.codec import AttributedGraph
from layerdag.datasets.files._wfformat import MEASURED
from layerdag.datasets.schema import LABEL

_NOT_IN_IDS = re.compile(r"[^0-9a-zA-Z_.-]")
_LINKS = ("input_bytes", "output_bytes")
_UNKNOWN_DATE = "1970-01-01T00:00:00+00:00"
"""The date of an execution is required, and that of a synthetic workflow is none."""


def write_wfformat(path: str | Path, graph: AttributedGraph) -> None:
    """Write a graph as a WfFormat instance.

    Its first category names the tasks; ``runtime_s``, ``input_bytes`` and the other numbers that
    ``read_wfformat`` knows keep their meaning, and the label is the makespan (the longest path by
    runtime, where there is none). Other attributes have no place in the format and are left out.

    Raises:
        GraphError: If the graph contradicts itself.
    """
    graph.checked()
    keys = [f"{_NOT_IN_IDS.sub('_', kind)}_ID{at:06d}" for at, kind in enumerate(_kinds(graph), 1)]
    files = _Files(graph)
    document = {
        "name": graph.name or "workflow",
        "description": "Written by layerdag",
        "schemaVersion": "1.5",
        "workflow": {
            "specification": {
                "tasks": list(_tasks(graph, keys, files)),
                "files": [{"id": name, "sizeInBytes": size} for name, size in files.sizes.items()],
            },
            **_execution(graph, keys),
        },
    }
    write_text(path, json.dumps(document, indent=1) + "\n")


def _kinds(graph: AttributedGraph) -> list[str]:
    """Return the word that names the tasks."""
    return next(iter(graph.categories.values()), ["task"] * graph.num_nodes)


def _tasks(graph: AttributedGraph, keys: list[str], files: "_Files") -> Iterator[dict[str, object]]:
    """Yield the description of each task."""
    parents: list[list[str]] = [[] for _ in keys]
    children: list[list[str]] = [[] for _ in keys]
    for source, target in graph.edge_index_2E.T.tolist():
        parents[target].append(keys[source])
        children[source].append(keys[target])
    for at, (key, kind) in enumerate(zip(keys, _kinds(graph), strict=True)):
        found: dict[str, object] = {"name": f"{kind}_ID{at + 1:06d}", "id": key}
        found |= {"parents": parents[at], "children": children[at]}
        if files.inputs[at] is not None:
            found["inputFiles"] = files.inputs[at]
        if files.outputs[at] is not None:
            found["outputFiles"] = files.outputs[at]
        yield found


class _Files:
    """The files of a workflow, made so that their sizes add up.

    Attributes:
        sizes: Bytes of each file.
        inputs: Names of the files that each task reads; None where its bytes are not known.
        outputs: Names of the files that each task writes, likewise.
    """

    def __init__(self, graph: AttributedGraph) -> None:
        left = [_whole(graph, name) for name in _LINKS]
        self.sizes: dict[str, int] = {}
        self.inputs, self.outputs = _none_yet(left[0]), _none_yet(left[1])
        moved = [
            edge
            for edge, kind in zip(
                graph.edge_index_2E.T.tolist(), graph.edge_type_E.tolist(), strict=True
            )
            if graph.edge_type_names[kind] == "data"
        ]
        self._between_tasks(moved, left)
        for at in range(graph.num_nodes):
            self._outside(self.inputs, at, f"input_{at + 1}", left[0][at])
            self._outside(self.outputs, at, f"output_{at + 1}", left[1][at])

    def _between_tasks(self, edges: list[list[int]], left: list[np.ndarray]) -> None:
        """Give each edge a file and take its bytes from both ends."""
        into_left = np.bincount([e[1] for e in edges], minlength=len(left[0]))
        out_left = np.bincount([e[0] for e in edges], minlength=len(left[0]))
        for source, target in edges:
            shares = left[1][source] // out_left[source], left[0][target] // into_left[target]
            size = 0.0 if any(map(math.isnan, shares)) else min(shares)
            name = f"file_{source + 1}_{target + 1}"
            self.sizes[name] = int(size)
            for side, at, files in ((1, source, self.outputs), (0, target, self.inputs)):
                left[side][at] -= size
                files[at] = [*(files[at] or ()), name]
            out_left[source] -= 1
            into_left[target] -= 1

    def _outside(self, files: list[list[str] | None], at: int, name: str, size: float) -> None:
        """Add a file from or to the outside for the bytes that no edge has."""
        if size > 0:
            self.sizes[name] = int(size)
            files[at] = [*(files[at] or ()), name]


def _none_yet(bytes_N: np.ndarray) -> list[list[str] | None]:
    """Return an empty list for each task whose bytes are known, None for the others."""
    return [None if math.isnan(size) else [] for size in bytes_N.tolist()]


def _whole(graph: AttributedGraph, name: str) -> np.ndarray:
    """Return bytes as whole numbers of at least 0, NaN where they are absent."""
    value_N = graph.numbers.get(name, np.full(graph.num_nodes, np.nan))
    return np.maximum(np.rint(value_N), 0.0)


def _execution(graph: AttributedGraph, keys: list[str]) -> Mapping[str, object]:
    """Return what was measured; nothing if no task has a runtime."""
    columns = {name: graph.numbers[name] for name in MEASURED if name in graph.numbers}
    if "runtime_s" not in columns or np.isnan(columns["runtime_s"]).all():
        return {}
    rows: list[dict[str, object]] = []
    for at, key in enumerate(keys):
        if not math.isnan(columns["runtime_s"][at]):
            numbers = {MEASURED[name]: float(value_N[at]) for name, value_N in columns.items()
                if not math.isnan(value_N[at])}  # fmt: skip
            rows.append({"id": key, **numbers})
    makespan = graph.conditions.get(LABEL)
    if not isinstance(makespan, float | int):
        makespan = _longest_path(graph, np.nan_to_num(columns["runtime_s"]))
    return {
        "execution": {
            "makespanInSeconds": float(makespan),
            "executedAt": _UNKNOWN_DATE,
            "tasks": rows,
        }
    }


def _longest_path(graph: AttributedGraph, cost_N: np.ndarray) -> float:
    """Return the largest sum of costs on a path."""
    finish_N = cost_N.astype(np.float64)
    source_E, target_E = graph.edge_index_2E
    order_E = np.argsort(graph.layer_N[target_E], kind="stable")
    for source, target in zip(source_E[order_E].tolist(), target_E[order_E].tolist(), strict=True):
        finish_N[target] = max(finish_N[target], finish_N[source] + cost_N[target])
    return float(finish_N.max(initial=0.0))
