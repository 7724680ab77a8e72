"""Samples as tables: what columns there are, and that a row is the whole graph."""

import sys
from pathlib import Path

import numpy as np
import pytest
from layered_jobs import layered_job
from random_jobs import random_job
from raw_graphs import chain

from layerdag.codec import AttributedGraph, unfold_sampled
from layerdag.datasets import GraphDataset
from layerdag.datasets.samples import (
    StoredSample,
    TableWriter,
    _parquet as tables,
    part_samples,
    require_pyarrow,
    sample_table,
)
from layerdag.datasets.schema import GraphSchema
from layerdag.errors import DataError, UsageError
from layerdag.traces.chakra import encode_trace

pa = pytest.importorskip("pyarrow", reason="needs pyarrow")
parquet = pytest.importorskip("pyarrow.parquet", reason="needs pyarrow")


def of_jobs() -> tuple[GraphSchema, list[AttributedGraph]]:
    jobs = [random_job(seed, 2, layers=4) for seed in range(3)]
    return GraphSchema.fit("trace", jobs, num_bins=2), jobs


def of_chains() -> tuple[GraphSchema, list[AttributedGraph]]:
    graphs = [chain(f"g{i}", "abcab"[: 1 + i], label=1.0 + i, color="red") for i in range(3)]
    return GraphSchema.fit("flow", graphs), graphs


def entry(i: int, graph: AttributedGraph, ranks: int | None = None) -> dict[str, object]:
    noted = {"name": f"sample-{i:05d}", "seed": i, "truncated": False}
    return {**noted, "conditions": graph.conditions, **({"ranks": ranks} if ranks else {})}


def stored(path: Path, schema: GraphSchema, graphs: list[AttributedGraph], ranks=None):
    writer = TableWriter(path, schema)
    for i, graph in enumerate(graphs):
        writer.add(entry(i, graph, ranks), graph)
    writer.close()
    return list(part_samples(path))


def assert_equal(found: AttributedGraph, graph: AttributedGraph) -> None:
    assert {k: list(v) for k, v in found.categories.items()} == graph.categories
    assert list(found.numbers) == list(graph.numbers)
    for name, values in graph.numbers.items():
        np.testing.assert_array_equal(found.numbers[name], values)
    np.testing.assert_array_equal(found.edge_index_2E, graph.edge_index_2E)
    names = [[g.edge_type_names[c] for c in g.edge_type_E.tolist()] for g in (found, graph)]
    assert names[0] == names[1]
    assert found.conditions == graph.conditions


@pytest.mark.parametrize("rows", [2, 256])
def test_a_graph_reads_as_it_was_written(
    tmp_path: Path, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "ROWS_OF_A_GROUP", rows)
    schema, graphs = of_chains()
    found = stored(tmp_path / "p.parquet", schema, graphs)
    assert [sample.seed for sample in found] == [0, 1, 2]
    for sample, graph in zip(found, graphs, strict=True):
        assert_equal(sample.graph, graph)
        assert not sample.is_job
        assert (sample.entry["nodes"], sample.entry["edges"]) == (
            graph.num_nodes, graph.num_nodes - 1,
        )  # fmt: skip
        with pytest.raises(DataError, match="is a graph, not a job"):
            sample.workload()


def test_a_job_reads_as_it_was_written_and_becomes_the_same_traces(tmp_path: Path) -> None:
    schema, jobs = of_jobs()
    for sample, job in zip(stored(tmp_path / "p.parquet", schema, jobs, 2), jobs, strict=True):
        assert_equal(sample.graph, job)
        assert {**sample.graph.units} == {n: job.units.get(n, "1") for n in job.numbers}
        wanted = unfold_sampled(job, 2).workload
        found = sample.workload()
        assert found.groups == wanted.groups
        assert [encode_trace(t) for t in found.traces] == [encode_trace(t) for t in wanted.traces]


def test_a_job_that_cannot_run_on_its_ranks_is_one_sentence(tmp_path: Path) -> None:
    schema, jobs = of_jobs()
    (sample, *_) = stored(tmp_path / "p.parquet", schema, jobs, 1)
    with pytest.raises(DataError, match=r"p\.parquet:sample-00000"):
        sample.workload()


def test_jobs_with_rolled_blocks_are_written_whole(tmp_path: Path) -> None:
    jobs = [layered_job(copies) for copies in (3, 4, 5)]
    data = GraphDataset.build("jobs", "trace", {"train": jobs}, blocks="rolled")
    assert data.schema.rolls_blocks
    graph = data.schema.whole(data.schema.decode(data.graphs["train"][0]))
    (sample,) = stored(tmp_path / "p.parquet", data.schema, [graph], 1)
    assert_equal(sample.graph, graph)


def test_no_sample_makes_a_file_of_none(tmp_path: Path) -> None:
    assert stored(tmp_path / "p.parquet", of_chains()[0], []) == []


def test_the_same_samples_make_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        stored(tmp_path / f"{name}.parquet", *of_chains())
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()


def test_without_pyarrow_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UsageError, match=r"pip install 'layerdag\[parquet\]'"):
        require_pyarrow()


def table() -> "pa.Table":
    schema, graphs = of_chains()
    return sample_table([(entry(i, graph), graph) for i, graph in enumerate(graphs)], schema)


def without(name: str) -> "pa.Table":
    return table().drop_columns([name])


def with_column(name: str, values: list[object]) -> "pa.Table":
    found = table()
    return found.set_column(found.schema.get_field_index(name), name, [values])


NODES = [[{"kind": "a"}]] * 3
HOSTILE = {
    **{f"no {name}": without(name) for name in table().schema.names},
    "path": with_column("name", ["../../x"] * 3),
    "text": with_column("nodes", ["a"] * 3),
    "no node": with_column("nodes", [[]] * 3),
    "null": with_column("nodes", [None] * 3),
    "outside": with_column("edges", [[{"source": 0, "target": 9, "type": "data"}]] * 3),
    "negative": with_column("edges", [[{"source": -1, "target": 0, "type": "data"}]] * 3),
    "edge type": with_column("edges", [[{"source": 0, "target": 0, "type": "x"}]] * 3),
    "number": with_column("nodes", [[{"kind": "a", "other": 1.0}]] * 3),
    "no metadata": table().replace_schema_metadata({}),
    "metadata": table().replace_schema_metadata({b"format": tables.FORMAT, b"edge_types": b"["}),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_table_of_something_else_is_one_sentence(tmp_path: Path, name: str) -> None:
    path = tmp_path / "p.parquet"
    parquet.write_table(HOSTILE[name], path)
    with pytest.raises(DataError, match=r"p\.parquet") as caught:
        [sample.graph for sample in part_samples(path)]
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize("size", [0, 4, 100, 2000])
def test_a_damaged_file_is_one_sentence(tmp_path: Path, size: int) -> None:
    path = tmp_path / "p.parquet"
    parquet.write_table(table(), path)
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(DataError, match=r"p\.parquet"):
        list(part_samples(path))


def test_groups_of_rows_that_do_not_fit_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "p.parquet"
    parquet.write_table(table(), path)
    monkeypatch.setattr(tables, "memory_left", lambda: 100)
    with pytest.raises(DataError, match="does not fit into memory"):
        list(part_samples(path))


def test_a_sample_shows_its_name_seed_and_size(tmp_path: Path) -> None:
    (sample, *_) = stored(tmp_path / "p.parquet", *of_chains())
    assert isinstance(sample, StoredSample)
    assert repr(sample) == "StoredSample('sample-00000', seed=0, nodes=1)"
