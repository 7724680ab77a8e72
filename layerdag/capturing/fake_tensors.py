"""Fake tensors, which have shapes but no content, with a memory of what operators make of them.

PyTorch finds shapes, strides and aliases of results anew for each call of some operators, and asks
its own memory with a key of some thirty facts for each tensor. One program is run several times on
the same shapes, and one step calls an operator on few of them: a short key answers most calls.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any, final

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import (
    FakeTensor,
    FakeTensorMode,
    in_kernel_invocation_manager,
)

aten = torch.ops.aten

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
_NUMBER_OF = aten._local_scalar_dense.default
"""Asked of the number of steps that an optimizer keeps of each parameter."""
_LIFTED = aten.lift_fresh.default
"""Makes such a number of a real tensor."""
_MARKS = (
    torch.ops.profiler._record_function_enter_new.default,
    torch.ops.profiler._record_function_exit._RecordFunction,
)
"""Of optimizers and ``fully_shard``; they take no tensors."""


def _histogram(tensor: Tensor, bins: int = 100, *_: Any, **__: Any) -> Tensor | None:
    """Return the counts of whole numbers, which only GPUs count; None for other numbers."""
    return None if tensor.is_floating_point() else tensor.new_empty(bins)


def _grouped_product(
    left: Tensor,
    right: Tensor,
    offs: Tensor | None = None,
    bias: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> Tensor | None:
    """Return products of groups: of rows or columns, of a batch, or of inner sizes.

    None for bfloat16, which PyTorch's own shape function takes.

    Raises:
        RuntimeError: If inner sizes differ, as PyTorch raises it.
    """
    if left.dtype is torch.bfloat16:
        return None
    if left.shape[-1] != right.shape[-2]:
        raise RuntimeError(
            f"contraction dimension of mat_a and mat_b must match: {left.shape[-1]} and "
            f"{right.shape[-2]}"
        )
    shape = [left.shape[-2], right.shape[-1]]
    if left.ndim == right.ndim == 3:
        shape.insert(0, left.shape[0])
    elif left.ndim == right.ndim and offs is not None:
        shape.insert(0, offs.shape[0])
    return left.new_empty(shape, dtype=out_dtype)


_ON_GPUS_ALONE: Mapping[Any, Callable[..., Tensor | None]] = MappingProxyType(
    {aten.histc.default: _histogram, aten._grouped_mm.default: _grouped_product}
)
"""Results of operators for dtypes that a processor refuses."""


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

    What depends on content, and what is not of plain tensors, numbers and words, is PyTorch's. It
    is asked by ``dispatch``, where nothing is told to a compiler.
    """

    def __init__(self) -> None:
        super().__init__(allow_non_fake_inputs=True)
        self.cache_enabled = False  # a second memory of the same
        self._facts: dict[torch.device, dict[str, Any]] = {}

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
        if func is _NUMBER_OF and args[0].constant is not None:
            return args[0].constant.item()
        if func is _LIFTED and type(args[0]) is Tensor and not args[0].dim():
            return self._lifted(args[0])
        if func in _MARKS:
            return func(*args, **(kwargs or {}))
        if func in _ON_GPUS_ALONE:
            made = _ON_GPUS_ALONE[func](*args, **(kwargs or {}))
            if made is not None:
                return made
        if not _on_lists(func) or any(kind is not FakeTensor for kind in types):
            return self._remembered(func, types, args, kwargs or {})
        parts = []  # few lists are equal, but most of what they hold
        for at, stays in enumerate(_overwrites_its_like(func, args)):
            if stays and not kwargs:
                continue
            alone = [_part(value, at) for value in args]
            named = {name: _part(value, at) for name, value in (kwargs or {}).items()}
            parts.append(self._remembered(func, types, alone, named))
        return [part for (part,) in parts] if func._schema.returns else None

    def _lifted(self, number: Tensor) -> Tensor:
        """Return a number as a fake tensor that knows it."""
        made = self._made(
            _Result(-1, False, number.shape, number.stride(), 0, number.dtype, number.device), ()
        )
        assert isinstance(made, FakeTensor)
        made.constant = number.clone()
        self.fake_tensor_converter.set_tensor_memo(made.constant, made)  # in place it is itself
        self.fake_tensor_converter.add_constant_storage_mapping(made)
        return made

    def _remembered(
        self, func: Any, types: Sequence[type], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        """Run an operator that was not run on such arguments before, and remember what it makes."""
        key: list[Any] = [func, torch.get_default_dtype()]
        tensors: list[FakeTensor] = []
        plain = _shapes_decide(func) and self._describe(args, key, tensors)
        if plain and kwargs:
            key += kwargs
            plain = self._describe(kwargs.values(), key, tensors)
        if not plain:
            return self.dispatch(func, types, args, kwargs)
        known = tuple(key)
        found = _memory.get(known)
        if found is not None:
            return self._results(found, tensors)
        devices = {part for part in known if type(part) is torch.device}
        if tensors and len(devices) == 1 and _alike_everywhere(func):
            result = self._of_shapes(func, types, args, kwargs, *devices)
        else:
            result = self.dispatch(func, types, args, kwargs)
        if known not in _memory:
            if len(_memory) >= _MOST_ENTRIES:
                _memory.clear()
            _memory[known] = self._noted(result, tensors)
        return result

    def _of_shapes(
        self, func: Any, types: Sequence[type], args: Sequence[Any], kwargs: Mapping[str, Any],
        device: torch.device,
    ) -> Any:  # fmt: skip
        """Run an operator on shapes alone, without what PyTorch asks before it does the same."""
        try:
            with in_kernel_invocation_manager(self):
                bare = func(*args, **kwargs)
            listed = isinstance(bare, list | tuple)
            parts = [
                FakeTensor(self, part, device) if type(part) is Tensor else part
                for part in (bare if listed else [bare])
            ]
        except Exception:  # PyTorch knows another way, or says why there is none
            return self.dispatch(func, types, args, kwargs)
        return type(bare)(parts) if listed else parts[0]

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
        listed = isinstance(result, list | tuple)  # or a tuple with names, which nobody asks for
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
        kind = type(None) if not listed else list if isinstance(result, list) else tuple
        return kind, tuple(found)

    def _results(self, found: _Results, tensors: Sequence[FakeTensor]) -> Any:
        """Return the results of a call that was noted."""
        kind, parts = found
        made = [None if part is None else self._made(part, tensors) for part in parts]
        return made[0] if kind is type(None) else kind(made)

    def _made(self, found: _Result, tensors: Sequence[FakeTensor]) -> Tensor:
        if found.same:
            return tensors[found.argument]
        bare = torch.empty_strided(found.shape, found.stride, dtype=found.dtype, device="meta")
        if found.argument >= 0:
            storage = tensors[found.argument].untyped_storage()
            bare.set_(storage, found.offset, found.shape, found.stride)
        facts = self._facts.get(found.device)
        if facts is None:  # the same of all fake tensors without content
            made = FakeTensor(self, bare, found.device)
            self._facts[found.device] = dict(vars(made))
            return made
        made = Tensor._make_subclass(
            FakeTensor, bare, dispatch_device=True, device_for_backend_keys=found.device
        )
        torch._C._set_throw_on_mutable_data_ptr(made)
        made.__dict__.update(facts)
        return made


@lru_cache(maxsize=4096)
def _shapes_decide(func: Any) -> bool:
    """Return whether results of an operator follow from the shapes of its arguments."""
    return isinstance(func, torch._ops.OpOverload) and _UNSURE.isdisjoint(func.tags)


_ALIKE = (aten.mm.default, aten.addmm.default, aten.bmm.default, aten.sum.dim_IntList,
          aten._log_softmax.default, aten.nll_loss_forward.default, aten._unsafe_view.default,
          aten.clone.default)  # fmt: skip


@lru_cache(maxsize=4096)
def _alike_everywhere(func: Any) -> bool:
    """Return whether an operator makes new tensors, or views, of equal shapes on every device."""
    elementwise = torch.Tag.pointwise in func.tags and not func._schema.is_mutable
    return elementwise or func.is_view or func in _ALIKE


@lru_cache(maxsize=4096)
def _on_lists(func: Any) -> bool:
    """Return whether an operator does the same to each part of its lists, as optimizers call it."""
    if not isinstance(func, torch._ops.OpOverload) or len(func._schema.returns) > 1:
        return False
    return func._schema.name.startswith(("aten::_foreach_", "aten::_fused_"))


def _overwrites_its_like(func: Any, args: Sequence[Any]) -> Iterator[bool]:
    """Yield of each place in the lists of an operator whether what is overwritten stays as it is.

    So it does where its numbers are replaced by those of tensors of the same kind.
    """
    lists = [value for value in args if isinstance(value, list | tuple)]
    others = [value for value in args if not isinstance(value, list | tuple)]
    whole = (
        not func._schema.returns
        and all(len(each) == len(args[0]) for each in lists)
        and all(type(value) in (int, float) for value in others)
    )
    for parts in zip(*lists, strict=True) if whole else [()] * len(args[0]):
        yield bool(parts) and _alike([part for part in parts if type(part) not in (int, float)])


def _alike(tensors: Sequence[Any]) -> bool:
    """Return whether all are fake tensors of one kind, of real numbers that are not known."""
    first = tensors[0]
    return all(
        type(tensor) is FakeTensor
        and tensor.constant is None
        and tensor.dtype.is_floating_point
        and tensor.dtype is first.dtype
        and tensor.shape == first.shape
        and tensor.fake_device == first.fake_device
        for tensor in tensors
    )


def _part(value: Any, at: int) -> Any:
    """Return what an operator on lists takes beside one of their parts."""
    return value[at : at + 1] if isinstance(value, list | tuple) else value


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
