"""Published data sets: Alibaba traces, latent-preferential graphs, TPU Tile.

Batch jobs of Alibaba's cluster trace of 2018, one DAG a job, from ``batch_task.csv``.

A row is a task: name, instances, job, type, status, start and end in seconds, and planned CPU
(100 is a core) and memory (normalized). Names of tasks hold the DAG: in ``R5_3_4`` task 5 waits for
3 and 4, and so it does in ``R5_3_4_Stg2``. Tasks with other names depend on nothing; jobs without a
dependency are left out. A task that did not end ("Terminated") has no duration, and its job no
label.

Synthetic DAGs with a hard rule: preferential attachment to a balanced choice of predecessors.

Every node has a binary attribute. A node has no predecessor, or its predecessors are balanced
between the two values: with ``n`` of the rarer and ``m`` of the commoner value,

    m <= (1 + rho) * n,

so rho = 0 asks for equal numbers and a larger rho for less. Layer by layer, each new node draws
how many predecessors of each value it gets, then chooses them among the earlier nodes with
probability proportional to (1 + out-degree) times a latent weight of each node; at least one comes
from the layer before.

The exact generator of the LayerDAG paper (arXiv 2411.02322, section 5.1) is not public. This one
keeps its idea, but validity figures on it are not comparable one to one with the paper's.
"""

import csv
import math
import pickle
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from layerdag.dag.dag import DAG
from layerdag.datasets.dataset import GraphDataset
from layerdag.datasets.splits import split_graphs
from layerdag.errors import DataError, UsageError
from layerdag.graph.attributed_graph import (
    LABEL,
    SPLITS,
    AttributedGraph,
    Condition,
    Split,
    size_conditions,
)
from layerdag.graph.topology import longest_path_layers
from layerdag.runtime.json_shape import parse_json, plain_reason, require_known, require_shape
from layerdag.runtime.notes import NoteCollector, NoteKind
from layerdag.runtime.reading import open_unpacked, read_parsed, require_plain_archive
from layerdag.runtime.rng import numpy_generator

FILE = "batch_task.csv"
COLUMNS = 9
_TASK = re.compile(r"([A-Za-z]+)(\d{1,9})((?:_\d{1,9})*)(?:_Stg\d{1,9})?_?")
_LIKE_A_TASK = re.compile(r"[A-Za-z]+\d+_.*")
_ENDED = "Terminated"
_OTHER_STATUS = (
    "Cancelled", "Failed", "Interrupted", "Ready", "Running", "Unknown", "Waiting",
)  # fmt: skip
_PIECE = 1 << 20
_LONGEST_LINE = 1 << 16


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

    The label is the time from the first start to the last end in seconds, of jobs all of whose
    tasks ended. Rows of a job follow each
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
    notes, faulty = NoteCollector(str(path)), 0
    for name, tasks in _jobs(path, notes):
        if min_nodes <= len(tasks) <= max_nodes and any(task.parents for task in tasks):
            graph = _graph(name, tasks)
            if graph is not None:
                graphs.append(graph)
            else:
                faulty += 1
        if len(graphs) == num_graphs:
            break
    if not graphs:
        raise DataError(f"{path}: holds no job of {min_nodes} to {max_nodes} tasks with a DAG.")
    data = GraphDataset.build("alibaba", "flow", split_graphs(graphs, seed), num_bins=num_bins)
    told = (f"{faulty:,} jobs: a task stands twice, or waits for none or in a circle",)
    return data.replaced(left_out=(*(told if faulty else ()), *data.left_out), notes=notes.notes)


def _file(folder: Path) -> Path:
    found = (folder / f"{FILE}{packed}" for packed in ("", ".gz", ".xz"))
    path = next((path for path in found if path.is_file()), None)
    if path is None:
        raise DataError(
            f"{folder}: has no {FILE}, .gz or .xz; unpack batch_task.tar.gz of cluster-trace-v2018 "
            "into it."
        )
    return path


