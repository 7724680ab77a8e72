"""Kernels that a GPU runs where a processor runs others, so that a captured step is that GPU's.

Attention, dropout and batch normalization are composite operators: each device has kernels of its
own for them, and PyTorch chooses by the device of the tensors. Fake tensors of a build without CUDA
lie on the processor. This mode stands above autograd, takes such a call, and calls what PyTorch
calls on an NVIDIA GPU (2.11, ``aten/src/ATen/native/transformers/cuda/sdp_utils.cpp``,
``Dropout.cpp``, ``Normalization.cpp``); autograd and fake tensors do the rest. Held against steps
traced on an H100.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._dispatch.python import enable_python_dispatcher, no_python_dispatcher
from torch._subclasses.schema_check_mode import SchemaCheckMode

from layerdag.hardware.devices import COMPUTE_CAPABILITY

aten = torch.ops.aten

_HALVES = (torch.float16, torch.bfloat16)
_MAX_HEAD, _MAX_CUDNN_HEAD = 256, 128  # elements
_CUDNN_SINCE = 9.0  # compute capability from which cuDNN's attention comes first
_MAX_CUDNN_BATCH = {True: 880_801, False: 65_535}  # of batch normalization: training, inference
_MIN_CUDNN_EPS = 1e-5


@contextmanager
def kernels_of(device: str) -> Iterator[None]:
    """Run composite operators as a device does, a ``device`` of ``Step``."""
    if device == "cpu":  # on which fake tensors lie
        yield
        return
    with enable_python_dispatcher(), _DeviceKernels(COMPUTE_CAPABILITY[device]):
        yield


class ModeAboveAutograd(SchemaCheckMode):
    """A mode that sees calls before autograd and autocast do.

    PyTorch lets only three kinds of modes run there, of which this is one.
    """

    def __init__(self) -> None:
        super().__init__()
        self.__dict__["_dispatch_key"] = torch._C.DispatchKey.PreDispatch


class _DeviceKernels(ModeAboveAutograd):
    def __init__(self, capability: float) -> None:
        super().__init__()
        self._capability = capability

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one operator."""
        kwargs = kwargs or {}
        with no_python_dispatcher():  # which would take operators apart as torch.compile does
            if func is aten.scaled_dot_product_attention.default:
                return _Attention(*args, **kwargs).run(self._capability)
            if func is aten.dropout.default and args[2] and 0 < args[1] < 1 and args[0].numel():
                return _result(aten.native_dropout.default(*args))
            if func is aten.batch_norm.default and _BatchNorm(*args).is_cudnns():
                return _result(aten.cudnn_batch_norm.default(*args[:-1]))
            return func(*args, **kwargs)


@dataclass(frozen=True, eq=False)
class _Attention:
    query: Tensor
    key: Tensor
    value: Tensor
    attn_mask: Tensor | None = None
    dropout_p: float = 0.0
    is_causal: bool = False
    scale: float | None = None
    enable_gqa: bool = False

    def run(self, capability: float) -> Tensor:
        """Run the kernel that comes first of those that take the call (``sdp_utils.cpp``)."""
        tensors = [_as_autocast(tensor) for tensor in (self.query, self.key, self.value)]
        query, key, value = tensors
        saves = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
        grouped = self.enable_gqa and query.shape[-3] != key.shape[-3]
        mask = self.attn_mask
        if mask is not None:
            mask = _added(mask, query.dtype) if mask.dtype is torch.bool else _as_autocast(mask)
        common = (self.dropout_p, self.is_causal)
        widths = {tensor.shape[-1] for tensor in tensors}
        fused = query.ndim == 4
        half = fused and query.dtype in _HALVES and max(widths) <= _MAX_HEAD
        by_eight = max(widths) <= _MAX_CUDNN_HEAD and not any(width % 8 for width in widths)
        trained = mask is not None and mask.requires_grad
        if half and by_eight and not trained and capability >= _CUDNN_SINCE:
            return _result(
                aten._scaled_dot_product_cudnn_attention.default(
                    *tensors, mask, saves, *common, False, scale=self.scale
                )
            )
        if half and mask is None and len(widths) == 1:
            scale = query.shape[-1] ** -0.5 if self.scale is None else self.scale
            padded = [_padded(tensor) for tensor in tensors]
            found = aten._scaled_dot_product_flash_attention.default(
                *padded, *common, False, scale=scale
            )
            return _result(found)[..., : value.shape[-1]]
        if fused and not grouped and query.dtype in (*_HALVES, torch.float32):
            if mask is not None:
                mask = mask.expand(*query.shape[:3], key.shape[-2])
            return _result(
                aten._scaled_dot_product_efficient_attention.default(
                    *tensors, mask, saves, *common, scale=self.scale
                )
            )
        return _result(
            aten._scaled_dot_product_attention_math.default(
                *tensors, mask, *common, None, scale=self.scale, enable_gqa=self.enable_gqa
            )
        )


@dataclass(frozen=True, eq=False)
class _BatchNorm:
    input: Tensor
    weight: Tensor | None
    bias: Tensor | None
    running_mean: Tensor | None
    running_var: Tensor | None
    training: bool
    momentum: float
    eps: float
    cudnn_enabled: bool

    def is_cudnns(self) -> bool:
        """Return whether PyTorch calls cuDNN (``Normalization.cpp``)."""
        kept = (self.running_mean is None, self.running_var is None)
        if self.weight is None or self.bias is None or (any(kept) and not all(kept)):
            return False
        known = self.input.dtype is torch.float32 or (
            self.input.dtype is torch.float16 and self.weight.dtype is torch.float32
        )
        fits = self.input.ndim >= 3 and len(self.input) <= _MAX_CUDNN_BATCH[self.training]
        has_statistics = self.training or not any(kept)
        enabled = self.cudnn_enabled and self.eps >= _MIN_CUDNN_EPS
        return known and fits and has_statistics and enabled


def _result(found: Sequence[Any]) -> Tensor:
    result: Tensor = found[0]
    return result


def _as_autocast(tensor: Tensor) -> Tensor:
    if not torch.is_autocast_enabled("cpu") or tensor.dtype is not torch.float32:
        return tensor
    return tensor.to(torch.get_autocast_dtype("cpu"))


def _added(mask: Tensor, dtype: torch.dtype) -> Tensor:
    zero, never = (mask.new_full((), number, dtype=dtype) for number in (0.0, float("-inf")))
    return torch.where(mask, zero, never)


def _padded(tensor: Tensor) -> Tensor:
    missing = -tensor.shape[-1] % 8
    return torch.nn.functional.pad(tensor, (0, missing)) if missing else tensor
