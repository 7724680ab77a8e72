"""Batch jobs of Alibaba's cluster trace of 2018, one DAG a job, from ``batch_task.csv``.

A row is a task: name, instances, job, type, status, start and end in seconds, and planned CPU
(100 is a core) and memory (normalized). Names of tasks hold the DAG: in ``R5_3_4`` task 5 waits for
3 and 4. Tasks with other names depend on nothing; jobs without a dependency are left out.
"""

import csv
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from layerdag._runtime import open_unpacked
from layerdag.codec import AttributedGraph, size_conditions
from layerdag.datasets import GraphDataset, split_graphs
from layerdag.datasets.schema import LABEL
from layerdag.errors import DataError
from layerdag.graph import Condition

FILE = "batch_task.csv"
COLUMNS = 9
_TASK = re.compile(r"([A-Za-z]+)(\d{1,9})((?:_\d{1,9})*)_?")
_PIECE = 1 << 20
_LONGEST_LINE = 1 << 16


@dataclass(frozen=True)
class _Task:
    """A task of a job: number, letters of its kind, parents, and its figures."""

    number: int
    kind: str
    parents: tuple[int, ...]
    instances: float
    start: float
    end: float
    cpu: float
    memory: float


def load_alibaba(
    folder: str | Path,
    *,
    num_graphs: int | None = 10_000,
    min_nodes: int = 2,
    max_nodes: int = 1_000,
    seed: int = 0,
    num_bins: int = 16,
) -> GraphDataset:
    """Load jobs from ``batch_task.csv`` (or ``.gz``, ``.xz``) in a folder.

    The label is the time from the first start to the last end in seconds. Rows of a job follow each
    other in the file, which is read up to the last job that is needed.

    Args:
        folder: With the file.
        num_graphs: Take the first so many jobs; None for all.
        min_nodes: Jobs with fewer tasks are left out.
        max_nodes: Jobs with more tasks are left out.
        seed: Of the split.
        num_bins: Bins of each numeric attribute.

    Raises:
        DataError: If the file is missing or malformed, or no job is left.
    """
    if num_graphs is not None and num_graphs < 1:
        raise DataError(f"'num_graphs' must be at least 1, found {num_graphs}.")
    path = _file(Path(folder))
    graphs: list[AttributedGraph] = []
    for name, tasks in _jobs(path):
        if min_nodes <= len(tasks) <= max_nodes and any(task.parents for task in tasks):
            graph = _graph(name, tasks)
            if graph is not None:
                graphs.append(graph)
        if len(graphs) == num_graphs:
            break
    if not graphs:
        raise DataError(f"{path}: holds no job of {min_nodes} to {max_nodes} tasks with a DAG.")
    return GraphDataset.build("alibaba", "flow", split_graphs(graphs, seed), num_bins=num_bins)


def _file(folder: Path) -> Path:
    """Return the file of the tasks."""
    found = (folder / f"{FILE}{packed}" for packed in ("", ".gz", ".xz"))
    path = next((path for path in found if path.is_file()), None)
    if path is None:
        raise DataError(
            f"{folder}: has no {FILE}, .gz or .xz; unpack batch_task.tar.gz of cluster-trace-v2018 "
            "into it."
        )
    return path


def _jobs(path: Path) -> Iterator[tuple[str, list[_Task]]]:
    """Yield the tasks of each job."""
    job, tasks = "", list[_Task]()
    for number, row in enumerate(csv.reader(_lines(path)), start=1):
        if len(row) != COLUMNS:
            raise DataError(
                f"{path}: line {number} has {len(row)} cells, but a task has {COLUMNS}; copy the "
                "file again."
            )
        if row[2] != job and tasks:
            yield job, tasks
            tasks = []
        job = row[2]
        tasks.append(_task(path, number, row, len(tasks)))
    if tasks:
        yield job, tasks


def _lines(path: Path) -> Iterator[str]:
    """Yield the lines of a file that may be packed, never more than a piece of it at a time."""
    rest = b""
    with open_unpacked(path, DataError) as stream:
        while piece := stream.read(_PIECE):
            *whole, rest = (rest + piece).split(b"\n")
            if len(rest) > _LONGEST_LINE:
                raise DataError(f"{path}: has a line of more than {_LONGEST_LINE} bytes; no table.")
            yield from (line.decode("ascii", "replace") for line in whole)
    if rest:
        yield rest.decode("ascii", "replace")


def _task(path: Path, number: int, row: Sequence[str], index: int) -> _Task:
    """Return the task of a row; one without a number in its name counts as independent."""
    match = _TASK.fullmatch(row[0])
    parents = tuple(int(word) for word in match[3].split("_") if word) if match else ()
    try:
        figures = [float(cell) if cell else math.nan for cell in (row[1], *row[5:])]
    except ValueError as error:
        raise DataError(f"{path}: line {number}: {error}; copy the file again.") from error
    known = int(match[2]) if match else -1 - index
    return _Task(known, match[1] if match else "task", parents, *figures)


def _graph(name: str, tasks: Sequence[_Task]) -> AttributedGraph | None:
    """Return the graph of a job, None if a task occurs twice, or waits for none or in a circle."""
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
            "duration_s": np.array([max(task.end - task.start, 0.0) for task in tasks]),
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
    span = max(ends) - min(starts)
    if math.isfinite(span) and span >= 0:
        conditions[LABEL] = span
    return replace(graph, conditions=conditions)
