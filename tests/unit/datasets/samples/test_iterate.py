"""One iterator for everything that sampling writes."""

import gzip
import importlib.util
from pathlib import Path

import pytest
from sample_parts import TEN, written
from tiny_checkpoints import chain_checkpoint, job_checkpoint

from layerdag.datasets.samples import iter_samples, part_samples
from layerdag.errors import DataError
from layerdag.sampling import write_samples
from layerdag.traces.chakra import encode_trace
from layerdag.training import LoadedCheckpoint

FORMATS = ["tar", "parquet"] if importlib.util.find_spec("pyarrow") else ["tar"]


@pytest.fixture(scope="module")
def flow(tmp_path_factory: pytest.TempPathFactory) -> LoadedCheckpoint:
    return chain_checkpoint(tmp_path_factory.mktemp("flow"))


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> LoadedCheckpoint:
    return job_checkpoint(tmp_path_factory.mktemp("trace"))


@pytest.fixture(scope="module")
def jobs(trace: LoadedCheckpoint, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(trace, tmp_path_factory.mktemp("jobs") / "s")


@pytest.mark.parametrize("file_format", FORMATS)
def test_jobs_are_the_same_in_a_folder_each_and_in_parts(
    trace: LoadedCheckpoint, tmp_path: Path, file_format: str
) -> None:
    write_samples(trace, TEN, tmp_path / "each")
    parts = written(trace, tmp_path / "parts", file_format)
    for one, other in zip(iter_samples(tmp_path / "each"), iter_samples(parts), strict=True):
        assert (one.name, one.seed, one.conditions) == (other.name, other.seed, other.conditions)
        assert one.is_job
        assert other.is_job
        assert one.workload().groups == other.workload().groups
        traces = [[encode_trace(t) for t in s.workload().traces] for s in (one, other)]
        assert traces[0] == traces[1]


@pytest.mark.parametrize("members", ["auto", "graphml", "json"])
def test_graphs_are_the_same_in_a_file_each_and_in_parts(
    flow: LoadedCheckpoint, tmp_path: Path, members: str
) -> None:
    write_samples(flow, TEN, tmp_path / "each", file_format=members)
    parts = written(flow, tmp_path / "parts", members=members)
    for one, other in zip(iter_samples(tmp_path / "each"), iter_samples(parts), strict=True):
        assert dict(one.files) == dict(other.files)
        assert one.graph.categories == other.graph.categories
        assert (one.entry["file"], one.entry["nodes"]) == (other.entry["file"], one.graph.num_nodes)


def test_a_part_alone_is_enough(jobs: Path) -> None:
    names = [sample.name for sample in iter_samples(jobs / "part-000001.tar")]
    assert names == ["sample-00004", "sample-00005", "sample-00006", "sample-00007"]


def test_a_packed_part_reads_as_the_plain_one(jobs: Path, tmp_path: Path) -> None:
    plain = jobs / "part-000000.tar"
    (tmp_path / "p.tar.gz").write_bytes(gzip.compress(plain.read_bytes()))
    for one, other in zip(part_samples(plain), part_samples(tmp_path / "p.tar.gz"), strict=True):
        assert one.files == other.files


def test_of_an_unfinished_run_what_is_there_is_read(
    trace: LoadedCheckpoint, tmp_path: Path
) -> None:
    out = written(trace, tmp_path / "s", shard="1/3")
    assert [sample.seed for sample in iter_samples(out)] == [11, 12, 13, 14]
    (out / "part-000001.json").unlink()
    with pytest.raises(DataError, match="holds no whole part yet"):
        list(iter_samples(out))


def test_a_part_that_was_changed_is_refused(trace: LoadedCheckpoint, tmp_path: Path) -> None:
    out = written(trace, tmp_path / "s")
    part = out / "part-000000.tar"
    content = bytearray(part.read_bytes())
    content[600] ^= 1
    part.write_bytes(bytes(content))
    with pytest.raises(DataError, match=r"part-000000\.tar: has another checksum"):
        list(iter_samples(out))


def test_the_first_samples_cost_no_look_at_the_others(jobs: Path, tmp_path: Path) -> None:
    for path in jobs.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "part-000002.tar").write_bytes(b"damaged")
    seen = iter_samples(tmp_path)
    assert [next(seen).seed for _ in range(8)] == list(range(7, 15))
    assert next(seen, None) is None  # a part of another size counts as missing


@pytest.mark.parametrize("place", ["", "nothing"])
def test_a_folder_without_samples_is_one_sentence(tmp_path: Path, place: str) -> None:
    with pytest.raises(DataError, match="give a folder that 'layerdag sample' wrote"):
        list(iter_samples(tmp_path / place))


@pytest.mark.parametrize("manifest", ["", "[]", '{"samples": 3}', '{"samples": [{"name": "x"}]}'])
def test_a_damaged_manifest_is_one_sentence(tmp_path: Path, manifest: str) -> None:
    (tmp_path / "manifest.json").write_text(manifest)
    with pytest.raises(DataError, match=str(tmp_path)):
        list(iter_samples(tmp_path))


def test_a_manifest_leads_nowhere_else(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text(
        '{"samples": [{"name": "sample-00000", "file": "../x", "seed": 1, "conditions": {}}]}'
    )
    with pytest.raises(DataError, match="leads out of the folder"):
        list(iter_samples(tmp_path))
