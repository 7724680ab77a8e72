"""``AttributedGraph`` and layerdag's own JSON of it; conditions, label files, names of splits."""

import csv
import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from layerdag.errors import DataError, GraphError
from layerdag.graph.topology import longest_path_layers
from layerdag.runtime.files import write_bytes, write_text
from layerdag.runtime.notes import Note
from layerdag.runtime.reading import read_parsed
from layerdag.runtime.settings import shorten

Condition = float | str


SIZE_CONDITIONS = NUM_NODES, NUM_LAYERS = ("num_nodes", "num_layers")
"""Conditions that follow from a graph itself."""


def size_conditions(layer_N: np.ndarray) -> dict[str, Condition]:
    """Return the conditions "num_nodes" and "num_layers" of a graph with these layers."""
    return {NUM_NODES: float(len(layer_N)), NUM_LAYERS: float(layer_N.max(initial=-1) + 1)}


@dataclass(frozen=True, eq=False)
class AttributedGraph:
    """A DAG as its source gives it. The order of attributes is the order of the model's columns.

    Attributes:
        name: For messages and manifests.
        categories: Words of each categorical attribute, one per node.
        numbers: Values of each numeric attribute, float64 (N,), NaN for absent.
        units: Unit of each numeric attribute.
        edge_index_2E: int64 source and target.
        edge_type_E: int64 position in ``edge_type_names``.
        edge_type_names: Name of each edge type.
        conditions: Graph-level values by name.
        open_vocabularies: Categorical attributes in which unseen words may map to ``<other>``.
        vocabularies: Words that an attribute's vocabulary holds even if no training graph has them.
        notes: What the reader did not understand.
    """

    name: str
    categories: Mapping[str, list[str]]
    numbers: Mapping[str, np.ndarray]
    edge_index_2E: np.ndarray
    edge_type_E: np.ndarray
    units: Mapping[str, str] = field(default_factory=dict)
    edge_type_names: tuple[str, ...] = ("data",)
    conditions: Mapping[str, Condition] = field(default_factory=dict)
    open_vocabularies: tuple[str, ...] = ()
    vocabularies: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    notes: tuple[Note, ...] = ()

    @property
    def num_nodes(self) -> int:
        """Number of nodes (N)."""
        for column in self.categories.values():
            return len(column)
        for values in self.numbers.values():
            return len(values)
        return 0

    @property
    def edges(self) -> list[tuple[int, int]]:
        """Source and target of each edge."""
        return [(source, target) for source, target in self.edge_index_2E.T.tolist()]

    def __repr__(self) -> str:
        """Return name, sizes and attributes, not the columns."""
        names = shorten(", ".join([*self.categories, *self.numbers]), 40)
        sizes = f"{self.num_nodes:,} nodes, {self.edge_index_2E.shape[1]:,} edges"
        return f"AttributedGraph({shorten(self.name, 30)!r}, {sizes}, {names})"

    @cached_property
    def layer_N(self) -> np.ndarray:
        """Longest-path layer of each node, int64, found once. Raises GraphError on a cycle."""
        return longest_path_layers(self.num_nodes, self.edge_index_2E)

    def checked(self) -> "AttributedGraph":
        """Return self if columns, edges and edge types agree; cycles are found when encoding.

        Raises:
            GraphError: With one sentence that names the first fault.
        """
        sizes = {name: len(column) for name, column in self.categories.items()}
        sizes |= {name: len(values) for name, values in self.numbers.items()}
        if self.num_nodes == 0:
            raise GraphError(f"{self.name}: there is no node, or no node attribute.")
        for name, size in sizes.items():
            if size != self.num_nodes:
                raise GraphError(
                    f"{self.name}: attribute '{name}' has {size} values for {self.num_nodes} nodes."
                )
        num_edges = self.edge_index_2E.shape[1]
        if self.edge_type_E.shape != (num_edges,):
            raise GraphError(
                f"{self.name}: there are {len(self.edge_type_E)} edge types for {num_edges} edges."
            )
        outside = (self.edge_index_2E < 0) | (self.edge_index_2E >= self.num_nodes)
        if outside.any():
            raise GraphError(
                f"{self.name}: an edge names node {int(self.edge_index_2E[outside][0])}, but nodes "
                f"are 0 to {self.num_nodes - 1}."
            )
        if np.unique(self.edge_index_2E, axis=1).shape[1] != num_edges:
            raise GraphError(f"{self.name}: an edge occurs twice; keep one for each pair.")
        return self


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


Split = Literal["train", "val", "test"]


SPLITS: tuple[Split, ...] = ("train", "val", "test")


LABEL = "label"
"""Name of the condition that surrogates predict where nothing else is asked: a time or a cost."""


NAME, SPLIT = "name", "split"
STEP_TIMES = ".steps.json"
"""Ending of the file with the measured step times of a job, behind the prefix of its traces."""


