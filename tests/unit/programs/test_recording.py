"""What a recording holds of one forward pass."""

import pytest
import torch
from small_programs import images, language
from torch import Tensor, nn
from torch.nn import functional

from layerdag.errors import UsageError
from layerdag.programs.forward_program import Program
from layerdag.programs.sources import program


def operators(found: Program) -> list[str]:
    return [name for name in (node.operator for node in found.nodes) if "." in name]


def test_calls_are_those_of_the_code_and_not_what_they_become():
    model, inputs = language(layers=1)
    assert operators(program(model, inputs)) == [
        *("aten.embedding.default", "aten.layer_norm.default", "aten.linear.default"),
        *("aten.view.default", "aten.permute.default", "aten.unbind.int"),
        *("aten.scaled_dot_product_attention.default", "aten.transpose.int"),
        *("aten.reshape.default", "aten.linear.default", "aten.add.Tensor"),
        *("aten.linear.default", "aten.flatten.using_ints", "aten.flatten.using_ints"),
        "aten.cross_entropy_loss.default",
    ]


def test_the_module_is_left_as_it_was():
    model, inputs = images()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    program(model, inputs)
    assert torch.equal(torch.rand(3), expected)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(not module._forward_hooks for module in model.modules())


def test_the_branch_that_was_taken_is_kept_and_told():
    class Branch(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 8)

        def forward(self, x: Tensor, mask: Tensor) -> Tensor:
            x = self.layer(x)
            return (x if bool(mask.all()) else x * 2).sum()

    found = program(Branch(), [torch.randn(4, 8), torch.ones(4, dtype=torch.bool)])
    assert operators(found) == ["aten.linear.default", "aten.all.default", "aten.sum.default"]
    assert found.notes == (
        "The branch that was taken is kept: the model: bool() asked for the content of a tensor.",
    )


def test_autocast_and_no_grad_are_kept():
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 8)

        def forward(self, x: Tensor) -> Tensor:
            with torch.no_grad():
                scale = x.abs().mean()
            with torch.autocast("cpu", torch.bfloat16):
                y = self.layer(x)
            return (y.float() * scale).sum()

    found = program(Mixed(), [torch.randn(4, 8)])
    modes = {node.operator: node.mode for node in found.nodes if node.mode}
    assert modes == {
        "aten.abs.default": ("no_grad",),
        "aten.mean.default": ("no_grad",),
        "aten.linear.default": ("autocast:bfloat16",),
    }
    assert found.check() == []


def test_shapes_that_depend_on_data_are_refused_with_the_module():
    class Chosen(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x[x > 0].sum()

    with pytest.raises(UsageError, match=r"^inner: aten.index.Tensor returns as many numbers"):
        program(_Outer(Chosen()), [torch.randn(4, 8)])


class _Outer(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.inner(x)
        return found


def test_an_own_autograd_function_is_refused():
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(context: object, x: Tensor) -> Tensor:  # type: ignore[override]
            return x * 2

        @staticmethod
        def backward(context: object, gradient: Tensor) -> Tensor:  # type: ignore[override]
            return gradient * 2

    class Doubled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 8)

        def forward(self, x: Tensor) -> Tensor:
            found: Tensor = Double.apply(self.layer(x))
            return found.sum()

    with pytest.raises(UsageError, match=r"Double is an autograd\.Function of its own"):
        program(Doubled(), [torch.randn(4, 8)])


def test_a_tensor_that_is_given_twice_is_two_inputs():
    model, inputs = language()
    found = program(model, [inputs[0], inputs[0]])
    assert found.nodes[-1].operator == "aten.cross_entropy_loss.default"
    targets = found.nodes[found.nodes[-1].inputs[1]]
    assert targets.inputs == (1,)


def test_an_input_that_nothing_reads_stays_an_input():
    class First(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 8)

        def forward(self, x: Tensor, unread: Tensor) -> Tensor:
            return functional.relu(self.layer(x)).sum()

    found = program(First(), [torch.randn(4, 8), torch.randn(4, 2)])
    assert [node.operator for node in found.nodes[:2]] == ["input", "input"]


def test_a_module_that_is_not_on_a_processor_is_refused():
    with pytest.raises(UsageError, match=r"Linear is on meta; .* move the module .* .cpu\(\)"):
        program(nn.Linear(4, 4, device="meta"), [torch.zeros(2, 4)])


def test_a_module_that_cannot_be_run_on_its_inputs_is_refused_with_its_own_words():
    with pytest.raises(UsageError, match=r"Linear cannot be run .* positional argument: 'input'"):
        program(nn.Linear(2, 2), [])
