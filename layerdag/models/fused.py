"""Linear maps with what comes before them, as one operator on a processor: training's innermost.

A training batch has some thousand rows. At that size PyTorch takes longer to start an operator, to
convert its numbers and to keep them for the backward pass than to compute it; between two matrix
products there are five. What lies between is one call into C here (``native/train``), forward and
backward. Elsewhere (other devices and precisions, evaluation, modules with hooks) it is what
PyTorch's modules compute.

Shape letters: D width of a row, K width of an input, R rows.
"""

import ctypes
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from layerdag.errors import LayerdagError
from layerdag.runtime.native import library

_TYPES: dict[str, type] = {"p": ctypes.c_void_p, "i": ctypes.c_int64}
_ARGUMENTS = {
    "activate": "piippp",
    "activate_backward": "pipppppp",
    "chain": "piippp",
    "chain_backward": "piipppppp",
    "cross_entropy": "iiippippp",
    "pointer": "pppppppp",
    "windows": "pppp",
    "attend": "pip",
    "attend_backward": "iipp",
    "reads": "ppppp",
    "reads_backward": "pppp",
    "windows_backward": "ppppp",
}
"""Arguments of each kernel: pointers and integers."""

_NO_SUCH_CODE = -2  # train.h
_EPSILON = 1e-5  # of normalizations, also in activate.c


class Matrix(ctypes.Structure):
    """A matrix without gaps, of bfloat16 where ``low`` says so, else of single precision."""

    _fields_ = (("at", ctypes.c_void_p), ("low", ctypes.c_int64))


class _Activation(ctypes.Structure):
    _fields_ = (
        ("width", ctypes.c_int64),
        ("gelu", ctypes.c_int64),
        ("weight", ctypes.c_void_p),
        ("bias", ctypes.c_void_p),
    )


@cache
def _kernels() -> ctypes.CDLL:
    kernels = library()
    for name, arguments in _ARGUMENTS.items():
        function = getattr(kernels, f"train_{name}")
        function.argtypes = [_TYPES[a] for a in arguments]
        function.restype = ctypes.c_int64
    return kernels


def run_kernel(name: str, *arguments: Any) -> None:
    """Call a kernel of ``native/train``; tensors are given by their addresses.

    Raises:
        IndexError: If what was chosen is nothing that can be chosen.
        LayerdagError: Without memory for a few rows.
    """
    values = [x.data_ptr() if isinstance(x, Tensor) else x for x in arguments]
    status = getattr(_kernels(), f"train_{name}")(*values)
    if status == _NO_SUCH_CODE:
        raise IndexError("A training batch has a code or a parent that cannot be chosen.")
    if status:
        raise LayerdagError("There is no memory left for a training step; use smaller batches.")


def matrix(x: Tensor | None) -> Any:
    """Return what kernels take for a matrix of single precision or bfloat16 without gaps."""
    if x is None:
        return None
    assert x.dtype in (torch.float32, torch.bfloat16)
    return ctypes.byref(Matrix(x.data_ptr(), x.dtype == torch.bfloat16))


@dataclass(frozen=True, eq=False)
class Activation:
    """What rows go through before a linear map: a normalization, GELU, or both.

    Attributes:
        norm: The normalization; None for none.
        gelu: Whether GELU follows.
    """

    norm: nn.LayerNorm | None
    gelu: bool

    def __call__(self, x: Float[Tensor, "*shape K"]) -> Float[Tensor, "*shape K"]:
        """Return the activated rows."""
        normed: Tensor = x if self.norm is None else self.norm(x)
        return F.gelu(normed) if self.gelu else normed

    def fused(
        self, x_RK: Float[Tensor, "R K"], rows: int, dtype: torch.dtype
    ) -> tuple[Float[Tensor, "_ K"], Float[Tensor, "R K"] | None]:
        """Return activated rows, with rows of zeros behind them, and the slopes of GELU."""
        hidden_RK = x_RK.new_empty((rows, x_RK.shape[1]), dtype=dtype)
        slope_RK = x_RK.new_empty(x_RK.shape, dtype=dtype) if self.gelu else None
        norm = self.norm
        of_norm = (None, None) if norm is None else (norm.weight, norm.bias)
        structure = ctypes.byref(self.structure(x_RK.shape[1], *of_norm))
        found = matrix(hidden_RK), matrix(slope_RK)
        run_kernel("activate", structure, x_RK.shape[0], rows, matrix(x_RK), *found)
        return hidden_RK, slope_RK

    def structure(
        self, width: int, weight_K: Tensor | None, bias_K: Tensor | None
    ) -> ctypes.Structure:
        """Return what kernels take for it with these parameters of the normalization."""
        assert self.norm is None or (weight_K is not None and self.norm.eps == _EPSILON)
        addresses = (None if x is None else x.data_ptr() for x in (weight_K, bias_K))
        return _Activation(width, self.gelu, *addresses)


def activated_linear(
    activation: Activation, linear: nn.Linear, x: Float[Tensor, "*shape K"]
) -> Float[Tensor, "*shape D"]:
    """Return ``linear(activation(x))``."""
    dtype = product_dtype(x, activation.norm, linear)
    if dtype is None:
        mapped: Tensor = linear(activation(x))
        return mapped
    return activated_product(activation, linear.weight, linear.bias, x, dtype)


