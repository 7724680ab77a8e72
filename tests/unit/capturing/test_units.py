"""What is gathered at once: modules that are called, however lists are nested."""

import torch
from torch import Tensor, nn

import layerdag as ld
from layerdag.capturing.step import capture_model
from layerdag.capturing.units import unit_paths


class Branches(nn.Module):
    """Stages of parallel branches, as multi-resolution networks have them."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(6, 6)
        self.stages = nn.ModuleList(
            [
                nn.ModuleList([nn.Linear(6, 6), nn.Linear(6, 6)]),
                nn.ModuleDict({"wide": nn.Sequential(nn.Linear(6, 9), nn.Linear(9, 6))}),
                nn.Linear(6, 6),
            ]
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for branch in self.stages[0]:
            x = x + branch(x)
        return self.stages[2](self.stages[1]["wide"](x)).sum()


UNITS = ("stages.0.0", "stages.0.1", "stages.1.wide", "stages.2")


def test_units_of_nested_lists_are_the_modules_that_are_called():
    assert unit_paths(Branches()) == UNITS


def test_a_module_in_two_lists_is_one_unit():
    model, shared = nn.Module(), nn.Linear(2, 2)
    model.first, model.second = nn.ModuleList([shared]), nn.ModuleList([shared, nn.ReLU()])
    assert unit_paths(model) == ("first.0", "second.1")


def test_a_list_inside_a_unit_belongs_to_it():
    block = nn.Sequential(nn.Linear(2, 2))
    block.parts = nn.ModuleList([nn.Linear(2, 2)])
    model = nn.Module()
    model.blocks = nn.ModuleList([block])
    assert unit_paths(model) == ("blocks.0",)


def test_nested_lists_are_sharded_unit_by_unit():
    inputs = [torch.zeros(4, 6)]
    own = capture_model(Branches(), inputs, fsdp=2)
    # Each unit is gathered in both directions, and the rest, which is kept, once.
    gathered = own.summary()["collectives"]["all_gather:fsdp"]["count"]
    assert gathered == 2 * len(UNITS) + 1
    derived = ld.program(Branches(), inputs).step(fsdp=2)
    assert derived.summary()["collectives"] == own.summary()["collectives"]
    assert derived.program.names() == own.program.names()
