"""No reader takes more of a file from outside than fits, whatever the file claims."""

import gzip
import io
import json
import lzma
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from layerdag.codec.formats import read_any
from layerdag.datasets.dgrl import load_dgrl
from layerdag.datasets.settings import DgrlConfig
from layerdag.errors import LayerdagError
from layerdag.graph.attributed_graph import read_json, read_labels
from layerdag.graph.formats.graphml import read_graphml
from layerdag.runtime import reading
from layerdag.samples.manifest import PartIndex, SampleRun
from layerdag.samples.reader import part_samples
from layerdag.simulator import (
    calibration as machine_files,
    cluster as cluster_files,
    sweep,
)
from layerdag.simulator.calibration import read_machine
from layerdag.simulator.calibration_fit import read_runs_of
from layerdag.simulator.cluster import read_network, read_system
from layerdag.simulator.operator_timings import read_operator_table
from layerdag.simulator.sweep import read_sweep
from layerdag.surrogates.files import load_surrogate
from layerdag.traces.chakra import corpus
from layerdag.traces.chakra.corpus import read_index
from layerdag.traces.chakra.files import read_trace
from layerdag.traces.chakra.workload import read_groups
from layerdag.traces.pytorch import host_trace as host_scan, kineto
from layerdag.traces.pytorch.host_trace import read_host_blocks
from layerdag.traces.pytorch.kineto import read_profile, read_timings

LIMIT = 1 << 20
HOST = b'{"schema": "1.1.0-chakra.0.0.4", "pid": 1, "time": "", "start_ts": 0, "nodes": ['
KINETO = b'{"schemaVersion": 1, "traceEvents": ['
JSON_GRAPH = b'{"format": "layerdag-graph-1", "name": "'


@pytest.fixture(autouse=True)
def little_memory(monkeypatch) -> None:
    monkeypatch.setattr(reading, "FREE_BYTES", LIMIT)
    monkeypatch.setattr(reading, "SPARE_BYTES", 0)
    monkeypatch.setattr(reading, "available_memory", lambda: 2 * LIMIT)
    monkeypatch.setattr(kineto, "MAX_OBJECT_LENGTH", LIMIT)
    monkeypatch.setattr(host_scan, "MAX_NODE_LENGTH", LIMIT)
    monkeypatch.setattr(corpus, "MAX_SHARD_BYTES", LIMIT)
    monkeypatch.setattr(cluster_files, "MAX_CONFIG_BYTES", LIMIT)
    monkeypatch.setattr(sweep, "MAX_CONFIG_BYTES", LIMIT)
    monkeypatch.setattr(machine_files, "MAX_MACHINE_BYTES", LIMIT)


def all_blocks(path: Path) -> list[object]:
    return list(read_host_blocks(path))


def in_folder(name: str, read: Callable[[Path], object]) -> Callable[[Path], object]:
    """Return a reader of the folder that holds the file under this name."""

    def read_folder(path: Path) -> object:
        path.rename(path.with_name(name))
        return read(path.parent)

    return read_folder


READERS: dict[str, tuple[Callable[[Path], object], bytes]] = {
    "chakra": (read_trace, b""),
    "any": (read_any, b""),
    "any host": (read_any, HOST + b'{"name": "'),
    "any kineto": (read_any, KINETO + b'{"name": "'),
    "any own json": (read_any, b'{"format": "layerdag-trace", "x": "'),
    "any feeder json": (read_any, b'{"workload_graph": [{"Name": "'),
    "host": (all_blocks, HOST + b'{"name": "'),
    "host list": (all_blocks, HOST + b'{"id": 1, "inputs": {"values": [['),
    "kineto": (read_profile, KINETO + b'{"name": "'),
    "timings": (read_timings, KINETO + b'{"name": "'),
    "groups": (lambda path: read_groups(path, 4), b'{"'),
    "graphml": (read_graphml, b'<graphml><graph id="'),
    "json graph": (read_json, JSON_GRAPH),
    "machine": (read_machine, b'{"layerdag_machine": 1, "x": "'),
    "timed operators": (read_operator_table, b"operator,dtype,num_ops,tensor_size,us\nx,"),
    "measured runs": (read_runs_of, b"workload,seconds\n"),
    "labels": (read_labels, b"name,label\na,"),
    "index": (in_folder("index.jsonl", read_index), b'{"run": "'),
    "system": (read_system, b'{"L": "'),
    "network": (read_network, b'topology: ["'),
    "sweep": (read_sweep, b'workloads: {"'),
    "part": (lambda path: list(part_samples(path)), b""),
    "samples": (in_folder("samples.json", SampleRun.read), b'{"format": "'),
    "part's index": (
        in_folder("part-000000.json", lambda folder: PartIndex.read(folder, 0)),
        b'{"format": "',
    ),
    "surrogate": (in_folder("surrogate.json", load_surrogate), b'{"format": "'),
}


