"""Calls of one pattern of sizes have the results that PyTorch finds for each."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, strategies as st
from laws import tried
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from layerdag.capturing import fake_tensors
from layerdag.capturing.fake_tensors import RememberingFakeMode
from layerdag.hardware.operators import Trait, base_name, with_trait

LAYOUTS: dict[str, Callable[..., Tensor]] = {
    "contiguous": lambda *shape: torch.empty(shape),
    "the last dimensions swapped": lambda *shape: torch.empty(
        (*shape[:-2], *reversed(shape[-2:]))
    ).movedim(-1, len(shape[:-2])),
    "the first dimension innermost": lambda *shape: torch.empty((*shape[1:], shape[0])).movedim(
        -1, 0
    ),
    "one row for all": lambda *shape: torch.empty(shape[1:]).expand(shape),
    "one column for all": lambda *shape: torch.empty((*shape[:-1], 1)).expand(shape),
    "a part of each row": lambda *shape: torch.empty((*shape[:-1], 3 * shape[-1])).narrow(
        -1, shape[-1], shape[-1]
    ),
    "every other row": lambda *shape: torch.empty((2 * shape[0], *shape[1:]))[::2],
    "half precision": lambda *shape: torch.empty(shape, dtype=torch.float16),
    "whole numbers": lambda *shape: torch.empty(shape, dtype=torch.int64),
    "a size of 1 with a stride of its own": lambda *shape: torch.empty((*shape, 1)).squeeze(-1),
}

aten = torch.ops.aten
CALLS: dict[str, tuple[tuple[str, ...], Callable[..., Any]]] = {
    "sum of two": (("abc", "abc"), torch.add),
    "sum with a row": (("abc", "c"), torch.add),
    "sum with a column": (("abc", "b1"), torch.add),
    "sum with a number": (("abc", ""), torch.add),
    "outer sum": (("a1", "b"), torch.add),
    "comparison": (("ab", "ab"), torch.lt),
    "choice": (("ab", "b", "a1"), lambda x, y, z: torch.where(x > 0, y, z)),
    "gelu": (("abc",), torch.nn.functional.gelu),
    "gradient of gelu": (("abc", "abc"), aten.gelu_backward.default),
    "clamp": (("ab",), lambda x: x.clamp(max=1.0)),
    "in place": (("ab", "b"), lambda x, y: x.add_(y)),
    "of whole numbers": (("ab",), lambda x: x.to(torch.int64) / 2),
    "copy": (("abc",), torch.clone),
    "copy into": (("ab", "ab"), lambda x, y: x.copy_(y)),
    "zeros alike": (("abc",), torch.zeros_like),
    "zeros alike without gaps": (
        ("abc",),
        lambda x: torch.zeros_like(x, memory_format=torch.contiguous_format),
    ),
    "ones alike": (("abc",), torch.ones_like),
    "numbers alike": (("abc",), lambda x: torch.full_like(x, 2)),
    "memory alike": (("abc",), torch.empty_like),
    "in another precision": (("abc",), lambda x: x.to(torch.float64)),
    "product": (("ab", "bc"), torch.mm),
    "product with a transposed one": (("ab", "cb"), lambda x, y: torch.mm(x, y.t())),
    "product and sum": (("c", "ab", "bc"), torch.addmm),
    "products": (("abc", "acb"), torch.bmm),
    "products and sum": (("ac", "abc", "acc"), torch.baddbmm),
    "sum": (("abc",), torch.sum),
    "mean of all": (("abc",), torch.mean),
    "sum over a dimension": (("abc",), lambda x: x.sum(1)),
    "sum over dimensions that stay": (("abc",), lambda x: x.sum((0, 2), keepdim=True)),
    "mean": (("abc",), lambda x: x.mean(-1)),
    "variance": (("ab",), lambda x: list(aten.var_mean.correction(x, [1], keepdim=True))),
    "softmax": (("abc",), lambda x: torch.softmax(x, -1)),
    "log softmax": (("ab",), lambda x: torch.log_softmax(x, 1)),
    "gradient of softmax": (
        ("abc", "abc"),
        lambda x, y: aten._softmax_backward_data(x, y, -1, torch.float32),
    ),
    "gradient of log softmax": (
        ("ab", "ab"),
        lambda x, y: aten._log_softmax_backward_data(x, y, 1, torch.float32),
    ),
    "gradient of likelihood": (
        ("", "ab", "a", ""),
        lambda g, x, y, w: aten.nll_loss_backward(g, x, y.long(), None, 1, -100, w),
    ),
    "likelihood": (("ab", "a"), lambda x, y: torch.nn.functional.nll_loss(x, y.long())),
    "transposed": (("ab",), lambda x: x.t().t().transpose(0, 1)),
    "permuted": (("abc",), lambda x: x.permute(2, 0, 1)),
    "detached": (("ab",), lambda x: x.detach()),
    "itself": (("ab",), aten.alias.default),
    "roots of a list": (("ab", "b"), lambda x, y: torch._foreach_sqrt([x, y])),
    "norms of a list": (("ab", "c"), lambda x, y: torch._foreach_norm([x, y])),
    "list in place": (("ab", "ab"), lambda x, y: [torch._foreach_mul_([x], [y]), x][1]),
}


def told(
    name: str, layouts: tuple[str, ...], numbers: dict[str, int], mode: FakeTensorMode
) -> object:
    """Return what a call makes of tensors with these sizes, or that it refuses them."""
    shapes, call = CALLS[name]
    with mode:
        tensors = [
            LAYOUTS[layout if shape else "contiguous"](*(numbers[size] for size in shape))
            for shape, layout in zip(shapes, layouts, strict=False)
        ]
        try:
            result = call(*tensors)
        except (RuntimeError, IndexError):
            return "refused"
    parts = result if isinstance(result, list | tuple) else [result]
    memories = [part.untyped_storage()._cdata for part in (*tensors, *parts)]
    return [
        (tuple(p.shape), p.stride(), p.storage_offset(), p.dtype, memories.index(memory))
        for p, memory in zip(parts, memories[len(tensors) :], strict=True)
    ]


ROLES = st.tuples(*[st.sampled_from((0, 1, 2, 3, 4))] * 3)
"""Which sizes are 0, 1, or equal to others."""
NUMBERS = st.permutations(range(2, 12))


@pytest.mark.parametrize("name", CALLS)
@given(
    layouts=st.tuples(*[st.sampled_from(sorted(LAYOUTS))] * 4),
    roles=ROLES,
    others=st.tuples(NUMBERS, NUMBERS),
)
@tried(40)
def test_other_sizes_of_a_pattern_have_the_results_of_pytorch(name, layouts, roles, others):
    fake_tensors._memory.clear()
    fake_tensors._patterns.clear()
    for numbers in others:
        sizes = {"1": 1} | {
            letter: role if role < 2 else numbers[role]
            for letter, role in zip("abc", roles, strict=True)
        }
        own = told(name, layouts, sizes, FakeTensorMode())
        assert told(name, layouts, sizes, RememberingFakeMode()) == own


class Seen(TorchDispatchMode):
    """Notes the operators that are dispatched."""

    def __init__(self) -> None:
        super().__init__()
        self.operators: set[Any] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.operators.add(func)
        return func(*args, **(kwargs or {}))


def test_every_operator_that_keeps_sizes_is_held_against_pytorch():
    with RememberingFakeMode(), Seen() as seen:
        for shapes, call in CALLS.values():
            call(*(torch.empty([{"1": 1}.get(size, 4) for size in shape]) for shape in shapes))
    names = {base_name(func._schema.name) for func in seen.operators}
    assert names >= {*with_trait(Trait.SIZES_OF_ARGUMENTS)}


def test_a_pattern_is_asked_for_once():
    fake_tensors._memory.clear()
    fake_tensors._patterns.clear()
    asked = []
    with RememberingFakeMode() as mode, pytest.MonkeyPatch.context() as patch:
        kept = mode._noted
        patch.setattr(mode, "_noted", lambda *given: asked.append(given) or kept(*given))
        for rows, columns in ((3, 4), (5, 4), (7, 8)):
            torch.mm(torch.empty(rows, 6), torch.empty(6, columns))
        assert len(asked) == 1
        torch.mm(torch.empty(6, 6), torch.empty(6, 5))
    assert len(asked) == 2
