from dataclasses import replace
from pathlib import Path

import pytest
from host_json import ALL_REDUCE, MM, listed, node, plain, tensor, write_host
from profile_json import event, kernel, launch, write_profile
from small_workloads import collective, compute, integer, message, trace

from layerdag.codec.formats import read_any
from layerdag.errors import TraceError, UsageError
from layerdag.runtime.notes import NoteKind
from layerdag.simulator.cluster import Cluster
from layerdag.simulator.run import simulate
from layerdag.traces.analysis import group_names, match_communication
from layerdag.traces.builder import NodeSpec
from layerdag.traces.pytorch.importer import ImportResult
from layerdag.traces.pytorch.ranks import (
    DroppedCommunication,
    ImportedJob,
    find_rank_files,
    import_ranks,
    import_single_rank,
    refuse_missing_ranks,
    replicate_rank,
)
from layerdag.traces.trace import NodeType, Wire, Workload
from layerdag.validation.checking import check_workload

PAIRS = ((0, 1), (2, 3))


def declaration(rank: int, world: int = 4) -> dict:
    """Return the node in which a rank declares the world and the pair that it belongs to."""
    pair = list(PAIRS[rank // 2])
    text = (
        f'[{{"pg_name": "0", "ranks": [], "group_size": {world}}},'
        f' {{"pg_name": "7", "ranks": {pair}, "group_size": 2}}]'
    )
    return node(2, "## process_group:init ##", "", (plain(text, "String"),))


def reduce(number: int, group: str) -> dict:
    """Return an all-reduce in a group."""
    made = node(number, "c10d::allreduce_", ALL_REDUCE, (listed(tensor(10)), plain("<Object>")))
    made["attrs"].append({"name": "pg_name", "type": "string", "value": group})
    return made


def job(folder: Path, ranks: tuple[int, ...] = (0, 1, 2, 3), world: int = 4) -> None:
    """Write one host trace per rank: a product, an all-reduce in its pair and one in the world."""
    for rank in ranks:
        product = node(3, "aten::mm", MM, (tensor(1), tensor(2)), (tensor(10),))
        nodes = [declaration(rank, world), product, reduce(5, "7"), reduce(6, "0")]
        write_host(folder / f"run_rank{rank}_step12.json", nodes)


def test_a_folder_of_host_traces_is_one_workload_with_groups_that_hold_for_all(tmp_path):
    job(tmp_path)
    found = read_any(tmp_path)
    assert found.groups == {"0": (0, 1, 2, 3), "1": (0, 1), "2": (2, 3)}
    assert [group_names(trace)[0] for trace in found.traces] == [
        ["", "1", "0"], ["", "1", "0"], ["", "2", "0"], ["", "2", "0"]
    ]  # fmt: skip
    assert match_communication(found).mismatches == ()


def test_numbers_of_traces_that_do_not_communicate_are_no_ranks(tmp_path):
    product = node(3, "aten::mm", MM, (tensor(1), tensor(2)), (tensor(10),))
    for run in (0, 1):
        write_host(tmp_path / f"run{run}.json", [product])
    with pytest.raises(TraceError, match="2 traces with numbers in their names that do not comm"):
        find_rank_files(tmp_path)
    write_host(tmp_path / "run0.json", [product, reduce(5, "0")])
    found = find_rank_files(tmp_path)
    assert found is not None
    assert [path.name for path in found.hosts] == ["run0.json", "run1.json"]


def test_host_traces_and_profiles_of_a_folder_belong_together_by_rank(tmp_path):
    for rank in (0, 1):
        product = node(3, "aten::mm", MM, (tensor(1), tensor(2)), (tensor(10),))
        write_host(tmp_path / f"host.{rank}.json", [product])
        timed = event("cpu_op", "aten::mm", 0, 5 + rank, **{"Record function id": 503})
        write_profile(tmp_path / f"device.{rank}.json", [timed])
    (tmp_path / "notes.json").write_text("{}")
    (tmp_path / "readme.txt").write_text("no trace")
    found = read_any(tmp_path)
    assert [trace.integers("duration_ns")[0].tolist() for trace in found.traces] == [[5000], [6000]]


def test_a_prefix_chooses_among_the_jobs_of_a_folder(tmp_path):
    for name in ("a", "b"):
        for rank in (0, 1):
            write_host(tmp_path / f"{name}.{rank}.json", [node(3, "aten::mm", MM, (tensor(1),))])
    files = find_rank_files(tmp_path / "b")
    assert files is not None
    assert [path.name for path in files.hosts] == ["b.0.json", "b.1.json"]
    with pytest.raises(TraceError, match=r"b\.0\.json: is the second file of rank 0 beside a\.0"):
        find_rank_files(tmp_path)


def test_missing_ranks_are_named(tmp_path):
    job(tmp_path, ranks=(0, 3))
    with pytest.raises(TraceError, match=r"has 2 host traces .* up to 3, but lacks rank 1, 2;"):
        read_any(tmp_path)


def test_a_profile_that_is_missing_for_one_rank_is_named(tmp_path):
    job(tmp_path)
    for rank in (0, 1, 3):
        write_profile(tmp_path / f"profile_rank{rank}.json", [])
    with pytest.raises(TraceError, match=r"has 3 profiles .* lacks rank 2"):
        find_rank_files(tmp_path)


def test_a_name_without_a_number_is_refused(tmp_path):
    write_host(tmp_path / "host.json", [])
    assert find_rank_files(tmp_path).hosts == (tmp_path / "host.json",)
    write_host(tmp_path / "other.json", [])
    with pytest.raises(TraceError, match="its name shows no rank"):
        find_rank_files(tmp_path)


def stated(path, rank, world=2):
    events = [launch(1, 0), kernel(1, 5, 2, "reduce" * rank or "gemm")]
    return write_profile(path, events, distributedInfo={"rank": rank, "world_size": world})


@pytest.mark.parametrize(
    ("names", "ranks", "noted"),
    [
        (("a_4242.1699236267000000000.pt.trace.json", "b_17.1699236267000000001.pt.trace.json"),
         (1, 0), 0),
        (("trace_0.json", "trace_1.json"), (1, 0), 2),
        (("rank3.json", "x7.json"), (0, 1), 1),
        (("step_100.json", "run_200.json"), (0, 1), 0),
    ],
)  # fmt: skip
def test_the_rank_that_a_profile_states_counts_before_its_name(tmp_path, names, ranks, noted):
    for name, rank in zip(names, ranks, strict=True):
        stated(tmp_path / name, rank)
    found = find_rank_files(tmp_path)
    assert [path.name for path in found.devices] == [names[ranks.index(rank)] for rank in (0, 1)]
    assert [note.kind for note in found.notes] == [NoteKind.RANK] * noted
    job = import_ranks((), [tmp_path / names[ranks.index(rank)] for rank in (1, 0)])
    assert [result.rank for result in job.results] == [0, 1]
    assert [note.word for note in job.workload.job_notes] == ["1, 0"]


def test_profiles_that_state_one_rank_twice_need_an_order(tmp_path):
    paths = [stated(tmp_path / name, 0) for name in ("rank0.json", "rank1.json")]
    with pytest.raises(TraceError, match=r"states rank 0 .*as does rank0\.json.*one by one"):
        find_rank_files(tmp_path)
    (note,) = import_ranks((), paths).workload.job_notes
    assert (note.kind, note.word) == (NoteKind.RANK, "0, 0")


def test_names_of_processes_are_no_ranks(tmp_path):
    write_profile(tmp_path / "host_4242.1699236267000000000.pt.trace.json", [])
    assert len(find_rank_files(tmp_path).devices) == 1
    write_profile(tmp_path / "host_4243.1699236267000000000.pt.trace.json", [])
    with pytest.raises(TraceError, match="host, process and time but no rank"):
        find_rank_files(tmp_path)


def test_other_folders_are_left_to_the_readers_of_other_formats(tmp_path):
    assert find_rank_files(tmp_path) is None
    assert find_rank_files(tmp_path / "absent" / "run") is None


WORLD = {"0": tuple(range(8))}


def job_one_rank(*nodes: NodeSpec, ranks: int = 1, **groups: tuple[int, ...]) -> ImportedJob:
    """Return a job of 8 ranks of which some are given; groups are named by ``g`` and a number."""
    named = WORLD | {name[1:]: members for name, members in groups.items()}
    one = trace(*nodes)
    result = ImportResult(one, named, one.num_nodes, 1.0, 0)
    return ImportedJob(Workload((one,) * ranks, named, "folder"), (result,) * ranks)


def test_missing_ranks_name_the_file_and_what_to_do():
    with pytest.raises(TraceError, match=r"^job\.0\.et: is one rank of a job of 8; .* --only-rank"):
        refuse_missing_ranks(job_one_rank(compute(1)))
    with pytest.raises(TraceError, match=r"^folder: .* 2 were given; add rank 2, 3, .*--replicate"):
        refuse_missing_ranks(job_one_rank(compute(1), ranks=2))
    refuse_missing_ranks(job_one_rank(compute(1), ranks=8))


def test_a_rank_taken_alone_keeps_its_times_and_says_what_is_lost():
    sending = replace(message(3, 2, sends=True, source=0, target=1, size=40), duration_us=7)
    given = job_one_rank(compute(1), collective(2, 1, size=4096), sending, compute(4, 3))
    workload, lost = import_single_rank(given)
    assert lost == DroppedCommunication(collectives=1, messages=1, num_bytes=4136, num_ranks=8)
    (alone,) = workload.traces
    assert alone.type_N.tolist() == [NodeType.COMP] * 4
    assert alone.duration_us_N.tolist() == [5, 0, 7, 5]
    assert alone.integers("num_ops")[0].tolist() == [100, 1024, 10, 100]
    assert alone.integers("tensor_size")[0].tolist() == [65_536, 8192, 80, 65_536]
    for name in ("comm_type", "comm_size", "comm_src", "comm_dst", "comm_tag"):
        assert not alone.integers(name)[1].any()
    assert check_workload(workload) == []
    assert simulate(workload, Cluster("small").with_ranks(1)).num_nodes == 4


def test_communication_without_size_is_a_copy_of_one_byte():
    bare = NodeSpec(1, "c", NodeType.COMM_COLL, attributes=(integer("num_ops", 9),))
    (alone,) = import_single_rank(job_one_rank(bare))[0].traces
    assert alone.integers("num_ops")[0].tolist() == [1]
    assert alone.integers("tensor_size")[0].tolist() == [2]


@pytest.mark.parametrize(
    ("group", "of_rank_6"),
    [((0, 1), (6, 7)), ((2, 3), (6, 7)), ((0, 4), (2, 6)), ((1, 3), (4, 6)), ((0, 2, 4, 6),) * 2],
)
def test_every_rank_runs_the_trace_with_groups_of_its_own(group, of_rank_6):
    given = job_one_rank(compute(1), collective(2, 1, group="3"), collective(3, 2), g3=group)
    workload = replicate_rank(given)
    assert workload.num_ranks == 8
    assert not match_communication(workload).mismatches
    assert check_workload(workload) == []
    assert sorted(r for ranks in workload.groups.values() for r in ranks) == list(range(8))
    name = next(text for text in workload.traces[6].texts("pg_name")[0] if text)
    assert workload.groups[name] == of_rank_6
    assert simulate(workload, Cluster("small").with_ranks(8)).num_nodes == 24


def test_a_trace_of_the_world_alone_is_shared():
    workload = replicate_rank(job_one_rank(compute(1), collective(2, 1)))
    assert len({id(one) for one in workload.traces}) == 1
    assert workload.groups == {}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (job_one_rank(message(1, sends=False, source=1, target=0)), "sends or receives messages"),
        (
            job_one_rank(collective(1, group="3"), g3=(0, 1, 3)),
            "0, 1, 3 is not one of equal groups",
        ),
        (job_one_rank(collective(1, group="3"), g3=(1, 2)), "not one of equal groups"),
        (job_one_rank(collective(1, group="3"), g3=(0, 1, 2)), "not one of equal groups of all 8"),
        (job_one_rank(compute(1), ranks=2), "2 ranks are given"),
        (job_one_rank(compute(1), g3=(0, 20_000)), "at most 16,384"),
    ],
)
def test_what_no_rank_can_tell_of_the_others_is_refused(given, says):
    with pytest.raises(TraceError, match=says):
        replicate_rank(given)


