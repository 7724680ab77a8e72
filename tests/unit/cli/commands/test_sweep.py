"""``layerdag sweep``: tables, files, exit codes."""

import csv
import json
from concurrent.futures import Future
from pathlib import Path

import pytest
from simulator_traces import all_reduce, comp, recv, workload

from layerdag.cli.main import main
from layerdag.runtime import processes
from layerdag.simulator import sweep
from layerdag.traces.chakra.workload import write_workload

NETWORK = "topology: [Ring]\nnpus_count: [2]\nbandwidth: [{}]\nlatency: [100]\n"
FINISH = {"slow": 1000 + 30 + 2 * 1053, "fast": 1000 + 30 + 2 * 109}
"""1000 ns of compute, 3 E and two messages of 1024 B at 1 and 100 GB/s of 2**30 bytes."""


@pytest.fixture
def folder(tmp_path) -> Path:
    nodes = [comp(0, 1), all_reduce(1, 2048, (0,))]
    write_workload(workload(nodes, nodes), tmp_path / "good" / "w")
    system = {
        "preferred-dataset-splits": 1,
        "collective-optimization": "baseline",
        "all-reduce-implementation": ["ring"],
    }
    (tmp_path / "ring.json").write_text(json.dumps(system))
    for name, bandwidth in (("slow", 1), ("fast", 100)):
        (tmp_path / f"{name}.yml").write_text(NETWORK.format(bandwidth))
    return tmp_path


def write_sweep(folder: Path, *lines: str) -> str:
    path = folder / "sweep.yml"
    usual = ("workloads: {good: good/w}", "systems: {ring: ring.json}")
    networks = "networks: {slow: slow.yml, fast: fast.yml}"
    path.write_text("\n".join((*usual, networks, *lines)))
    return str(path)


def test_the_fastest_comes_first_with_its_speed_up_over_the_slowest(folder, capsys):
    assert main(["sweep", write_sweep(folder), "--out", str(folder / "r.csv")]) == 0
    gain = FINISH["slow"] / FINISH["fast"]
    assert capsys.readouterr().out.splitlines() == [
        f"{gain:8.2f}x {FINISH['fast']:15} ns  good | ring | fast | reference | unaware",
        f"{1:8.2f}x {FINISH['slow']:15} ns  good | ring | slow | reference | unaware",
    ]
    with (folder / "r.csv").open(newline="") as file:
        rows = {row["network"]: row for row in csv.DictReader(file)}
    assert {name: int(row["makespan_ns"]) for name, row in rows.items()} == FINISH
    assert rows["slow"]["ranks"] == "2"
    assert float(rows["slow"]["mean_exposed_ns"]) == FINISH["slow"] - 1000


def test_costs_add_a_pareto_front(folder, capsys):
    # The fast network costs less here, so the slow one is beaten.
    path = write_sweep(folder, "costs: {slow: 2.5, fast: 1.5}")
    assert main(["sweep", path, "--out", str(folder / "r.csv")]) == 0
    _, front = capsys.readouterr().out.split("\nPareto front of cost and makespan\n")
    assert (
        front.split()
        == f"1.50 {FINISH['fast']} ns good | ring | fast | reference | unaware".split()
    )


def test_every_compute_and_congestion_model_is_a_row_and_plots_are_drawn(folder, capsys):
    path = write_sweep(folder, "compute: [reference, measured]", "congestion: [unaware]")
    words = ["--out", str(folder / "r.csv"), "--plot", str(folder / "p.svg")]
    assert main(["sweep", path, *words]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 4
    assert "<svg" in (folder / "p.svg").read_text()


def test_a_point_that_cannot_run_is_told_and_makes_the_exit_code_1(folder, capsys):
    write_workload(workload([recv(0, 1, 8)], [comp(0, 1)]), folder / "good" / "w", overwrite=True)
    assert main(["sweep", write_sweep(folder), "--out", str(folder / "r.csv")]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("failed: good | ring | fast | reference | unaware: deadlock")
    # Results are handed on, so their messages name no folder of this machine.
    assert str(folder) not in (folder / "r.csv").read_text()


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("fast.yml", "gone.yml", "gone.yml"),
        ("good/w", "gone/w", "gone"),
        ("congestion", "congestion: [never]\n#", "never"),
        ("compute", "compute: [abacus]\n#", "abacus"),
    ],
)
def test_what_is_not_there_is_told_by_name(folder, capsys, old, new, told):
    path = Path(write_sweep(folder, "compute: [reference]", "congestion: [unaware]"))
    path.write_text(path.read_text().replace(old, new))
    assert main(["sweep", str(path), "--out", str(folder / "r.csv")]) in (1, 2)
    said = capsys.readouterr()
    assert told in said.out + said.err
    assert "Traceback" not in said.err


def test_no_process_at_all_is_wrong_use(folder, capsys):
    words = ["sweep", write_sweep(folder), "--out", str(folder / "r.csv"), "--processes", "0"]
    assert main(words) == 2
    assert "--processes is 0; it must be at least 1" in capsys.readouterr().err
    assert not (folder / "r.csv").exists()


class Pool:
    """Stands in for worker processes, which take seconds to start: it runs in this one."""

    def __init__(self, processes: int, mp_context: object) -> None:
        self.processes = processes

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def submit(self, function, *arguments):
        done = Future()
        done.set_result(function(*arguments))
        return done


def test_several_processes_give_the_same_rows(folder, monkeypatch):
    sizes = []

    def pool(count, mp_context):
        sizes.append(count)
        return Pool(count, mp_context)

    monkeypatch.setattr(processes, "ProcessPoolExecutor", pool)
    points = sweep.read_sweep(write_sweep(folder))
    todo = [(point, point.key()) for point in points]
    assert set(sweep.in_processes(2, todo)) == set(sweep.in_processes(1, todo))
    assert sizes == [2]
    # One point needs no pool.
    assert len(list(sweep.in_processes(2, todo[:1]))) == 1
    assert sizes == [2]


def test_a_key_depends_on_contents_and_not_on_where_they_lie(folder, tmp_path):
    def key() -> str:
        point = sweep.read_sweep(write_sweep(folder))[0]
        return point.key()

    before = key()
    assert key() == before
    (folder / "slow.yml").write_text(NETWORK.format(2))
    changed = key()
    assert changed != before
    (folder / "good" / "comm_group.json").write_text('{"1": [0, 1]}')
    assert key() not in (before, changed)


@pytest.mark.parametrize("text", ["", "[1]", "workloads: [", "\x00"])
def test_a_sweep_file_that_is_none_is_named(folder, capsys, text):
    (folder / "sweep.yml").write_text(text)
    assert main(["sweep", str(folder / "sweep.yml"), "--out", str(folder / "r.csv")]) == 2
    assert "sweep.yml: " in capsys.readouterr().err