def _jobs(path: Path, notes: NoteCollector) -> Iterator[tuple[str, list[_Task]]]:
    job, tasks = "", list[_Task]()
    for number, row in enumerate(_rows(path), start=1):
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


def _rows(path: Path) -> Iterator[list[str]]:
    """Yield the cells of each line. Raises DataError where it is no CSV."""
    try:
        yield from csv.reader(_lines(path))
    except csv.Error as error:
        raise DataError(f"{path}: is no CSV ({error}); copy the file again.") from None


def _lines(path: Path) -> Iterator[str]:
    rest = b""
    with open_unpacked(path, DataError) as stream:
        while piece := stream.read(_PIECE):
            *whole, rest = (rest + piece).split(b"\n")
            if len(rest) > _LONGEST_LINE:
                raise DataError(f"{path}: has a line of more than {_LONGEST_LINE} bytes; no table.")
            yield from (line.decode("ascii", "replace") for line in whole)
    if rest:
        yield rest.decode("ascii", "replace")


def _task(path: Path, number: int, row: Sequence[str], index: int, notes: NoteCollector) -> _Task:
    """Return the task of a row; one without a number in its name counts as independent."""
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
            "duration_s": np.array([_duration(task) for task in tasks]),
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


def _duration(task: _Task) -> float:
    """Return the seconds of a task, NaN of one that did not end."""
    return max(task.end - task.start, 0.0) if task.ended else math.nan


VALUES = ("0", "1")


@dataclass(frozen=True)
class LatentPreferentialSettings:
    """What the graphs look like.

    Attributes:
        rho: Tolerance of the rule, at least 0.
        min_layers: Layers of a graph at least.
        max_layers: Layers of a graph at most.
        max_width: Nodes of a layer at most; at least 2.
        max_in_degree: Predecessors of a node at most; at least 2.

    Raises:
        UsageError: If a value is out of bounds.
    """

    rho: float = 0.0
    min_layers: int = 3
    max_layers: int = 8
    max_width: int = 6
    max_in_degree: int = 6

    def __post_init__(self) -> None:
        fine = (
            self.rho >= 0
            and 1 <= self.min_layers <= self.max_layers
            and self.max_width >= 2
            and self.max_in_degree >= 2
        )
        if not fine:
            raise UsageError(
                f"Latent-preferential graphs need rho >= 0, 1 <= min_layers <= max_layers, "
                f"max_width >= 2 and max_in_degree >= 2; found {self}."
            )


def load_latent_preferential(
    *,
    rho: float = 0.0,
    num_train: int = 1000,
    num_val: int = 100,
    num_test: int = 100,
    seed: int = 0,
) -> GraphDataset:
    """Generate a data set; graph i of a split depends on the seed, the split and i alone.

    Raises:
        UsageError: If rho is negative.
    """
    settings = LatentPreferentialSettings(rho=rho)
    counts = dict(zip(SPLITS, (num_train, num_val, num_test), strict=True))
    parts: dict[Split, list[AttributedGraph]] = {
        split: [
            latent_preferential_graph(
                numpy_generator(seed, "latent_preferential", split, i), settings, f"{split}/{i}"
            )
            for i in range(count)
        ]
        for split, count in counts.items()
    }
    return GraphDataset.build("latent_preferential", "flow", parts)


def is_valid(dag: DAG, rho: float) -> bool:
    """Return whether every node keeps the rule.

    Args:
        dag: Its first attribute has the codes 0 and 1; any node order.
        rho: Tolerance.
    """
    source_E, target_E = dag.edge_index_2E
    value_E = dag.x_NA[source_E, 0]
    count_N2 = torch.zeros(dag.num_nodes, 2, dtype=torch.int64)
    count_N2.index_put_((target_E, value_E), torch.ones_like(target_E), accumulate=True)
    low_N, high_N = count_N2.amin(1), count_N2.amax(1)
    return bool((high_N <= (1 + rho) * low_N + 1e-9).all())


