"""Read a packed data set through memory maps; its content is untrusted.

The files of a packed data set, and the header that says what is in them.

Every array is a ``.npy`` file without pickled objects; graphs lie end to end in it, those of
training first, then those of validation and of test. Nodes are in layer order and edges by target,
as models take them. Edges count nodes from the first one of their split.

Letters: B graphs, N nodes, A attributes, E edges, C numeric and M other conditions.
"""

import hashlib
import json
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, overload

import numpy as np
import torch

from layerdag.dag.dag import DAG, DAGBatch
from layerdag.datasets.dataset import GraphDataset, StoredGraphs
from layerdag.datasets.loading import HEADER, FolderConfig
from layerdag.errors import CheckpointError, DataError, UsageError
from layerdag.graph.attributed_graph import SPLITS, Condition, Split
from layerdag.runtime.files import FolderKind, unexpected_files, write_text
from layerdag.runtime.json_shape import parse_json, plain_reason, require_known, require_shape
from layerdag.runtime.notes import Note
from layerdag.runtime.reading import read_parsed
from layerdag.schema.schema import GraphSchema
from layerdag.version import __version__

VERSION = 1
NAMES = "names.json"
ARRAYS: Mapping[str, tuple[tuple[str, ...], int]] = {
    "x": (("int16", "int32"), 2),
    "u": (("float32",), 2),
    "layer": (("int32",), 1),
    "edges": (("int32", "int64"), 2),
    "edge_types": (("int16",), 1),
    "node_ptr": (("int64",), 1),
    "edge_ptr": (("int64",), 1),
    "numbers": (("float64",), 2),
    "words": (("int32",), 2),
}
"""Types and number of axes of each array, by the name of its file.

x (N, A) codes, u (N, A) positions, layer (N,), edges (E, 2) source and target, edge_types (E,),
node_ptr and edge_ptr (B+1,), numbers (B, C) conditions with NaN for unknown, words (B, M)
conditions with -1 for unknown.
"""
FILES = (HEADER, NAMES, *(f"{name}.npy" for name in ARRAYS))


_HEADER_SHAPE = {
    "schema": dict,
    "name": str,
    "settings": dict,
    "splits": dict.fromkeys(SPLITS, int),
    "numbers": [str],
    "words": {str: [str]},
    "left_out": [str],
    "renamed": {str: {str: str}},
    "learned_from": int,
    "sha256": {str: str},
    "version": int,
    "layerdag_version": str,
}
_TOLD = ("notes", "unknown", "nodes")
"""What is not written: it is of the graphs as they were read."""


@dataclass(frozen=True)
class PackedHeader:
    """What the arrays mean.

    Attributes:
        name: Of the data set.
        schema: The schema as ``GraphSchema.to_dict`` writes it.
        splits: Number of graphs of each split.
        settings: How the folder was read, as plain data.
        numbers: Names of the numeric conditions, in the order of their columns.
        words: Words of the other conditions, by name in the order of their columns.
        left_out: Graphs that could not be used, with the reason.
        renamed: Empty; new words and old ones are in a file beside the folder (``renamed_file``).
        learned_from: Number of training graphs that the schema was learned from.
        sha256: Of each other file.
        version: Of the format.
        layerdag_version: What wrote it.
        notes: What the readers of the graphs did not understand; told when they are packed.
        unknown: Of the nodes of training graphs, those whose operator is not known; as ``notes``.
        nodes: All nodes of training graphs; as ``notes``.
    """

    name: str
    schema: Mapping[str, Any]
    splits: Mapping[Split, int]
    settings: Mapping[str, Any]
    numbers: tuple[str, ...]
    words: Mapping[str, tuple[str, ...]]
    left_out: tuple[str, ...]
    renamed: Mapping[str, Mapping[str, str]]
    learned_from: int
    sha256: Mapping[str, str] = field(default_factory=dict)
    version: int = VERSION
    layerdag_version: str = __version__
    notes: tuple[Note, ...] = ()
    unknown: int = 0
    nodes: int = 0

    def write(self, folder: Path) -> None:
        """Write the header of a folder whose other files are complete."""
        sha256 = {name: digest_of(folder / name) for name in FILES if name != HEADER}
        entries = {**asdict(self), "sha256": sha256}
        entries = {name: entries[name] for name in entries if name not in _TOLD}
        write_text(folder / HEADER, json.dumps(entries, indent=1) + "\n")

    @classmethod
    def read(cls, folder: Path) -> "PackedHeader":
        """Read the header of a folder.

        Raises:
            DataError: If it is damaged, or of another version.
        """
        path = folder / HEADER
        try:
            data = parse_json(read_parsed(path))
            require_shape(data, {"version": int})
            version = data["version"]
            if version == VERSION:
                require_shape(data, _HEADER_SHAPE)
                require_known(data, _HEADER_SHAPE)
                stored = [one.name for one in fields(cls) if one.name not in _TOLD]
                return cls(**_checked({name: data[name] for name in stored}))
        except (ValueError, RecursionError) as error:
            raise DataError(
                f"{path}: is no header of a packed data set ({plain_reason(error)}); pack the data "
                "again."
            ) from None
        raise DataError(
            f"{path}: is of version {version}, and this layerdag reads version {VERSION}; pack the "
            "data again."
        )


