"""Linear maps with what comes before them, as one operator on a processor: training's innermost.

A training batch has some thousand rows. At that size PyTorch takes longer to start an operator, to
convert its numbers and to keep them for the backward pass than to compute it; between two matrix
products there are five. What lies between is one call into C here (``native/train``), forward and
backward. Elsewhere it is what PyTorch's modules compute: on other devices, in other precisions,
without gradients, under transforms of functions, for classes of users, and where hooks listen.

Shape letters: D width of a state, F feature columns, G groups of rows, K codes, R rows, V edges
among rows.
"""

import ctypes
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F
from torch.nn.modules.module import _has_any_global_hook

from layerdag.errors import LayerdagError
from layerdag.runtime.native import library

_TYPES: dict[str, type] = {"p": ctypes.c_void_p, "i": ctypes.c_int64, "f": ctypes.c_float}
_ARGUMENTS = {
    "activate": "piippp",
    "activate_backward": "pipppppp",
    "cross_entropy": "iiippippp",
    "readout": "pppp",
    "pointer": "pppppppp",
    "embed": "iiiipppp",
    "embed_backward": "iiipppp",
    "shift": "iiippfp",
    "messages": "pppp",
    "messages_backward": "pppp",
    "states": "ppppp",
    "states_backward": "ppppp",
    "windows": "pppp",
    "attend": "pip",
    "attend_backward": "iipp",
    "reads": "ppppp",
    "reads_backward": "pppp",
    "windows_backward": "ppppp",
    "remaining": "ipppififp",
    "pool": "iippp",
    "pool_backward": "iippppp",
}
"""Arguments of each kernel: pointers, integers and numbers of single precision."""

_NO_SUCH_CODE = -2  # train.h
_EPSILON = 1e-5  # of normalizations, also in rows.h


def structure(name: str, *groups: tuple[str, type]) -> type[ctypes.Structure]:
    """Return a structure of C: names of fields, separated by blanks, and the type of each group."""
    fields = [(field, kind) for names, kind in groups for field in names.split()]
    return type(name, (ctypes.Structure,), {"_fields_": fields})


NUMBER, POINTER = ctypes.c_int64, ctypes.c_void_p

Matrix = structure("Matrix", ("at", POINTER), ("low", NUMBER))
"""A matrix without gaps, of bfloat16 where ``low`` says so, else of single precision."""

_Activation = structure("_Activation", ("width gelu", NUMBER), ("weight bias", POINTER))


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
        raise IndexError(
            "A training batch has a code or a parent that cannot be chosen: it was encoded for "
            "another model, or a node has a parent twice. Encode the data set for this model."
        )
    if status:
        raise LayerdagError(
            "There is no memory left for a training step; lower training.batch_nodes."
        )


def matrix(x: Float[Tensor, "*shape"] | None) -> Any:
    """Return what kernels take for a matrix of single precision or bfloat16 without gaps."""
    if x is None:
        return None
    assert x.dtype in (torch.float32, torch.bfloat16)
    return ctypes.byref(Matrix(x.data_ptr(), x.dtype == torch.bfloat16))


@dataclass(frozen=True, eq=False)
class Activation:
    """What rows go through before a linear map: a normalization, GELU, or both."""

    norm: nn.LayerNorm | None  # the normalization; None for none
    gelu: bool  # whether GELU follows

    def __call__(self, x: Float[Tensor, "*shape D"]) -> Float[Tensor, "*shape D"]:
        """Return the activated rows."""
        normed: Tensor = x if self.norm is None else self.norm(x)
        return F.gelu(normed) if self.gelu else normed

    def fused(
        self, x_RD: Float[Tensor, "R D"], rows: int, dtype: torch.dtype
    ) -> tuple[Float[Tensor, "_ D"], Float[Tensor, "R D"] | None]:
        """Return activated rows, with rows of zeros behind them, and the slopes of GELU."""
        hidden_RD = x_RD.new_empty((rows, x_RD.shape[1]), dtype=dtype)
        slope_RD = x_RD.new_empty(x_RD.shape, dtype=dtype) if self.gelu else None
        structure = ctypes.byref(self.structure(x_RD.shape[1], *self.parameters))
        found = matrix(hidden_RD), matrix(slope_RD)
        run_kernel("activate", structure, x_RD.shape[0], rows, matrix(x_RD), *found)
        return hidden_RD, slope_RD

    def fused_backward(
        self,
        x_RD: Float[Tensor, "R D"],
        slope_RD: Float[Tensor, "R D"] | None,
        gradient_RD: Float[Tensor, "_ D"],
        *parameters: Float[Tensor, " D"] | None,
    ) -> tuple[Float[Tensor, "R D"], Float[Tensor, " D"] | None, Float[Tensor, " D"] | None]:
        """Return the gradients of the rows and of ``parameters`` from those of what they became.

        These are given, for the module may have others by now (``torch.func.functional_call``).
        """
        of_x = torch.empty_like(x_RD)
        of_parameters = [None if p is None else torch.zeros_like(p) for p in parameters]
        run_kernel(
            "activate_backward",
            ctypes.byref(self.structure(x_RD.shape[1], *parameters)),
            x_RD.shape[0],
            *map(matrix, (x_RD, slope_RD, gradient_RD, of_x)),
            *of_parameters,
        )
        return of_x, of_parameters[0], of_parameters[1]

    @property
    def parameters(self) -> tuple[Float[Tensor, " D"] | None, Float[Tensor, " D"] | None]:
        """Weight and bias of the normalization."""
        return (None, None) if self.norm is None else (self.norm.weight, self.norm.bias)

    def structure(self, width: int, *parameters: Float[Tensor, " D"] | None) -> ctypes.Structure:
        """Return what kernels take for it with these ``parameters``."""
        assert self.norm is None or (parameters[0] is not None and self.norm.eps == _EPSILON)
        addresses = (None if p is None else p.data_ptr() for p in parameters)
        return _Activation(width, self.gelu, *addresses)


