"""Steps as long as asked for."""

import pytest
from small_programs import language

import layerdag as ld
from layerdag.cli.main import main
from layerdag.programs.targets import Targets, solve_targets


def makespan(program: ld.Program, **plan: int) -> float:
    """Return the time of the derived step, in seconds."""
    return ld.simulate(program.step(**plan).workload(), "small", compute="h100").makespan_s


@pytest.fixture(scope="module")
def program() -> ld.Program:
    return ld.program(*language())


@pytest.mark.parametrize("plan", [{}, {"data": 4}], ids=str)
def test_a_step_takes_the_time_asked_for(program, plan):
    wanted = 2.5 * makespan(program.resize(B0=512), **plan)
    keep = [name for name in program.sizes if name != "B0"]
    found = solve_targets(program, Targets(step_time=wanted, plan=plan), keep).program
    assert makespan(found, **plan) == pytest.approx(wanted, rel=0.02)
    assert {**found.sizes, "B0": 0} == {**program.sizes, "B0": 0}


def test_the_command_writes_it(program, tmp_path):
    source, out = tmp_path / "it.program.json", tmp_path / "longer.program.json"
    program.save(source)
    wanted = 3 * makespan(program.resize(B0=512))
    assert main(["program", str(source), "--step-time", str(wanted), "--out", str(out)]) == 0
    assert makespan(ld.Program.load(out)) == pytest.approx(wanted, rel=0.02)
