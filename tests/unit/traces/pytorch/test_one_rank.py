from dataclasses import replace

import pytest
from small_workloads import collective, compute, integer, message, trace

from layerdag.errors import TraceError
from layerdag.evaluation.rules import check_workload
from layerdag.simulator import Cluster, simulate
from layerdag.traces import NodeType, Wire, Workload
from layerdag.traces.analysis import match_communication
from layerdag.traces.chakra import NodeSpec
from layerdag.traces.pytorch import (
    ImportedJob,
    LostCommunication,
    refuse_missing_ranks,
    run_by_every_rank,
    taken_alone,
)
from layerdag.traces.pytorch.host import ImportResult

WORLD = {"0": tuple(range(8))}


def job(*nodes: NodeSpec, ranks: int = 1, **groups: tuple[int, ...]) -> ImportedJob:
    """Return a job of 8 ranks of which some are given; groups are named by ``g`` and a number."""
    named = WORLD | {name[1:]: members for name, members in groups.items()}
    one = trace(*nodes)
    result = ImportResult(one, named, one.num_nodes, 1.0, 0)
    return ImportedJob(Workload((one,) * ranks, named, "folder"), (result,) * ranks)


def test_missing_ranks_name_the_file_and_what_to_do() -> None:
    with pytest.raises(TraceError, match=r"^job\.0\.et: is one rank of a job of 8; .* --only-rank"):
        refuse_missing_ranks(job(compute(1)))
    with pytest.raises(TraceError, match=r"^folder: .* 2 were given; add rank 2, 3, .*--replicate"):
        refuse_missing_ranks(job(compute(1), ranks=2))
    refuse_missing_ranks(job(compute(1), ranks=8))


def test_a_rank_taken_alone_keeps_its_times_and_says_what_is_lost() -> None:
    sending = replace(message(3, 2, sends=True, source=0, target=1, size=40), duration_us=7)
    given = job(compute(1), collective(2, 1, size=4096), sending, compute(4, 3))
    workload, lost = taken_alone(given)
    assert lost == LostCommunication(collectives=1, messages=1, num_bytes=4136, num_ranks=8)
    (alone,) = workload.traces
    assert alone.type_N.tolist() == [NodeType.COMP] * 4
    assert alone.duration_us_N.tolist() == [5, 0, 7, 5]
    assert alone.integers("num_ops")[0].tolist() == [100, 1024, 10, 100]
    assert alone.integers("tensor_size")[0].tolist() == [65_536, 8192, 80, 65_536]
    for name in ("comm_type", "comm_size", "comm_src", "comm_dst", "comm_tag"):
        assert not alone.integers(name)[1].any()
    assert check_workload(workload) == []
    assert simulate(workload, Cluster.preset().sized(1)).num_nodes == 4


def test_communication_without_size_is_a_copy_of_one_byte() -> None:
    bare = NodeSpec(1, "c", NodeType.COMM_COLL, attributes=(integer("num_ops", 9),))
    (alone,) = taken_alone(job(bare))[0].traces
    assert alone.integers("num_ops")[0].tolist() == [1]
    assert alone.integers("tensor_size")[0].tolist() == [2]


@pytest.mark.parametrize(
    ("group", "of_rank_6"),
    [((0, 1), (6, 7)), ((2, 3), (6, 7)), ((0, 4), (2, 6)), ((1, 3), (4, 6)), ((0, 2, 4, 6),) * 2],
)
def test_every_rank_runs_the_trace_with_groups_of_its_own(
    group: tuple[int, ...], of_rank_6: tuple[int, ...]
) -> None:
    given = job(compute(1), collective(2, 1, group="3"), collective(3, 2), g3=group)
    workload = run_by_every_rank(given)
    assert workload.num_ranks == 8
    assert not match_communication(workload).mismatches
    assert check_workload(workload) == []
    assert sorted(r for ranks in workload.groups.values() for r in ranks) == list(range(8))
    name = next(text for text in workload.traces[6].texts("pg_name")[0] if text)
    assert workload.groups[name] == of_rank_6
    assert simulate(workload, Cluster.preset().sized(8)).num_nodes == 24


def test_a_trace_of_the_world_alone_is_shared() -> None:
    workload = run_by_every_rank(job(compute(1), collective(2, 1)))
    assert len({id(one) for one in workload.traces}) == 1
    assert workload.groups == {}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (job(message(1, sends=False, source=1, target=0)), "sends or receives messages"),
        (job(collective(1, group="3"), g3=(0, 1, 3)), "0, 1, 3 is not one of equal groups"),
        (job(collective(1, group="3"), g3=(1, 2)), "not one of equal groups"),
        (job(collective(1, group="3"), g3=(0, 1, 2)), "not one of equal groups of all 8"),
        (job(compute(1), ranks=2), "2 ranks are given"),
        (job(compute(1), g3=(0, 20_000)), "at most 16,384"),
    ],
)
def test_what_no_rank_can_tell_of_the_others_is_refused(given: ImportedJob, says: str) -> None:
    with pytest.raises(TraceError, match=says):
        run_by_every_rank(given)


def test_a_trace_that_names_no_other_rank_is_not_replicated() -> None:
    one = trace(compute(1))
    single = ImportedJob(Workload((one,), {}, "f"), (ImportResult(one, {}, 1, 1.0, 0),))
    with pytest.raises(TraceError, match="names no other ranks"):
        run_by_every_rank(single)


def test_costs_have_the_wire_types_that_feeders_read() -> None:
    (alone,) = taken_alone(job(collective(1, size=64)))[0].traces
    table = alone.attributes
    wires = {
        alone.strings[name]: Wire(wire)
        for name, wire in zip(table.name_A.tolist(), table.wire_A.tolist(), strict=True)
    }
    assert wires["num_ops"] is Wire.INT64
    assert wires["tensor_size"] is Wire.UINT64
