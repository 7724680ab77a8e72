"""A process that is killed while it replaces a file leaves the older one or the new one.

What consists of several files has a test of its own beside its writer (``helpers/killing.py``).
"""

import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from json_files import PROGRAM
from killing import states_when_killed
from raw_graphs import chain
from small_workloads import collective, trace

import layerdag as ld
from layerdag.capturing import running
from layerdag.cli.commands.collect import _write_program
from layerdag.codec.formats import write_graph
from layerdag.graph.attributed_graph import write_step_times
from layerdag.programs import sources
from layerdag.programs.forward_program import Program
from layerdag.serving.requests import Arrivals
from layerdag.serving.result import ServingResult, draw, write_requests, write_serving_timeline
from layerdag.simulator.calibration import CalibratedMachine, FittedOperatorCosts, write_machine
from layerdag.simulator.run import SimulationResult, write_nodes, write_timeline
from layerdag.simulator.sweep import SweepRow, write_rows
from layerdag.traces.chakra.workload import read_workload, write_workload
from layerdag.traces.pytorch.importer import ImportResult
from layerdag.traces.trace import Workload
from layerdag.workloads.step_efficiency import shipped_efficiency, write_efficiency

PACKAGE = Path(__file__).resolve().parents[2] / "layerdag"


@cache
def served(requests: int) -> ServingResult:
    return ld.simulate_serving("gpt2", Arrivals(5.0, requests, "4", "4"))


@cache
def simulated(number: int) -> SimulationResult:
    pair = [trace(*(collective(at) for at in range(number)))] * 2
    return ld.simulate(Workload(tuple(pair)), "small")


def machine(number: int) -> CalibratedMachine:
    return CalibratedMachine(FittedOperatorCosts({}, (1.0, 2.0, float(number))), None)


def draw_quickly(result: ServingResult, path: Path) -> None:
    """Draw a picture that is its number of requests, for to make pixels takes long."""

    def save(figure: object, draft: Path, *, format: str) -> None:
        draft.write_bytes(bytes([len(result.ttft_s)]))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("matplotlib.figure.Figure.savefig", save)
        draw(result, path)


WRITERS: dict[str, Callable[[Path, int], object]] = {
    "x.program.json": lambda path, n: Program.from_json({**PROGRAM, "name": f"p{n}"}).save(path),
    "requests.csv": lambda path, n: write_requests(served(n), path),
    "requests.jsonl": lambda path, n: write_requests(served(n), path),
    "serving.json": lambda path, n: write_serving_timeline(served(n), path),
    "serving.png": lambda path, n: draw_quickly(served(n), path),
    "machine.json": lambda path, n: write_machine(machine(n), path),
    "shares.json": lambda path, n: write_efficiency(
        replace(shipped_efficiency(), machines={f"m{n}": {}}), path
    ),
    "job.steps.json": lambda path, n: write_step_times(path.parent / "job", [float(n)], 1),
    "nodes.csv": lambda path, n: write_nodes(simulated(n), path),
    "timeline.json": lambda path, n: write_timeline(simulated(n), path),
    "rows.csv": lambda path, n: write_rows([SweepRow(f"w{n}", "", "", "", "", 0.0)], path),
    **{
        f"g.{ending}": lambda path, n: write_graph(chain("g", "abc"[:n]), path)
        for ending in ("graphml", "dot", "json", "wf.json")
    },
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_kill_leaves_the_older_file_or_the_new_one(name, tmp_path):
    path, wrote = tmp_path / name, WRITERS[name]
    seen = states_when_killed(
        lambda: wrote(path, 2), lambda: wrote(path, 3), lambda: path.read_bytes().hex()
    )
    assert list(dict.fromkeys(seen)) == [seen[0], seen[-1]]
    assert seen[0] != seen[-1]
    assert len(seen) > 2


def test_measured_times_go_with_the_traces_that_they_are_of(tmp_path):
    place = tmp_path / "job"
    jobs = [Workload((trace(*(collective(at) for at in range(n))),) * 2) for n in (1, 2)]

    def older() -> None:
        write_workload(jobs[0], place, overwrite=True)
        write_step_times(place, [1.0], 2)

    def look() -> str:
        found = read_workload(place)  # takes to an end what a killed process began
        nodes = sum(held.num_nodes for held in found.traces)
        return f"{nodes} {(tmp_path / 'job.steps.json').exists()}"

    seen = states_when_killed(older, lambda: write_workload(jobs[1], place, overwrite=True), look)
    assert list(dict.fromkeys(seen)) == ["2 True", "4 False"]


def test_a_collected_step_stands_beside_no_program_of_another(tmp_path, monkeypatch):
    place = tmp_path / "job"

    def collect(nodes: int) -> None:
        made = trace(*(collective(at) for at in range(nodes)))
        step = running.Capture(0, 1, ImportResult(made, {}, nodes, 0.0, 0))
        found = Program.from_json({**PROGRAM, "name": f"of {nodes} nodes"})
        monkeypatch.setattr(sources, "program", lambda host, name: found)
        running._write(step, place, [path for path in older if path.exists()])
        _write_program(str(place), step, tmp_path / "host.json")

    def look() -> str:
        nodes = read_workload(place).traces[0].num_nodes  # ends what a killed process began
        return f"{nodes}: {Program.load(older[1]).name if older[1].exists() else 'none'}"

    older = (tmp_path / "job.0.et", tmp_path / "job.program.json")
    seen = states_when_killed(lambda: collect(1), lambda: collect(2), look)
    assert list(dict.fromkeys(seen)) == ["1: of 1 nodes", "2: none", "2: of 2 nodes"]


_WRITES = re.compile(r"([\w.]+|\))\.(?:write_text|write_bytes)\(|(\w+)\.open\(\"[wxa]")
INTO_A_DRAFT = {
    "training/checkpoint.py": "files of a draft, whose names are made before",
    "surrogates/files.py": "the folder is a draft",
    "runtime/files.py": "writes the drafts",
    "simulator/astra_sim.py": "a folder of the moment, for another program",
    "training/loggers.py": "a log, line by line",
    "simulator/sweep.py": "the journal, of which a last line that is cut off is left out",
}
"""Why other files write to a path by themselves."""


def test_every_file_is_written_as_a_draft():
    found = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        for held, opened in _WRITES.findall(path.read_text())
        if "draft" not in (held, opened) and not (held == ")" and "(draft / " in path.read_text())
    }
    assert found <= INTO_A_DRAFT.keys()