def activated(activation: Activation, x_RD: Float[Tensor, "R D"]) -> Float[Tensor, "R D"]:
    """Return ``activation(x_RD)``."""
    if product_dtype(x_RD, activation.norm) != x_RD.dtype:
        return activation(x_RD)
    out_RD: Tensor = _Activated.apply(activation, x_RD.contiguous(), *activation.parameters)
    return out_RD


class _Activated(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, activation: Activation, x_RD: Tensor, *parameters: Tensor | None
    ) -> Tensor:
        hidden_RD, slope_RD = activation.fused(x_RD, x_RD.shape[0], x_RD.dtype)
        ctx.activation = activation
        ctx.save_for_backward(x_RD, slope_RD, *parameters)
        return hidden_RD

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_RD: Tensor) -> tuple[Tensor | None, ...]:
        x_RD, slope_RD, *parameters = ctx.saved_tensors
        given = x_RD, slope_RD, gradient_RD.contiguous(), *parameters
        return (None, *ctx.activation.fused_backward(*given))


def activated_linear(
    activation: Activation, linear: nn.Linear, x: Float[Tensor, "*shape D"]
) -> Float[Tensor, "*shape K"]:
    """Return ``linear(activation(x))``."""
    dtype = product_dtype(x, activation.norm, linear)
    if dtype is None:
        mapped: Tensor = linear(activation(x))
        return mapped
    return activated_product(activation, linear.weight, linear.bias, x, dtype)


def activated_product(
    activation: Activation | None,
    weight_KD: Float[Tensor, "K D"],
    bias_K: Float[Tensor, " K"] | None,
    x: Float[Tensor, "*shape D"],
    dtype: torch.dtype,
) -> Float[Tensor, "*shape K"]:
    """Return the same for a map by its weights, in the precision ``dtype``."""
    x_RD = x if x.dim() == 2 else x.flatten(0, -2)
    of_norm = (None, None) if activation is None else activation.parameters
    out_RK: Tensor = _ActivatedProduct.apply(
        activation, dtype, x_RD.contiguous(), *of_norm, weight_KD, bias_K
    )
    return out_RK if x.dim() == 2 else out_RK.unflatten(0, x.shape[:-1])