def _checked(data: dict[str, Any]) -> dict[str, Any]:
    splits = {split: data["splits"][split] for split in SPLITS}
    if min(*splits.values(), data["learned_from"]) < 0:
        raise ValueError("numbers of graphs are whole numbers from 0 on")
    return {
        **data,
        "splits": splits,
        "numbers": tuple(data["numbers"]),
        "words": {name: tuple(known) for name, known in data["words"].items()},
        "left_out": tuple(data["left_out"]),
    }


def renamed_file(folder: str | Path) -> Path:
    """Return where the words that were renamed stand: beside the folder, which may be handed on."""
    folder = Path(folder)
    return folder.with_name(f"{folder.name}.renamed.json")


def renamed_by_header(folder: str | Path) -> dict[str, dict[str, dict[str, str]]]:
    """Return new word -> old word by what holds it, by the digest of the header that they are of.

    While a folder is replaced there are those of the older one, too, so that a process that is
    killed leaves each folder with its own words.

    Raises:
        DataError: If the file is none.
    """
    path = renamed_file(folder)
    if not path.is_file():
        return {}
    try:
        data = parse_json(read_parsed(path))
        require_shape(data, {str: {str: {str: str}}})
    except (ValueError, RecursionError) as error:
        raise DataError(
            f"{path}: says of no words how they were renamed ({plain_reason(error)}); put back "
            "what stood there, or remove it and do without the owner's own words."
        ) from None
    return dict(data)


def is_packed(folder: str | Path) -> bool:
    """Return whether a folder is a packed data set."""
    return (Path(folder) / HEADER).is_file()


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def open_array(folder: Path, name: str) -> np.ndarray:
    """Return one array, its rows read when they are needed.

    Raises:
        DataError: If the file is missing or holds no such array.
    """
    path = folder / f"{name}.npy"
    types, axes = ARRAYS[name]
    try:
        # Copied on writing: torch takes no arrays that cannot be written to.
        found = np.load(path, mmap_mode="c", allow_pickle=False)
    except OSError as error:
        raise DataError(
            f"{path}: cannot be read ({error.strerror}); pack the data again."
        ) from None
    except (ValueError, EOFError, SyntaxError, TypeError, tokenize.TokenError):
        raise DataError(
            f"{path}: is no array of numpy, or its head is damaged; pack the data again."
        ) from None
    if found.dtype.name not in types or found.ndim != axes:
        raise DataError(
            f"{path}: holds {found.dtype} of {found.ndim} axes, and {types[0]} of {axes} are "
            "needed; pack the data again."
        )
    return found


def why_not_packed(folder: Path) -> str:
    """Return why a folder is not provably a packed data set, or ""."""
    strange = unexpected_files(folder, FILES.__contains__)
    if strange:
        return strange
    return "" if is_packed(folder) else f"has no {HEADER}"


