"""WfFormat, both ways.

WfFormat, the JSON of WfCommons (wfcommons.org) for executed workflows: versions 1.4, 1.5 and 1.6,
which adds sums over a workflow ("metrics") that follow from its tasks.

A task is a node. Its kind is its program where that is one word, else its name without the number
that numbers it. Numbers are its runtime, bytes of the files that go in and out, and what else was
measured; an edge is of type "data" where a file goes from one task to the other.

WfFormat 1.5 from any flow graph.

Where a file goes from one task to another, the graph says only how many bytes a task reads and
writes in all. Each edge gets a file of its own, of the smaller of the shares of both ends, and what
remains comes from a file outside, or goes into one, so that the sums are those of the graph.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from layerdag.errors import GraphError
from layerdag.graph.attributed_graph import LABEL, AttributedGraph, Condition, written_name
from layerdag.graph.formats.rows import names_of
from layerdag.graph.topology import longest_path
from layerdag.runtime.files import write_text
from layerdag.runtime.json_shape import found_value, parse_json, plain_reason, require_shape
from layerdag.runtime.notes import NoteCollector, NoteKind
from layerdag.runtime.reading import read_parsed

VERSIONS = ("1.4", "1.5", "1.6")
EDGE_TYPES = ("data", "control")
MEASURED = {
    "runtime_s": "runtimeInSeconds",
    "cores": "coreCount",
    "avg_cpu": "avgCPU",
    "memory_bytes": "memoryInBytes",
    "read_bytes": "readBytes",
    "written_bytes": "writtenBytes",
    "priority": "priority",
    "energy_kwh": "energyInKWh",
    "power_w": "avgPowerInW",
}
"""Key of each number of a task."""

UNITS = {
    "runtime_s": "s",
    "avg_cpu": "%",
    "energy_kwh": "kWh",
    "power_w": "W",
    **dict.fromkeys(
        ("memory_bytes", "read_bytes", "written_bytes", "input_bytes", "output_bytes"), "B"
    ),
}
_OF_TASKS = {
    *("id", "name", "parents", "children", "inputFiles", "outputFiles", "files", "runtime"),
    *("cores", "type", "category", "command", "executedAt", "machine", "machines"),
    *MEASURED.values(),
}
"""Keys of a task whose meaning is known; who ran it, where and when is no part of a graph."""

_OF_DOCUMENTS = {
    *("name", "description", "createdAt", "schemaVersion", "author", "runtimeSystem", "workflow"),
    *("wms", "metrics"),
}
_OF_WORKFLOWS = {
    *("specification", "execution", "metrics"),
    *("makespanInSeconds", "makespan", "executedAt", "tasks", "jobs", "machines"),
}
"""Who ran a workflow, where and when is no part of a graph; sums follow from its tasks."""

_OF_SPECIFICATIONS = {"tasks", "files"}
_OF_FILES = {"id", "name", "link", "sizeInBytes", "size", "path"}

_TASK_NUMBER = re.compile(r"(_ID|[._-])\d+$")
_ONE_WORD = re.compile(r"[\w.+:/-]{1,64}")

Json = Mapping[str, Any]


@dataclass(frozen=True)
class _Task:
    """A task of either version.

    Attributes:
        key: What other tasks call it.
        kind: Program or name.
        neighbors: Keys of parents, and keys of children.
        files: Bytes of the files that go in, and of those that come out; None where it is not said.
        numbers: What was measured.
    """

    key: str
    kind: str
    neighbors: tuple[tuple[str, ...], tuple[str, ...]]
    files: tuple[Mapping[str, float] | None, Mapping[str, float] | None]
    numbers: Mapping[str, float]


_NAMES = [(str, int)]
_FILE = {"sizeInBytes?": (float, None)}
_RUN = {"command?": (dict, None)}
_SHAPE_1_5 = {
    "workflow": {
        "specification": {
            "tasks": [
                {
                    "id": (str, int),
                    "name": (str, int),
                    "parents": _NAMES,
                    "children": _NAMES,
                    "inputFiles?": _NAMES,
                    "outputFiles?": _NAMES,
                }
            ],
            "files?": [{"id": (str, int), **_FILE}],
        },
        "execution?": {"tasks?": [{"id": (str, int), **_RUN}]},
    }
}
_SHAPE_1_4 = {
    "workflow": {
        "tasks": [
            {
                "name": (str, int),
                "parents": _NAMES,
                "children": _NAMES,
                "files?": [{"link": str, **_FILE}],
                **_RUN,
            }
        ]
    }
}


def read_wfformat(path: str | Path) -> AttributedGraph:
    """Read an instance; the file is not trusted. The makespan is the graph's label.

    Raises:
        GraphError: If it is no WfFormat of these versions, contradicts itself, or has no task.
    """
    try:
        document = parse_json(read_parsed(path, GraphError))
        require_shape(document, dict)
        version = document.get("schemaVersion")
        if version not in VERSIONS:
            raise GraphError(
                f"{path}: is WfFormat {found_value(version)}, but layerdag reads "
                f"{', '.join(VERSIONS)}; "
                "migrate it with wfcommons-migrate-instance.py of WfFormat."
            )
        require_shape(document, _SHAPE_1_4 if version == "1.4" else _SHAPE_1_5)
        workflow, notes = document["workflow"], NoteCollector(str(path))
        for key in sorted(document.keys() - _OF_DOCUMENTS) + sorted(
            workflow.keys() - _OF_WORKFLOWS
        ):
            notes.add(NoteKind.KEY, key, "unknown; left out")
        read = _tasks_of_1_4 if version == "1.4" else _tasks_of_1_5
        tasks = list(read(workflow, notes))
        execution = workflow if version == "1.4" else workflow.get("execution", {})
        return _graph(path, tasks, execution.get("makespanInSeconds"), notes).checked()
    except GraphError as error:
        message = str(error)
        raise GraphError(
            message if message.startswith(str(path)) else f"{path}: {message}"
        ) from error
    except (ValueError, OverflowError, RecursionError) as error:
        raise GraphError(
            f"{path}: is no sound WfFormat ({plain_reason(error)}); check the file."
        ) from error


def _tasks_of_1_5(workflow: Json, notes: NoteCollector) -> Iterator[_Task]:
    """Yield the tasks of version 1.5 or 1.6, which describe tasks, files and execution apart."""
    specification = workflow["specification"]
    for place, held, known in (
        ("specification", specification, _OF_SPECIFICATIONS),
        ("execution", workflow.get("execution", {}), _OF_WORKFLOWS),
    ):
        for key in sorted(held.keys() - known):
            notes.add(NoteKind.KEY, key, "unknown; left out", where=place)
    sizes: dict[str, float] = {}
    for file in specification.get("files", ()):
        name, size = str(file["id"]), _file_size(file, notes)
        if size != sizes.setdefault(name, size) and not math.isnan(size):
            raise GraphError(f"two files have the id '{name:.80}'; make ids unique.")
    rows: dict[str, Json] = {}
    for row in workflow.get("execution", {}).get("tasks", ()):
        if rows.setdefault(str(row["id"]), row) is not row:
            raise GraphError(f"the execution has task '{row['id']!s:.80}' twice; keep one of them.")
    for task in specification["tasks"]:
        files = [
            {str(name): sizes.get(str(name), math.nan) for name in task[key]}
            if key in task
            else None
            for key in ("inputFiles", "outputFiles")
        ]
        yield _task(task, rows.pop(str(task["id"]), {}), (files[0], files[1]), notes)
    if rows:
        raise GraphError(f"the execution names task '{next(iter(rows))}', which does not exist.")


def _tasks_of_1_4(workflow: Json, notes: NoteCollector) -> Iterator[_Task]:
    """Yield the tasks of version 1.4, which describes all of a task in one place."""
    for task in workflow["tasks"]:
        files: dict[str, dict[str, float]] = {"input": {}, "output": {}}
        for file in task.get("files", ()):
            name = str(file.get("id", file.get("name")))
            if file["link"] not in files:
                raise ValueError(f"'link' of file '{name:.40}' is neither 'input' nor 'output'")
            files[file["link"]][name] = _file_size(file, notes)
        present = "files" in task
        row = {**task, "coreCount": task.get("coreCount", task.get("cores"))}
        inputs, outputs = files["input"], files["output"]
        yield _task(task, row, (inputs, outputs) if present else (None, None), notes)


def _task(
    task: Json,
    row: Json,
    files: tuple[Mapping[str, float] | None, Mapping[str, float] | None],
    notes: NoteCollector,
) -> _Task:
    for key in {*task, *row} - _OF_TASKS:
        where = f"task '{task.get('id', task.get('name'))}'"
        notes.add(NoteKind.ATTRIBUTE, key, "unknown; left out", where=where)
    command = row.get("command")
    program = command.get("program") if isinstance(command, dict) else None
    name = str(task["name"])
    kind = _TASK_NUMBER.sub("", name) or name
    if isinstance(program, str) and _ONE_WORD.fullmatch(program):
        kind = program.rpartition("/")[2] or kind
    parents, children = (tuple(str(key) for key in task[side]) for side in ("parents", "children"))
    numbers = {name: _number(row, key) for name, key in MEASURED.items()}
    return _Task(str(task.get("id", name)), kind, (parents, children), files, numbers)


def _graph(
    path: str | Path, tasks: Sequence[_Task], makespan: object, notes: NoteCollector
) -> AttributedGraph:
    index_of = {task.key: at for at, task in enumerate(tasks)}
    if len(index_of) != len(tasks):
        raise GraphError("two tasks have the same id; make ids unique.")
    edges = _edges(tasks, index_of)
    numbers = {name: np.array([task.numbers[name] for task in tasks]) for name in MEASURED}
    for side, name in enumerate(("input_bytes", "output_bytes")):
        files = [task.files[side] for task in tasks]
        totals = [math.nan if each is None else float(sum(each.values())) for each in files]
        numbers[name] = np.array(totals, dtype=np.float64)
    conditions: dict[str, Condition] = {}
    if _is_number(makespan) and float(str(makespan)) >= 0:
        conditions[LABEL] = float(str(makespan))
    elif makespan is not None:
        notes.add(
            NoteKind.LABEL, makespan, "no number; the workflow has no label",
            where="makespanInSeconds",
        )  # fmt: skip
    return AttributedGraph(
        name=Path(path).name.partition(".json")[0],
        categories={"kind": [task.kind for task in tasks]},
        numbers={name: value_N for name, value_N in numbers.items() if not np.isnan(value_N).all()},
        units=UNITS,
        edge_index_2E=np.array(sorted(edges), dtype=np.int64).reshape(-1, 2).T,
        edge_type_E=np.array([EDGE_TYPES.index(edges[e]) for e in sorted(edges)], dtype=np.int64),
        edge_type_names=EDGE_TYPES,
        conditions=conditions,
        node_names=names_of([task.key for task in tasks]),
        notes=notes.notes,
    )


def _edges(tasks: Sequence[_Task], index_of: Mapping[str, int]) -> dict[tuple[int, int], str]:
    found: dict[tuple[int, int], str] = {}
    for at, task in enumerate(tasks):
        for side, keys in enumerate(task.neighbors):
            for key in keys:
                if key not in index_of:
                    word = ("parent", "child")[side]
                    raise GraphError(
                        f"task '{task.key}' has the {word} '{key}', which does not exist; add the "
                        "task, or remove the name."
                    )
                edge = (at, index_of[key]) if side else (index_of[key], at)
                out, into = tasks[edge[0]].files[1] or {}, tasks[edge[1]].files[0] or {}
                found[edge] = "data" if out.keys() & into.keys() else "control"
    return found


def _file_size(file: Json, notes: NoteCollector) -> float:
    """Return the bytes of a file, NaN if they are not said."""
    name = str(file.get("id", file.get("name")))
    for key in file.keys() - _OF_FILES:
        notes.add(NoteKind.ATTRIBUTE, key, "unknown; left out", where=f"file '{name:.80}'")
    size = file.get("sizeInBytes")
    if size is None:
        return math.nan
    if not _is_number(size) or size < 0:
        raise GraphError(
            f"file '{name}' has {found_value(size)} bytes; write a number of at least 0."
        )
    return float(size)


def _number(row: Json, key: str) -> float:
    """Return a measured number, NaN if there is none."""
    value = row.get(key)
    if value is None:
        return math.nan
    if not _is_number(value) or (value < 0 and key != "priority"):
        least = "" if key == "priority" else " of at least 0"
        raise GraphError(
            f"'{key}' of a task is {found_value(value)}; write a finite number{least}."
        )
    return float(value)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


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
        "name": written_name(graph.name) or "workflow",
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
    return next(iter(graph.categories.values()), ["task"] * graph.num_nodes)


def _tasks(graph: AttributedGraph, keys: list[str], files: "_Files") -> Iterator[dict[str, object]]:
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
        runtime_N = np.nan_to_num(columns["runtime_s"])
        makespan = longest_path(graph.layer_N, graph.edge_index_2E, runtime_N).length
    return {
        "execution": {
            "makespanInSeconds": float(makespan),
            "executedAt": _UNKNOWN_DATE,
            "tasks": rows,
        }
    }
