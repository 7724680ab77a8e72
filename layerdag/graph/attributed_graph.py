"""``AttributedGraph`` and layerdag's own JSON of it; conditions, label files, names of splits."""

import json
import math
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np

from layerdag.errors import DataError, GraphError
from layerdag.graph.topology import longest_path_layers
from layerdag.runtime.files import write_bytes, write_text
from layerdag.runtime.json_shape import (
    found_value,
    number_in,
    parse_json,
    plain_reason,
    require_known,
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
        edge_type_names: Name of each edge type.
        conditions: Graph-level values by name.
        open_vocabularies: Categorical attributes in which unseen words may map to ``<other>``.
        vocabularies: Words that an attribute's vocabulary holds even if no training graph has them.
        node_names: What the file calls each node; none where nodes are numbered from 0.
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
    """Return the conditions of a graph without numbers that are none (NaN, infinity)."""
    return {
        name: value
        for name, value in graph.conditions.items()
        if isinstance(value, str) or math.isfinite(value)
    }


def written_name(name: str) -> str:
    """Return what a file calls a graph: its own name, of an absolute path the last part alone."""
    parts = re.split(r"[/\\]", name)
    from_outside = name[:1] in "/\\~" or parts[0] == ".." or re.match(r"[A-Za-z]:[/\\]", name)
    return next((part for part in reversed(parts) if part), "") if from_outside else name


JSON_FORMAT = "layerdag-graph-1"

_KEYS = {
    *("format", "name", "categories", "numbers", "units", "edges", "edge_types"),
    *("edge_type_names", "conditions", "node_names"),
}
_MALFORMED = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)


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
        if not isinstance(data, dict):
            raise ValueError("it is no object")
        if data.get("format") != JSON_FORMAT:
            raise ValueError(
                f"its format is {json.dumps(data.get('format')):.40}, not '{JSON_FORMAT}'"
            )
        notes = NoteCollector(source)
        for key in data.keys() - _KEYS:
            notes.add(NoteKind.KEY, key, "unknown; left out")
        names = tuple(_texts(_member(data, "edge_type_names", list), "edge_type_names"))
        units = _member(data, "units", dict)
        return AttributedGraph(
            name=_member(data, "name", str),
            categories={
                k: _texts(column, f"categories.{k}")
                for k, column in _member(data, "categories", dict).items()
            },
            numbers={
                k: _floats(column, f"numbers.{k}")
                for k, column in _member(data, "numbers", dict).items()
            },
            units=dict(zip(units, _texts([*units.values()], "units"), strict=True)),
            edge_index_2E=_pairs(_member(data, "edges", list)),
            edge_type_E=_edge_types(_member(data, "edge_types", list), names),
            edge_type_names=names,
            conditions=_conditions(_member(data, "conditions", dict), notes),
            node_names=tuple(_texts(data.get("node_names", []), "node_names")),
            notes=notes.notes,
        ).checked()
    except GraphError:
        raise
    except _MALFORMED as error:
        raise GraphError(
            f"{source}: is not a graph in layerdag's JSON ({error}); write it with layerdag sample."
        ) from error


_WORDS: dict[type, str] = {str: "a text", list: "a list", dict: "an object"}
J = TypeVar("J")


def _member(data: Mapping[str, Any], key: str, kind: type[J]) -> J:
    if key not in data:
        raise ValueError(f"'{key}' is missing")
    value = data[key]
    if not isinstance(value, kind):
        raise ValueError(f"'{key}' must be {_WORDS[kind]}, found {json.dumps(value):.40}")
    return value


def _texts(column: Any, where: str) -> list[str]:
    if not isinstance(column, list) or not set(map(type, column)) <= {str}:
        raise ValueError(f"'{where}' must be a list of texts")
    return column


def _floats(column: Any, where: str) -> np.ndarray:
    """Return a column of numbers, NaN for null. Raises ValueError if it is none."""
    if not isinstance(column, list) or not set(map(type, column)) <= {int, float, type(None)}:
        raise ValueError(f"'{where}' must be a list of numbers, null where there is none")
    return np.array([math.nan if v is None else float(v) for v in column])


