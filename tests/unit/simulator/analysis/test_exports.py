"""Ticks as CSV and as a timeline."""

import csv
import dataclasses
import json

from simulator_traces import comp, node, recv, ring, send, system, workload

from layerdag.simulator import Cluster, MemoryConfig, MemoryKind, RunOptions, simulate
from layerdag.simulator.analysis import NODE_COLUMNS, write_nodes, write_timeline
from layerdag.traces import NodeType

LOAD = workload(
    [comp(9, 2), comp(4, 1, is_cpu_op=True), send(7, 1, 400, (4,))],
    [recv(0, 0, 400), node(1, NodeType.MEM_STORE, (0,), tensor_size=90)],
)
MEMORY = MemoryConfig(MemoryKind.PER_NPU, latency_ns=10, bandwidth_bytes_per_ns=1.0)


def test_nodes_are_rows_by_rank_and_ascending_id(tmp_path):
    result = simulate(LOAD, Cluster(ring(2), system(), memory=MEMORY))
    write_nodes(result, tmp_path / "nodes.csv")
    with (tmp_path / "nodes.csv").open(newline="") as file:
        head, *rows = csv.reader(file)
    assert tuple(head) == NODE_COLUMNS
    # The store takes 10 + 90 ns after the message of 100 + 400 ns, sent at 1000.
    assert rows == [
        ["0", "4", "4", "0", "1000", "COMP", "n4"],
        ["0", "7", "5", "1000", "1500", "COMM_SEND", "n7"],
        ["0", "9", "4", "0", "2000", "COMP", "n9"],
        ["1", "0", "6", "0", "1500", "COMM_RECV", "n0"],
        ["1", "1", "3", "1500", "1600", "MEM_STORE", "n1"],
    ]


def test_lines_end_alike_on_every_system(tmp_path):
    write_nodes(simulate(LOAD, Cluster(ring(2), system(), memory=MEMORY)), tmp_path / "nodes.csv")
    assert b"\r" not in (tmp_path / "nodes.csv").read_bytes()


def test_a_timeline_has_a_process_for_each_rank_and_microseconds(tmp_path):
    result = simulate(LOAD, Cluster(ring(2), system(), memory=MEMORY))
    write_timeline(result, tmp_path / "t.json")
    document = json.loads((tmp_path / "t.json").read_text())
    assert document["displayTimeUnit"] == "ns"
    events = document["traceEvents"]
    assert {(e["pid"], e["args"]["name"]) for e in events if e["name"] == "process_name"} == {
        (0, "rank 0"),
        (1, "rank 1"),
    }
    lanes = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    shown = [
        (e["pid"], lanes[e["pid"], e["tid"]], e["name"], e["cat"], e["ts"], e["dur"], e["args"])
        for e in events
        if e["ph"] == "X"
    ]
    assert shown[:2] == [
        (0, "CPU", "n4", "COMP", 0.0, 1.0, {"id": 4, "issue_ns": 0, "finish_ns": 1000}),
        (
            0, "communication", "n7", "COMM_SEND", 1.0, 0.5,
            {"id": 7, "issue_ns": 1000, "finish_ns": 1500},
        ),
    ]  # fmt: skip
    assert [row[1] for row in shown[2:]] == ["compute", "receive", "communication"]


def test_further_streams_are_lanes_after_the_slots(tmp_path):
    options = RunOptions(comm_streams=3)
    sends = [send(id, 1, 400, tag=id) for id in range(3)]
    load = workload(sends, [recv(id, 0, 400, tag=id) for id in range(3)])
    result = simulate(load, Cluster(ring(2), system(), options=options))
    write_timeline(result, tmp_path / "t.json")
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    lanes = [(e["tid"], e["args"]["name"]) for e in events if e["name"] == "thread_name"][:6]
    assert lanes == [
        (0, "CPU"),
        (1, "compute"),
        (2, "communication"),
        (3, "receive"),
        (4, "communication 2"),
        (5, "communication 3"),
    ]
    used = [e["tid"] for e in events if e["ph"] == "X" and e["pid"] == 0]
    assert used == [2, 4, 5]


def test_nodes_without_a_name_are_called_by_their_id(tmp_path):
    bare = dataclasses.replace(comp(3, 1), name="")
    result = simulate(workload([bare], [bare]), Cluster(ring(2), system()))
    write_timeline(result, tmp_path / "t.json")
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    assert {e["name"] for e in events if e["ph"] == "X"} == {"node 3"}
