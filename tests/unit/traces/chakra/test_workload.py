"""Communicator groups as a file."""

import gzip
import json
import os
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from killing import states_when_killed
from symbolic_jobs import LLAMA, MIXTURE, small
from trace_examples import comp, pair_workload

from layerdag.datasets.sources import find_sources
from layerdag.errors import DataError, TraceError, UsageError
from layerdag.runtime.files import LOCK
from layerdag.traces.builder import NodeSpec, build_trace
from layerdag.traces.chakra import workload as _interning
from layerdag.traces.chakra.files import decode_trace, encode_trace, read_trace
from layerdag.traces.chakra.workload import (
    RankDecoder,
    RankFile,
    decode_groups,
    decode_workload,
    encode_groups,
    encode_workload,
    rank_file,
    rank_files,
    read_groups,
    read_workload,
    write_workload,
)
from layerdag.traces.trace import Attribute, LazyTraces, NodeType, RankClass, Trace, Wire, Workload


def test_groups_read_as_they_were_written(tmp_path):
    (tmp_path / "g.json").write_bytes(encode_groups({"1": (0, 1), "2": [2]}))
    assert read_groups(tmp_path / "g.json", 3) == {"1": (0, 1), "2": (2,)}


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"[", "does not describe groups"), (b"[]", "must be an object"),
        (b'{"1": [7]}', "names rank 7"),
        (b'{"1": [0, 0]}', "names a rank twice"), (b'{"1": "0"}', "'1' must be a list"),
        (b'{"1": 3}', "'1' must be a list"), (b'{"1": [0, true]}', "must be a whole number"),
        (b'{"1": [0, 2]}', "group '1' names rank 2, but the workload has ranks 0 to 1"),
    ],
)  # fmt: skip
def test_other_contents_are_one_sentence(data, said):
    with pytest.raises(TraceError, match=rf"a\.tar:g\.json: .*{said}"):
        decode_groups(data, "a.tar:g.json", 2)


def _collective(id: int, group: str, name: str = "sum") -> NodeSpec:
    return NodeSpec(
        id, name, NodeType.COMM_COLL,
        attributes=(
            Attribute("comm_type", Wire.INT64, 0), Attribute("comm_size", Wire.INT64, 64),
            Attribute("pg_name", Wire.STRING, group),
        ),
    )  # fmt: skip


def _equal(mine: Trace, theirs: Trace) -> None:
    assert encode_trace(mine) == encode_trace(theirs)
    assert mine.strings == theirs.strings
    np.testing.assert_array_equal(mine.attributes.word_A, theirs.attributes.word_A)


def _decoded(trace: Trace) -> Trace:
    return decode_trace(encode_trace(trace))


@pytest.mark.parametrize("shape", [LLAMA, MIXTURE])
def test_every_rank_reads_as_if_it_had_been_decoded_and_few_are(shape, monkeypatch):
    calls = []

    def counted(data: bytes, source: str = "") -> Trace:
        calls.append(source)
        return decode_trace(data, source)

    monkeypatch.setattr(_interning, "decode_trace", counted)
    workload = small(shape, tensor=2, data=32, pipeline=2, batch=32).workload()
    decoder = RankDecoder()
    for rank, data in workload.traces.files():
        read = decoder.decode(data, f"file {rank}")
        assert read.source == f"file {rank}"
        _equal(read, decode_trace(data))
        assert decoder.decode(data, "again") is read
    assert len(calls) < 16  # one for each stage and number of digits


def test_files_that_a_decoder_would_pool_otherwise_are_decoded():
    decoder = RankDecoder()
    for groups in (("1", "2"), ("3", "4"), ("5", "5"), ("2", "1")):
        trace = build_trace([comp(0), _collective(1, groups[0]), _collective(2, groups[1])])
        _equal(decoder.decode(encode_trace(trace), ""), _decoded(trace))
    named = build_trace([comp(0), _collective(1, "7", name="7"), _collective(2, "8")])
    other = build_trace([comp(0), _collective(1, "9", name="7"), _collective(2, "8")])
    for trace in (named, other):
        _equal(decoder.decode(encode_trace(trace), ""), _decoded(trace))


