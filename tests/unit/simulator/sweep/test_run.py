"""Sweeps: product of the file's entries, journal, errors as rows, tables."""

import json
from pathlib import Path

import pytest
from simulator_traces import all_reduce, comp, recv, workload

from layerdag.cli import main
from layerdag.errors import ConfigError, UsageError
from layerdag.simulator.compute import model_files
from layerdag.simulator.sweep import (
    SweepRow,
    _run as sweep,
    draw,
    pareto_front,
    read_sweep,
    run_sweep,
    speed_ups,
    write_rows,
)
from layerdag.traces import write_workload

SWEEP = """
workloads: {good: good/w, stuck: stuck/w}
systems: {ring: ring.json}
networks: {slow: slow.yml, fast: fast.yml}
costs: {slow: 1.0, fast: 3.0}
"""
NETWORK = "topology: [Ring]\nnpus_count: [2]\nbandwidth: [{}]\nlatency: [100]\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with two workloads, one of which is stuck, a system and two networks."""
    nodes = [comp(0, 1), all_reduce(1, 2048, (0,))]
    write_workload(workload(nodes, nodes), tmp_path / "good" / "w")
    write_workload(workload([recv(0, 1, 8)], [comp(0, 1)]), tmp_path / "stuck" / "w")
    system = {
        "preferred-dataset-splits": 1,
        "collective-optimization": "baseline",
        "all-reduce-implementation": ["ring"],
    }
    (tmp_path / "ring.json").write_text(json.dumps(system))
    (tmp_path / "slow.yml").write_text(NETWORK.format(1))
    (tmp_path / "fast.yml").write_text(NETWORK.format(100))
    (tmp_path / "sweep.yml").write_text(SWEEP)
    return tmp_path


def test_every_combination_is_a_row_and_failures_are_rows_too(folder):
    points = read_sweep(folder / "sweep.yml")
    rows = list(run_sweep(points, folder / "journal"))
    assert len(rows) == 4
    # 1000 ns of compute, 3 E and two messages of 1024 B: 1053 or 109 ns.
    assert {r.network: r.makespan_ns for r in rows if not r.error} == {"slow": 3136, "fast": 1248}
    assert all("waits for rank 1" in r.error for r in rows if r.workload == "stuck")


def test_an_interrupted_sweep_goes_on_where_it_stopped(folder, monkeypatch):
    points = read_sweep(folder / "sweep.yml")
    first = list(run_sweep(points[:2], folder / "journal"))
    with (folder / "journal").open("a") as file:
        file.write('{"workload": "cut o')
    ran = []
    original = sweep.run_point
    monkeypatch.setattr(sweep, "run_point", lambda p, key: ran.append(p) or original(p, key))
    rows = list(run_sweep(points, folder / "journal"))
    assert rows[:2] == first
    assert len(ran) == 2
    (folder / "fast.yml").write_text(NETWORK.format(50))
    list(run_sweep(points, folder / "journal"))
    assert {p.network for p in ran[2:]} == {"fast"}


def test_a_point_runs_again_when_the_measurements_of_its_compute_model_change(folder, monkeypatch):
    monkeypatch.chdir(folder)
    table = "m,n,k,latency_us\n64,64,64,2\n64,64,128,3\n64,128,64,4\n"
    (folder / "mine.csv").write_text(table)
    (folder / "sweep.yml").write_text(SWEEP + "compute: ['systolic:4x4,map=mine.csv', measured]\n")
    points = read_sweep(folder / "sweep.yml")
    before = [point.key() for point in points]
    (folder / "mine.csv").write_text(table + "128,128,128,9\n")
    changed = [p.compute for p, key in zip(points, before, strict=True) if p.key() != key]
    assert set(changed) == {"systolic:4x4,map=mine.csv"}
    assert [path.name for path in model_files("learned:good/w")] == ["w.0.et", "w.1.et"]


def test_a_finished_sweep_is_taken_from_its_journal_as_it_is(folder, monkeypatch):
    points = read_sweep(folder / "sweep.yml")
    first = list(run_sweep(points, folder / "journal"))
    content = (folder / "journal").read_bytes()
    monkeypatch.delattr(sweep, "run_point")
    again = list(run_sweep(points, folder / "journal"))
    by_name = sorted(first, key=lambda r: (r.workload, r.network))
    assert sorted(again, key=lambda r: (r.workload, r.network)) == by_name
    assert (folder / "journal").read_bytes() == content


def test_a_new_version_of_the_package_simulates_again(folder, monkeypatch):
    points = read_sweep(folder / "sweep.yml")
    list(run_sweep(points, folder / "journal"))
    ran = []
    original = sweep.run_point
    monkeypatch.setattr(sweep, "run_point", lambda p, key: ran.append(p) or original(p, key))
    monkeypatch.setattr(sweep, "__version__", "another")
    list(run_sweep(points, folder / "journal"))
    assert ran == list(points)


