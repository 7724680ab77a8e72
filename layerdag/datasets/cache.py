"""Encoded data sets and their statistics in the user's cache folder, under a hash of the files.

Reading and encoding a corpus takes longer than the first steps of training on it. An entry is one
file of plain arrays and JSON; a damaged one is read anew. Jobs as they were read are not kept:
they are read when they are asked for.
"""

import hashlib
import io
import json
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch

from layerdag.dag.dag import DAG, GraphSizes
from layerdag.dag.shared_statistics import shared_statistics
from layerdag.dag.statistics import GraphStatistics
from layerdag.datasets.dataset import GraphDataset
from layerdag.errors import DataError
from layerdag.graph.attributed_graph import SPLITS, AttributedGraph, Split
from layerdag.graph.topology import pointers
from layerdag.runtime.cache import cache_folder, code_hash, content_hash, read_cached, write_cached
from layerdag.schema.schema import GraphSchema

_KIND = "datasets"
_MAX_ENTRIES = 8
_COLUMNS = ("x", "u", "layer", "edges", "types")
_DAMAGED = (ValueError, KeyError, TypeError, IndexError, OSError, EOFError, DataError)


def kept_dataset(
    settings: Mapping[str, object], files: Iterable[Path], load: Callable[[], GraphDataset]
) -> GraphDataset:
    """Return what ``load`` returns, from the cache where these files were read before.

    ``settings`` are those of the reader, as JSON; ``files`` all that it reads.
    """
    if cache_folder(_KIND) is None:
        return load()
    key = _key({**settings, "files": [content_hash(file) for file in files]})
    kept = read_cached(_KIND, f"{key}.npz")
    if kept is not None:
        try:
            return _decoded(kept, load)
        except (*_DAMAGED, zipfile.BadZipFile):
            pass  # and is written anew
    data = load()
    if not data.notes and not data.renamed:
        write_cached(_KIND, f"{key}.npz", _encoded(data), _MAX_ENTRIES)
    return data


def kept_statistics(dags: Sequence[DAG], sizes: GraphSizes) -> GraphStatistics:
    """Return ``shared_statistics``, from the cache where these graphs were measured before."""
    if cache_folder(_KIND) is None:
        return shared_statistics(dags, sizes)
    digest = hashlib.sha256()
    for dag in dags:
        for column in (dag.x_NA, dag.edge_index_2E, dag.edge_type_E, dag.layer_N):
            digest.update(repr(tuple(column.shape)).encode() + column.numpy().tobytes())
    key = _key({"sizes": asdict(sizes), "graphs": digest.hexdigest()})
    kept = read_cached(_KIND, f"{key}.statistics")
    if kept is not None:
        try:
            return GraphStatistics.from_dict(json.loads(kept))
        except _DAMAGED:
            pass
    found = shared_statistics(dags, sizes)
    write_cached(_KIND, f"{key}.statistics", json.dumps(found.to_dict()).encode(), _MAX_ENTRIES)
    return found


def _key(settings: Mapping[str, object]) -> str:
    return hashlib.sha256((code_hash() + json.dumps(settings, sort_keys=True)).encode()).hexdigest()


def _encoded(data: GraphDataset) -> bytes:
    dags = [dag for split in SPLITS for dag in data.graphs[split]]
    columns = {
        "x": [dag.x_NA.numpy().astype(np.int32) for dag in dags],
        "u": [dag.u_NA.numpy() for dag in dags],
        "layer": [dag.layer_N.numpy().astype(np.int32) for dag in dags],
        "edges": [dag.edge_index_2E.T.numpy().astype(np.int32) for dag in dags],
        "types": [dag.edge_type_E.numpy().astype(np.int32) for dag in dags],
    }
    plain = {
        "name": data.name,
        "schema": data.schema.to_dict(),
        "names": {split: list(data.names[split]) for split in SPLITS},
        "contents": {split: list(data.contents[split]) for split in SPLITS},
        "conditions": [dict(dag.conditions) for dag in dags],
        "left_out": list(data.left_out),
        "extra_train": sorted(data.extra_train),
        "jobs": {split: len(jobs) for split, jobs in data.jobs.items()},
    }
    file = io.BytesIO()
    np.savez(
        file,
        plain=np.frombuffer(json.dumps(plain).encode(), np.uint8),
        nodes=np.array([dag.num_nodes for dag in dags]),
        edge_counts=np.array([dag.num_edges for dag in dags]),
        **{name: np.concatenate(parts) for name, parts in columns.items()},  # type: ignore[arg-type]
    )
    return file.getvalue()


def _decoded(content: bytes, load: Callable[[], GraphDataset]) -> GraphDataset:
    with np.load(io.BytesIO(content), allow_pickle=False) as file:
        arrays = {name: torch.from_numpy(file[name]) for name in _COLUMNS}
        sizes = file["nodes"], file["edge_counts"]
        plain: dict[str, Any] = json.loads(file["plain"].tobytes())
    node_ptr, edge_ptr = (pointers(size).tolist() for size in sizes)
    x_NA, layer_N = arrays["x"].long(), arrays["layer"].long()
    edges_E2, type_E = arrays["edges"].long(), arrays["types"].long()
    dags = [
        DAG.build(
            x_NA[node : node_ptr[i + 1]],
            edges_E2[edge : edge_ptr[i + 1]].T.contiguous(),
            edge_type_E=type_E[edge : edge_ptr[i + 1]],
            u_NA=arrays["u"][node : node_ptr[i + 1]],
            conditions=plain["conditions"][i],
            layer_N=layer_N[node : node_ptr[i + 1]],
        )
        for i, (node, edge) in enumerate(zip(node_ptr[:-1], edge_ptr[:-1], strict=True))
    ]
    if len(dags) != sum(map(len, plain["names"].values())):
        raise ValueError("graphs and names differ in number")
    rest: Iterator[DAG] = chain(dags)
    return GraphDataset.of_splits(
        plain["name"],
        GraphSchema.from_dict(plain["schema"]),
        {split: tuple(next(rest) for _ in plain["names"][split]) for split in SPLITS},
        {split: tuple(plain["names"][split]) for split in SPLITS},
        tuple(plain["left_out"]),
        {split: tuple(plain["contents"][split]) for split in SPLITS},
        extra_train=frozenset(plain["extra_train"]),
        jobs=_JobsOnDemand(tuple(plain["jobs"]), load),
    )


class _JobsOnDemand(Mapping[Split, tuple[AttributedGraph, ...]]):
    def __init__(self, splits: tuple[Split, ...], load: Callable[[], GraphDataset]) -> None:
        self._splits, self._load = splits, load
        self._jobs: Mapping[Split, tuple[AttributedGraph, ...]] | None = None

    def __getitem__(self, split: Split) -> tuple[AttributedGraph, ...]:
        if split not in self._splits:
            raise KeyError(split)
        if self._jobs is None:
            self._jobs = self._load().jobs
        return self._jobs[split]

    def __iter__(self) -> Iterator[Split]:
        return iter(self._splits)

    def __len__(self) -> int:
        return len(self._splits)
