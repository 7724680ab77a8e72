"""Steps that are derived from a program, held against those of the module itself."""

import warnings

import pytest
import torch
from small_programs import images, language
from torch import Tensor, nn

import layerdag as ld
from layerdag.capturing.captured_step import CapturedStep
from layerdag.errors import UsageError
from layerdag.graph.formats.program_json import program_graph
from layerdag.programs.assembly import assemble
from layerdag.validation.whole_program import check_program


def told(step: CapturedStep) -> list[tuple[object, ...]]:
    """Return operator, operations, bytes, message and phase of each node."""
    trace = step.trace
    numbers = (trace.integers(name)[0].tolist() for name in ("num_ops", "tensor_size", "comm_size"))
    return list(zip(trace.names(), *numbers, trace.texts("phase")[0], strict=True))


@pytest.mark.parametrize(
    "plan",
    [{}, {"data": 8}, {"data": 1024}, {"fsdp": 4}, {"data": 2, "fsdp": 2}, {"optimizer": "sgd"}],
    ids=str,
)
@pytest.mark.parametrize("make", [language, images])
def test_a_derived_step_is_the_step_of_the_module(make, plan):
    model, inputs = make()
    derived, own = ld.program(model, inputs).step(**plan), ld.capture_model(model, inputs, **plan)
    assert told(derived) == told(own)
    assert derived.parameters == own.parameters
    assert derived.workload().num_ranks == own.workload().num_ranks


class Turned(nn.Module):
    """Layers that share an activation and positions, which are made before the first of them."""

    def __init__(self, width: int = 24) -> None:
        super().__init__()
        shared = nn.GELU()
        self.layers = nn.ModuleList(TurnedLayer(width, shared) for _ in range(3))
        self.head = nn.Linear(width, 1)

    def forward(self, x: Tensor) -> Tensor:
        angle = torch.arange(x.shape[1]).to(x.dtype)[:, None] + torch.ones(x.shape[2])
        turn = angle.sin()
        for layer in self.layers:
            x = layer(x, turn)
        return self.head(x).mean()


class TurnedLayer(nn.Module):
    def __init__(self, width: int, activation: nn.Module) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, width), nn.Linear(width, width)
        self.activation = activation

    def forward(self, x: Tensor, turn: Tensor) -> Tensor:
        return x + self.down(self.activation(self.up(x) * turn))


def gathered(step: CapturedStep) -> list[tuple[object, ...]]:
    """Return what is gathered and scattered, in order."""
    return [row for row in told(step) if str(row[0]).startswith("c10d::")]


def test_a_layer_is_gathered_once_a_pass_whatever_it_shares_with_others():
    model, inputs = Turned(), [torch.randn(4, 6, 24)]
    own, whole = ld.capture_model(model, inputs, fsdp=4), ld.program(model, inputs)
    assert told(whole.step(fsdp=4)) == told(own)
    # A graph does not tell when its positions are made, nor in whose call.
    graph = program_graph(whole.to_json(), "it")
    derived = assemble(graph, whole.sizes.__getitem__).step(fsdp=4)
    assert gathered(derived) == gathered(own)
    assert check_program(derived.workload()) == []


class Cut(nn.Module):
    """Layers that return views, of which the next one may be overwritten."""

    def __init__(self, overwrites: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Linear(24, 24), nn.Flatten(), nn.Unflatten(1, (6, 24)))
            for _ in range(2)
        )
        self.overwrites = overwrites

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
            x = x.mul_(2) if self.overwrites else x * 2
        return x.mean()


@pytest.mark.parametrize("overwrites", [False, True])
def test_pytorch_warns_of_views_of_layers_only_where_they_are_overwritten(overwrites):
    program = ld.program(Cut(overwrites), [torch.randn(4, 6, 24)])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        program.step(fsdp=2)
    assert any("returned a view" in str(each.message) for each in caught) is overwrites


def test_sizes_never_seen_give_the_step_of_that_model():
    wide = ld.program(*language()).resize(B0=2, w0=96, r0=500)
    assert told(wide.step(fsdp=2)) == told(
        ld.capture_model(*language(2, width=96, rows=500), fsdp=2)
    )


def test_all_reduced_bytes_are_those_of_the_parameters():
    step = ld.program(*language()).step(data=4)
    collectives = step.summary()["collectives"]
    assert sum(held["bytes"] for held in collectives.values()) == 4 * step.parameters


def test_a_parameter_that_nothing_reads_is_kept():
    class Spare(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.spare = nn.Linear(8, 8), nn.Linear(8, 3)

        def forward(self, x: Tensor) -> Tensor:
            found: Tensor = self.used(x).sum()
            return found

    model, inputs = Spare(), [torch.randn(4, 8)]
    found = ld.program(model, inputs)
    assert [name for name, _ in found.unused] == ["spare.weight", "spare.bias"]
    assert told(found.step(fsdp=2)) == told(ld.capture_model(model, inputs, fsdp=2))


def test_an_unknown_setting_is_refused():
    with pytest.raises(UsageError, match="no setting 'dta'"):
        ld.program(*language()).step(dta=2)


@pytest.mark.parametrize("plan", [{}, {"pipeline": 2}], ids=str)
def test_a_step_of_any_size_takes_no_memory(plan):
    huge = ld.program(*language()).resize(w0=2**17)
    assert huge.step(**plan).parameters > 2**35
