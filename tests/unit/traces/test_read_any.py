"""Workloads of any format: what one file, a prefix and a folder are read as."""

from collections.abc import Callable
from pathlib import Path

import pytest
from small_workloads import collective, compute, job

from layerdag.errors import TraceError
from layerdag.traces import Workload, read_any, write_workload
from layerdag.traces.chakra import encode_feeder_json, encode_trace, encode_trace_json

ALONE = job((compute(1), collective(2, 1)))
PAIR = job(*[(compute(1), collective(2, 1, group="7"))] * 2, groups={"7": (0, 1)})
TEXT = b"DATA\n1\na -1 10 NONE 0 20 NONE 0 30 ALLREDUCE 1024 4\n"


@pytest.mark.parametrize(
    "encode",
    [
        lambda: encode_trace(ALONE.traces[0]),
        lambda: encode_feeder_json(ALONE.traces[0]),
        lambda: encode_trace_json(ALONE),
    ],
    ids=["chakra", "feeder", "json"],
)
def test_one_rank_reads_the_same_from_each_format(
    tmp_path: Path, encode: Callable[[], bytes]
) -> None:
    path = tmp_path / "file"
    path.write_bytes(encode())
    (found,) = read_any(path).traces
    assert found.id_N.tolist() == [1, 2]
    assert found.type_N.tolist() == ALONE.traces[0].type_N.tolist()
    assert found.integers("comm_size")[0].tolist() == [0, 1024]


@pytest.mark.parametrize("place", ["runs/job", "runs"])
def test_a_prefix_and_its_folder_are_the_same_job(tmp_path: Path, place: str) -> None:
    write_workload(PAIR, tmp_path / "runs" / "job")
    found = read_any(tmp_path / place)
    assert [encode_trace(t) for t in found.traces] == [encode_trace(t) for t in PAIR.traces]
    assert found.groups == {"7": (0, 1)}


def test_groups_that_are_given_replace_those_of_the_file(tmp_path: Path) -> None:
    path, groups = tmp_path / "job.json", tmp_path / "groups.json"
    path.write_bytes(encode_trace_json(PAIR))
    assert read_any(path).groups == {"7": (0, 1)}
    groups.write_text('{"9": [1]}')
    found = read_any(path, groups)
    assert (found.groups, found.source) == ({"9": (1,)}, str(path))


@pytest.mark.parametrize("ranks", [1, 4])
def test_a_text_workload_is_for_as_many_ranks_as_are_asked_for(tmp_path: Path, ranks: int) -> None:
    path = tmp_path / "layers.txt"
    path.write_bytes(TEXT)
    found = read_any(str(path), num_ranks=ranks)
    assert isinstance(found, Workload)
    assert found.num_ranks == ranks
    assert len({trace.num_nodes for trace in found.traces}) == 1


@pytest.mark.parametrize("name", ["gone", "gone.et", "folder/gone"])
def test_what_is_not_there_is_told_by_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(TraceError, match="gone"):
        read_any(tmp_path / name)


def test_a_rank_that_is_missing_is_told(tmp_path: Path) -> None:
    write_workload(PAIR, tmp_path / "job")
    (tmp_path / "job.0.et").unlink()
    with pytest.raises(TraceError, match="lacks rank 0; add the missing files"):
        read_any(tmp_path / "job")


def test_a_damaged_file_is_told_by_name(tmp_path: Path) -> None:
    path = tmp_path / "cut.et"
    path.write_bytes(encode_trace(ALONE.traces[0])[:-3])
    with pytest.raises(TraceError, match=r"cut\.et"):
        read_any(path)
