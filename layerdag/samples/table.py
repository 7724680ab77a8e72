"""Samples as tables, a row each: for Polars, pyarrow, DuckDB and Ray Data. Needs pyarrow.

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

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from layerdag.errors import DataError, GraphError, UsageError
from layerdag.graph.attributed_graph import AttributedGraph
from layerdag.graph.formats.program_json import SIZES, program_sizes
from layerdag.runtime.reading import available_memory
from layerdag.samples.manifest import require_sample_name
from layerdag.samples.stored import StoredSample
from layerdag.schema.attributes import CategoryAttribute, NumericAttribute
from layerdag.schema.schema import GraphSchema

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
            *([(SIZES, pa.map_(pa.string(), pa.int64()))] if schema.kind.has_steps else []),
        ],
        metadata={
            "format": FORMAT,
            "edge_types": json.dumps(list(schema.edge_types)),
            "units": json.dumps({a.name: a.unit for a in numbers}),
        },
    )


def sample_table(rows: Sequence[Row], schema: GraphSchema) -> Any:
    """Return a table (of pyarrow) with a row for each sample of one checkpoint."""
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

    Raises UsageError if pyarrow is not installed.
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

    Raises DataError if the file is damaged, or no table of samples, and UsageError if pyarrow is
    not installed.
    """
    require_pyarrow()
    import pyarrow as pa
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(path) as file:
            groups = map(file.metadata.row_group, range(file.metadata.num_row_groups))
            if max((g.total_byte_size for g in groups), default=0) > available_memory() // 2:
                raise DataError(
                    f"{path}: a group of rows does not fit into memory; write smaller ones."
                )
            about = file.schema_arrow.metadata or {}
            if about.get(b"format") != FORMAT:
                raise DataError(f"{path}: is no table of samples; check the file.")
            edge_types = tuple(map(str, json.loads(about[b"edge_types"])))
            units = {str(k): str(v) for k, v in json.loads(about[b"units"]).items()}
            table = _Table(edge_types, units, str(path))
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


@dataclass(frozen=True)
class _Table:
    """The names of edge types and the units of numbers, which all rows of a file share."""

    edge_types: tuple[str, ...]
    units: Mapping[str, str]
    path: str

    def samples(self, batch: Any) -> Iterator[StoredSample]:
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
            require_sample_name(name, source)
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