def activated_product(
    activation: Activation | None,
    weight_DK: Float[Tensor, "D K"],
    bias_D: Float[Tensor, " D"] | None,
    x: Float[Tensor, "*shape K"],
    dtype: torch.dtype,
) -> Float[Tensor, "*shape D"]:
    """Return the same for a map by its weights, in the precision ``dtype``."""
    x_RK = x if x.dim() == 2 else x.flatten(0, -2)
    norm = None if activation is None else activation.norm
    of_norm = (None, None) if norm is None else (norm.weight, norm.bias)
    out_RD: Tensor = _ActivatedProduct.apply(
        activation, dtype, x_RK.contiguous(), *of_norm, weight_DK, bias_D
    )
    return out_RD if x.dim() == 2 else out_RD.unflatten(0, x.shape[:-1])


class _ActivatedProduct(torch.autograd.Function):
    """Activation and product; in bfloat16 with rows of zeros up to a ``rounded_size``."""

    @staticmethod
    def forward(
        ctx: Any,
        activation: Activation | None,
        dtype: torch.dtype,
        x_RK: Tensor,
        *parameters: Tensor | None,
    ) -> Tensor:
        norm_K, norm_bias_K, weight_DK, bias_D = parameters
        assert weight_DK is not None
        rows, all_rows = x_RK.shape[0], product_rows(x_RK.shape[0], dtype)
        slope_RK = None
        if activation is None:
            hidden_RK = _with_rows(x_RK, all_rows, dtype)
        else:
            hidden_RK, slope_RK = activation.fused(x_RK, all_rows, dtype)
        low_DK = weight_DK.to(dtype)
        if bias_D is None:
            out_RD = hidden_RK @ low_DK.T
        else:
            out_RD = torch.addmm(bias_D.to(dtype), hidden_RK, low_DK.T)
        ctx.save_for_backward(x_RK, norm_K, norm_bias_K, hidden_RK, slope_RK, low_DK)
        ctx.activation, ctx.precision = activation, weight_DK.dtype
        return out_RD[:rows]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_RD: Tensor) -> tuple[Tensor | None, ...]:
        x_RK, norm_K, norm_bias_K, hidden_RK, slope_RK, low_DK = ctx.saved_tensors
        low_RD = _with_rows(gradient_RD, hidden_RK.shape[0], low_DK.dtype)
        of_x = of_norm = of_norm_bias = of_weight = of_bias = None
        if ctx.needs_input_grad[5]:
            of_weight = (low_RD.T @ hidden_RK).to(ctx.precision)
        if ctx.needs_input_grad[6]:
            of_bias = low_RD.sum(0, dtype=ctx.precision)
        if any(ctx.needs_input_grad[2:5]):
            of_hidden_RK = low_RD @ low_DK
            if ctx.activation is None:
                of_x = of_hidden_RK[: x_RK.shape[0]].to(x_RK.dtype)
            else:
                of_x = torch.empty_like(x_RK)
                of_norm = None if norm_K is None else torch.zeros_like(norm_K)
                of_norm_bias = None if norm_bias_K is None else torch.zeros_like(norm_bias_K)
                run_kernel(
                    "activate_backward",
                    # The module may have other parameters by now (torch.func.functional_call).
                    ctypes.byref(ctx.activation.structure(x_RK.shape[1], norm_K, norm_bias_K)),
                    x_RK.shape[0],
                    matrix(x_RK),
                    matrix(slope_RK),
                    matrix(of_hidden_RK),
                    matrix(of_x),
                    of_norm,
                    of_norm_bias,
                )
        return None, None, of_x, of_norm, of_norm_bias, of_weight, of_bias


def product_rows(rows: int, dtype: torch.dtype) -> int:
    """Return how many rows a product of ``rows`` rows is given."""
    return rounded_size(rows) if dtype == torch.bfloat16 else rows


def _with_rows(x_RK: Float[Tensor, "R K"], rows: int, dtype: torch.dtype) -> Float[Tensor, "_ K"]:
    """Return a matrix in a precision, with rows of zeros behind its own."""
    if rows == x_RK.shape[0]:
        return x_RK.to(dtype)
    out_RK = x_RK.new_empty((rows, x_RK.shape[1]), dtype=dtype)
    out_RK[: x_RK.shape[0]] = x_RK
    out_RK[x_RK.shape[0] :] = 0
    return out_RK


def rounded_size(size: int) -> int:
    """Return the next multiple of 32, and above 512 of an eighth of the power of two below."""
    step = max((1 << max(size - 1, 0).bit_length()) // 16, 32)
    return -(-size // step) * step


_HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")


def product_dtype(x: Tensor, *modules: nn.Module | None) -> torch.dtype | None:
    """Return the precision of products with ``x`` where these modules can be fused, else None.

    Args:
        x: What the first of them is given.
        modules: Whose parameters are used; their hooks would not be called.
    """
    given = [module for module in modules if module is not None]
    low = torch.is_autocast_enabled("cpu")
    fits = (
        torch.is_grad_enabled()
        and x.device.type == "cpu"
        and x.dtype in (torch.float32, torch.bfloat16)
        and x.dim() > 1
        and x.shape[-1] % 8 == 0
        and (low or x.dtype == torch.float32)
        and (not low or torch.get_autocast_dtype("cpu") == torch.bfloat16)
        and all(p.dtype == torch.float32 for module in given for p in module.parameters())
        and not any(getattr(module, hooks) for module in given for hooks in _HOOKS)
    )
    if not fits:
        return None
    return torch.bfloat16 if low else torch.float32
