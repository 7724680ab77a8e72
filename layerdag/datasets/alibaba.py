"""Batch jobs of Alibaba's cluster trace of 2018, one DAG a job, from ``batch_task.csv``.

A row is a task: name, instances, job, type, status, start and end in seconds, and planned CPU
(100 is a core) and memory (normalized). Names of tasks hold the DAG: in ``R5_3_4`` task 5 waits for
3 and 4, and so it does in ``R5_3_4_Stg2``. Tasks with other names depend on nothing; jobs without a
dependency are left out. A task that did not end ("Terminated") has no duration, and its job no
label.
"""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from layerdag.datasets.dataset import GraphDataset
from layerdag.datasets.settings import AlibabaConfig
from layerdag.datasets.splits import split_graphs
from layerdag.errors import DataError
from layerdag.graph.attributed_graph import LABEL, AttributedGraph, Condition, size_conditions
from layerdag.runtime.notes import NoteCollector, NoteKind
from layerdag.runtime.tables import iter_lines

FILE = "batch_task.csv"
COLUMNS = 9
_TASK = re.compile(r"([A-Za-z]+)(\d{1,9})((?:_\d{1,9})*)(?:_Stg\d{1,9})?_?")
_LIKE_A_TASK = re.compile(r"[A-Za-z]+\d+_.*")
_ENDED = "Terminated"
_OTHER_STATUS = (
    "Cancelled", "Failed", "Interrupted", "Ready", "Running", "Unknown", "Waiting",
)  # fmt: skip


@dataclass(frozen=True)
class _Task:
    number: int
    kind: str
    parents: tuple[int, ...]
    ended: bool
    instances: float
    start: float
    end: float
    cpu: float
    memory: float


def load_alibaba(config: AlibabaConfig) -> GraphDataset:
    """Load jobs from ``batch_task.csv`` (or ``.gz``, ``.xz``) in a folder.

    The label is the time from the first start to the last end in seconds, of jobs all of whose
    tasks ended. Rows of a job follow each other in the file, which is read up to the last job that
    is needed. Raises DataError if the file is missing or malformed, or no job is left.
    """
    if config.num_graphs is not None and config.num_graphs < 1:
        raise DataError(f"'num_graphs' must be at least 1, found {config.num_graphs}.")
    found = (config.folder / f"{FILE}{packed}" for packed in ("", ".gz", ".xz"))
    path = next((path for path in found if path.is_file()), None)
    if path is None:
        raise DataError(
            f"{config.folder}: has no {FILE}, .gz or .xz; unpack batch_task.tar.gz of "
            "cluster-trace-v2018 into it."
        )
    least, most = config.min_nodes, config.max_nodes
    graphs: list[AttributedGraph] = []
    notes, faulty = NoteCollector(str(path)), 0
    for name, tasks in _jobs(path, notes):
        if least <= len(tasks) <= most and any(task.parents for task in tasks):
            graph = _graph(name, tasks)
            if graph is not None:
                graphs.append(graph)
            else:
                faulty += 1
        if len(graphs) == config.num_graphs:
            break
    if not graphs:
        raise DataError(f"{path}: holds no job of {least} to {most} tasks with a DAG.")
    parts = split_graphs(graphs, config.seed)
    data = GraphDataset.build("alibaba", "flow", parts, num_bins=config.num_bins)
    told = (f"{faulty:,} jobs: a task stands twice, or waits for none or in a circle",)
    return data.replaced(left_out=(*(told if faulty else ()), *data.left_out), notes=notes.notes)


def _jobs(path: Path, notes: NoteCollector) -> Iterator[tuple[str, list[_Task]]]:
    job, tasks = "", list[_Task]()
    for number, row in iter_lines(path):
        if len(row) != COLUMNS:
            raise DataError(
                f"{path}: line {number} has {len(row)} cells, but a task has {COLUMNS}; copy the "
                "file again."
            )
        if row[2] != job and tasks:
            yield job, tasks
            tasks = []
        job = row[2]
        tasks.append(_task(path, number, row, len(tasks), notes))
    if tasks:
        yield job, tasks


def _task(path: Path, number: int, row: Sequence[str], index: int, notes: NoteCollector) -> _Task:
    """A task without a number in its name counts as independent."""
    match = _TASK.fullmatch(row[0])
    if match is None and _LIKE_A_TASK.fullmatch(row[0]):
        effect = "name of a task that says nothing known; it depends on nothing"
        notes.add(NoteKind.NODE, row[0], effect, where=f"line {number}")
    if row[4] != _ENDED:
        unknown = "" if row[4] in _OTHER_STATUS else "unknown, taken as one that did not end; "
        notes.add(
            NoteKind.STATUS, row[4], f"{unknown}these tasks have no duration, their jobs no label",
            where=f"line {number}",
        )  # fmt: skip
    parents = tuple(int(word) for word in match[3].split("_") if word) if match else ()
    try:
        figures = [float(cell) if cell else math.nan for cell in (row[1], *row[5:])]
    except ValueError as error:
        raise DataError(f"{path}: line {number}: {error}; copy the file again.") from error
    known = int(match[2]) if match else -1 - index
    kind = match[1] if match else "task"
    return _Task(known, kind, parents, row[4] == _ENDED, *figures)


def _graph(name: str, tasks: Sequence[_Task]) -> AttributedGraph | None:
    """Return None if a task occurs twice, or waits for none or in a circle."""
    index_of = {task.number: at for at, task in enumerate(tasks)}
    if len(index_of) != len(tasks) or any(
        p not in index_of for task in tasks for p in task.parents
    ):
        return None
    edges = {(index_of[p], at) for at, task in enumerate(tasks) for p in task.parents}
    graph = AttributedGraph(
        name=name,
        categories={"kind": [task.kind for task in tasks]},
        numbers={
            "instances": np.array([task.instances for task in tasks]),
            "duration_s": np.array(
                [max(t.end - t.start, 0.0) if t.ended else math.nan for t in tasks]
            ),
            "cpu": np.array([task.cpu for task in tasks]),
            "memory": np.array([task.memory for task in tasks]),
        },
        units={"duration_s": "s", "cpu": "% of a core"},
        edge_index_2E=np.array(sorted(edges), dtype=np.int64).reshape(-1, 2).T,
        edge_type_E=np.zeros(len(edges), dtype=np.int64),
    )
    try:
        conditions: dict[str, Condition] = dict(size_conditions(graph.layer_N))
    except DataError:
        return None
    starts, ends = [task.start for task in tasks], [task.end for task in tasks]
    if all(task.ended and math.isfinite(task.start + task.end) for task in tasks):
        span = max(ends) - min(starts)
        if span >= 0:
            conditions[LABEL] = span
    return replace(graph, conditions=conditions)