class _ActivatedProduct(torch.autograd.Function):
    """Activation and product; in bfloat16 with rows of zeros up to a ``rounded_size``."""

    @staticmethod
    def forward(
        ctx: Any,
        activation: Activation | None,
        dtype: torch.dtype,
        x_RD: Tensor,
        *parameters: Tensor | None,
    ) -> Tensor:
        norm_D, norm_bias_D, weight_KD, bias_K = parameters
        assert weight_KD is not None
        rows, all_rows = x_RD.shape[0], product_rows(x_RD.shape[0], dtype)
        slope_RD = None
        if activation is None:
            hidden_RD = _with_rows(x_RD, all_rows, dtype)
        else:
            hidden_RD, slope_RD = activation.fused(x_RD, all_rows, dtype)
        low_KD = weight_KD.to(dtype)
        if bias_K is None:
            out_RK = hidden_RD @ low_KD.T
        else:
            out_RK = torch.addmm(bias_K.to(dtype), hidden_RD, low_KD.T)
        kept_RD = None if activation is None else x_RD
        ctx.save_for_backward(kept_RD, norm_D, norm_bias_D, hidden_RD, slope_RD, low_KD)
        ctx.activation, ctx.precision = activation, weight_KD.dtype
        ctx.rows, ctx.given = rows, x_RD.dtype
        return out_RK[:rows]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_RK: Tensor) -> tuple[Tensor | None, ...]:
        x_RD, norm_D, norm_bias_D, hidden_RD, slope_RD, low_KD = ctx.saved_tensors
        low_RK = _with_rows(gradient_RK, hidden_RD.shape[0], low_KD.dtype)
        of_x = of_norm = of_norm_bias = of_weight = of_bias = None
        if ctx.needs_input_grad[5]:
            of_weight = (low_RK.T @ hidden_RD).to(ctx.precision)
        if ctx.needs_input_grad[6]:
            of_bias = low_RK.sum(0, dtype=ctx.precision)
        if any(ctx.needs_input_grad[2:5]):
            of_hidden_RD = low_RK @ low_KD
            if ctx.activation is None:
                of_x = of_hidden_RD[: ctx.rows].to(ctx.given)
            else:
                of_x, of_norm, of_norm_bias = ctx.activation.fused_backward(
                    x_RD, slope_RD, of_hidden_RD, norm_D, norm_bias_D
                )
        return None, None, of_x, of_norm, of_norm_bias, of_weight, of_bias


def embedding_sum(
    code_RF: Int[Tensor, "R F"], offset_F: Int[Tensor, " F"], table_KD: Float[Tensor, "K D"]
) -> Float[Tensor, "R D"]:
    """Return the sum of the embeddings of each row's codes.

    ``offset_F`` is the first row of each column's codes in the table.
    """
    out_RD: Tensor = _EmbeddingSum.apply(code_RF.long().contiguous(), offset_F, table_KD)
    return out_RD


class _EmbeddingSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, code_RF: Tensor, offset_F: Tensor, table_KD: Tensor) -> Tensor:
        ctx.codes, ctx.rows = (*code_RF.shape, table_KD.shape[1], code_RF, offset_F), len(table_KD)
        out_RD = table_KD.new_empty(code_RF.shape[0], table_KD.shape[1])
        run_kernel("embed", ctx.rows, *ctx.codes, table_KD, out_RD)
        return out_RD

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_RD: Tensor) -> tuple[None, None, Tensor]:
        of_table_KD = gradient_RD.new_zeros(ctx.rows, gradient_RD.shape[1])
        run_kernel("embed_backward", *ctx.codes, gradient_RD.contiguous(), of_table_KD)
        return None, None, of_table_KD


_Edges = structure("_Edges", ("nodes edges width kinds", NUMBER), ("source target kind", POINTER))


def message_sum(
    maps_R3D: Float[Tensor, "R _"],
    edge_index_2V: Int[Tensor, "2 V"],
    edge_kind_V: Int[Tensor, " V"],
    kinds: Float[Tensor, "_ _"] | None,
) -> Float[Tensor, "R D"]:
    """Return the sum of what each row gets along and against the edges, and of its own part.

    ``maps_R3D`` has each row's own part, what is sent along edges and what is sent against them,
    side by side; ``kinds`` has what is added to both for an edge of each kind.
    """
    out_RD: Tensor = _MessageSum.apply(
        edge_index_2V.long().contiguous(),
        edge_kind_V.long().contiguous(),
        maps_R3D.contiguous(),
        kinds,
    )
    return out_RD


class _MessageSum(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, index_2V: Tensor, kind_V: Tensor, maps_R3D: Tensor, kinds: Tensor | None
    ) -> Tensor:
        rows, width = maps_R3D.shape[0], maps_R3D.shape[1] // 3
        ends = index_2V[0].data_ptr(), index_2V[1].data_ptr()
        kind, count = (None, 0) if kinds is None else (kind_V.data_ptr(), len(kinds))
        ctx.edges = _Edges(rows, index_2V.shape[1], width, count, *ends, kind)
        ctx.kept = index_2V, kind_V  # what the addresses point to
        ctx.kinds = None if kinds is None else kinds.shape
        out_RD = maps_R3D.new_empty(rows, width)
        run_kernel("messages", ctypes.byref(ctx.edges), maps_R3D, kinds, out_RD)
        return out_RD

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_RD: Tensor) -> tuple[Tensor | None, ...]:
        of_maps_R3D = gradient_RD.new_empty(gradient_RD.shape[0], 3 * gradient_RD.shape[1])
        of_kinds = None if ctx.kinds is None else gradient_RD.new_zeros(ctx.kinds)
        given = gradient_RD.contiguous()
        run_kernel("messages_backward", ctypes.byref(ctx.edges), given, of_maps_R3D, of_kinds)
        return None, None, of_maps_R3D, of_kinds


