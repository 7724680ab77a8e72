"""Reading a packed data set; its files are not trusted."""

import json
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from layerdag._runtime import read_parsed
from layerdag.datasets import SPLITS, FolderConfig, GraphDataset, Split
from layerdag.datasets.schema import GraphSchema
from layerdag.datasets.sources.packed._format import (
    ARRAYS,
    FILES,
    HEADER,
    NAMES,
    PackedHeader,
    digest_of,
    open_array,
)
from layerdag.datasets.sources.packed._graphs import PackedGraphs
from layerdag.errors import CheckpointError, DataError, UsageError

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
    return GraphDataset(
        header.name, schema, parts, names, header.left_out, contents, renamed=header.renamed
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
    """Return the graphs of each split."""
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
    """Return whether a layer follows a later one inside a graph."""
    falls_N = np.flatnonzero(np.diff(layer_N) < 0) + 1
    return bool(np.setdiff1d(falls_N, first_of_graph).size)


def _names(
    folder: Path, header: PackedHeader
) -> tuple[dict[Split, tuple[str, ...]], dict[Split, tuple[str, ...]]]:
    """Return names and content hashes of the graphs of each split. Raises ValueError."""
    data = json.loads(read_parsed(folder / NAMES))
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