@pytest.mark.parametrize("pack", [bytes, gzip.compress, lzma.compress])
@pytest.mark.parametrize("name", READERS)
def test_a_bomb_is_one_sentence_that_names_the_file(tmp_path, name, pack):
    read, start = READERS[name]
    path = tmp_path / "bomb"
    path.write_bytes(pack(start + b"a" * (3 * LIMIT)))
    with pytest.raises(LayerdagError, match=str(tmp_path)) as caught:
        read(path)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("ending", ["", ".gz", ".xz"])
def test_a_table_of_dgrl_is_bounded(tmp_path, ending):
    pack = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress}[ending]
    (tmp_path / f"num-node-list.csv{ending}").write_bytes(pack(b"1\n" * (2 << 20)))
    with pytest.raises(LayerdagError, match="num-node-list"):
        load_dgrl(DgrlConfig(folder=tmp_path))


INDEX_LINE = {
    "run": "r", "family": "mlp", "strategy": "ddp", "world_size": 1, "phase": "training",
    "split": "train", "hyper": {}, "step_times_s": [1.0], "step_time_s_min": 1.0,
    "shard": "s.tar.xz", "classes": [{"member": "a", "ranks": [0]}], "groups": {},
    "graph_hash": "", "num_nodes": 1,
}  # fmt: skip


@pytest.mark.parametrize("shard", ["/etc/passwd", "../s.tar.xz"])
def test_a_shard_outside_of_the_corpus_is_refused(tmp_path, shard):
    (tmp_path / "index.jsonl").write_text(json.dumps({**INDEX_LINE, "shard": shard}))
    with pytest.raises(LayerdagError, match="leads out of the folder"):
        list(corpus.read_runs(tmp_path, read_index(tmp_path)))


def shard(members: list[tarfile.TarInfo], payload: bytes = b"") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for member in members:
            archive.addfile(member, io.BytesIO(payload))
    return lzma.compress(buffer.getvalue(), preset=0)


def sparse(name: str) -> tarfile.TarInfo:
    """Return a member of a few bytes that claims ten gigabytes of zeros."""
    info = tarfile.TarInfo(name)
    info.pax_headers = {
        "GNU.sparse.major": "0", "GNU.sparse.minor": "1", "GNU.sparse.name": name,
        "GNU.sparse.size": str(10**10), "GNU.sparse.map": "0,0", "GNU.sparse.numblocks": "1",
    }  # fmt: skip
    return info


def test_a_sparse_member_of_ten_gigabytes_is_refused(tmp_path):
    (tmp_path / "index.jsonl").write_text(json.dumps(INDEX_LINE))
    (tmp_path / "s.tar.xz").write_bytes(shard([sparse("a")]))
    with pytest.raises(LayerdagError, match="'a', which is missing"):
        list(corpus.read_runs(tmp_path, read_index(tmp_path)))


def test_a_shard_that_unpacks_to_too_much_is_refused(tmp_path):
    (tmp_path / "index.jsonl").write_text(json.dumps(INDEX_LINE))
    member = tarfile.TarInfo("a")
    member.size = 4 * LIMIT
    (tmp_path / "s.tar.xz").write_bytes(shard([member], os.urandom(4 * LIMIT)))
    with pytest.raises(LayerdagError, match=r"s\.tar\.xz: holds more than"):
        list(corpus.read_runs(tmp_path, read_index(tmp_path)))


