from pathlib import Path

import pytest

from layerdag.errors import TraceError
from layerdag.traces import read_any
from layerdag.traces.analysis import group_names, match_communication
from layerdag.traces.pytorch import find_rank_files
from tests.unit.traces.host_json import ALL_REDUCE, MM, listed, node, plain, tensor, write_host
from tests.unit.traces.profile_json import event, write_profile

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


def test_ranks_that_only_the_groups_tell_of_are_named(tmp_path):
    job(tmp_path, ranks=(0, 1), world=4)
    with pytest.raises(TraceError, match="of a job of 4 ranks, but 2 were given; add rank 2, 3"):
        read_any(tmp_path)


def test_a_profile_that_is_missing_for_one_rank_is_named(tmp_path):
    job(tmp_path)
    for rank in (0, 1, 3):
        write_profile(tmp_path / f"profile_rank{rank}.json", [])
    with pytest.raises(TraceError, match=r"has 3 profiles .* lacks rank 2"):
        find_rank_files(tmp_path)


def test_a_name_without_a_number_is_refused(tmp_path):
    write_host(tmp_path / "host.json", [])
    with pytest.raises(TraceError, match="its name shows no rank"):
        find_rank_files(tmp_path)


def test_other_folders_are_left_to_the_readers_of_other_formats(tmp_path):
    assert find_rank_files(tmp_path) is None
    assert find_rank_files(tmp_path / "absent" / "run") is None
