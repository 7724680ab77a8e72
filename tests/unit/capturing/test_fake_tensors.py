"""Fake tensors that are remembered, held against PyTorch's."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from small_programs import images, language
from torch import Tensor
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode

import layerdag as ld
from layerdag.capturing import fake_tensors, step
from layerdag.capturing.fake_tensors import RememberingFakeMode
from layerdag.traces.chakra.workload import encode_workload


@pytest.mark.parametrize("make", [language, images])
@pytest.mark.parametrize(
    "plan",
    [
        {"fsdp": 2, "precision": "bf16"},
        {"data": 4, "optimizer": "sgd-momentum-foreach", "clip": 1.0, "accumulate": 2},
        {"optimizer": "rmsprop-forloop"},
        {"optimizer": "adam-forloop"},
        {"optimizer": "adamw-fused", "fsdp": 2},
        {"optimizer": "adagrad-foreach"},
    ],
    ids=str,
)
def test_a_step_is_the_one_of_fake_tensors_without_memory(monkeypatch, make, plan):
    model, inputs = make()
    found = [encode_workload(ld.capture_model(model, inputs, **plan).workload(), "it")
             for _ in range(2)]  # fmt: skip
    plain = lambda: FakeTensorMode(allow_non_fake_inputs=True)  # noqa: E731
    monkeypatch.setattr(step, "RememberingFakeMode", plain)
    own = encode_workload(ld.capture_model(model, inputs, **plan).workload(), "it")
    assert found == [own, own]


def overlapping(x: Tensor) -> Tensor:
    return x[1:].add_(x[:-1])


CALLS: dict[str, Callable[[Tensor], Any]] = {
    "a view": lambda x: x[1:, ::2].transpose(0, 1),
    "a reshape that is a view": lambda x: x.reshape(-1, 2),
    "a reshape that is a copy": lambda x: x.t().reshape(-1, 2),
    "itself": lambda x: x.mul_(2),
    "two that see one memory": overlapping,
    "itself twice": lambda x: x.add_(x),
    "parts": lambda x: list(x.split(2)),
    "a number of another kind": lambda x: (x * 1, x * 1.0, x.to(torch.int64) * 1,
                                           x.to(torch.int64) * 1.0),
    "a list": lambda x: torch._foreach_sqrt([x, x.clone()]),
    "names": lambda x: torch.native_layer_norm(x, (4,), None, None, 1e-5),
    "a list in place": lambda x: [torch._foreach_add_([x], [torch.empty(4)]), x][1],
    "a list in place by its like": lambda x: [torch._foreach_mul_([x], [x.clone()]), x][1],
    "strides": lambda x: torch.empty_like(x.t()).exp(),
    "nothing": lambda x: x[:0].sum(),
    "a negated view": lambda x: [torch._neg_view(x).detach(), torch._neg_view(x).t()],
    "a conjugate": lambda x: torch.complex(x, x).conj().t(),
    "into a tensor that is resized": lambda x: torch.add(x, x, out=torch.empty(0)),
    "a gradient into a tensor that is resized": lambda x: torch.ops.aten.tanh_backward.grad_input(
        x, x, grad_input=torch.empty(0)
    ),
}  # fmt: skip


def told(call: Callable[[Tensor], Any], mode: FakeTensorMode) -> list[Any]:
    """Return shapes, strides, offsets, dtypes and which memory is whose."""
    with mode:
        x = torch.empty(6, 4)
        result = call(x)
    parts = result if isinstance(result, list | tuple) else [result]
    memories = [part.untyped_storage()._cdata for part in (x, *parts)]
    return [
        (tuple(p.shape), p.stride(), p.storage_offset(), p.dtype, str(p.device),
         p.is_neg(), p.is_conj(), p is x, memories.index(memory))
        for p, memory in zip(parts, memories[1:], strict=True)
    ]  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_results_are_those_of_pytorch_the_first_time_and_the_second(name):
    own = told(CALLS[name], FakeTensorMode())
    assert [told(CALLS[name], RememberingFakeMode()) for _ in range(2)] == [own, own]


def test_what_has_content_is_not_remembered():
    for number in (2, 3):
        with RememberingFakeMode():
            assert (torch.tensor(number) + 1).item() == number + 1


def test_a_number_is_itself_after_it_is_counted_up_and_unknown_after_it_is_overwritten():
    with RememberingFakeMode():
        steps = torch.tensor(0.0)
        counted = steps.add_(1)
        assert counted is steps
        assert steps.item() == 1
        steps.copy_(torch.empty(()))
        with pytest.raises(DataDependentOutputException):
            steps.item()


REFUSED: dict[str, Callable[[Tensor], Any]] = {
    "a shape that does not fit": lambda x: torch._foreach_add_([x], [x.t()]),
    "a larger shape": lambda x: torch._foreach_add_([x], [torch.empty(5, 6, 4)]),
    "a list that is too short": lambda x: torch._foreach_add_([x, x.clone()], [x.clone()]),
    "a list that is too long": lambda x: torch._foreach_add_([x], [x.clone(), x.clone()]),
    "too few numbers": lambda x: torch._foreach_add_([x, x.clone()], [1.0]),
    "a tensor that is no number": lambda x: torch._foreach_mul_([x], torch.ones(4)),
    "roots of whole numbers": lambda x: torch._foreach_sqrt_([x.long()]),
    "whole numbers by halves": lambda x: torch._foreach_div_([x.long()], 2.5),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_list_that_cannot_be_overwritten_is_refused(name):
    for mode in (FakeTensorMode(), RememberingFakeMode()):
        with mode, pytest.raises(RuntimeError):
            REFUSED[name](torch.empty(6, 4))


def test_an_operator_that_refuses_does_so_again():
    for _ in range(2):
        with RememberingFakeMode(), pytest.raises(RuntimeError, match="reduction dim"):
            torch.empty(3, 4) @ torch.empty(3, 4)


def test_grouped_products_have_shapes_in_single_precision_too():
    product = torch.ops.aten._grouped_mm.default
    with RememberingFakeMode():
        rows, matrices, ends = (
            torch.zeros(6, 4),
            torch.zeros(2, 4, 5),
            torch.zeros(2, dtype=torch.int32),
        )
        assert product(rows, matrices, ends).shape == (6, 5)
        assert product(torch.zeros(2, 3, 4), matrices).shape == (2, 3, 5)
        assert product(torch.zeros(3, 6), torch.zeros(6, 5), ends).shape == (2, 3, 5)
        assert product(rows, matrices, ends, None, torch.float16).dtype is torch.float16
        with pytest.raises(RuntimeError, match="4 and 3"):
            product(rows, torch.zeros(2, 3, 5), ends)


def test_whole_numbers_are_counted_as_on_a_gpu():
    with RememberingFakeMode():
        assert torch.histc(torch.zeros(9, dtype=torch.int32), bins=4, min=0, max=3).shape == (4,)
        assert torch.histc(torch.zeros(9), 4).dtype is torch.float32


MADE: dict[str, Callable[[Tensor], Tensor]] = {
    "zeros": lambda x: torch.zeros(2, 3),
    "no dimension": lambda x: torch.ones(()),
    "no element": lambda x: torch.empty(2, 0, 3),
    "another dtype": lambda x: torch.zeros(2, dtype=torch.int64),
    "another device": lambda x: torch.zeros(2, device="meta"),
    "strides": lambda x: torch.empty_strided((2, 3), (1, 2)),
    "channels last": lambda x: torch.empty(2, 3, 4, 5, memory_format=torch.channels_last),
    "of the kind of another": lambda x: x.to(torch.float16).new_zeros(3),
    "of its kind but whole": lambda x: x.new_empty((3, 1), dtype=torch.int32),
    "of a tensor on another device": lambda x: torch.zeros(2, device="meta").new_zeros(3),
}


@pytest.mark.parametrize("default", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", MADE)
def test_new_tensors_are_those_of_pytorch(name, default):
    torch.set_default_dtype(default)
    try:
        assert told(MADE[name], RememberingFakeMode()) == told(MADE[name], FakeTensorMode())
    finally:
        torch.set_default_dtype(torch.float32)


UNMADE: dict[str, Callable[[], Any]] = {
    "negative": lambda: torch.zeros(2, -3),
    "overflow": lambda: torch.zeros(2**61),
    "qint8": lambda: torch.zeros(2, dtype=torch.qint8),
    "match": lambda: torch.empty_strided((2, 3), (1,)),
}


@pytest.mark.parametrize("reason", UNMADE)
def test_tensors_that_pytorch_refuses_are_refused_alike(reason):
    refusals = []
    for mode in (FakeTensorMode(), RememberingFakeMode()):
        with mode, pytest.raises(RuntimeError) as refused:
            UNMADE[reason]()
        refusals.append(str(refused.value).splitlines()[0])
    assert refusals[0] == refusals[1]


def test_memories_are_bounded(monkeypatch):
    monkeypatch.setattr(fake_tensors, "_MAX_ENTRIES", 5)
    for memory in ("_memory", "_patterns"):
        monkeypatch.setattr(fake_tensors, memory, {})
    with RememberingFakeMode():
        for number in range(20):
            torch.empty(3) * (number + 0.5)
    assert len(fake_tensors._memory) <= 5
    assert len(fake_tensors._patterns) <= 5


def test_numbers_are_counted_up_one_by_one():
    with RememberingFakeMode():
        with pytest.raises(RuntimeError, match="at least one tensor"):
            torch._foreach_add_([], torch.tensor(1.0))
        with pytest.raises(RuntimeError, match="0 dim"):
            torch._foreach_add_([torch.tensor(1.0)], torch.tensor([1.0]))
        steps = [torch.tensor(0.0), torch.tensor(5.0)]
        torch._foreach_add_(steps, torch.tensor(2.0), alpha=3)
        assert [step.item() for step in steps] == [6, 11]
        unknown = torch.empty(())
        torch._foreach_add_([steps[0], unknown], steps[1])
        assert steps[0].item() == 17
        with pytest.raises(DataDependentOutputException):
            torch._foreach_add_(steps, unknown)
