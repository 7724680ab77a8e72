"""Sweeps on Ray, with a stand-in for the package that runs tasks in this process."""

import csv
import dataclasses
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, strategies as st
from laws import tried
from matplotlib.figure import Figure
from simulator_traces import all_reduce, comp, recv, workload

from layerdag.cli.main import main
from layerdag.errors import ConfigError, UsageError
from layerdag.simulator import sweep
from layerdag.simulator.compute_choice import model_files
from layerdag.simulator.sweep import (
    SweepRow,
    draw,
    pareto_front,
    read_sweep,
    run_sweep,
    speed_ups,
    write_rows,
)
from layerdag.traces.chakra.workload import rank_files, write_workload

NETWORK = "topology: [Ring]\nnpus_count: [2]\nbandwidth: [{}]\nlatency: [100]\n"


class RayError(Exception):
    """As ``ray.exceptions.RayError``."""


class StandIn:
    """The six functions of Ray that a sweep uses; tasks end in reverse order."""

    exceptions = SimpleNamespace(RayError=RayError)

    def __init__(self, reachable: bool = True, lost: bool = False) -> None:
        self.reachable, self.lost, self.calls = reachable, lost, []

    def init(self, address, log_to_driver):
        self.calls.append(f"init {address}")
        if not self.reachable:
            raise ConnectionError("nobody there")

    def remote(self, function):
        return SimpleNamespace(remote=lambda *given: (function, given))

    def wait(self, waiting, num_returns):
        return waiting[-num_returns:], waiting[:-num_returns]

    def get(self, task):
        if self.lost:
            raise RayError("worker died")
        return task[0](*task[1])

    def shutdown(self):
        self.calls.append("shutdown")


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    write_workload(workload([all_reduce(0, 2048)], [all_reduce(0, 2048)]), tmp_path / "w")
    system = {
        "preferred-dataset-splits": 1,
        "collective-optimization": "baseline",
        "all-reduce-implementation": ["ring"],
    }
    (tmp_path / "ring.json").write_text(json.dumps(system))
    for name, bandwidth in (("slow", 1), ("fast", 100)):
        (tmp_path / f"{name}.yml").write_text(NETWORK.format(bandwidth))
    (tmp_path / "sweep.yml").write_text(
        "workloads: {w: w}\nsystems: {ring: ring.json}\n"
        "networks: {slow: slow.yml, fast: fast.yml}\n"
    )
    return ["sweep", str(tmp_path / "sweep.yml"), f"--out={tmp_path / 'out.csv'}", "--ray=auto"]


def test_rows_are_those_of_this_machine(words, monkeypatch, tmp_path):
    assert main(words[:-1]) == 0
    here = (tmp_path / "out.csv").read_text()
    (tmp_path / "out.csv.journal.jsonl").unlink()
    ray = StandIn()
    monkeypatch.setitem(sys.modules, "ray", ray)
    assert main(words) == 0
    assert (tmp_path / "out.csv").read_text() == here
    assert ray.calls == ["init auto", "shutdown"]


def test_absent_ray_is_explained(words, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "ray", None)
    assert main(words) == 2
    assert "not installed; pip install ray" in capsys.readouterr().err


def test_cluster_out_of_reach_and_lost_tasks_are_explained(words, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "ray", StandIn(reachable=False))
    assert main(words) == 2
    assert "nobody there" in capsys.readouterr().err
    ray = StandIn(lost=True)
    monkeypatch.setitem(sys.modules, "ray", ray)
    assert main(words) == 1
    assert "worker died" in capsys.readouterr().err
    assert ray.calls[-1] == "shutdown"


SWEEP = """
workloads: {good: good/w, stuck: stuck/w}
systems: {ring: ring.json}
networks: {slow: slow.yml, fast: fast.yml}
costs: {slow: 1.0, fast: 3.0}
"""


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
        file.write('[]\n{"workload": 3}\n{"workload": "cut o')
    ran = []
    original = sweep.run_point
    monkeypatch.setattr(sweep, "run_point", lambda p, key: ran.append(p) or original(p, key))
    rows = list(run_sweep(points, folder / "journal"))
    finished = [row for row in first if not row.error]
    assert rows[: len(finished)] == finished
    assert len(ran) == len(points) - len(finished)
    (folder / "fast.yml").write_text(NETWORK.format(50))
    list(run_sweep(points, folder / "journal"))
    assert {p.network for p in ran[len(points) :]} <= {"fast", points[-1].network}
    assert "fast" in {p.network for p in ran[len(points) - len(finished) :]}


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


def test_a_failure_of_the_moment_is_tried_again(folder, monkeypatch):
    points = read_sweep(folder / "sweep.yml")[:1]
    with monkeypatch.context() as short:
        short.setattr("layerdag.runtime.reading.available_memory", lambda: 100)
        short.setattr("layerdag.runtime.reading._UNASKED", 0)
        (failed,) = run_sweep(points, folder / "journal")
    (row,) = run_sweep(points, folder / "journal")
    assert "on this machine" in failed.error
    assert (row.error, row.makespan_ns > 0) == ("", True)