def latent_preferential_graph(
    rng: np.random.Generator, settings: LatentPreferentialSettings, name: str
) -> AttributedGraph:
    """Draw one graph."""
    num_layers = int(rng.integers(settings.min_layers, settings.max_layers + 1))
    width_L = rng.integers(1, settings.max_width + 1, num_layers)
    width_L[0] = max(2, width_L[0])
    layer_N = np.repeat(np.arange(num_layers), width_L)
    value_N = rng.integers(0, 2, layer_N.size)
    value_N[:2] = rng.permutation(2)  # later nodes need both values among the earlier ones
    weight_N = rng.gamma(2.0, size=layer_N.size)
    degree_N = np.zeros(layer_N.size)
    edges = []
    for layer in range(1, num_layers):
        new = np.flatnonzero(layer_N == layer)
        old = int(new[0])
        log_odds_O = np.log(weight_N[:old] * (1 + degree_N[:old]))
        in_last_O = layer_N[:old] == layer - 1
        edges_2E = _predecessors(rng, settings, value_N[:old], log_odds_O, in_last_O, len(new))
        degree_N[:old] += np.bincount(edges_2E[0], minlength=old)
        edges.append(edges_2E + np.array([[0], [old]]))
    edges_2E = np.concatenate([np.zeros((2, 0), np.int64), *edges], axis=1)
    return AttributedGraph(
        name=name,
        categories={"value": [VALUES[value] for value in value_N.tolist()]},
        numbers={},
        edge_index_2E=edges_2E,
        edge_type_E=np.zeros(edges_2E.shape[1], dtype=np.int64),
        conditions=size_conditions(layer_N),
        vocabularies={"value": VALUES},
    )


def _predecessors(
    rng: np.random.Generator,
    settings: LatentPreferentialSettings,
    value_O: np.ndarray,
    log_odds_O: np.ndarray,
    in_last_O: np.ndarray,
    num_new: int,
) -> np.ndarray:
    noise_WO = rng.gumbel(size=(num_new, value_O.size)) + log_odds_O
    rows_W = np.arange(num_new)
    # The best of the layer before comes first among its value, whatever else is drawn.
    parent_W = np.where(in_last_O, noise_WO, -np.inf).argmax(axis=1)
    noise_WO[rows_W, parent_W] = np.inf
    have_2 = np.bincount(value_O, minlength=2)
    want_W2 = _counts(rng, settings, have_2, num_new)
    chosen_WO = np.zeros(noise_WO.shape, dtype=bool)
    for value in (0, 1):
        position_O = np.flatnonzero(value_O == value)
        order_WK = np.argsort(-noise_WO[:, position_O], axis=1)
        rank_WK = np.argsort(order_WK, axis=1)
        chosen_WO[:, position_O] = rank_WK < want_W2[:, value, None]
    new_E, old_E = np.nonzero(chosen_WO)
    return np.stack([old_E, new_E])


