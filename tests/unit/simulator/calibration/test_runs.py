"""Measured runs from tables and corpus folders."""

from pathlib import Path

import pytest
from simulator_traces import comp, workload

from layerdag.errors import ConfigError, TraceError
from layerdag.simulator.calibration import read_runs_of
from layerdag.traces import embedded_corpus, write_workload

NODES = [comp(0, 1, num_ops=10)]


def table(folder: Path, *rows: str, header: str = "workload,seconds") -> Path:
    (folder / "runs.csv").write_text("\n".join([header, *rows]) + "\n")
    return folder / "runs.csv"


def test_repeats_of_a_workload_count_once_with_the_least_time(tmp_path: Path) -> None:
    write_workload(workload(NODES), tmp_path / "a")
    write_workload(workload(NODES, NODES), tmp_path / "b")
    path = table(tmp_path, "a,0.5", "b,2", "a,0.25")
    runs = read_runs_of(path)
    assert [(run.name, run.seconds, run.num_ranks) for run in runs] == [("a", 0.25, 1), ("b", 2, 2)]
    assert [run.name for run in read_runs_of(path, ranks=(2,))] == ["b"]


@pytest.mark.parametrize(
    ("header", "row", "message"),
    [
        ("workload,time", "a,1", "needs the columns workload and seconds; found workload, time"),
        ("", "", "found none"),
        ("workload,seconds", "a,fast", "line 2 states no number"),
        ("workload,seconds", "a,-1", "run 'a' took -1.0 s"),
        ("workload,seconds", "", "holds no run"),
    ],
)
def test_a_damaged_table_is_refused(header: str, row: str, message: str, tmp_path: Path) -> None:
    write_workload(workload(NODES), tmp_path / "a")
    with pytest.raises(ConfigError, match=message):
        read_runs_of(table(tmp_path, row, header=header))


def test_missing_traces_and_families_of_a_table_are_refused(tmp_path: Path) -> None:
    path = table(tmp_path, "absent,1")
    with pytest.raises(TraceError):
        read_runs_of(path)
    with pytest.raises(ConfigError, match="a table has none"):
        read_runs_of(path, families=("mlp",))
    with pytest.raises(ConfigError, match=r"has no index\.jsonl"):
        read_runs_of(tmp_path)


def test_runs_of_a_corpus_are_chosen_by_family_and_ranks() -> None:
    runs = read_runs_of(embedded_corpus(), families=("dlrm",), ranks=(4,))
    assert len(runs) == 21
    assert {run.num_ranks for run in runs} == {4}
    assert all("_dlrm_" in run.name for run in runs)
