"""Communication with gradients: the two operators of tensor parallelism, and all-to-all."""

from typing import Any

import torch
from torch import Tensor, distributed


class _Copy(torch.autograd.Function):
    """Identity forwards, sum of the gradients over ranks backwards."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        grad = grad.contiguous()
        distributed.all_reduce(grad)
        return grad


class _Sum(torch.autograd.Function):
    """Sum over ranks forwards, identity backwards."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.mark_dirty(x)
        distributed.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad


class _Exchange(torch.autograd.Function):
    """All-to-all of equal parts of dimension 0, both ways."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = torch.empty_like(x)
        distributed.all_to_all_single(y, x)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        out = torch.empty_like(grad)
        distributed.all_to_all_single(out, grad.contiguous())
        return out


def copy_to_ranks(x: Tensor, ranks: int) -> Tensor:
    """Return ``x`` as the input of a layer that ``ranks`` ranks share."""
    return x if ranks == 1 else _Copy.apply(x)


def sum_over_ranks(x: Tensor, ranks: int) -> Tensor:
    """Return the sum of the partial results of ``ranks`` ranks."""
    return x if ranks == 1 else _Sum.apply(x)


def exchange(x: Tensor) -> Tensor:
    """Send part p of dimension 0 to rank p and return the parts received."""
    return _Exchange.apply(x)