LAUGHS = "a: &a [1, 1, 1, 1, 1, 1, 1, 1]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 8)}]\n"
    for before, name in zip("abcdefghi", "bcdefghij", strict=True)
)
MERGES = "a: &a {k: 1}\n" + "".join(
    f"b{i}: &b{i} {{<<: [*{before}, *{before}]}}\n"
    for i, before in enumerate(["a", *(f"b{i}" for i in range(39))])
)


@pytest.mark.parametrize("text", [LAUGHS, MERGES, "a: &a [*a]"], ids=["lists", "merges", "self"])
@pytest.mark.parametrize("read", [read_network, read_sweep])
def test_anchors_that_multiply_are_one_sentence(tmp_path, text, read):
    path = tmp_path / "x.yml"
    path.write_text(text)
    with pytest.raises(LayerdagError, match=r"100,000 values") as caught:
        read(path)
    assert len(str(caught.value)) < 1000


def test_a_trace_of_empty_nodes_asks_for_no_more_memory_than_there_is(tmp_path, monkeypatch):
    from layerdag.traces.builder import NodeSpec, build_trace
    from layerdag.traces.chakra import wire
    from layerdag.traces.chakra.files import encode_trace
    from layerdag.traces.trace import NodeType

    monkeypatch.setattr(reading, "available_memory", lambda: 1 << 30)
    monkeypatch.setattr(wire, "available_memory", lambda: 1 << 20)
    monkeypatch.setattr(wire, "_SMALL", 0)
    nodes = [NodeSpec(id=i, name="", type=NodeType.COMP) for i in range(10_000)]
    path = tmp_path / "x.et"
    path.write_bytes(encode_trace(build_trace(nodes)))
    with pytest.raises(LayerdagError, match="10,000 nodes"):
        read_trace(path)
    monkeypatch.setattr(wire, "available_memory", lambda: 1 << 30)
    assert np.array_equal(read_trace(path).id_N, np.arange(10_000))


@pytest.mark.parametrize("name", ["kineto", "host", "timings"])
def test_a_stream_that_fills_the_memory_with_its_events_is_stopped(tmp_path, name, monkeypatch):
    monkeypatch.setattr(reading, "SPARE_BYTES", 4 * LIMIT)
    monkeypatch.setattr(reading, "_LOOK", LIMIT)
    path = tmp_path / "x.json"
    lists = b'{"values": [], "shapes": [], "types": []}'
    node = b'{"id": 1, "name": "a", "ctrl_deps": 1, "inputs": %b, "outputs": %b, "attrs": []},'
    node = node % (lists, lists)
    event = b'{"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": 1, "args": {}},'
    list_start = HOST if name == "host" else KINETO
    path.write_bytes(list_start + (node if name == "host" else event) * 30_000)
    with pytest.raises(LayerdagError, match=r"x\.json: does not fit into memory"):
        READERS[name][0](path)


def test_an_old_trace_that_fills_the_memory_with_its_nodes_is_stopped(monkeypatch):
    from layerdag.traces.chakra import files as _legacy

    monkeypatch.setattr(reading, "SPARE_BYTES", 4 * LIMIT)
    monkeypatch.setattr(_legacy, "_LOOK", 8)
    with pytest.raises(LayerdagError, match="x: does not fit into memory"):
        list(_legacy.length_prefixed_messages(b"\x00" * 20, "x"))


@pytest.mark.parametrize("key", ["workloads", "systems", "networks"])
@pytest.mark.parametrize("letter", [r"\0", r"\ud800"])
def test_a_letter_that_no_path_has_is_refused(tmp_path, key, letter):
    (tmp_path / "sweep.yml").write_text(
        "".join(
            f'{each}: {{x: "a{letter if each == key else ""}"}}\n'
            for each in ("workloads", "systems", "networks")
        )
    )
    with pytest.raises(LayerdagError, match=f"sweep.yml: '{key}' holds .* no name of a file"):
        read_sweep(tmp_path / "sweep.yml")