def test_damage_is_found_wherever_it_lies():
    """A file with any one byte changed reads as decoding tells, faults included."""
    workload = small(LLAMA, tensor=2, data=2, pipeline=2).workload()
    data = encode_trace(workload.traces[0])
    draw = random.Random(0)
    decoder = RankDecoder()
    decoder.decode(data, "first")
    for _ in range(60):
        damaged = bytearray(data)
        damaged[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        try:
            expected = decode_trace(bytes(damaged))
        except TraceError:
            with pytest.raises(TraceError):
                decoder.decode(bytes(damaged), "")
            continue
        _equal(decoder.decode(bytes(damaged), ""), expected)


def test_places_that_look_like_a_group_but_are_none_are_not_trusted():
    fake = "\n\x07pg_name\u00ea\x01\x01x"  # in UTF-8 these are other bytes than the attribute's
    trace = build_trace([comp(0), _collective(1, "1", name=fake)])
    decoder = RankDecoder()
    _equal(decoder.decode(encode_trace(trace), ""), _decoded(trace))
    other = build_trace([comp(0), _collective(1, "2", name=fake)])
    _equal(decoder.decode(encode_trace(other), ""), _decoded(other))


def test_written_workload_is_read_by_prefix_folder_and_file(tmp_path):
    workload = Workload(pair_workload().traces, {"3": (1, 0)})
    write_workload(workload, tmp_path / "job")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "job.0.et",
        "job.1.et",
        "job.comm_group.json",
    ]
    for location in (tmp_path / "job", tmp_path / "job.et", tmp_path):
        found = read_workload(location)
        assert found.num_ranks == 2
        assert found.groups == {"3": (1, 0)}
    assert rank_files(tmp_path / "job.1.et") == [tmp_path / "job.1.et"]


def test_equal_ranks_share_one_trace(tmp_path):
    trace = build_trace([comp(0)])
    write_workload(
        Workload((trace, build_trace([comp(0)]), build_trace([comp(1)]))), tmp_path / "a"
    )
    first, second, third = read_workload(tmp_path / "a").traces
    assert first is second
    assert first is not third


def test_missing_ranks_are_named(tmp_path):
    data = encode_trace(build_trace([comp(0)]))
    for rank in (0, 2, 5):
        (tmp_path / f"job.{rank}.et").write_bytes(data)
    with pytest.raises(TraceError, match=r"3 trace files up to rank 5, but lacks rank 1, 3, 4;"):
        read_workload(tmp_path / "job")
    (tmp_path / "job.999999999.et").write_bytes(data)
    with pytest.raises(TraceError, match=r"lacks rank 1, 3, 4, 6, .*, \.\.\.;"):
        read_workload(tmp_path / "job")


def test_ten_missing_ranks_are_all_named(tmp_path):
    (tmp_path / "job.10.et").write_bytes(encode_trace(build_trace([comp(0)])))
    with pytest.raises(TraceError, match=r"lacks rank 0, 1, 2, 3, 4, 5, 6, 7, 8, 9;"):
        read_workload(tmp_path / "job")


def test_several_sets_in_a_folder_are_named(tmp_path):
    data = encode_trace(build_trace([comp(0)]))
    for name in ("a.0.et", "b.0.et"):
        (tmp_path / name).write_bytes(data)
    with pytest.raises(TraceError, match=r"2 workloads \(a, b\)"):
        read_workload(tmp_path)
    assert read_workload(tmp_path / "b").num_ranks == 1


def test_plain_file_wins_over_its_archive(tmp_path):
    (tmp_path / "a.0.et").write_bytes(encode_trace(build_trace([comp(1)])))
    (tmp_path / "a.0.et.gz").write_bytes(gzip.compress(encode_trace(build_trace([comp(2)]))))
    assert read_workload(tmp_path / "a").traces[0].id_N.tolist() == [1]


def test_faulty_trace_leaves_no_file(tmp_path):
    traces = (build_trace([comp(0)]), build_trace([comp(0, 1)], source="rank 1"))
    with pytest.raises(TraceError, match="rank 1: node 0 depends on node 1"):
        write_workload(Workload(traces), tmp_path / "job")
    assert not list(tmp_path.iterdir())