PACKED = FolderKind("a packed data set", why_not_packed)


@dataclass(frozen=True, eq=False)
class PackedGraphs(StoredGraphs):
    """B graphs that lie end to end in arrays; ``layerdag.datasets`` says how.

    Attributes:
        columns: x, u, layer, edges and edge_types of these graphs alone.
        node_ptr: int64 (B+1,), from 0.
        edge_ptr: int64 (B+1,), from 0.
        numbers_BC: Numeric conditions, NaN for unknown.
        words_BM: Codes of the other conditions, -1 for unknown.
        number_names: Names of the numeric conditions.
        words: Words of the others by name.
    """

    columns: Mapping[str, np.ndarray]
    node_ptr: np.ndarray
    edge_ptr: np.ndarray
    numbers_BC: np.ndarray
    words_BM: np.ndarray
    number_names: tuple[str, ...]
    words: Mapping[str, tuple[str, ...]]

    def __len__(self) -> int:
        """Return the number of graphs."""
        return len(self.node_ptr) - 1

    @overload
    def __getitem__(self, index: int) -> DAG: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[DAG, ...]: ...

    def __getitem__(self, index: int | slice) -> DAG | tuple[DAG, ...]:
        """Return one graph, or some of them, read from the files."""
        if isinstance(index, slice):
            return tuple(self._graph(i) for i in range(*index.indices(len(self))))
        place = index + len(self) if index < 0 else index
        if not 0 <= place < len(self):
            raise IndexError(f"there are {len(self)} graphs, found {index}")
        return self._graph(place)

    def __iter__(self) -> Iterator[DAG]:
        """Yield the graphs, holding none of them."""
        return (self._graph(i) for i in range(len(self)))

    def _graph(self, i: int) -> DAG:
        nodes = slice(int(self.node_ptr[i]), int(self.node_ptr[i + 1]))
        edges = slice(int(self.edge_ptr[i]), int(self.edge_ptr[i + 1]))
        edges_E2 = self.columns["edges"][edges].astype(np.int64) - nodes.start
        return DAG.build(
            _int64(self.columns["x"][nodes]),
            torch.from_numpy(np.ascontiguousarray(edges_E2.T)),
            edge_type_E=_int64(self.columns["edge_types"][edges]),
            u_NA=torch.from_numpy(np.array(self.columns["u"][nodes])),
            conditions=self.conditions(i),
            layer_N=_int64(self.columns["layer"][nodes]),
        )

    def conditions(self, i: int) -> dict[str, Condition]:
        """Return what is known of graph ``i``."""
        numbers = zip(self.number_names, self.numbers_BC[i].tolist(), strict=True)
        known: dict[str, Condition] = {name: y for name, y in numbers if y == y}
        coded = zip(self.words.items(), self.words_BM[i].tolist(), strict=True)
        return known | {name: words[code] for (name, words), code in coded if code >= 0}

    def conditioned_on(self, names: Sequence[str]) -> "PackedGraphs":
        """Return the graphs with these conditions alone."""
        numbers = [i for i, name in enumerate(self.number_names) if name in names]
        kept = [i for i, name in enumerate(self.words) if name in names]
        return replace(
            self,
            numbers_BC=self.numbers_BC[:, numbers],
            words_BM=self.words_BM[:, kept],
            number_names=tuple(self.number_names[i] for i in numbers),
            words={name: words for name, words in self.words.items() if name in names},
        )

    def batch(self, schema: GraphSchema) -> DAGBatch:
        """Return all graphs as one batch; codes and edges are whole numbers of the files' types."""
        known = set(schema.condition_names)
        rows = [
            {name: value for name, value in self.conditions(i).items() if name in known}
            for i in range(len(self))
        ]
        numeric_BC, category_BM = schema.encode_conditions(rows)
        x, u, layer, edges, types = (
            torch.from_numpy(self.columns[name])
            for name in ("x", "u", "layer", "edges", "edge_types")
        )
        return DAGBatch(
            x_NA=x,
            u_NA=u,
            layer_N=layer,
            edge_index_2E=edges.T,
            edge_type_E=types,
            node_ptr=torch.from_numpy(self.node_ptr),
            edge_ptr=torch.from_numpy(self.edge_ptr),
            numeric_BC=numeric_BC,
            category_BM=category_BM,
        )


