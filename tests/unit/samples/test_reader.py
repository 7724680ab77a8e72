"""One iterator for everything that sampling writes."""

import gzip
import importlib.util
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from random_jobs import random_job
from raw_graphs import chain
from sample_parts import TEN, written

from layerdag.codec.unfolding import unfold_sampled
from layerdag.errors import DataError, UsageError
from layerdag.graph.attributed_graph import AttributedGraph
from layerdag.samples import table as tables
from layerdag.samples.reader import iter_samples, part_samples
from layerdag.samples.stored import StoredSample
from layerdag.samples.table import TableWriter, require_pyarrow, sample_table
from layerdag.sampling.folder import write_samples
from layerdag.schema.schema import GraphSchema
from layerdag.traces.chakra.files import encode_trace

FORMATS = ["tar", "parquet"] if importlib.util.find_spec("pyarrow") else ["tar"]


@pytest.fixture(scope="module")
def jobs(trace, tmp_path_factory) -> Path:
    return written(trace, tmp_path_factory.mktemp("jobs") / "s")


@pytest.fixture(scope="module")
def each(trace, tmp_path_factory) -> Path:
    return write_samples(trace, TEN, tmp_path_factory.mktemp("each") / "s").parent


@pytest.mark.parametrize("file_format", FORMATS)
def test_jobs_are_the_same_in_a_folder_each_and_in_parts(trace, jobs, each, tmp_path, file_format):
    parts = jobs if file_format == "tar" else written(trace, tmp_path / "parts", file_format)
    for one, other in zip(iter_samples(each), iter_samples(parts), strict=True):
        assert (one.name, one.seed, one.conditions) == (other.name, other.seed, other.conditions)
        assert one.is_job
        assert other.is_job
        assert one.workload().groups == other.workload().groups
        traces = [[encode_trace(t) for t in s.workload().traces] for s in (one, other)]
        assert traces[0] == traces[1]


@pytest.mark.parametrize("members", ["auto", "graphml", "json"])
def test_graphs_are_the_same_in_a_file_each_and_in_parts(flow, tmp_path, members):
    write_samples(flow, TEN, tmp_path / "each", file_format=members)
    parts = written(flow, tmp_path / "parts", members=members)
    for one, other in zip(iter_samples(tmp_path / "each"), iter_samples(parts), strict=True):
        assert dict(one.files) == dict(other.files)
        assert one.graph.categories == other.graph.categories
        assert (one.entry["file"], one.entry["nodes"]) == (other.entry["file"], one.graph.num_nodes)


def test_a_part_alone_is_enough(jobs):
    names = [sample.name for sample in iter_samples(jobs / "part-000001.tar")]
    assert names == ["sample-00004", "sample-00005", "sample-00006", "sample-00007"]


def test_a_packed_part_reads_as_the_plain_one(jobs, tmp_path):
    plain = jobs / "part-000000.tar"
    (tmp_path / "p.tar.gz").write_bytes(gzip.compress(plain.read_bytes()))
    for one, other in zip(part_samples(plain), part_samples(tmp_path / "p.tar.gz"), strict=True):
        assert one.files == other.files


def test_of_an_unfinished_run_what_is_there_is_read(trace, tmp_path):
    out = written(trace, tmp_path / "s", shard="1/3")
    assert [sample.seed for sample in iter_samples(out)] == [11, 12, 13, 14]
    (out / "part-000001.json").unlink()
    with pytest.raises(DataError, match="holds no whole part yet"):
        list(iter_samples(out))


def test_a_part_that_was_changed_is_refused(jobs, tmp_path):
    out = shutil.copytree(jobs, tmp_path / "s")
    part = out / "part-000000.tar"
    content = bytearray(part.read_bytes())
    content[600] ^= 1
    part.write_bytes(bytes(content))
    with pytest.raises(DataError, match=r"part-000000\.tar: has another checksum"):
        list(iter_samples(out))


