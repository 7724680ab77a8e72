"""Programs made to have what is asked for."""

import json

import pytest
from small_programs import language

import layerdag as ld
from layerdag.cli.main import main
from layerdag.errors import UsageError
from layerdag.programs.targets import Targets, nearest, solve_targets


@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("asked", [3.0, 4_000.0, 9e8])
def test_the_nearest_is_that_of_a_search_through_all(power, asked):
    tried: list[int] = []

    def value(n: int) -> float:
        tried.append(n)
        return 700.0 + 3.0 * n**power

    found = nearest(value, asked, 16, 5_000, 0.0)
    assert found is not None
    every = min(range(1, 5_001), key=lambda n: abs(value(n) - asked))
    assert abs(700.0 + 3.0 * found**power - asked) == pytest.approx(
        abs(700.0 + 3.0 * every**power - asked), rel=0.01
    )


def test_depth_width_batch_and_parameters_are_met_and_counted_on_the_program():
    program = ld.program(*language(layers=3))
    found = solve_targets(program, Targets(depth=5, width=96, batch=6, parameters=2e6))
    assert len(found.program.units) == 5
    assert (found.program.sizes["w0"], found.program.sizes["B0"]) == (96, 6)
    assert not found.program.check()
    module = found.program.module()
    held = sum(parameter.numel() for parameter in module.parameters())
    assert held == found.reached[-1].reached
    assert held == pytest.approx(2e6, rel=0.01)


def test_a_unit_that_is_left_out_gives_the_model_without_it():
    shallow = solve_targets(ld.program(*language(layers=3)), Targets(depth=2)).program
    model = ld.program(*language(layers=2))
    assert [node.operator for node in shallow.nodes] == [node.operator for node in model.nodes]
    assert shallow.parameters() == model.parameters()


def test_what_cannot_be_reached_is_told_by_the_command(tmp_path, capsys):
    source = tmp_path / "it.program.json"
    program = ld.program(*language())
    program.save(source)
    sizes = [f"--size={name}={number}" for name, number in program.sizes.items()]
    assert main(["program", str(source), "--parameters", "1e9", "--json", *sizes]) == 0
    wanted = json.loads(capsys.readouterr().out)["wanted"]["parameters"]
    assert wanted == {"asked": 1e9, "reached": program.parameters()}


def test_numbers_that_no_program_has_are_refused():
    with pytest.raises(UsageError, match="'parameters' must be above 0"):
        Targets(parameters=-1.0)