def _int64(values: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(values.astype(np.int64))


_AT_ONCE = 1 << 20
_PER_NODE, _PER_EDGE = ("x", "u", "layer"), ("edges", "edge_types")
_ELSEWHERE = ("name", "folder", "labels", "max_nodes")


def load_packed(config: FolderConfig) -> GraphDataset:
    """Load a folder that ``pack_folder`` wrote; graphs stay in the files until they are needed.

    Args:
        config: The folder; other settings are those of packing, or the defaults.

    Raises:
        DataError: If a file is missing, damaged, or contradicts another.
        UsageError: If another setting is asked for than the data was packed with.
    """
    folder = config.folder
    header = PackedHeader.read(folder)
    _require_settings(config, header)
    for name in FILES:
        if name != HEADER and (
            not (folder / name).is_file() or digest_of(folder / name) != header.sha256.get(name)
        ):
            raise DataError(
                f"{folder / name}: is not the file that {HEADER} describes; copy the folder again "
                "or pack the data again."
            )
    try:
        schema = GraphSchema.from_dict(header.schema)
    except CheckpointError as error:
        raise DataError(f"{folder / HEADER}: {error}") from None
    arrays = {name: open_array(folder, name) for name in ARRAYS}
    try:
        _check_sizes(arrays, header, schema)
        parts = _parts(arrays, header)
        for graphs in parts.values():
            _check_content(graphs, schema)
        names, contents = _names(folder, header)
    except ValueError as error:
        raise DataError(f"{folder}: {error}; pack the data again.") from None
    return GraphDataset.of_splits(
        header.name,
        schema,
        parts,
        names,
        header.left_out,
        contents,
        renamed=header.renamed or renamed_by_header(folder).get(digest_of(folder / HEADER), {}),
    )


def _require_settings(config: FolderConfig, header: PackedHeader) -> None:
    """Raise UsageError if a setting was asked for that the data was not packed with."""
    asked = plain_settings(config)
    usual = plain_settings(FolderConfig(folder=config.folder))
    for name, value in asked.items():
        packed = header.settings.get(name)
        if value not in (usual[name], packed):
            raise UsageError(
                f"{config.folder}: was packed with {name}={packed}, not {value}; leave the setting "
                "out, or pack the data again with it."
            )


def plain_settings(config: FolderConfig) -> dict[str, Any]:
    """Return the settings that decide what graphs become, as JSON has them."""
    settings = {one.name: getattr(config, one.name) for one in fields(config)}
    found = {name: value for name, value in settings.items() if name not in _ELSEWHERE}
    return {name: list(v) if isinstance(v, tuple) else v for name, v in found.items()}


def _check_sizes(
    arrays: Mapping[str, np.ndarray], header: PackedHeader, schema: GraphSchema
) -> None:
    """Raise ValueError unless the arrays are as long as pointers and header say."""
    count = sum(header.splits.values())
    for pointer, held in (("node_ptr", _PER_NODE), ("edge_ptr", _PER_EDGE)):
        ptr = arrays[pointer]
        if len(ptr) != count + 1 or ptr[0] != 0 or (np.diff(ptr) < 0).any():
            raise ValueError(f"{pointer} does not say where {count} graphs lie")
        for name in held:
            if len(arrays[name]) != ptr[-1]:
                raise ValueError(f"{name} has {len(arrays[name])} rows, and {ptr[-1]} are needed")
    widths = {
        "x": len(schema.attributes),
        "u": len(schema.attributes),
        "edges": 2,
        "numbers": len(header.numbers),
        "words": len(header.words),
    }
    for name, width in widths.items():
        if arrays[name].shape[1] != width:
            raise ValueError(f"{name} has {arrays[name].shape[1]} columns, and {width} are needed")
    if {len(arrays["numbers"]), len(arrays["words"])} != {count}:
        raise ValueError(f"conditions are not those of {count} graphs")
    sizes = np.array([len(words) for words in header.words.values()])
    if ((arrays["words"] < -1) | (arrays["words"] >= sizes)).any():
        raise ValueError("a condition has a word that the header does not list")


def _parts(arrays: Mapping[str, np.ndarray], header: PackedHeader) -> dict[Split, PackedGraphs]:
    parts, first = {}, 0
    for split in SPLITS:
        last = first + header.splits[split]
        node_ptr = np.array(arrays["node_ptr"][first : last + 1])
        edge_ptr = np.array(arrays["edge_ptr"][first : last + 1])
        nodes, edges = slice(node_ptr[0], node_ptr[-1]), slice(edge_ptr[0], edge_ptr[-1])
        parts[split] = PackedGraphs(
            columns={name: arrays[name][nodes] for name in _PER_NODE}
            | {name: arrays[name][edges] for name in _PER_EDGE},
            node_ptr=node_ptr - node_ptr[0],
            edge_ptr=edge_ptr - edge_ptr[0],
            numbers_BC=arrays["numbers"][first:last],
            words_BM=arrays["words"][first:last],
            number_names=header.numbers,
            words=header.words,
        )
        first = last
    return parts


def _check_content(graphs: PackedGraphs, schema: GraphSchema) -> None:
    """Raise ValueError unless codes are the schema's and edges descend inside their graph."""
    codes_A = np.array(schema.sizes().attributes)
    for first in range(0, int(graphs.node_ptr[-1]), _AT_ONCE):
        part = slice(first, first + _AT_ONCE)
        x_NA, u_NA = graphs.columns["x"][part], graphs.columns["u"][part]
        if ((x_NA < 0) | (x_NA >= codes_A)).any() or not ((u_NA >= 0) & (u_NA < 1)).all():
            raise ValueError("a node has a code or a position that the schema does not know")
    layer_N = graphs.columns["layer"]
    if (layer_N < 0).any() or _falls_inside(layer_N, graphs.node_ptr[1:-1]):
        raise ValueError("nodes are not in the order of their layers")
    for first in range(0, int(graphs.edge_ptr[-1]), _AT_ONCE):
        last = min(first + _AT_ONCE, int(graphs.edge_ptr[-1]))
        types_E = graphs.columns["edge_types"][first:last]
        if ((types_E < 0) | (types_E >= len(schema.edge_types))).any():
            raise ValueError("an edge has a type that the schema does not know")
        graph_E = np.searchsorted(graphs.edge_ptr, np.arange(first, last), side="right") - 1
        low_E, high_E = graphs.node_ptr[graph_E], graphs.node_ptr[graph_E + 1]
        edges_E2 = graphs.columns["edges"][first:last]
        if ((edges_E2 < low_E[:, None]) | (edges_E2 >= high_E[:, None])).any():
            raise ValueError("an edge leaves its graph")
        if (layer_N[edges_E2[:, 0]] >= layer_N[edges_E2[:, 1]]).any():
            raise ValueError("an edge does not descend from layer to layer")


def _falls_inside(layer_N: np.ndarray, first_of_graph: np.ndarray) -> bool:
    falls_N = np.flatnonzero(np.diff(layer_N) < 0) + 1
    return bool(np.setdiff1d(falls_N, first_of_graph).size)


def _names(
    folder: Path, header: PackedHeader
) -> tuple[dict[Split, tuple[str, ...]], dict[Split, tuple[str, ...]]]:
    data = parse_json(read_parsed(folder / NAMES))
    found = []
    for key in ("names", "contents"):
        listed = data.get(key) if isinstance(data, dict) else None
        if not isinstance(listed, list) or len(listed) != sum(header.splits.values()):
            raise ValueError(f"{NAMES} does not list every graph")
        words, first, parts = [str(word) for word in listed], 0, {}
        for split in SPLITS:
            parts[split] = tuple(words[first : first + header.splits[split]])
            first += header.splits[split]
        found.append(parts)
    return found[0], found[1]