@dataclass(frozen=True)
class Labels:
    """The content of a label file.

    Attributes:
        conditions: Conditions by name of the graph.
        splits: Split by name of the graph, where the file says.
    """

    conditions: Mapping[str, Mapping[str, Condition]]
    splits: Mapping[str, Split]

    def with_folders(self) -> "Labels":
        """Return the labels with a second name each, that of a graph in a folder called like it.

        So ``sample-00000`` also names ``sample-00000/sample-00000``, as samples are written.
        """
        inside = {name: f"{name}/{name.rpartition('/')[2]}" for name in self.conditions}
        return Labels(
            {inside[name]: values for name, values in self.conditions.items()}
            | {**self.conditions},
            {inside[name]: split for name, split in self.splits.items()} | {**self.splits},
        )


def read_labels(path: str | Path) -> Labels:
    """Read a label file.

    CSV has a header with a column ``name``; JSON is ``{name: value}`` or ``{name: {condition:
    value}}``. A column ``split`` holds train, val or test; every other one is a condition, a
    number where every value of it is one, else a category. Empty cells are unknown.

    Raises:
        DataError: If the file is missing or of another form; names the line or graph.
    """
    path = Path(path)
    data = read_parsed(path)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: the label file cannot be read ({error}).") from None
    rows = _json_rows(path, text) if path.suffix.lower() == ".json" else _csv_rows(path, text)
    splits = {
        name: _split(path, name, row.pop(SPLIT)) for name, row in rows.items() if SPLIT in row
    }
    numeric = _numeric_columns(rows)
    conditions = {
        name: {key: float(value) if key in numeric else value for key, value in row.items()}
        for name, row in rows.items()
    }
    return Labels(conditions, splits)


def _csv_rows(path: Path, text: str) -> dict[str, dict[str, str]]:
    """Return the cells that are not empty, by name and column."""
    reader = csv.DictReader(text.splitlines())
    if not reader.fieldnames or NAME not in reader.fieldnames:
        raise DataError(
            f"{path}: the first line must name the columns, one of them '{NAME}', such as "
            f"'{NAME},{LABEL}'; found {reader.fieldnames}."
        )
    rows: dict[str, dict[str, str]] = {}
    for number, row in enumerate(reader, start=2):
        if None in row or None in row.values():
            raise DataError(f"{path}: line {number} has not as many cells as the first line.")
        name = _new(path, row.pop(NAME), rows)
        rows[name] = {column: cell for column, cell in row.items() if cell.strip()}
    return rows


def _json_rows(path: Path, text: str) -> dict[str, dict[str, str]]:
    """Return the values as text, by name and condition."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: is no JSON ({error}).") from None
    if not isinstance(data, dict):
        raise DataError(f"{path}: must hold an object with a graph's name for each value.")
    rows: dict[str, dict[str, str]] = {}
    for name, value in data.items():
        cells = value if isinstance(value, dict) else {LABEL: value}
        if not all(isinstance(cell, str | int | float) for cell in cells.values()):
            raise DataError(f"{path}: graph '{name}' has a value that is no number and no string.")
        rows[name] = {str(k): str(v) for k, v in cells.items()}
    return rows


def _new(path: Path, name: str, rows: Mapping[str, object]) -> str:
    """Return the name, or raise DataError if it occurs twice."""
    if name in rows:
        raise DataError(f"{path}: graph '{name}' occurs twice; keep one line for each.")
    return name


def _split(path: Path, name: str, word: str) -> Split:
    """Return the split that a word names."""
    for split in SPLITS:
        if word.strip() == split:
            return split
    raise DataError(
        f"{path}: graph '{name}' is of split '{word}'; write one of {', '.join(SPLITS)}."
    )


def _numeric_columns(rows: Mapping[str, Mapping[str, str]]) -> set[str]:
    """Return the columns all of whose values are finite numbers."""
    columns = {key for row in rows.values() for key in row}
    return {
        key for key in columns if all(_is_number(row[key]) for row in rows.values() if key in row)
    }


def _is_number(text: str) -> bool:
    """Return whether a text is a finite number."""
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def write_step_times(prefix: str | Path, seconds: Sequence[float], ranks: int) -> Path:
    """Write measured step times beside the traces of a job, as ``PREFIX.steps.json``.

    Args:
        prefix: Of the traces.
        seconds: Wall time of each measured step, the slowest rank of each; at least one.
        ranks: Number of ranks.
    """
    path = Path(f"{prefix}{STEP_TIMES}")
    document = {
        "step_time_s": {
            "min": min(seconds),
            "median": statistics.median(seconds),
            "repeats": list(seconds),
        },
        "ranks": ranks,
        "measured": "wall time of later steps, without profiler; slowest rank of each",
    }
    write_text(path, json.dumps(document, indent=1) + "\n")
    return path


def read_step_time(path: str | Path) -> float:
    """Return the least of the step times that ``write_step_times`` wrote, in seconds.

    Raises:
        DataError: If the file holds none.
    """
    try:
        least = json.loads(read_parsed(path))["step_time_s"]["min"]
        is_number = isinstance(least, int | float) and not isinstance(least, bool)
        if is_number and math.isfinite(least) and least > 0:
            return float(least)
    except (ValueError, KeyError, TypeError, RecursionError):
        pass
    raise DataError(f"{path}: holds no measured step time; collect the trace again.")