def test_the_first_samples_cost_no_look_at_the_others(jobs, tmp_path):
    for path in jobs.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "part-000002.tar").write_bytes(b"damaged")
    seen = iter_samples(tmp_path)
    assert [next(seen).seed for _ in range(8)] == list(range(7, 15))
    assert next(seen, None) is None  # a part of another size counts as missing


@pytest.mark.parametrize("place", ["", "nothing"])
def test_a_folder_without_samples_is_one_sentence(tmp_path, place):
    with pytest.raises(DataError, match="give a folder that 'layerdag sample' wrote"):
        list(iter_samples(tmp_path / place))


@pytest.mark.parametrize("manifest", ["", "[]", '{"samples": 3}', '{"samples": [{"name": "x"}]}'])
def test_a_damaged_manifest_is_one_sentence(tmp_path, manifest):
    (tmp_path / "manifest.json").write_text(manifest)
    with pytest.raises(DataError, match=str(tmp_path)):
        list(iter_samples(tmp_path))


def test_a_manifest_leads_nowhere_else(tmp_path):
    (tmp_path / "manifest.json").write_text(
        '{"samples": [{"name": "sample-00000", "file": "../x", "seed": 1, "conditions": {}}]}'
    )
    with pytest.raises(DataError, match="leads out of the folder"):
        list(iter_samples(tmp_path))


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
def test_a_graph_reads_as_it_was_written(tmp_path, rows, monkeypatch):
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


def test_a_job_reads_as_it_was_written_and_becomes_the_same_traces(tmp_path):
    schema, jobs = of_jobs()
    for sample, job in zip(stored(tmp_path / "p.parquet", schema, jobs, 2), jobs, strict=True):
        assert_equal(sample.graph, job)
        assert {**sample.graph.units} == {n: job.units.get(n, "1") for n in job.numbers}
        wanted = unfold_sampled(job, 2).workload
        found = sample.workload()
        assert found.groups == wanted.groups
        assert [encode_trace(t) for t in found.traces] == [encode_trace(t) for t in wanted.traces]


def test_a_job_that_cannot_run_on_its_ranks_is_one_sentence(tmp_path):
    schema, jobs = of_jobs()
    (sample, *_) = stored(tmp_path / "p.parquet", schema, jobs, 1)
    with pytest.raises(DataError, match=r"p\.parquet:sample-00000"):
        sample.workload()


def test_no_sample_makes_a_file_of_none(tmp_path):
    assert stored(tmp_path / "p.parquet", of_chains()[0], []) == []


def test_the_same_samples_make_the_same_bytes(tmp_path):
    for name in ("a", "b"):
        stored(tmp_path / f"{name}.parquet", *of_chains())
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()


def test_without_pyarrow_the_extra_is_named(monkeypatch):
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
def test_a_table_of_something_else_is_one_sentence(tmp_path, name):
    path = tmp_path / "p.parquet"
    parquet.write_table(HOSTILE[name], path)
    with pytest.raises(DataError, match=r"p\.parquet") as caught:
        [sample.graph for sample in part_samples(path)]
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize("size", [0, 4, 100, 2000])
def test_a_damaged_file_is_one_sentence(tmp_path, size):
    path = tmp_path / "p.parquet"
    parquet.write_table(table(), path)
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(DataError, match=r"p\.parquet"):
        list(part_samples(path))


def test_groups_of_rows_that_do_not_fit_are_refused(tmp_path, monkeypatch):
    path = tmp_path / "p.parquet"
    parquet.write_table(table(), path)
    monkeypatch.setattr(tables, "available_memory", lambda: 100)
    with pytest.raises(DataError, match="does not fit into memory"):
        list(part_samples(path))


def test_a_sample_shows_its_name_seed_and_size(tmp_path):
    (sample, *_) = stored(tmp_path / "p.parquet", *of_chains())
    assert isinstance(sample, StoredSample)
    assert repr(sample) == "StoredSample('sample-00000', seed=0, nodes=1)"