def test_sweeps_of_one_folder_do_not_mix_even_under_the_same_names(folder, monkeypatch):
    # Both call their workload "w" and their network "n": 1 us of compute, or 4, and 3 E + 2 T.
    four = [comp(0, 4), all_reduce(1, 2048, (0,))]
    write_workload(workload(four, four), folder / "four" / "w")
    text = "workloads: {{w: {}/w}}\nsystems: {{s: ring.json}}\nnetworks: {{n: {}.yml}}\n"
    (folder / "a.yml").write_text(text.format("good", "slow"))
    (folder / "b.yml").write_text(text.format("four", "fast"))

    def makespans(name: str, out: str) -> list[str]:
        assert main(["sweep", str(folder / f"{name}.yml"), "--out", str(folder / out)]) == 0
        lines = (folder / out).read_text().splitlines()
        return [line.split(",")[8] for line in lines]

    expected = {"a": ["makespan_ns", "3136"], "b": ["makespan_ns", "4248"]}
    ran = []
    original = sweep.run_point
    monkeypatch.setattr(sweep, "run_point", lambda p, key: ran.append(p.prefix) or original(p, key))
    # Each with an output of its own, then both into one output, hence one journal, and back.
    for name, out in (("a", "a.csv"), ("b", "b.csv"), ("b", "a.csv"), ("a", "a.csv")):
        assert makespans(name, out) == expected[name]
    assert len(ran) == 3


def row(workload: str, cost: float, makespan: int) -> SweepRow:
    return SweepRow(workload, "s", f"n{cost}", "reference", "unaware", cost, 2, 2, makespan)


def test_speed_up_counts_from_the_slowest_of_a_workload():
    rows = [row("a", 1.0, 100), row("a", 2.0, 50), row("b", 1.0, 10)]
    assert [gain for _, gain in speed_ups(rows)] == [1.0, 2.0, 1.0]


def test_pareto_front_drops_what_is_beaten():
    rows = [row("a", 1.0, 100), row("a", 2.0, 100), row("a", 3.0, 50), row("b", 9.0, 900)]
    assert pareto_front(rows) == [rows[0], rows[2], rows[3]]


def test_rows_are_written_as_csv_and_drawn(tmp_path):
    rows = [row("a", 1.0, 100), row("a", 3.0, 50)]
    write_rows(rows, tmp_path / "out.csv")
    lines = (tmp_path / "out.csv").read_text().splitlines()
    assert lines[0].startswith("workload,system,network,compute,congestion,cost")
    assert lines[1].startswith("a,s,n1.0,reference,unaware,1.0,2,2,100")
    draw(rows, tmp_path / "out.svg")
    assert "makespan" in (tmp_path / "out.svg").read_text()


def test_rows_are_written_as_parquet(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    write_rows([row("a", 1.0, 100)], tmp_path / "out.parquet")
    assert parquet.read_table(tmp_path / "out.parquet").to_pylist()[0]["makespan_ns"] == 100


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("networks", "network", "unknown"),
        ("{ring: ring.json}", "[ring.json]", "'systems' must map"),
        ("costs: {slow: 1.0, fast: 3.0}", "compute: h100", "'compute' must be a list"),
    ],
)
def test_faulty_sweep_files_are_explained(folder, old, new, words):
    (folder / "sweep.yml").write_text(SWEEP.replace(old, new))
    with pytest.raises(ConfigError, match=words):
        read_sweep(folder / "sweep.yml")


def test_verb_prints_tables_and_fails_if_a_point_failed(folder, capsys):
    assert main(["sweep", str(folder / "sweep.yml"), "--out", str(folder / "out.csv")]) == 1
    printed = capsys.readouterr().out
    assert "2.51x" in printed
    assert "Pareto front" in printed
    assert "failed: stuck" in printed
    assert len((folder / "out.csv").read_text().splitlines()) == 5


@pytest.mark.parametrize("text", ['{"name": "a"}\n', "my diary\n"])
def test_nothing_is_appended_to_a_file_of_something_else(folder: Path, text: str) -> None:
    (folder / "journal").write_text(text)
    with pytest.raises(UsageError, match="never changed"):
        list(run_sweep(read_sweep(folder / "sweep.yml"), folder / "journal"))
    assert (folder / "journal").read_text() == text


def test_a_journal_whose_first_line_was_cut_off_is_gone_on_with(folder: Path) -> None:
    (folder / "journal").write_text('{"work')
    assert list(run_sweep(read_sweep(folder / "sweep.yml"), folder / "journal"))
