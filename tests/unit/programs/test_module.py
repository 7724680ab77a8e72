"""Programs that run for real."""

import pickle
from dataclasses import replace
from typing import cast

import pytest
import torch
from small_programs import images, language

import layerdag as ld
from layerdag.errors import UsageError
from layerdag.programs import execution
from layerdag.programs.execution import run_fake
from layerdag.programs.nodes import Leaf


@pytest.mark.parametrize("make", [language, images])
def test_a_training_step_runs_with_a_finite_loss(make):
    module = ld.program(*make()).module()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01)
    loss = module(*module.example_inputs())
    loss.backward()
    optimizer.step()
    assert torch.isfinite(loss)
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in module.parameters())


@pytest.mark.parametrize("make", [language, images])
def test_it_computes_what_the_model_computes(make):
    model, inputs = make()
    module = ld.program(model, inputs).module()
    own, derived = list(model.parameters()), list(module.parameters())
    assert [p.shape for p in derived] == [p.shape for p in own]
    with torch.no_grad():
        for mine, theirs in zip(derived, own, strict=True):
            mine.copy_(theirs)
    assert torch.allclose(module(*inputs), model(*inputs))


def test_numbers_do_not_depend_on_when_it_is_made():
    found = ld.program(*language())
    torch.manual_seed(1)
    first = list(found.module().parameters())
    torch.manual_seed(2)
    assert all(torch.equal(a, b) for a, b in zip(first, found.module().parameters(), strict=True))


def test_other_inputs_than_it_takes_are_refused():
    with pytest.raises(UsageError, match="takes 2 inputs; 1 are given"):
        ld.program(*language()).module()(torch.zeros(4, 6))


def test_a_tensor_of_a_number_can_be_detached_in_place_as_in_the_module_itself():
    class Masked(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            lowest = torch.tensor(-3.0, dtype=x.dtype)
            return torch.where(x > 0, self.layer(x), lowest).square().mean()

    program = ld.program(Masked(), (torch.randn(3, 4),))
    assert "aten.detach_.default" in program.operator_counts()
    assert not program.check()
    module = program.module()
    module(*module.example_inputs()).backward()
    assert all(parameter.grad is not None for parameter in module.parameters())


def test_shapes_of_leaves_are_those_of_the_table_whatever_was_run_before(monkeypatch):
    program = ld.program(*language())
    runs = []
    monkeypatch.setattr(execution, "run_fake", lambda given: runs.append(given) or run_fake(given))
    assert not program.check()
    same = pickle.loads(pickle.dumps(program.named("another")))
    assert same.name == "another"
    assert [t.shape for t in same.module().example_inputs()] == [
        t.shape for t in program.module().example_inputs()
    ]
    assert not runs  # the check knows them
    larger = {name: 2 * size for name, size in program.sizes.items() if name.startswith("B")}
    wanted = [torch.Size([2 * t.shape[0], *t.shape[1:]]) for t in program.module().example_inputs()]
    other = replace(program, sizes={**program.sizes, **larger})
    assert [t.shape for t in other.module().example_inputs()] == wanted
    cast("dict[str, int]", program.sizes).update(larger)
    assert [t.shape for t in program.module().example_inputs()] == wanted
    assert len(runs) == 2


def test_a_leaf_that_a_node_does_not_read_shifts_no_other():
    program = ld.program(*language())
    first = program.nodes[0]
    assert first.operator == "input"
    unread = replace(first, keywords=(("unread", Leaf("parameter", (7,), "float32")),))
    odd = replace(program, nodes=(unread, *program.nodes[1:]))
    expected = [p.shape for p in program.module().parameters()]
    assert [p.shape for p in odd.module().parameters()] == expected
