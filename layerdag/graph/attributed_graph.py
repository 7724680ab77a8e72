"""``AttributedGraph`` and layerdag's own JSON of it; conditions, label files, names of splits."""

import json
import math
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np

from layerdag.errors import DataError, GraphError
from layerdag.graph.topology import longest_path_layers
from layerdag.runtime.files import write_bytes, write_text
from layerdag.runtime.json_shape import (
    found_value,
    from_json,
    number_in,
    parse_json,
    plain_reason,
    require_known,
    require_shape,
)
from layerdag.runtime.notes import Note, NoteCollector, NoteKind
from layerdag.runtime.reading import read_parsed
from layerdag.runtime.settings import shorten
from layerdag.runtime.tables import read_table

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
        conditions: Graph-level values by name.
        open_vocabularies: Categorical attributes in which unseen words may map to ``<other>``.
        vocabularies: Words of an attribute's vocabulary that training graphs need not have.
        node_names: Names from the file; empty where nodes are numbered from 0.
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
    node_names: tuple[str, ...] = ()
    notes: tuple[Note, ...] = ()

    @property
    def num_nodes(self) -> int:
        """Number of nodes (N)."""
        return next(iter(self._sizes.values()), 0)

    @property
    def _sizes(self) -> dict[str, int]:
        sizes = {name: len(column) for name, column in self.categories.items()}
        return sizes | {name: len(value_N) for name, value_N in self.numbers.items()}

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
            GraphError: Names the first fault.
        """
        if self.num_nodes == 0:
            raise GraphError(f"{self.name}: there is no node, or no node attribute.")
        for name, size in self._sizes.items():
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
        if len(self.node_names) not in (0, self.num_nodes):
            raise GraphError(
                f"{self.name}: there are {len(self.node_names)} names for {self.num_nodes} nodes."
            )
        self._require_text()
        return self

    def _require_text(self) -> None:
        """Raise GraphError if a name or word has half of a character (a lone surrogate)."""
        words = [self.name, *self.categories, *self.numbers, *self.edge_type_names]
        words += self.node_names
        for name, value in self.conditions.items():
            words += [name, value] if isinstance(value, str) else [name]
        for column in (words, *map(set, self.categories.values())):
            try:
                "".join(column).encode()
            except UnicodeEncodeError:
                wrong = next(
                    word for word in column if any("\ud800" <= c <= "\udfff" for c in word)
                )
                raise GraphError(
                    f"{ascii(self.name)[1:-1]}: {wrong!a} is no text: half of a pair of "
                    "surrogates stands in it; write the file anew in UTF-8."
                ) from None


def finite_conditions(graph: AttributedGraph) -> dict[str, Condition]:
    """Return the conditions of a graph without NaN and infinity."""
    return {
        name: value
        for name, value in graph.conditions.items()
        if isinstance(value, str) or math.isfinite(value)
    }


def written_name(name: str) -> str:
    """Return the name of a graph for a file: of a path from outside only the last part."""
    parts = re.split(r"[/\\]", name)
    from_outside = name[:1] in "/\\~" or parts[0] == ".." or re.match(r"[A-Za-z]:[/\\]", name)
    return next((part for part in reversed(parts) if part), "") if from_outside else name


JSON_FORMAT = "layerdag-graph-1"


@dataclass(frozen=True)
class _Document:
    format: str
    name: str
    categories: dict[str, list[str]]
    numbers: dict[str, list[float | None]]
    units: dict[str, str]
    edges: list[tuple[int, int]]
    edge_types: list[str]
    edge_type_names: tuple[str, ...]
    conditions: dict[str, object]
    node_names: tuple[str, ...] = ()


def write_json(path: str | Path, graph: AttributedGraph) -> None:
    """Write names, numbers (null for absent), typed edges and conditions as one JSON object.

    Raises:
        GraphError: If the graph contradicts itself, or a word of it is no text.
    """
    write_bytes(path, encode_json(graph))


def encode_json(graph: AttributedGraph) -> bytes:
    """Return the content of the file that ``write_json`` writes."""
    graph.checked()
    numbers = {
        name: [None if math.isnan(v) else v for v in values.tolist()]
        for name, values in graph.numbers.items()
    }
    document = {
        "format": JSON_FORMAT,
        "name": written_name(graph.name),
        "categories": dict(graph.categories),
        "numbers": numbers,
        "units": dict(graph.units),
        "edges": graph.edge_index_2E.T.tolist(),
        "edge_types": [graph.edge_type_names[code] for code in graph.edge_type_E.tolist()],
        "edge_type_names": list(graph.edge_type_names),
        "conditions": finite_conditions(graph),
        **({"node_names": list(graph.node_names)} if graph.node_names else {}),
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
        data = parse_json(content)
        require_shape(data, dict)
        if data.get("format") != JSON_FORMAT:
            raise ValueError(
                f"its format is {found_value(data.get('format'))}, not '{JSON_FORMAT}'"
            )
        found = from_json(_Document, data)
        notes = NoteCollector(source)
        for key in data.keys() - {field.name for field in fields(_Document)}:
            notes.add(NoteKind.KEY, key, "unknown; left out")
        names = found.edge_type_names
        unknown = next((word for word in found.edge_types if word not in names), None)
        if unknown is not None:
            raise ValueError(f"edge_types has '{unknown:.40}', which edge_type_names lacks")
        conditions: dict[str, Condition] = {}
        for name, value in found.conditions.items():
            if isinstance(value, str):
                conditions[name] = value
            elif (
                isinstance(value, int | float)
                and not isinstance(value, bool)
                and math.isfinite(value)
            ):
                conditions[name] = float(value)
            elif value is not None:
                effect = "neither a number nor a text; left out"
                notes.add(NoteKind.ATTRIBUTE, name, effect, where="conditions")
        return AttributedGraph(
            name=found.name,
            categories=found.categories,
            numbers={k: np.array(column, np.float64) for k, column in found.numbers.items()},
            units=found.units,
            edge_index_2E=np.array(found.edges, np.int64).reshape(-1, 2).T,
            edge_type_E=np.array([names.index(word) for word in found.edge_types], np.int64),
            edge_type_names=names,
            conditions=conditions,
            node_names=found.node_names,
            notes=notes.notes,
        ).checked()
    except (ValueError, OverflowError, RecursionError) as error:
        raise GraphError(
            f"{source}: is not a graph in layerdag's JSON ({error}); write it with layerdag sample."
        ) from error


Split = Literal["train", "val", "test"]
SPLITS: tuple[Split, ...] = ("train", "val", "test")

LABEL = "label"
"""Name of the condition that surrogates predict by default: a time or a cost."""

NAME, SPLIT = "name", "split"
STEP_TIMES = ".steps.json"
"""Suffix of the file with the measured step times of a job, after the prefix of its traces."""

MAX_COLUMNS = 256
"""Columns of a label file, and graph-level values of a data set."""


@dataclass(frozen=True)
class Labels:
    """The content of a label file: conditions and splits by name of the graph."""

    conditions: Mapping[str, Mapping[str, Condition]]
    splits: Mapping[str, Split]
    notes: tuple[Note, ...] = ()

    def with_folders(self) -> "Labels":
        """Return the labels with a second name each, that of a graph in a folder called like it.

        So ``sample-00000`` also names ``sample-00000/sample-00000``, as samples are written.
        """
        inside = {name: f"{name}/{name.rpartition('/')[2]}" for name in self.conditions}
        return Labels(
            {inside[name]: values for name, values in self.conditions.items()}
            | {**self.conditions},
            {inside[name]: split for name, split in self.splits.items()} | {**self.splits},
            self.notes,
        )


def read_labels(path: str | Path) -> Labels:
    """Read a label file.

    CSV has a header with a column ``name``; JSON is ``{name: value}`` or ``{name: {condition:
    value}}``. A column ``split`` holds train, val or test; every other one is a condition, a
    number where every value of it is one, else a category. ``label`` is a number. Empty cells are
    unknown, and so are "nan" and "inf" among numbers, which is noted.

    Raises:
        DataError: If the file is missing or of another form; names the line or graph.
    """
    path = Path(path)
    read = _json_rows if path.suffix.lower() == ".json" else _csv_rows
    rows, places = read(path)
    if not rows:
        raise DataError(f"{path}: names no graph; write a line for each, or leave the file out.")
    splits: dict[str, Split] = {}
    for name, row in rows.items():
        if SPLIT in row:
            word = row.pop(SPLIT)
            split = next((one for one in SPLITS if one == word.strip()), None)
            if split is None:
                raise DataError(
                    f"{path}: graph '{name}' is of split '{word}'; write one of "
                    f"{', '.join(SPLITS)}."
                )
            splits[name] = split
    columns = dict.fromkeys(key for row in rows.values() for key in row)
    if len(columns) > MAX_COLUMNS:
        raise DataError(
            f"{path}: has {len(columns):,} columns of conditions; keep the at most {MAX_COLUMNS} "
            "that samples are to be asked for."
        )
    notes = NoteCollector(str(path))
    conditions: dict[str, dict[str, Condition]] = {name: {} for name in rows}
    for key in columns:
        column = {name: row[key] for name, row in rows.items() if key in row}
        for name, value in _values(path, key, column, places, notes).items():
            conditions[name][key] = value
    return Labels(conditions, splits, notes.notes)


def _values(
    path: Path,
    key: str,
    column: Mapping[str, str],
    places: Mapping[str, str],
    notes: NoteCollector,
) -> Mapping[str, Condition]:
    """Return the known values of a column: numbers, or words where one of them is no number."""
    numbers = {
        name: number for name, cell in column.items() if (number := number_in(cell)) is not None
    }
    words = {name: cell for name, cell in column.items() if name not in numbers}
    known = {name: number for name, number in numbers.items() if math.isfinite(number)}
    if words and key == LABEL and not known:
        raise DataError(
            f"{path}: {places[next(iter(words))]}: the column '{LABEL}' has no number, such as "
            f"{next(iter(words.values()))!r:.40}; a label is a time or a cost. Call a column of "
            "words otherwise."
        )
    if words and key != LABEL:
        if 2 * len(numbers) > len(column):
            name = next(iter(words))
            notes.add(
                NoteKind.NUMBER, words[name], f"no number; the column '{key}' is one of words",
                where=places[name], count=len(words),
            )  # fmt: skip
        return column
    kind = NoteKind.LABEL if key == LABEL else NoteKind.NUMBER
    for name, cell in column.items():
        if name not in known:
            effect = f"no number; '{key}' of these graphs is unknown"
            notes.add(kind, cell.strip(), effect, where=places[name])
    return known


_Rows = tuple[dict[str, dict[str, str]], dict[str, str]]
"""Cells of each graph by column, and the place of each graph in the file, for messages."""


def _csv_rows(path: Path) -> _Rows:
    rows: dict[str, dict[str, str]] = {}
    places: dict[str, str] = {}
    for line, row in read_table(path, (NAME,)).rows():
        name = row.pop(NAME)
        if name in rows:
            raise DataError(f"{path}: graph '{name}' occurs twice; keep one line for each.")
        rows[name] = {column: cell for column, cell in row.items() if cell}
        places[name] = f"line {line}"
    return rows, places


def _json_rows(path: Path) -> _Rows:
    try:
        data = parse_json(read_parsed(path).decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: is no JSON ({error}).") from None
    if not isinstance(data, dict):
        raise DataError(f"{path}: must hold an object with a graph's name for each value.")
    rows: dict[str, dict[str, str]] = {}
    for name, value in data.items():
        cells = value if isinstance(value, dict) else {LABEL: value}
        if not all(isinstance(cell, str | int | float) for cell in cells.values()):
            raise DataError(f"{path}: graph '{name}' has a value that is no number and no string.")
        rows[name] = {
            k: str(v).lower() if isinstance(v, bool) else str(v) for k, v in cells.items()
        }
    return rows, {name: f"graph '{name}'" for name in rows}


def write_step_times(prefix: str | Path, seconds: Sequence[float], ranks: int) -> Path:
    """Write step times beside the traces of a job, as ``PREFIX.steps.json``.

    Args:
        prefix: Of the traces.
        seconds: Wall time of the slowest rank in each measured step; at least one.
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
        document = parse_json(read_parsed(path))
        require_known(document, ("step_time_s", "ranks", "measured"))
        least = document["step_time_s"]["min"]
        is_number = isinstance(least, int | float) and not isinstance(least, bool)
        if is_number and math.isfinite(least) and least > 0:
            return float(least)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        why = plain_reason(error)
    else:
        why = f"the least one is {found_value(least)}"
    raise DataError(f"{path}: holds no measured step time ({why}); collect the trace again.")