def pool(x_RD: Float[Tensor, "R D"], ptr_G1: Int[Tensor, " G1"]) -> Float[Tensor, "G _"]:
    """Return mean, maximum and log-sum-exp over the rows of each group side by side, (G, 3 D)."""
    pooled_G3D: Tensor = _Pool.apply(x_RD.contiguous(), ptr_G1.long().contiguous())
    return pooled_G3D


class _Pool(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_RD: Tensor, ptr_G1: Tensor) -> Tensor:
        pooled_G3D = x_RD.new_empty(ptr_G1.shape[0] - 1, 3 * x_RD.shape[1])
        run_kernel("pool", pooled_G3D.shape[0], x_RD.shape[1], ptr_G1, x_RD, pooled_G3D)
        ctx.save_for_backward(x_RD, ptr_G1, pooled_G3D)
        return pooled_G3D

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_G3D: Tensor) -> tuple[Tensor, None]:
        x_RD, ptr_G1, pooled_G3D = ctx.saved_tensors
        of_x_RD = torch.empty_like(x_RD)
        sizes = pooled_G3D.shape[0], x_RD.shape[1]
        given = ptr_G1, x_RD, pooled_G3D, gradient_G3D.contiguous()
        run_kernel("pool_backward", *sizes, *given, of_x_RD)
        return of_x_RD, None


def product_rows(rows: int, dtype: torch.dtype) -> int:
    """Return how many rows a product of ``rows`` rows is given."""
    return rounded_size(rows) if dtype == torch.bfloat16 else rows


def _with_rows(x_RD: Float[Tensor, "R D"], rows: int, dtype: torch.dtype) -> Float[Tensor, "_ D"]:
    if rows == x_RD.shape[0]:
        return x_RD.to(dtype)
    out_RD = x_RD.new_empty((rows, x_RD.shape[1]), dtype=dtype)
    out_RD[: x_RD.shape[0]] = x_RD
    out_RD[x_RD.shape[0] :] = 0
    return out_RD


def rounded_size(size: int) -> int:
    """Return the next multiple of 32, and above 512 of an eighth of the power of two below."""
    step = max((1 << max(size - 1, 0).bit_length()) // 16, 32)
    return -(-size // step) * step


def product_dtype(x: Float[Tensor, "*shape"], *modules: nn.Module | None) -> torch.dtype | None:
    """Return the precision of products with ``x`` where these modules can be fused, else None.

    ``x`` is the input of the first module; nothing but these modules' parameters is looked at.
    """
    parts = [part for module in modules if module is not None for part in module.modules()]
    low = torch.is_autocast_enabled("cpu")
    fits = (
        torch.is_grad_enabled()
        and type(x) in (Tensor, nn.Parameter)
        and x.device.type == "cpu"
        and x.dtype in (torch.float32, torch.bfloat16)
        and x.dim() > 1
        and x.shape[-1] % 8 == 0
        and (low or x.dtype == torch.float32)
        and (not low or torch.get_autocast_dtype("cpu") == torch.bfloat16)
        and not torch.compiler.is_compiling()
        and not torch._C._are_functorch_transforms_active()
        and not _has_any_global_hook()
        and all(_is_as_made(part) for part in parts)
    )
    if not fits:
        return None
    return torch.bfloat16 if low else torch.float32


_PYTORCH = (nn.LayerNorm, nn.Linear, nn.Embedding, nn.GELU, nn.ModuleList, nn.Sequential)
_HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")


def _is_as_made(module: nn.Module) -> bool:
    """Return whether a module computes what its class in PyTorch or here does, in plain weights.

    Classes of users, parametrizations and hooks may compute anything.
    """
    if isinstance(module, nn.LayerNorm) and not (
        module.eps == _EPSILON and module.elementwise_affine and len(module.normalized_shape) == 1
    ):
        return False
    parameters = [p for p in module._parameters.values() if p is not None]
    return (
        (type(module) in _PYTORCH or type(module).__module__.startswith("layerdag.models."))
        and not any(getattr(module, hooks) for hooks in _HOOKS)
        and all(p.dtype == torch.float32 and p.is_contiguous() for p in parameters)
    )
