"""Scopes that name modules in host traces."""

import json
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

import layerdag as ld
from layerdag.capturing.running import record_raw
from layerdag.capturing.scopes import (
    AUTOCAST_SCOPE,
    MODULE_SCOPE,
    UNIT_SCOPE,
    module_scopes,
    unit_paths,
)
from layerdag.capturing.step import capture_model


class Layers(nn.Module):
    def __init__(self, count: int = 2) -> None:
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(8, 8)) for _ in range(count))

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for layer in self.layers:
            x = layer(x)
        return x.sum()


def scopes(calls: Sequence[nn.Module], path: Path, autocast: bool = False) -> list[str]:
    """Return the scopes of calls in the order in which they begin."""
    raw = record_raw(path / "host.json", path / "device.json")
    with module_scopes(), raw, torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        for module in calls:
            module(torch.ones(2, 8))
    nodes = json.loads((path / "host.json").read_text())["nodes"]
    begins = (MODULE_SCOPE, UNIT_SCOPE, AUTOCAST_SCOPE)
    found = [(node["id"], node["name"]) for node in nodes if node["name"].startswith(begins)]
    return [name for _, name in sorted(found)]


def test_modules_and_units_have_scopes(tmp_path):
    assert scopes([Layers()], tmp_path) == [
        "module:first",
        *("unit:layers.0", "module:layers.0.0"),
        *("unit:layers.1", "module:layers.1.0"),
    ]


def test_a_second_model_is_told_from_the_first(tmp_path):
    found = scopes([Layers(0), nn.ReLU(), Layers(0), nn.Linear(8, 8)], tmp_path)
    assert found == ["module:first", "module:Layers", "module:Layers.first", "module:Linear"]


def test_autocast_is_told(tmp_path):
    assert scopes([Layers(0)], tmp_path, autocast=True) == [
        *("autocast:bfloat16", "module:first", "autocast:bfloat16")
    ]


def test_nothing_is_left_behind_by_a_module_that_fails(tmp_path):
    with module_scopes():
        for _ in range(2):
            try:
                Layers()(torch.ones(2, 5))
            except RuntimeError:
                continue
    assert scopes([Layers(0)], tmp_path) == ["module:first"]


def test_a_step_under_autocast_runs_again(tmp_path):
    model = Layers()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    for _ in range(2):
        with module_scopes(), record_raw(tmp_path / "host.json", tmp_path / "device.json"):
            with torch.autocast("cpu", torch.bfloat16):
                loss = model(torch.ones(2, 8))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    program = ld.program(tmp_path / "host.json")
    linear = [node for node in program.nodes if node.operator == "aten.linear.default"]
    assert {node.mode for node in linear} == {("autocast:bfloat16",)}
    assert program.check() == []
    assert "aten::_to_copy" in program.step().trace.names()


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
    assert derived.trace.names() == own.trace.names()