def _pairs(edges: list[Any]) -> np.ndarray:
    """Return the ends of edges, int64 (2, E). Raises ValueError if they are no pairs."""
    try:
        pairs_E2 = np.array(edges or np.zeros((0, 2), np.int64))
    except ValueError:  # lists of different lengths
        pairs_E2 = np.zeros(1)
    if pairs_E2.ndim != 2 or pairs_E2.shape[1] != 2 or pairs_E2.dtype.kind != "i":
        raise ValueError("'edges' must be a list of pairs of node numbers")
    return pairs_E2.astype(np.int64).T


def _edge_types(types: Any, names: tuple[str, ...]) -> np.ndarray:
    for word in types:
        if word not in names:
            raise ValueError(f"edge_types has {json.dumps(word):.40}, which edge_type_names lacks")
    return np.array([names.index(word) for word in types], dtype=np.int64)


def _conditions(data: Mapping[str, Any], notes: NoteCollector) -> dict[str, Condition]:
    found: dict[str, Condition] = {}
    for name, value in data.items():
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            found[str(name)] = float(value)
        elif isinstance(value, str):
            found[str(name)] = value
        elif value is not None:
            notes.add(
                NoteKind.ATTRIBUTE, name, "neither a number nor a text; left out",
                where="conditions",
            )  # fmt: skip
    return found


Split = Literal["train", "val", "test"]


SPLITS: tuple[Split, ...] = ("train", "val", "test")


LABEL = "label"
"""Name of the condition that surrogates predict where nothing else is asked: a time or a cost."""


NAME, SPLIT = "name", "split"
STEP_TIMES = ".steps.json"
"""Ending of the file with the measured step times of a job, behind the prefix of its traces."""


MAX_COLUMNS = 256
"""Columns of a label file, and graph-level values of a data set."""


@dataclass(frozen=True)
class Labels:
    """The content of a label file.

    Attributes:
        conditions: Conditions by name of the graph.
        splits: Split by name of the graph, where the file says.
        notes: What was not understood.
    """

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
    table = _json_table(path) if path.suffix.lower() == ".json" else _csv_table(path)
    if not table.rows:
        raise DataError(f"{path}: names no graph; write a line for each, or leave the file out.")
    splits = {
        name: _split(path, name, row.pop(SPLIT)) for name, row in table.rows.items() if SPLIT in row
    }
    columns = dict.fromkeys(key for row in table.rows.values() for key in row)
    if len(columns) > MAX_COLUMNS:
        raise DataError(
            f"{path}: has {len(columns):,} columns of conditions; keep the at most {MAX_COLUMNS} "
            "that samples are to be asked for."
        )
    notes = NoteCollector(str(path))
    conditions: dict[str, dict[str, Condition]] = {name: {} for name in table.rows}
    for key in columns:
        column = {name: row[key] for name, row in table.rows.items() if key in row}
        for name, value in _values(path, key, column, table.places, notes).items():
            conditions[name][key] = value
    return Labels(conditions, splits, notes.notes)


@dataclass
class _Table:
    rows: dict[str, dict[str, str]] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)


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


def _csv_table(path: Path) -> _Table:
    table = _Table()
    for line, row in read_table(path, (NAME,)).rows():
        name = row.pop(NAME)
        if name in table.rows:
            raise DataError(f"{path}: graph '{name}' occurs twice; keep one line for each.")
        table.rows[name] = {column: cell for column, cell in row.items() if cell}
        table.places[name] = f"line {line}"
    return table


def _json_table(path: Path) -> _Table:
    try:
        data = parse_json(read_parsed(path).decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: is no JSON ({error}).") from None
    if not isinstance(data, dict):
        raise DataError(f"{path}: must hold an object with a graph's name for each value.")
    table = _Table()
    for name, value in data.items():
        cells = value if isinstance(value, dict) else {LABEL: value}
        if not all(isinstance(cell, str | int | float) for cell in cells.values()):
            raise DataError(f"{path}: graph '{name}' has a value that is no number and no string.")
        table.rows[name] = {
            str(k): str(v).lower() if isinstance(v, bool) else str(v) for k, v in cells.items()
        }
        table.places[name] = f"graph '{name}'"
    return table


def _split(path: Path, name: str, word: str) -> Split:
    for split in SPLITS:
        if word.strip() == split:
            return split
    raise DataError(
        f"{path}: graph '{name}' is of split '{word}'; write one of {', '.join(SPLITS)}."
    )


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
