"""Fake tensors, which have shapes but no content, with a memory of what operators make of them.

PyTorch finds shapes, strides and aliases of results anew for each call of some operators, and asks
its own memory with a key of some thirty facts for each tensor. One program is run several times on
the same shapes, and one step calls an operator on few of them: a short key answers most calls. For
operators whose results have the sizes of their arguments, the pattern of sizes answers the rest.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any, final

import torch
from torch import Tensor
from torch._prims_common import make_contiguous_strides_for
from torch._subclasses.fake_tensor import (
    FakeTensor,
    FakeTensorMode,
    in_kernel_invocation_manager,
)

from layerdag.capturing.size_patterns import Layout, Pattern, keeps_sizes
from layerdag.hardware.operators import Trait, find_operator

aten = torch.ops.aten

_MAX_ENTRIES = 100_000
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
_COUNT_UP = aten._foreach_add_.Tensor
"""How an optimizer counts the steps of all parameters."""
_LIFTED = aten.lift_fresh.default
"""Makes such a number of a real tensor."""
_CPU = torch.device("cpu")
_FACTORIES = (
    aten.empty.memory_format,
    aten.empty_strided.default,
    aten.new_empty.default,
    aten.new_zeros.default,
    aten.ones.default,
    aten.zeros.default,
)
"""Make tensors of sizes alone."""
_MAX_ELEMENTS = 2**48  # beyond it PyTorch says what is too large
_QUANTIZED = (torch.qint8, torch.quint8, torch.qint32, torch.quint4x2, torch.quint2x4)
_MARKS = (
    torch.ops.profiler._record_function_enter_new.default,
    torch.ops.profiler._record_function_exit._RecordFunction,
)
"""Of optimizers and ``fully_shard``; they take no tensors."""


def _histogram(tensor: Tensor, bins: int = 100, *_: Any, **__: Any) -> Any:
    """Return the counts of whole numbers, which only GPUs count."""
    return NotImplemented if tensor.is_floating_point() else tensor.new_empty(bins)


def _grouped_product(
    left: Tensor,
    right: Tensor,
    offs: Tensor | None = None,
    bias: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> Any:
    """Return products of groups: of rows or columns, of a batch, or of inner sizes."""
    if left.dtype is torch.bfloat16:
        return NotImplemented  # PyTorch's own shape function takes it
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


@final
@dataclass(frozen=True)
class _Result:
    """One result of a call."""

    argument: int  # number of the tensor whose memory it shares, -1 for memory of its own
    same: bool  # whether it is that tensor itself
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int  # where it begins in its memory, elements
    dtype: torch.dtype
    device: torch.device  # the one that it pretends to be on


_Results = tuple[type, tuple[_Result | None, ...]]
_memory: dict[tuple[Any, ...], _Results | None] = {}


@final
@dataclass(frozen=True)
class _ResultPattern:
    """One result of calls of the same pattern: a ``_Result`` that begins where its memory does."""

    argument: int
    same: bool
    layout: Layout
    dtype: torch.dtype
    device: torch.device

    @classmethod
    def of(
        cls, found: _Result, pattern: Pattern, tensors: Sequence[Tensor]
    ) -> "_ResultPattern | None":
        """Return the result that all calls of a pattern have; None if they differ."""
        layout = pattern.layout(found.shape, found.stride)
        if layout is None or found.offset != _begin(found.argument, tensors):
            return None
        return cls(found.argument, found.same, layout, found.dtype, found.device)

    def in_call(self, numbers: Sequence[int], tensors: Sequence[Tensor]) -> _Result:
        """Return the result of a call of tensors with these sizes."""
        shape, stride = self.layout.with_numbers(numbers)
        offset = _begin(self.argument, tensors)
        return _Result(self.argument, self.same, shape, stride, offset, self.dtype, self.device)


def _begin(argument: int, tensors: Sequence[Tensor]) -> int:
    """Return where the tensor of an argument begins in its memory; 0 of new memory."""
    return int(tensors[argument].storage_offset()) if argument >= 0 else 0


_patterns: dict[tuple[Any, ...], tuple[type, tuple[_ResultPattern | None, ...]]] = {}


@final
class RememberingFakeMode(FakeTensorMode):
    """PyTorch's mode of fake tensors, which asks PyTorch once for each call of equal shapes.

    Where the pattern of sizes decides (``keeps_sizes``), it asks once for each pattern. What
    depends on content, and what is not of plain tensors, numbers and words, is PyTorch's. It is
    asked by ``dispatch``, which involves no compiler.
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
        answer = _ANSWERS.get(func)
        made = NotImplemented if answer is None else answer(self, *args, **(kwargs or {}))
        if made is not NotImplemented:
            return made
        if not _on_lists(func) or not args[0] or any(kind is not FakeTensor for kind in types):
            return self._remembered(func, types, args, kwargs or {})
        parts = []  # few lists are equal, but most of what they hold
        for at, stays in enumerate(_overwrites_its_like(func, args)):
            if stays and not kwargs:
                continue
            alone = [_part(value, at) for value in args]
            named = {name: _part(value, at) for name, value in (kwargs or {}).items()}
            parts.append(self._remembered(func, types, alone, named))
        return [part for (part,) in parts] if func._schema.returns else None

    def lift(self, number: Tensor) -> Tensor:
        """Return a number as a fake tensor that knows it."""
        made = self.make(
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
        pattern = Pattern(key) if keeps_sizes(func) else None
        if pattern is not None and pattern.key in _patterns:
            kind, parts = _patterns[pattern.key]
            found = kind, tuple(part and part.in_call(pattern.numbers, tensors) for part in parts)
            _keep(_memory, known, found)
            return self._results(found, tensors)
        devices = {part for part in known if type(part) is torch.device}
        if tensors and len(devices) == 1 and _alike_everywhere(func):
            result = self._of_shapes(func, types, args, kwargs, *devices)
        else:
            result = self.dispatch(func, types, args, kwargs)
        if known not in _memory:
            found = self._noted(result, tensors)
            _keep(_memory, known, found)
            if pattern is not None and found is not None:
                _keep_pattern(pattern, found, tensors)
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
                dtype = value.dtype
                if value.constant is not None or value.fake_mode is not self:
                    return False
                if value.is_neg() or dtype.is_complex:  # or it may be a conjugate
                    return False
                tensors.append(value)
                key += (
                    dtype, value.shape, value.stride(), value.storage_offset(),
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
            # Of several with one memory the shapes do not show which is seen.
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
        kind, parts = found
        made = [None if part is None else self.make(part, tensors) for part in parts]
        return made[0] if kind is type(None) else kind(made)

    def make(self, found: _Result, tensors: Sequence[FakeTensor]) -> Tensor:
        """Return one result of a call of ``tensors``."""
        if found.same:
            return tensors[found.argument]
        bare = torch.empty_strided(found.shape, found.stride, dtype=found.dtype, device="meta")
        if found.argument >= 0:
            storage = tensors[found.argument].untyped_storage()
            bare.set_(storage, found.offset, found.shape, found.stride)
        facts = self._facts.get(found.device)
        if facts is None:  # equal for all fake tensors without content
            made = FakeTensor(self, bare, found.device)
            self._facts[found.device] = dict(vars(made))
            return made
        made = Tensor._make_subclass(
            FakeTensor, bare, dispatch_device=True, device_for_backend_keys=found.device
        )
        torch._C._set_throw_on_mutable_data_ptr(made)
        made.__dict__.update(facts)
        return made


def _device(_: RememberingFakeMode, tensor: Any) -> Any:
    return tensor.fake_device if isinstance(tensor, FakeTensor) else NotImplemented


def _number(_: RememberingFakeMode, tensor: Any) -> Any:
    return NotImplemented if tensor.constant is None else tensor.constant.item()


def _count_up(_: RememberingFakeMode, numbers: Any, by: Any, **keywords: Any) -> Any:
    if any(type(part) is not FakeTensor or part.constant is None for part in (*numbers, by)):
        return NotImplemented
    if not numbers or by.dim():
        return NotImplemented  # PyTorch refuses it
    for number in numbers:
        number.constant.add_(by.constant, **keywords)
    return None


def _lift(mode: RememberingFakeMode, tensor: Any) -> Any:
    plain = type(tensor) is Tensor and not tensor.dim()
    return mode.lift(tensor) if plain else NotImplemented


def _without_mode(make: Callable[..., Any]) -> Callable[..., Any]:
    return lambda _, *args, **keywords: make(*args, **keywords)


def _new(mode: RememberingFakeMode, *args: Any, **keywords: Any) -> Any:
    like = args[0] if isinstance(args[0], Tensor) else None
    if like is not None and not (
        type(like) is FakeTensor and like.fake_mode is mode and like.layout is torch.strided
    ):
        return NotImplemented
    asked = {name: value for name, value in keywords.items() if value is not None}
    usual = (torch.get_default_dtype(), _CPU) if like is None else (like.dtype, like.fake_device)
    dtype, device = asked.pop("dtype", usual[0]), asked.pop("device", usual[1])
    if asked.pop("layout", torch.strided) is not torch.strided or asked.pop("pin_memory", False):
        return NotImplemented
    sizes, *strides = args if like is None else args[1:]
    plain = all(type(n) is int and n >= 0 for given in (sizes, *strides) for n in given)
    if asked or not plain or (device.type != "cpu" and device.index is None):
        return NotImplemented
    stride = tuple(strides[0]) if strides else make_contiguous_strides_for(sizes)
    # Lists of different lengths are for PyTorch to refuse, too.
    reach = sum(n * step for n, step in zip(sizes, stride, strict=False))
    if len(sizes) != len(stride) or reach > _MAX_ELEMENTS or dtype in _QUANTIZED:
        return NotImplemented
    return mode.make(_Result(-1, False, tuple(sizes), stride, 0, dtype, device), ())


_ANSWERS: Mapping[Any, Callable[..., Any]] = MappingProxyType(
    {
        **{DEVICE_OF: _device, _NUMBER_OF: _number, _COUNT_UP: _count_up, _LIFTED: _lift},
        **{mark: _without_mode(mark) for mark in _MARKS},
        aten.histc.default: _without_mode(_histogram),  # for dtypes that a processor refuses
        aten._grouped_mm.default: _without_mode(_grouped_product),
        **dict.fromkeys(_FACTORIES, _new),
    }
)
"""Answers to operators without PyTorch's mode, unless they return ``NotImplemented``."""


def _keep_pattern(pattern: Pattern, found: _Results, tensors: Sequence[Tensor]) -> None:
    kind, parts = found
    of_pattern = [part and _ResultPattern.of(part, pattern, tensors) for part in parts]
    if pattern.key is not None and all(
        held is not None or part is None for held, part in zip(of_pattern, parts, strict=True)
    ):
        _keep(_patterns, pattern.key, (kind, tuple(of_pattern)))


def _keep(memory: dict[tuple[Any, ...], Any], key: tuple[Any, ...], found: Any) -> None:
    if len(memory) >= _MAX_ENTRIES:
        memory.clear()
    memory[key] = found


@lru_cache(maxsize=4096)
def _shapes_decide(func: Any) -> bool:
    """Return whether results of an operator follow from the shapes of its arguments."""
    if not isinstance(func, torch._ops.OpOverload) or not _UNSURE.isdisjoint(func.tags):
        return False
    return not any(argument.is_out for argument in func._schema.arguments)  # which is resized


@lru_cache(maxsize=4096)
def _alike_everywhere(func: Any) -> bool:
    """Return whether an operator makes new tensors, or views, of equal shapes on every device."""
    elementwise = torch.Tag.pointwise in func.tags and not func._schema.is_mutable
    row = find_operator(func._schema.name)
    known = row is not None and Trait.SAME_EVERYWHERE in row.traits and not func._schema.is_mutable
    return elementwise or func.is_view or known


@lru_cache(maxsize=4096)
def _on_lists(func: Any) -> bool:
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
    if not tensor.numel():
        return 0
    last = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    return (last + 1) * tensor.element_size()
