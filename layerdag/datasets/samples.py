"""Iterate over stored samples, in folders, tar and Parquet.

Samples as tables, a row each: for Polars, pyarrow, DuckDB and Ray Data. Needs pyarrow.

The columns:

==============  =============================================================================
``name``        string
``seed``        int64
``truncated``   bool
``ranks``       int32; of a job, on how many ranks it runs; null of a graph that is no job
``conditions``  struct: a double or a string for each condition of the checkpoint
``nodes``       list of structs: a string for each category, a double for each number (null for
                absent) of a node
``edges``       list of structs: ``source`` and ``target`` (int32, positions in ``nodes``), ``type``
``sizes``       of programs alone: the table of sizes, a map from a name to an int64
==============  =============================================================================

Units of numbers and the edge types stand in the metadata of the schema. Ranks are not unfolded: a
row is the graph of a job, from which ``StoredSample.workload`` makes its traces.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from layerdag.codec.sample_files import (
    RUN,
    PartIndex,
    SampleRun,
    StoredSample,
    is_run,
    part_name,
    read_tar,
)
from layerdag.errors import DataError, GraphError, UsageError
from layerdag.graph.attributed_graph import AttributedGraph
from layerdag.graph.formats.program_json import SIZES, program_sizes
from layerdag.runtime.json_shape import parse_json, plain_reason, require_shape
from layerdag.runtime.reading import available_memory, path_within, read_parsed, read_whole
from layerdag.schema.attributes import CategoryAttribute, NumericAttribute
from layerdag.schema.schema import GraphSchema

_MANIFEST = "manifest.json"


def iter_samples(location: str | Path) -> Iterator[StoredSample]:
    """Yield the samples that ``layerdag sample`` wrote, in order, holding one at a time.

    Args:
        location: A folder of samples in parts (``format=tar`` or ``parquet``), one part, or a
            folder with a folder or file for each sample. Of a run that is not finished the parts
            that are there are read.

    Raises:
        DataError: If nothing is there, or a file is damaged or was changed.
        UsageError: If it is Parquet and pyarrow is not installed.
    """
    location = Path(location)
    if location.is_file():
        yield from part_samples(location)
    elif is_run(location):
        found = False
        for index in SampleRun.read(location).parts_at(location):
            found = True
            yield from _checked(location, index)
        if not found:
            raise DataError(f"{location}: holds no whole part yet; repeat 'layerdag sample'.")
    elif (location / _MANIFEST).is_file():
        yield from _one_by_one(location)
    else:
        raise DataError(
            f"{location}: holds neither {RUN} nor {_MANIFEST}; give a folder that "
            "'layerdag sample' wrote, or one of its parts."
        )


def part_samples(path: str | Path) -> Iterator[StoredSample]:
    """Yield the samples of one part, a tar or a Parquet file, with or without an index beside it.

    Raises:
        DataError: If the file is damaged or no part.
        UsageError: If it is Parquet and pyarrow is not installed.
    """
    if Path(path).suffix != ".parquet":
        yield from read_tar(path)
        return
    yield from read_parquet(path)


def _checked(folder: Path, index: PartIndex) -> Iterator[StoredSample]:
    path = folder / index.file
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != index.sha256:
        raise DataError(
            f"{path}: has another checksum than {part_name(index.part)}.json says; copy both "
            "again, or remove them and repeat 'layerdag sample'."
        )
    yield from part_samples(path)


def _one_by_one(folder: Path) -> Iterator[StoredSample]:
    manifest = folder / _MANIFEST
    try:
        content = parse_json(read_parsed(manifest))
        require_shape(content, {"samples": [{"name": str, "file?": str}]})
    except (ValueError, RecursionError) as error:
        raise DataError(
            f"{manifest}: is no manifest of samples ({plain_reason(error)}); sample again, or get "
            "the folder from its source again."
        ) from None
    names = [(e["name"], e.get("file"), json.dumps(e).encode()) for e in content["samples"]]
    for name, file, entry in names:
        at = path_within(folder, name if file is None else file)
        paths = sorted(p for p in at.iterdir() if p.is_file()) if at.is_dir() else [at]
        files = {path.name: read_whole(path) for path in paths}
        yield StoredSample.from_files(entry, f"{folder}:{name}", files)


FORMAT = b"layerdag-table-1"
ROWS_OF_A_GROUP = 256
_READ_ROWS = 64

Row = tuple[Mapping[str, Any], AttributedGraph]
"""What is noted of a sample, and its graph in names and numbers."""


def require_pyarrow() -> None:
    """Raise UsageError if pyarrow is not installed."""
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        raise UsageError(
            "Parquet needs the package pyarrow, which is not installed; install it with "
            "pip install 'layerdag[parquet]', or ask for format=tar."
        ) from None


def table_schema(schema: GraphSchema) -> Any:
    """Return the schema (of pyarrow) of the samples of a checkpoint."""
    import pyarrow as pa

    nodes = [
        pa.field(a.name, pa.string())
        if isinstance(a, CategoryAttribute)
        else pa.field(a.name, pa.float64())
        for a in schema.attributes
    ]
    numbers = [a for a in schema.attributes if isinstance(a, NumericAttribute)]
    edges = [("source", pa.int32()), ("target", pa.int32()), ("type", pa.string())]
    conditions = [
        *((condition.name, pa.float64()) for condition in schema.numeric_conditions),
        *((condition.name, pa.string()) for condition in schema.category_conditions),
    ]
    return pa.schema(
        [
            ("name", pa.string()),
            ("seed", pa.int64()),
            ("truncated", pa.bool_()),
            ("ranks", pa.int32()),
            ("conditions", pa.struct(conditions)),
            ("nodes", pa.list_(pa.struct(nodes))),
            ("edges", pa.list_(pa.struct(edges))),
            *([(SIZES, pa.map_(pa.string(), pa.int64()))] if schema.kind.has_size_tables else []),
        ],
        metadata={
            "format": FORMAT,
            "edge_types": json.dumps(list(schema.edge_types)),
            "units": json.dumps({a.name: a.unit for a in numbers}),
        },
    )


def sample_table(rows: Sequence[Row], schema: GraphSchema) -> Any:
    """Return a table (of pyarrow) with a row for each sample.

    Args:
        rows: Samples of one checkpoint.
        schema: Of the checkpoint.
    """
    import pyarrow as pa

    wanted = table_schema(schema)
    if not rows:
        return wanted.empty_table()
    entries, graphs = [entry for entry, _ in rows], [graph for _, graph in rows]
    conditions = wanted.field("conditions").type
    columns = [
        pa.array([entry["name"] for entry in entries], pa.string()),
        pa.array([entry["seed"] for entry in entries], pa.int64()),
        pa.array([entry["truncated"] for entry in entries], pa.bool_()),
        pa.array([entry.get("ranks") for entry in entries], pa.int32()),
        pa.array([dict(entry["conditions"]) for entry in entries], conditions),
        _lists([graph.num_nodes for graph in graphs], _nodes(graphs, wanted)),
        _lists([graph.edge_type_E.size for graph in graphs], _edges(graphs, wanted)),
    ]
    if SIZES in wanted.names:
        tables = [list(program_sizes(graph).items()) for graph in graphs]
        columns.append(pa.array(tables, wanted.field(SIZES).type))
    return pa.table(columns, schema=wanted)


def _lists(sizes: Sequence[int], values: Any) -> Any:
    import pyarrow as pa

    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), values)


def _nodes(graphs: Sequence[AttributedGraph], wanted: Any) -> Any:
    import pyarrow as pa

    fields = list(wanted.field("nodes").type.value_type)
    columns = [
        pa.array([w for g in graphs for w in g.categories[field.name]], pa.string())
        if pa.types.is_string(field.type)
        else pa.array(np.concatenate([g.numbers[field.name] for g in graphs]), from_pandas=True)
        for field in fields
    ]
    return pa.StructArray.from_arrays(columns, fields=fields)


def _edges(graphs: Sequence[AttributedGraph], wanted: Any) -> Any:
    import pyarrow as pa

    ends_2E = np.concatenate([graph.edge_index_2E for graph in graphs], axis=1).astype(np.int32)
    types = [graph.edge_type_names[code] for graph in graphs for code in graph.edge_type_E.tolist()]
    columns = [pa.array(ends_2E[0]), pa.array(ends_2E[1]), pa.array(types, pa.string())]
    return pa.StructArray.from_arrays(columns, fields=list(wanted.field("edges").type.value_type))


class TableWriter:
    """Writes the samples of one part, some hundred rows at a time.

    Args:
        path: File to write.
        schema: Of the checkpoint.

    Raises:
        UsageError: If pyarrow is not installed.
    """

    def __init__(self, path: Path, schema: GraphSchema) -> None:
        require_pyarrow()
        from pyarrow import parquet

        self._schema, self._rows = schema, list[Row]()
        self._writer = parquet.ParquetWriter(path, table_schema(schema), compression="zstd")

    def add(self, entry: Mapping[str, Any], graph: AttributedGraph) -> None:
        """Write a sample."""
        self._rows.append((entry, graph))
        if len(self._rows) == ROWS_OF_A_GROUP:
            self._flush()

    def close(self) -> None:
        """Write what is left, and the end of the file."""
        if self._rows:
            self._flush()
        self._writer.close()

    def _flush(self) -> None:
        self._writer.write_table(sample_table(self._rows, self._schema))
        self._rows = []


def read_parquet(path: str | Path) -> Iterator[StoredSample]:
    """Yield the samples of a part; the file is not trusted.

    Raises:
        DataError: If the file is damaged, or no table of samples.
        UsageError: If pyarrow is not installed.
    """
    require_pyarrow()
    import pyarrow as pa
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(path) as file:
            _require_small_groups(file.metadata, path)
            about = file.schema_arrow.metadata or {}
            if about.get(b"format") != FORMAT:
                raise DataError(f"{path}: is no table of samples; check the file.")
            table = _Table.from_metadata(about, str(path))
            for batch in file.iter_batches(batch_size=_READ_ROWS):
                yield from table.samples(batch)
    except GraphError as error:
        raise GraphError(f"{path}:{error}") from None
    except (
        pa.ArrowException, OSError, ValueError, KeyError, TypeError, AttributeError, IndexError
    ) as error:  # fmt: skip
        raise DataError(
            f"{path}: cannot be read as samples ({str(error)!r:.200}); copy the file again."
        ) from None


def _require_small_groups(metadata: Any, path: str | Path) -> None:
    sizes = [metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups)]
    if max(sizes, default=0) > available_memory() // 2:
        raise DataError(f"{path}: a group of rows does not fit into memory; write smaller ones.")


@dataclass(frozen=True)
class _Table:
    """What all rows of a file have in common.

    Attributes:
        edge_types: Name of each edge type.
        units: Unit of each number.
        path: Of the file.
    """

    edge_types: tuple[str, ...]
    units: Mapping[str, str]
    path: str

    @classmethod
    def from_metadata(cls, metadata: Mapping[bytes, bytes], path: str) -> "_Table":
        """Return what the metadata of a schema says."""
        edge_types = tuple(str(name) for name in json.loads(metadata[b"edge_types"]))
        units = {str(k): str(v) for k, v in json.loads(metadata[b"units"]).items()}
        return cls(edge_types, units, path)

    def samples(self, batch: Any) -> Iterator[StoredSample]:
        """Yield the sample of each row."""
        nodes, edges = batch.column("nodes"), batch.column("edges")
        plain = batch.select(["name", "seed", "truncated", "ranks", "conditions"]).to_pylist()
        sizes = batch.column(SIZES).to_pylist() if SIZES in batch.schema.names else None
        for i, row in enumerate(plain):
            row["conditions"] = {k: v for k, v in row["conditions"].items() if v is not None}
            if row["ranks"] is None:
                del row["ranks"]
            table = {} if sizes is None else {k: float(v) for k, v in sizes[i]}
            graph = self._graph(row, nodes[i].values, edges[i].values)
            graph = replace(graph, conditions={**graph.conditions, **table})
            row |= {"nodes": graph.num_nodes, "edges": graph.edge_type_E.size}
            name, seed = str(row["name"]), int(row["seed"])
            source = f"{self.path}:{name}"
            yield StoredSample(name, seed, row["conditions"], row, source, row=graph)

    def _graph(self, row: Mapping[str, Any], nodes: Any, edges: Any) -> AttributedGraph:
        import pyarrow as pa

        fields = list(nodes.type)
        texts = [field.name for field in fields if pa.types.is_string(field.type)]
        numbers = [field.name for field in fields if not pa.types.is_string(field.type)]
        codes = {name: code for code, name in enumerate(self.edge_types)}
        ends = [edges.field(end).to_numpy(zero_copy_only=False) for end in ("source", "target")]
        return AttributedGraph(
            name=str(row["name"]),
            categories={name: [str(w) for w in nodes.field(name).to_pylist()] for name in texts},
            numbers={
                name: nodes.field(name).to_numpy(zero_copy_only=False).astype(np.float64)
                for name in numbers
            },
            units={name: self.units[name] for name in numbers},
            edge_index_2E=np.stack(ends).astype(np.int64),
            edge_type_E=np.array([codes[t] for t in edges.field("type").to_pylist()], np.int64),
            edge_type_names=self.edge_types,
            conditions=row["conditions"],
        ).checked()