def test_the_group_of_all_ranks_is_not_described(tmp_path):
    # ASTRA-sim aborts on a group "0"; nodes in it need no entry.
    workload = Workload(pair_workload().traces, {"0": (0, 1), "3": (1, 0)})
    write_workload(workload, tmp_path / "x")
    assert json.loads((tmp_path / "x.comm_group.json").read_text()) == {"3": [1, 0]}
    write_workload(Workload(workload.traces, {"0": (0, 1)}), tmp_path / "y")
    assert not (tmp_path / "y.comm_group.json").exists()
    # A file of an earlier run would be read beside the new traces.
    write_workload(Workload(workload.traces, {"0": (0, 1)}), tmp_path / "x", overwrite=True)
    assert read_workload(tmp_path / "x").groups == {}
    with pytest.raises(TraceError, match="group '0' stands for all ranks"):
        write_workload(Workload(workload.traces, {"0": (0,)}), tmp_path / "z")


def test_a_workload_is_replaced_only_if_that_is_allowed_and_then_as_a_whole(tmp_path):
    trace = build_trace([comp(0)])
    write_workload(Workload((trace,) * 4, {"1": (0, 1)}), tmp_path / "job")
    (tmp_path / "job.7.et.gz").touch()
    (tmp_path / "job.notes.et").touch()
    (tmp_path / "jobs.0.et").touch()
    before = sorted(path.name for path in tmp_path.iterdir())
    with pytest.raises(UsageError, match=r"a workload lies there already .* and 5 more"):
        write_workload(Workload((trace,) * 2), tmp_path / "job")
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    write_workload(Workload((trace,) * 2), tmp_path / "job", overwrite=True)
    left = ["job.0.et", "job.1.et", "job.notes.et", "jobs.0.et"]
    assert sorted(path.name for path in tmp_path.iterdir()) == left


def test_a_folder_with_the_name_of_a_prefix_beside_it_is_not_chosen_silently(tmp_path):
    trace = build_trace([comp(0)])
    write_workload(Workload((trace,) * 2), tmp_path / "w")
    write_workload(Workload((trace,) * 3), tmp_path / "w" / "g")
    with pytest.raises(TraceError, match=r"is a folder, and also the prefix of w\.0\.et beside it"):
        read_workload(tmp_path / "w")
    assert read_workload(tmp_path / "w" / "g").num_ranks == 3


@pytest.fixture
def two_jobs(tmp_path: Path) -> dict[str, Workload]:
    jobs = {}
    for name, ranks, groups in (("old", 4, {"1": (0, 1)}), ("new", 3, {"1": (1, 2)})):
        trace = build_trace([NodeSpec(0, name, NodeType.COMP, duration_us=ranks)])
        jobs[name] = Workload((trace,) * ranks, groups)
        write_workload(jobs[name], tmp_path / name)
    return jobs


def test_a_kill_at_any_step_leaves_the_older_job_or_the_new_one(two_jobs, tmp_path):
    place, others_see = tmp_path / "here" / "job", []

    def write(name: str) -> None:
        write_workload(two_jobs[name], place, overwrite=True)

    def look() -> str:
        others_see.append(_read_by_others(place))
        even = len(others_see) % 2 == 0
        found = (read_workload if even else _only_job_below)(place)  # each finishes what was left
        (name,) = {trace.names()[0] for trace in found.traces}
        assert found.groups == two_jobs[name].groups
        assert found.num_ranks == two_jobs[name].num_ranks
        return name

    seen = states_when_killed(lambda: write("old"), lambda: write("new"), look)
    assert list(dict.fromkeys(seen)) == ["old", "new"]
    assert list(dict.fromkeys(others_see)) == ["old", "", "new"]


def _read_by_others(place: Path) -> str:
    """Return the job that a program finds which starts with rank 0, and knows no drafts."""
    if not place.with_name("job.0.et").exists():
        return ""
    files = (place.with_name(f"job.{rank}.et") for rank in range(4))
    (name,) = {read_trace(file).names()[0] for file in files if file.exists()}
    return name


def _only_job_below(place: Path) -> Workload:
    """Return the job of a folder, as those find it who look for jobs in folders."""
    (job,) = find_sources(place.parent).found
    return read_workload(place.parent / job.name)


