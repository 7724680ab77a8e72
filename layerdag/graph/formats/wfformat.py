"""WfFormat, the JSON of WfCommons (wfcommons.org) for executed workflows, read and written.

Versions 1.4, 1.5 and 1.6 are read. A task is a node. Its kind is its program if that is one word,
else its name without its number. Its numbers are its runtime, the bytes of its input and output
files and what else was measured; an edge has type "data" if a file goes from one task to the other.

Any flow graph can be written, as version 1.5. A graph has only the total bytes that a task reads
and writes. Therefore each data edge gets a file of the smaller share of its two ends, and the rest
comes from, or goes to, a file outside the workflow, so that the totals are those of the graph.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

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
"""Known keys of a task; who ran it, where and when is not part of a graph."""

_OF_DOCUMENTS = {
    *("name", "description", "createdAt", "schemaVersion", "author", "runtimeSystem", "workflow"),
    *("wms", "metrics"),
}
_OF_WORKFLOWS = {
    *("specification", "execution", "metrics"),
    *("makespanInSeconds", "makespan", "executedAt", "tasks", "jobs", "machines"),
}
_OF_SPECIFICATIONS = {"tasks", "files"}
_OF_FILES = {"id", "name", "link", "sizeInBytes", "size", "path"}

_TASK_NUMBER = re.compile(r"(_ID|[._-])\d+$")
_ONE_WORD = re.compile(r"[\w.+:/-]{1,64}")

Json = Mapping[str, Any]


@dataclass(frozen=True)
class _Task:
    """A task of any version.

    Attributes:
        key: Its id in lists of parents and children.
        kind: Program or name.
        neighbors: Keys of parents, and keys of children.
        files: Bytes of input and of output files by name; None where unknown.
        numbers: Measurements, by key of ``MEASURED``.
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
                f"{', '.join(VERSIONS)}; migrate it with "
                "wfcommons-migrate-instance.py of WfFormat."
            )
        require_shape(document, _SHAPE_1_4 if version == "1.4" else _SHAPE_1_5)
        workflow, notes = document["workflow"], NoteCollector(str(path))
        for held, known in ((document, _OF_DOCUMENTS), (workflow, _OF_WORKFLOWS)):
            for key in sorted(held.keys() - known):
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
    """Yield the tasks of version 1.5 or 1.6, which separate tasks, files and execution."""
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
    """Yield the tasks of version 1.4, in which a task holds its files and measurements."""
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
    title = str(task["name"])
    kind = _TASK_NUMBER.sub("", title) or title
    if isinstance(program, str) and _ONE_WORD.fullmatch(program):
        kind = program.rpartition("/")[2] or kind
    parents, children = (tuple(str(key) for key in task[side]) for side in ("parents", "children"))
    numbers = dict.fromkeys(MEASURED, math.nan)
    for name, key in MEASURED.items():
        value = row.get(key)
        if value is None:
            continue
        if not _is_number(value) or (value < 0 and key != "priority"):
            least = "" if key == "priority" else " of at least 0"
            raise GraphError(
                f"'{key}' of a task is {found_value(value)}; write a finite number{least}."
            )
        numbers[name] = float(value)
    return _Task(str(task.get("id", title)), kind, (parents, children), files, numbers)


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
    if _is_number(makespan) and makespan >= 0:
        conditions[LABEL] = float(makespan)
    elif makespan is not None:
        effect = "no number; the workflow has no label"
        notes.add(NoteKind.LABEL, makespan, effect, where="makespanInSeconds")
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
    """Return the bytes of a file, NaN if unknown."""
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


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


_NOT_IN_IDS = re.compile(r"[^0-9a-zA-Z_.-]")
_LINKS = ("input_bytes", "output_bytes")
_UNKNOWN_DATE = "1970-01-01T00:00:00+00:00"
"""The format requires a date of execution, which a synthetic workflow does not have."""