@pytest.mark.parametrize(
    "change",
    [{"makespan_ns": -1}, {"makespan_ns": "7"}, {"cost": float("nan")}, {"key": 7}, {"more": 1}],
)
def test_a_line_that_is_no_outcome_is_not_believed(folder, change):
    points = read_sweep(folder / "sweep.yml")[:1]
    (right,) = run_sweep(points, folder / "journal")
    line = json.loads((folder / "journal").read_text())
    (folder / "journal").write_text(json.dumps({**line, "makespan_ns": 1, **change}) + "\n")
    assert list(run_sweep(points, folder / "journal")) == [right]


def test_groups_run_as_the_sweep_file_says_and_flat_rings_are_told(folder):
    alone, talking = [comp(0, 5)], [comp(0, 5), all_reduce(1, 1 << 20, (0,), pg_name="1")]
    ranks = [talking if rank < 4 else alone for rank in range(8)]
    write_workload(workload(*ranks, groups={"1": (0, 1, 2, 3)}), folder / "w")
    system = {**json.loads((folder / "ring.json").read_text()), "local-mem-bw": 1000}
    system["all-reduce-implementation"] = ["ring", "ring"]
    (folder / "s.json").write_text(json.dumps(system))
    network = "topology: [ Switch, Switch ]\nnpus_count: [ 2, 4 ]\nlatency: [ 500, 500 ]\n"
    (folder / "n.yml").write_text(network + "bandwidth: [ 100, 1 ]\n")
    (folder / "sweep.yml").write_text(
        "workloads: {w: w}\nsystems: {s: s.json}\nnetworks: {n: n.yml}\n"
        "group_collectives: [flat, hierarchical]\n"
    )
    flat, grid = run_sweep(read_sweep(folder / "sweep.yml"), folder / "journal")
    assert grid.makespan_ns > 2 * flat.makespan_ns
    assert "the bandwidth of dimension 1 has no effect" in flat.notes
    assert not grid.notes


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("grop_collectives: [flat]", "unknown key 'grop_collectives'. Did you mean 'group_coll"),
        ("congestion: [awar]", "'congestion' holds 'awar'. Did you mean 'aware'"),
        ("costs: {fats: 1}", "names the network 'fats', which 'networks' has not"),
        ("costs: {fast: dear}", "'costs.fast' must be a number, found 'dear'"),
        (
            "compute: [" + ",".join(f"m{i}" for i in range(40_000)) + "]",
            "simulations, the product of its lists; at most 100,000",
        ),
    ],
)
def test_what_a_sweep_does_not_know_is_one_sentence(folder, line, sentence):
    text = "\n".join(
        row
        for row in (folder / "sweep.yml").read_text().splitlines()
        if not row.startswith("costs")
    )
    (folder / "sweep.yml").write_text(f"{text}\n{line}\n")
    with pytest.raises(ConfigError, match=sentence):
        read_sweep(folder / "sweep.yml")


def test_a_finished_sweep_is_taken_from_its_journal_as_it_is(folder, monkeypatch):
    points = [p for p in read_sweep(folder / "sweep.yml") if p.workload == "good"]
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


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("networks", "network", "unknown"),
        ("{ring: ring.json}", "[ring.json]", "'systems' must be an object"),
        ("costs: {slow: 1.0, fast: 3.0}", "compute: h100", "'compute' must be a list, found"),
        ("{slow: 1.0, fast: 3.0}", "[1, 2]", "'costs' must be an object"),
    ],
)
def test_faulty_sweep_files_are_explained(folder, old, new, words):
    (folder / "sweep.yml").write_text(SWEEP.replace(old, new))
    with pytest.raises(ConfigError, match=words):
        read_sweep(folder / "sweep.yml")


@pytest.mark.parametrize("text", ['{"name": "a"}\n', "my diary\n"])
def test_nothing_is_appended_to_a_file_of_something_else(folder, text):
    (folder / "journal").write_text(text)
    with pytest.raises(UsageError, match="never changed"):
        list(run_sweep(read_sweep(folder / "sweep.yml"), folder / "journal"))
    assert (folder / "journal").read_text() == text


def test_a_journal_whose_first_line_was_cut_off_is_gone_on_with(folder):
    (folder / "journal").write_text('{"work')
    assert list(run_sweep(read_sweep(folder / "sweep.yml"), folder / "journal"))


def row(
    workload: str = "w", cost: float = 1.0, makespan: int = 100, error: str = "", network: str = "n"
) -> SweepRow:
    return SweepRow(
        workload, "s", network, "reference", "unaware", cost, makespan_ns=makespan, error=error
    )


