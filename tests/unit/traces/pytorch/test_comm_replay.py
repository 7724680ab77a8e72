"""Jobs as files that PARAM replays."""

from collections import Counter
from pathlib import Path

import pytest
from param_rules import Replayed, read_replay
from simulator_traces import all_reduce, coll, comp, recv, send, workload

from layerdag.cli.main import main
from layerdag.errors import TraceError, UsageError
from layerdag.traces.chakra.workload import read_workload
from layerdag.traces.pytorch.comm_replay import write_replay
from layerdag.traces.trace import CollectiveType, Workload

GROUPS = {"3": (0, 1), "9": (1, 2, 3)}


def replayed(job: Workload, folder: Path) -> list[list[Replayed]]:
    """What PARAM runs on each rank; waits name a post before them, once, and none is left out."""
    found = []
    for rank, path in enumerate(write_replay(job, folder)):
        groups, ops = read_replay(path, rank)
        assert groups[0] == list(range(job.num_ranks))
        open_requests: set[int] = set()
        for op in ops:
            if op.name == "wait":
                open_requests.remove(op.request)
            else:
                open_requests.add(op.request)
        assert not open_requests
        found.append(ops)
    return found


def test_collectives_have_their_sizes_groups_and_waits(tmp_path):
    nodes = [
        coll(0, CollectiveType.ALL_GATHER, 100, dtype="bfloat16"),
        comp(1, 5, (0,)),
        coll(2, CollectiveType.REDUCE_SCATTER, 60, (1,), pg_name="3"),
        coll(3, CollectiveType.ALL_TO_ALL, 30, pg_name="3"),
        coll(4, CollectiveType.BARRIER, 0, (2, 3)),
    ]
    others = [node for node in nodes if node.id in (0, 1, 4)]
    others[2] = coll(4, CollectiveType.BARRIER, 0, (1,))
    job = workload(nodes, nodes, others, others, groups=GROUPS)
    first, _, third, _ = replayed(job, tmp_path / "replay")
    assert [op.name for op in first] == [
        "all_gather_base", "wait", "reduce_scatter_base", "all_to_allv", "wait", "wait", "barrier",
        "wait",
    ]  # fmt: skip
    gather, _, scatter, exchange, *_ = first
    assert (gather.sent, gather.received, gather.ranks) == (50, 200, [0, 1, 2, 3])
    assert (scatter.sent, scatter.received, scatter.ranks) == (16, 8, [0, 1])
    assert (exchange.sent, exchange.received, exchange.group) == (8, 8, 1)
    assert [op.name for op in third] == ["all_gather_base", "wait", "barrier", "wait"]


def test_messages_have_global_ends_and_match(tmp_path):
    job = workload(
        [comp(0, 1), send(1, 1, 64, (0,), tag=7), recv(2, 1, 8, (1,), tag=1)],
        [recv(0, 0, 64, tag=7), send(1, 0, 8, (0,), tag=1)],
    )
    first, second = replayed(job, tmp_path)
    assert [(op.name, op.ends, op.sent) for op in first if op.name != "wait"] == [
        ("isend", (0, 1), 16), ("irecv", (1, 0), 2),
    ]  # fmt: skip
    assert [(op.name, op.ends, op.sent) for op in second if op.name != "wait"] == [
        ("irecv", (0, 1), 16), ("isend", (1, 0), 2),
    ]  # fmt: skip


def test_messages_in_another_order_are_refused(tmp_path):
    job = workload(
        [send(0, 1, 8, tag=1), send(1, 1, 8, (0,), tag=2)],
        [recv(0, 0, 8, tag=2), recv(1, 0, 8, (0,), tag=1)],
    )
    with pytest.raises(TraceError, match="rank 0 to rank 1 are sent with the tags 1, 2, but"):
        write_replay(job, tmp_path / "replay")
    assert not (tmp_path / "replay").exists()


def test_what_cannot_be_replayed_is_refused(tmp_path):
    with pytest.raises(TraceError, match="node 0 is GATHER, which PARAM's reader cannot replay"):
        write_replay(workload([coll(0, CollectiveType.GATHER, 8)]), tmp_path / "a")
    with pytest.raises(TraceError, match="group '5', which is not described"):
        write_replay(workload([all_reduce(0, 8, pg_name="5")]), tmp_path / "b")


def test_files_that_are_there_are_not_replaced_unasked(tmp_path):
    job = workload(*[[all_reduce(0, 8)]] * 2)
    write_replay(job, tmp_path)
    with pytest.raises(UsageError, match="is there already"):
        write_replay(job, tmp_path)
    write_replay(job, tmp_path, overwrite=True)
    with pytest.raises(UsageError, match="is no rank of the new job"):
        write_replay(workload([all_reduce(0, 8)]), tmp_path, overwrite=True)


@pytest.mark.parametrize("name", ["ddp_mlp", "ep_moe", "pp_gpt"])
def test_shipped_jobs_keep_their_communication(tmp_path, name):
    job = read_workload(f"data/examples/{name}")
    out = tmp_path / "replay"
    assert main(["convert", f"data/examples/{name}", "--to", "param", "--out", str(out)]) == 0
    for rank, trace in enumerate(job.traces):
        _, ops = read_replay(out / f"rank-{rank}.json", rank)
        posted = Counter(op.name for op in ops)
        assert sum(posted.values()) - posted["wait"] == int((trace.type_N >= 5).sum())
        assert posted["wait"] == sum(posted.values()) - posted["wait"]