def write_wfformat(path: str | Path, graph: AttributedGraph) -> None:
    """Write a graph as a WfFormat instance.

    Its first category names the tasks; ``runtime_s``, ``input_bytes`` and the other numbers that
    ``read_wfformat`` knows keep their meaning, and the label is the makespan (without one, the
    longest path by runtime). The format has no place for other attributes.

    Raises:
        GraphError: If the graph contradicts itself.
    """
    graph.checked()
    kinds = next(iter(graph.categories.values()), ["task"] * graph.num_nodes)
    keys = [f"{_NOT_IN_IDS.sub('_', kind)}_ID{at:06d}" for at, kind in enumerate(kinds, 1)]
    sizes, inputs, outputs = _files(graph)
    tasks: list[dict[str, object]] = [
        {
            "name": f"{kind}_ID{at + 1:06d}",
            "id": keys[at],
            "parents": parents,
            "children": children,
            **({} if inputs[at] is None else {"inputFiles": inputs[at]}),
            **({} if outputs[at] is None else {"outputFiles": outputs[at]}),
        }
        for at, (kind, parents, children) in enumerate(
            zip(kinds, _neighbors(graph, keys, 1), _neighbors(graph, keys, 0), strict=True)
        )
    ]
    document = {
        "name": written_name(graph.name) or "workflow",
        "description": "Written by layerdag",
        "schemaVersion": "1.5",
        "workflow": {
            "specification": {
                "tasks": tasks,
                "files": [{"id": name, "sizeInBytes": size} for name, size in sizes.items()],
            },
            **_execution(graph, keys),
        },
    }
    write_text(path, json.dumps(document, indent=1) + "\n")


def _neighbors(graph: AttributedGraph, keys: list[str], end: int) -> list[list[str]]:
    """Return the keys of each task's parents (``end`` 1) or children (``end`` 0)."""
    found: list[list[str]] = [[] for _ in keys]
    for edge in graph.edges:
        found[edge[end]].append(keys[edge[1 - end]])
    return found


_FilesOfTasks = list[list[str] | None]
"""Names of each task's files; None where its bytes are unknown."""


def _files(graph: AttributedGraph) -> tuple[dict[str, int], _FilesOfTasks, _FilesOfTasks]:
    """Return the bytes of each file, and each task's input and output files."""
    absent_N = np.full(graph.num_nodes, np.nan)
    into_N, out_N = (np.maximum(np.rint(graph.numbers.get(name, absent_N)), 0.0) for name in _LINKS)
    inputs: _FilesOfTasks = [None if math.isnan(size) else [] for size in into_N.tolist()]
    outputs: _FilesOfTasks = [None if math.isnan(size) else [] for size in out_N.tolist()]
    sizes: dict[str, int] = {}

    def add(files: _FilesOfTasks, at: int, name: str) -> None:
        files[at] = [*(files[at] or ()), name]

    is_data_E = np.array([name == "data" for name in graph.edge_type_names])[graph.edge_type_E]
    source_E, target_E = graph.edge_index_2E[:, is_data_E]
    into_left = np.bincount(target_E, minlength=graph.num_nodes)
    out_left = np.bincount(source_E, minlength=graph.num_nodes)
    for source, target in zip(source_E.tolist(), target_E.tolist(), strict=True):
        shares = out_N[source] // out_left[source], into_N[target] // into_left[target]
        size = 0.0 if any(map(math.isnan, shares)) else min(shares)
        name = f"file_{source + 1}_{target + 1}"
        sizes[name] = int(size)
        add(outputs, source, name)
        add(inputs, target, name)
        out_N[source] -= size
        into_N[target] -= size
        out_left[source] -= 1
        into_left[target] -= 1
    for at in range(graph.num_nodes):
        for files, word, left in ((inputs, "input", into_N[at]), (outputs, "output", out_N[at])):
            if left > 0:
                sizes[f"{word}_{at + 1}"] = int(left)
                add(files, at, f"{word}_{at + 1}")
    return sizes, inputs, outputs


def _execution(graph: AttributedGraph, keys: list[str]) -> Mapping[str, object]:
    """Return what was measured; nothing if no task has a runtime."""
    columns = {name: graph.numbers[name] for name in MEASURED if name in graph.numbers}
    if "runtime_s" not in columns or np.isnan(columns["runtime_s"]).all():
        return {}
    rows = [
        {"id": key}
        | {MEASURED[k]: float(v_N[at]) for k, v_N in columns.items() if not math.isnan(v_N[at])}
        for at, key in enumerate(keys)
        if not math.isnan(columns["runtime_s"][at])
    ]
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