rows_of = st.lists(
    st.builds(
        row,
        workload=st.sampled_from(["a", "b"]),
        cost=st.integers(0, 4).map(float),
        makespan=st.integers(1, 5),
        error=st.sampled_from(["", "", "", "stuck"]),
    ),
    max_size=8,
)


@given(rows_of)
@tried(40)
def test_no_row_of_a_front_is_beaten_and_every_other_row_is(rows):
    front = pareto_front(rows)
    complete = [r for r in rows if not r.error]
    assert all(r in complete for r in front)

    def beats(a: SweepRow, b: SweepRow) -> bool:
        no_worse = a.cost <= b.cost and a.makespan_ns <= b.makespan_ns
        better = a.cost < b.cost or a.makespan_ns < b.makespan_ns
        return a.workload == b.workload and no_worse and better

    assert not any(beats(a, b) for a in complete for b in front)
    beaten = [r for r in complete if r not in front]
    assert all(any(beats(a, b) for a in front) for b in beaten)
    assert front == sorted(front, key=lambda r: (r.workload, r.cost, r.makespan_ns))


@given(rows_of)
@tried(25)
def test_speed_ups_are_against_the_slowest_of_the_same_workload(rows):
    complete = [r for r in rows if not r.error]
    expected = [
        (r, max(o.makespan_ns for o in complete if o.workload == r.workload) / r.makespan_ns)
        for r in complete
    ]
    assert speed_ups(rows) == expected


def test_rows_of_equal_cost_and_time_all_stay_on_the_front():
    rows = [row(network="a"), row(network="b")]
    assert pareto_front(rows) == rows


def test_rows_without_a_makespan_have_no_speed_up():
    assert speed_ups([row(makespan=0), row(makespan=50)]) == [(row(makespan=50), 1.0)]


def test_a_csv_file_has_a_column_for_everything_a_row_holds(tmp_path):
    rows = [row(), row(error="rank 0 waits, forever")]
    write_rows(rows, tmp_path / "r.csv")
    with (tmp_path / "r.csv").open(newline="") as file:
        found = list(csv.DictReader(file))
    assert found == [{k: str(v) for k, v in dataclasses.asdict(r).items()} for r in rows]


def test_parquet_without_its_package_names_the_remedy_and_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UsageError, match=r"needs the package pyarrow, .*; write \.csv instead"):
        write_rows([row()], tmp_path / "r.parquet")
    assert list(tmp_path.iterdir()) == []


class FakeParquet:
    """Stands in for pyarrow, which few machines have: it writes what it is given as text."""

    class Table:
        @staticmethod
        def from_pylist(rows: list[dict[str, object]]) -> str:
            return repr(rows)

    class parquet:  # noqa: N801
        @staticmethod
        def write_table(table: str, path) -> None:
            path.write_text(table)


def test_parquet_gets_the_same_columns(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", FakeParquet)
    write_rows([row()], tmp_path / "r.parquet")
    assert (tmp_path / "r.parquet").read_text() == repr([dataclasses.asdict(row())])


@pytest.mark.parametrize(
    ("name", "magic"), [("p.png", b"\x89PNG"), ("p.svg", b"<?xml"), ("p", b"\x89PNG")]
)
def test_pictures_have_the_format_of_their_name_and_png_without_one(tmp_path, name, magic):
    draw([row(), row(makespan=50), row(error="stuck")], tmp_path / name)
    assert (tmp_path / name).read_bytes().startswith(magic)


def test_a_picture_has_a_bar_for_each_complete_row_in_milliseconds(tmp_path, monkeypatch):
    drawn = {}

    def keep(figure: Figure, file: Path, **ignored: object) -> None:
        drawn["figure"] = figure
        file.touch()

    monkeypatch.setattr(Figure, "savefig", keep)
    rows = [row("b", makespan=3_000_000), row("a", makespan=2_000_000), row(error="stuck")]
    draw(rows, tmp_path / "p")
    (axes,) = drawn["figure"].axes
    assert [bar.get_width() for bar in axes.patches] == [2.0, 3.0]
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels == ["a | s | n | reference", "b | s | n | reference"]
    assert drawn["figure"].get_figheight() == pytest.approx(1 + 0.28 * 2)


def test_points_of_one_workload_read_it_once_and_again_when_it_changes(folder, monkeypatch):
    points, read = read_sweep(folder / "sweep.yml"), []
    reading = sweep.read_workload
    monkeypatch.setattr(sweep, "read_workload", lambda at: (read.append(at), reading(at))[1])
    sweep._workload.cache_clear()
    before = list(run_sweep(points, folder / "journal"))
    assert len(points) > len(read) == len({point.prefix for point in points})
    (first, *_) = {point.prefix for point in points}
    ranks = len(rank_files(first))
    write_workload(workload(*[[comp(0, 7)]] * ranks), first, overwrite=True)
    after = list(run_sweep(points, folder / "journal"))
    changed = [one != other for one, other in zip(before, after, strict=True)]
    assert changed == [point.prefix == first for point in points]
