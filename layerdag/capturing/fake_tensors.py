"""Fake tensors, which have shapes but no content, with a memory of what operators make of them.

PyTorch finds shapes, strides and aliases of results anew for each call of some operators, and asks
its own memory with a key of some thirty facts for each tensor. One program is run several times on
the same shapes, and one step calls an operator on few of them: a short key answers most calls.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, final

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import (
    FakeTensor,
    FakeTensorMode,
    in_kernel_invocation_manager,
)

_MOST_ENTRIES = 100_000
_PLAIN = (bool, int, float, str, type(None), torch.dtype, torch.device, torch.layout,
          torch.memory_format)  # fmt: skip
_UNSURE = {
    torch.Tag.data_dependent_output,
    torch.Tag.dynamic_output_shape,
    torch.Tag.inplace_view,
}
DEVICE_OF = torch.ops.prim.device.default
"""Asked of a fake tensor several times a call."""
_VIEWS = (torch.ops.aten.view.default, torch.ops.aten._unsafe_view.default)
# Of which fake tensors have versions for sizes that are symbols, of some ten calls each.


@final
@dataclass(frozen=True)
class _Result:
    """One result of a call.

    Attributes:
        argument: Place among the tensors of the arguments of that whose memory it has; -1 for
            memory of its own.
        same: Whether it is that tensor itself.
        shape: Its shape.
        stride: Its strides.
        offset: Where it begins in its memory, elements.
        dtype: Its dtype.
        device: What it pretends to lie on.
    """

    argument: int
    same: bool
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    dtype: torch.dtype
    device: torch.device


_Results = tuple[type, tuple[_Result | None, ...]]
_memory: dict[tuple[Any, ...], _Results | None] = {}


@final
class RememberingFakeMode(FakeTensorMode):
    """PyTorch's mode of fake tensors, which asks PyTorch once for each call of equal shapes.

    What depends on content, and what is not of plain tensors, numbers and words, is PyTorch's.
    """

    def __init__(self) -> None:
        super().__init__(allow_non_fake_inputs=True)
        self.cache_enabled = False  # a second memory of the same

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # nothing is compiled here, and to say so at each call takes as long as a call

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run one operator on fake tensors."""
        if func is DEVICE_OF and isinstance(args[0], FakeTensor):
            return args[0].fake_device
        key: list[Any] = [func, torch.get_default_dtype()]
        tensors: list[FakeTensor] = []
        plain = _shapes_decide(func) and self._describe(args, key, tensors)
        if plain and kwargs:
            key += kwargs
            plain = self._describe(kwargs.values(), key, tensors)
        if not plain:
            return super().__torch_dispatch__(func, types, args, kwargs or {})
        known = tuple(key)
        found = _memory.get(known)
        if found is not None:
            return self._results(found, tensors)
        result: Any
        if func in _VIEWS:
            with in_kernel_invocation_manager(self):
                bare = func(*args)
            result = FakeTensor(self, bare, tensors[0].fake_device)
        else:
            result = super().__torch_dispatch__(func, types, args, kwargs or {})
        if known not in _memory:
            if len(_memory) >= _MOST_ENTRIES:
                _memory.clear()
            _memory[known] = self._noted(result, tensors)
        return result

    def _describe(self, values: Any, key: list[Any], tensors: list[FakeTensor]) -> bool:
        """Add what a result depends on to a key; return whether nothing else matters."""
        for value in values:
            kind = type(value)
            if kind is FakeTensor:
                if value.constant is not None or value.fake_mode is not self:
                    return False
                tensors.append(value)
                key += (
                    value.dtype, value.shape, value.stride(), value.storage_offset(),
                    value.layout, value.fake_device,
                )  # fmt: skip
            elif kind in _PLAIN:
                key += (kind, value)  # 1 and 1.0 are equal
            elif kind is list or kind is tuple:
                key += (kind, len(value))
                if not self._describe(value, key, tensors):
                    return False
            else:
                return False
        return True

    def _noted(self, result: Any, tensors: Sequence[FakeTensor]) -> _Results | None:
        """Return what is kept of a result, None if it is not all."""
        listed = type(result) in (list, tuple)
        memories = [tensor.untyped_storage()._cdata for tensor in tensors]
        fresh: list[int] = []
        found: list[_Result | None] = []
        for part in result if listed else [result]:
            if part is None:
                found.append(None)
                continue
            same = any(tensor is part for tensor in tensors)
            if not _is_plain(part) or (part.requires_grad and not same):
                return None
            memory = part.untyped_storage()._cdata
            seen = memories.count(memory)
            whole = part.storage_offset() == 0 and part.untyped_storage().nbytes() == _extent(part)
            # Of several with one memory the shapes do not tell which is seen.
            if seen > 1 or memory in fresh or not (seen or whole):
                return None
            if not seen:
                fresh.append(memory)
            found.append(
                _Result(
                    memories.index(memory) if seen else -1, same, tuple(part.shape), part.stride(),
                    part.storage_offset(), part.dtype, part.fake_device,
                )
            )  # fmt: skip
        return (type(result) if listed else type(None)), tuple(found)

    def _results(self, found: _Results, tensors: Sequence[FakeTensor]) -> Any:
        """Return the results of a call that was noted."""
        kind, parts = found
        made = [None if part is None else self._made(part, tensors) for part in parts]
        return made[0] if kind is type(None) else kind(made)

    def _made(self, found: _Result, tensors: Sequence[FakeTensor]) -> Tensor:
        if found.same:
            return tensors[found.argument]
        with in_kernel_invocation_manager(self):
            bare = torch.empty_strided(found.shape, found.stride, dtype=found.dtype, device="meta")
            if found.argument >= 0:
                storage = tensors[found.argument].untyped_storage()
                bare.set_(storage, found.offset, found.shape, found.stride)
        return FakeTensor(self, bare, found.device)


@lru_cache(maxsize=4096)
def _shapes_decide(func: Any) -> bool:
    """Return whether results of an operator follow from the shapes of its arguments."""
    return isinstance(func, torch._ops.OpOverload) and _UNSURE.isdisjoint(func.tags)


def _is_plain(part: Any) -> bool:
    return (
        type(part) is FakeTensor
        and part.constant is None
        and part.layout is torch.strided
        and not part.dtype.is_complex
        and not part.is_neg()
    )


def _extent(tensor: Tensor) -> int:
    """Return the bytes from the first to the last element of a tensor."""
    if not tensor.numel():
        return 0
    last = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    return (last + 1) * tensor.element_size()