def _counts(
    rng: np.random.Generator,
    settings: LatentPreferentialSettings,
    have_2: np.ndarray,
    num_new: int,
) -> np.ndarray:
    most = min(settings.max_in_degree // 2, int(have_2.min()))
    rare_W = rng.integers(1, most + 1, num_new)
    common = rng.integers(0, 2, num_new)
    extra_W = np.floor(settings.rho * rare_W + 1e-9).astype(np.int64)
    supply_W = np.minimum(have_2[common], settings.max_in_degree - rare_W)
    limit_W = np.maximum(np.minimum(rare_W + extra_W, supply_W), rare_W)
    common_W = rng.integers(rare_W, limit_W + 1)
    want_W2 = np.empty((num_new, 2), dtype=np.int64)
    rows_W = np.arange(num_new)
    want_W2[rows_W, common] = common_W
    want_W2[rows_W, 1 - common] = rare_W
    return want_W2


KEYS = ("src_list", "dst_list", "x_n_list", "y_list")


def load_tpu_tile(folder: str | Path) -> GraphDataset:
    """Load whichever of ``train.pth``, ``val.pth`` and ``test.pth`` lie in ``folder``.

    Each file holds lists ``src_list``, ``dst_list`` (int tensors), ``x_n_list`` (one node type a
    node) and ``y_list`` (runtime). If only ``val.pth`` is there, ``split.json`` beside it, lists of
    indices under "train", "val" and "test", makes three parts of it.

    Raises:
        DataError: If no file is there, or one is not of this format.
    """
    folder = Path(folder)
    parts: dict[Split, list[AttributedGraph]] = {
        split: _read(folder / f"{split}.pth", split)
        for split in SPLITS
        if (folder / f"{split}.pth").is_file()
    }
    if not parts:
        raise DataError(
            f"{folder}: holds none of train.pth, val.pth, test.pth; download the processed TPU "
            "Tile files of the LayerDAG repository into it."
        )
    if "train" not in parts:
        parts = _split(folder, next(iter(parts.values())))
    return GraphDataset.build("tpu_tile", "flow", parts)


def _read(path: Path, split: str) -> list[AttributedGraph]:
    """Read one file; nothing in it is executed."""
    try:
        require_plain_archive(path)
        content: Any = torch.load(path, map_location="cpu", weights_only=True)
        columns = [content[key] for key in KEYS]
        return [
            _tpu_tile_graph(f"{split}/{i}", *row)
            for i, row in enumerate(zip(*columns, strict=True))
        ]
    except (pickle.UnpicklingError, RuntimeError, EOFError, OSError, MemoryError) as error:
        reason = str(error).splitlines()[0]
        raise DataError(f"{path}: cannot be read ({reason}); download it again.") from error
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise DataError(
            f"{path}: is not a TPU Tile file ({plain_reason(error)}); it must hold "
            f"{', '.join(KEYS)}. Download it again."
        ) from error


def _tpu_tile_graph(
    name: str, source_E: Any, target_E: Any, kind_N: Any, label: Any
) -> AttributedGraph:
    edges_2E = np.stack([_numbers(source_E), _numbers(target_E)]).astype(np.int64)
    edges_2E = np.unique(edges_2E, axis=1)
    kinds = _numbers(kind_N).reshape(-1).astype(np.int64).tolist()
    layer_N = longest_path_layers(len(kinds), edges_2E)
    return AttributedGraph(
        name=name,
        categories={"kind": [str(kind) for kind in kinds]},
        numbers={},
        edge_index_2E=edges_2E,
        edge_type_E=np.zeros(edges_2E.shape[1], dtype=np.int64),
        conditions={**_label(float(label)), **size_conditions(layer_N)},
    )


def _label(seconds: float) -> dict[str, Condition]:
    return {LABEL: seconds} if math.isfinite(seconds) else {}


def _numbers(values: Any) -> np.ndarray:
    """Return a tensor or a flat list of numbers as an array.

    Raises:
        ValueError: If a tensor repeats its numbers, so that it may be larger than its file.
    """
    if isinstance(values, torch.Tensor):
        if values.numel() * values.element_size() > values.untyped_storage().nbytes():
            raise ValueError("a tensor repeats its numbers")
        return values.numpy()
    if not all(isinstance(value, int | float) for value in values):
        raise ValueError("a list holds something else than numbers")
    return np.asarray(values)


def _split(folder: Path, graphs: list[AttributedGraph]) -> dict[Split, list[AttributedGraph]]:
    path = folder / "split.json"
    if not path.is_file():
        raise DataError(
            f"{folder}: there is no train.pth, and no split.json that splits the file there is."
        )
    try:
        chosen = parse_json(read_parsed(path))
        require_shape(chosen, {split: [int] for split in SPLITS})
        require_known(chosen, (*SPLITS, "seed"))  # by which it was drawn, as its maker notes
        wrong = [n for split in SPLITS for n in chosen[split] if not 0 <= n < len(graphs)]
        if wrong:
            raise ValueError(f"{wrong[0]} is not one of 0 to {len(graphs) - 1}")
    except (ValueError, RecursionError) as error:
        raise DataError(
            f'{path}: must hold lists of numbers of graphs under "train", "val" and "test" '
            f"({plain_reason(error)}); correct it."
        ) from error
    return {split: [graphs[index] for index in chosen[split]] for split in SPLITS}
