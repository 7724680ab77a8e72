from dataclasses import replace

import pytest

from layerdag.errors import TraceError
from layerdag.traces.builder import NodeSpec, build_trace
from layerdag.traces.chakra import corpus
from layerdag.traces.chakra.corpus import (
    RankClass,
    RunRecord,
    embedded_corpus,
    read_index,
    read_run,
    read_runs,
    write_shard,
)
from layerdag.traces.chakra.files import encode_trace

RECORD = RunRecord(
    run="r1", family="mlp", strategy="pp", world_size=3, phase="training", split="train",
    hyper={"depth": 2}, step_times_s=(0.2, 0.1), step_time_s_min=0.1, shard="shards/mlp.tar.xz",
    classes=(RankClass("r1/0.et", (0, 2)), RankClass("r1/1.et", (1,))),
    groups={"0": (0, 1, 2)}, graph_hash="ab", num_nodes=3,
)  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    """A corpus of one run with two classes of ranks."""
    first = build_trace([NodeSpec(0, "a", 4), NodeSpec(1, "b", 4, data_deps=(0,))])
    second = build_trace([NodeSpec(0, "c", 4)])
    members = [("r1/0.et", encode_trace(first)), ("r1/1.et", encode_trace(second))]
    write_shard(tmp_path / RECORD.shard, members)
    (tmp_path / "index.jsonl").write_text(RECORD.to_json() + "\n")
    return tmp_path


def test_a_run_comes_back_with_one_trace_object_a_class(folder):
    (record,) = read_index(folder)
    assert record == RECORD
    workload = read_run(folder, record).workload()
    assert [trace.names() for trace in workload.traces] == [["a", "b"], ["c"], ["a", "b"]]
    assert workload.traces[0] is workload.traces[2]
    assert workload.groups == {"0": (0, 1, 2)}


def test_shards_are_the_same_bytes_whenever_they_are_written(tmp_path):
    for name in ("one", "two"):
        write_shard(tmp_path / name, [("x", b"123"), ("y", b"4")])
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_a_missing_member_is_named(folder):
    stranger = replace(RECORD, classes=(RankClass("r9/0.et", (0, 1, 2)),))
    with pytest.raises(TraceError, match=r"run r1 needs member 'r9/0\.et', which is missing"):
        read_run(folder, stranger)


def test_a_damaged_shard_is_named(folder):
    path = folder / RECORD.shard
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(TraceError, match=r"mlp\.tar\.xz: the archive is (damaged|cut off)"):
        list(read_runs(folder, [RECORD]))


@pytest.mark.parametrize("line", ["{", '{"run": "x"}', "[]"])
def test_a_malformed_index_line_is_named(folder, line):
    (folder / "index.jsonl").write_text(RECORD.to_json() + "\n" + line + "\n")
    with pytest.raises(TraceError, match=r"index\.jsonl: line 2 is not a run"):
        read_index(folder)


def test_a_folder_without_index_is_refused(tmp_path):
    with pytest.raises(TraceError, match=r"index\.jsonl does not exist"):
        read_index(tmp_path)


@pytest.mark.parametrize("ranks", [[[0], [0]], [[0], [2]], [[0]], [[0, 1], [1]]])
def test_classes_must_hold_every_rank_once(folder, ranks):
    (record,) = read_index(folder)
    classes = tuple(RankClass(f"m{n}", tuple(found)) for n, found in enumerate(ranks))
    line = replace(record, world_size=2, classes=classes).to_json()
    with pytest.raises(ValueError, match="the classes do not hold every rank once"):
        RunRecord.from_json(line)


def test_runs_come_shard_by_shard_and_each_shard_is_opened_once(tmp_path, folder, monkeypatch):
    (record,) = read_index(folder)
    data = (folder / record.shard).read_bytes()
    (folder / "other.tar.xz").write_bytes(data)
    records = [
        replace(record, run=f"run{n}", shard=shard)
        for n, shard in enumerate((record.shard, "other.tar.xz", record.shard))
    ]
    opened = []
    real = corpus.read_whole
    monkeypatch.setattr(
        corpus, "read_whole", lambda path, *more: opened.append(path.name) or real(path, *more)
    )
    assert [run.record.run for run in read_runs(folder, records)] == ["run0", "run2", "run1"]
    assert len(opened) == 2


def test_the_embedded_corpus_is_beside_the_checkout_or_in_the_package():
    assert (embedded_corpus() / "index.jsonl").is_file()
