"""Deeper programs."""

import pytest
import torch
from small_programs import images, language
from torch import Tensor, nn

import layerdag as ld
from layerdag.errors import UsageError
from layerdag.programs.depth import repeatable_units


def test_a_deeper_program_is_that_of_the_deeper_model():
    """Six layers, made of three by repeating each of them and recorded as six."""
    shallow = ld.program(*language(layers=3))
    assert [unit.path for unit in repeatable_units(shallow)] == list(shallow.units)
    deep, model = shallow.deepen(2), ld.program(*language(layers=6))
    assert not deep.check()
    assert (deep.nodes, deep.order, deep.units) == (model.nodes, model.order, model.units)
    assert deep.parameters() == model.parameters()
    for plan in ({}, {"data": 4}, {"fsdp": 4}):
        found, wanted = (p.step(**plan).trace for p in (deep, model))
        assert found.names() == wanted.names()
        for column in ("num_ops", "tensor_size", "comm_size"):
            assert found.integers(column)[0].tolist() == wanted.integers(column)[0].tolist()


def test_widths_that_are_equal_by_chance_make_no_unit_repeatable():
    """The last layer maps the stream to the vocabulary, also where that is as wide."""

    class Layers(nn.Module):
        def __init__(self, width: int = 24, rows: int = 90) -> None:
            super().__init__()
            self.token = nn.Embedding(rows, width)
            self.layers = nn.ModuleList([nn.Linear(width, width), nn.Linear(width, rows)])

        def forward(self, token: Tensor) -> Tensor:
            x = self.token(token)
            for layer in self.layers:
                x = layer(x)
            return x.square().mean()

    found = ld.program(Layers(), [torch.randint(0, 90, (4, 6))])
    for program in (found, found.resize(r0=24)):
        assert [unit.path for unit in repeatable_units(program)] == ["layers.0"]


class Sparing(nn.Module):
    """Layers with a parameter that nothing reads; two may share their weights."""

    def __init__(self, layers: int, width: int = 24, tied: bool = False) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(layers))
        for layer in self.layers:
            layer.spare = nn.Parameter(torch.zeros(3))
        if tied:
            self.layers[-1].weight = self.layers[0].weight

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x.square().mean()


def test_parameters_that_nothing_reads_come_with_their_layer():
    x = torch.zeros(5, 24)
    deep, model = ld.program(Sparing(2), [x]).deepen(2), ld.program(Sparing(4), [x])
    assert (deep.order, deep.unused) == (model.order, model.unused)
    assert len(ld.program(Sparing(3), [x]).deepen([0, 1, 1]).unused) == 2


def test_parameters_of_a_deeper_program_have_names_of_their_own():
    found = ld.program(Sparing(3, tied=True), [torch.zeros(5, 24)])
    for times in ([0, 1, 1], [2, 1, 1], [1, 0, 2]):
        deep = found.deepen(times)
        names = [name for node in deep.nodes for name in node.names if name]
        assert len({*names}) == len(names)
        assert {*deep.order} == {*names} | {name for name, _ in deep.unused}


def test_a_deeper_program_runs_for_real():
    module = ld.program(*language(layers=1)).deepen(3).module()
    module(*module.example_inputs()).backward()
    assert all(parameter.grad is not None for parameter in module.parameters())


def test_once_is_the_program_itself():
    found = ld.program(*language(layers=2))
    assert found.deepen(1) == found


def test_a_deeper_program_can_be_made_deeper_again():
    found = ld.program(*language(layers=1))
    assert len(found.deepen(2).deepen(3)) == len(found.deepen(6))
    assert len(set(found.deepen(2).deepen(3).units)) == 6


@pytest.mark.parametrize("times", [0, -1])
def test_fewer_than_once_is_refused(times):
    with pytest.raises(UsageError, match="once or more"):
        ld.program(*language()).deepen(times)


def test_a_model_whose_units_change_the_shape_is_refused():
    class Growing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(8, 16), nn.Linear(16, 24)])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in self.layers:
                x = layer(x)
            return x.sum()

    with pytest.raises(UsageError, match="nothing of it can be repeated"):
        ld.program(Growing(), [torch.zeros(2, 8)]).deepen(2)
    with pytest.raises(UsageError, match="nothing of it can be repeated"):
        ld.program(*images()).deepen(2)