def test_a_reader_waits_for_a_writer_that_is_putting_files_in_place(
    two_jobs, tmp_path, monkeypatch
):
    place = tmp_path / "job"
    write_workload(two_jobs["old"], place)
    real, read = os.replace, []

    def reading(source: Path, target: Path) -> None:
        if not read:
            read.append(threading.Thread(target=lambda: read.append(read_workload(place))))
            read[0].start()
        real(source, target)

    monkeypatch.setattr(os, "replace", reading)
    write_workload(two_jobs["new"], place, overwrite=True)
    read[0].join()
    assert read[1].num_ranks == 3
    assert [path.name for path in tmp_path.glob(".*")] == []


def test_an_order_that_names_other_folders_is_refused(tmp_path):
    (tmp_path / "mine").touch()
    whole = tmp_path / "in" / ".job.draft" / "job.new"
    whole.mkdir(parents=True)
    for removed in (["../mine"], "mine", [7]):
        (whole.parent / LOCK).touch()
        (whole / ".order.json").write_text(json.dumps({"placed": ["job.0.et"], "removed": removed}))
        with pytest.raises(DataError, match="is no list of files that layerdag left"):
            read_workload(tmp_path / "in" / "job")
    assert (tmp_path / "mine").exists()


def test_a_workload_whose_traces_cannot_all_be_made_leaves_the_older_one(tmp_path):
    class Broken(LazyTraces):
        def __len__(self) -> int:
            return 2

        def __getitem__(self, index: Any) -> Any:
            return build_trace([comp(0)])

        def classes(self) -> tuple[RankClass, ...]:
            return ()

        def files(self) -> Iterator[tuple[int, bytes]]:
            yield 1, b""
            raise TraceError("cannot be made")

    write_workload(Workload((build_trace([comp(0)]),)), tmp_path / "job")
    with pytest.raises(TraceError, match="cannot be made"):
        write_workload(Workload(Broken()), tmp_path / "job", overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == ["job.0.et"]
    assert read_workload(tmp_path / "job").num_ranks == 1


@pytest.mark.parametrize(
    ("name", "prefix", "rank"),
    [
        ("run.0.et", "run", 0),
        ("run.12.et.gz", "run", 12),
        ("a.b.3.et.xz", "a.b", 3),
        ("trace7.et", "trace", 7),
        ("0.et", "", 0),
    ],
)
def test_a_file_name_says_prefix_and_rank(name, prefix, rank):
    assert RankFile.from_name(name) == RankFile(prefix, rank)


@pytest.mark.parametrize("name", ["run.et", "run.0.json", "run.1234567890.et.zip", "run.0.et.bz2"])
def test_other_file_names_are_of_no_rank(name):
    assert RankFile.from_name(name) is None


def test_the_name_of_a_rank_says_its_rank():
    assert RankFile.from_name(rank_file("out/run.v2", 30).name) == RankFile("run.v2", 30)


@pytest.mark.parametrize("groups", [{}, {"3": (1, 0)}, {"0": (0, 1)}])
def test_encoded_files_are_those_that_are_written(tmp_path, groups):
    workload = Workload(pair_workload().traces, groups)
    write_workload(workload, tmp_path / "job")
    files = encode_workload(workload, "job")
    assert dict(files) == {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert [name for name, _ in files if name.endswith(".et")] == ["job.0.et", "job.1.et"]


def test_encoded_files_are_decoded_again():
    workload = Workload(pair_workload().traces, {"3": (1, 0)})
    found = decode_workload(dict(encode_workload(workload, "job")), "part.tar:job")
    assert found.groups == {"3": (1, 0)}
    assert found.source == "part.tar:job"
    assert encode_workload(found, "job") == encode_workload(workload, "job")


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({}, "holds no trace"),
        ({"job.1.et": b""}, "lacks rank 0"),
        ({"job.0.et": b"x"}, "job.0.et"),
        ({"job.0.et": b"", "job.comm_group.json": b"["}, "does not describe groups"),
    ],
)
def test_damaged_contents_name_their_source(files, said):
    good = encode_trace(build_trace([comp(0)]))
    files = {name: data or good for name, data in files.items()}
    with pytest.raises(TraceError, match=rf"part\.tar:job.*{said}"):
        decode_workload(files, "part.tar:job")