def test_a_trace_that_names_no_other_rank_is_not_replicated():
    one = trace(compute(1))
    single = ImportedJob(Workload((one,), {}, "f"), (ImportResult(one, {}, 1, 1.0, 0),))
    with pytest.raises(TraceError, match="names no other ranks"):
        replicate_rank(single)


def test_costs_have_the_wire_types_that_feeders_read():
    (alone,) = import_single_rank(job_one_rank(collective(1, size=64)))[0].traces
    table = alone.attributes
    wires = {
        alone.strings[name]: Wire(wire)
        for name, wire in zip(table.name_A.tolist(), table.wire_A.tolist(), strict=True)
    }
    assert wires["num_ops"] is Wire.INT64
    assert wires["tensor_size"] is Wire.UINT64


def test_profiles_must_fit_the_host_traces():
    with pytest.raises(UsageError, match="2 host traces but 1 profiles"):
        import_ranks(["a.json", "b.json"], ["c.json"])
    with pytest.raises(UsageError, match="nothing to import"):
        import_ranks([])


def test_missing_file_is_named(tmp_path):
    with pytest.raises(TraceError, match=r"a\.json"):
        import_ranks([tmp_path / "a.json"])


@pytest.mark.slow
def test_ranks_of_a_collected_run_become_one_matched_job(shared_data):
    from layerdag.traces.analysis import match_communication

    folder = shared_data / "traces" / "collected_torch2.13_gloo"
    hosts = [folder / f"ddp_transformer__host.{rank}.json.xz" for rank in (0, 1)]
    devices = [folder / f"ddp_transformer__device.{rank}.json.xz" for rank in (0, 1)]
    job = import_ranks(hosts, devices)
    assert job.workload.num_ranks == 2
    assert match_communication(job.workload).mismatches == ()
    assert [result.joined_fraction for result in job.results] == [1.0, 1.0]
