"""Sweeps on Ray, with a stand-in for the package that runs tasks in this process."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from simulator_traces import all_reduce, workload

from layerdag.cli import main
from layerdag.traces import write_workload

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
    """Return the command line of a sweep over two networks."""
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
