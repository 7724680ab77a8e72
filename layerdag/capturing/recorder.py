"""The operators of a step as they are dispatched below autograd, in the importer's form.

Each operator becomes an ``Operation`` of the importer of host traces: what it reads, writes and
allocates follows from its schema, memory from the storages of its tensors. Fake tensors have
storages of their own without content, and views share that of their base, so that dependencies pass
through views, results of tuples and waits without any rule for them.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from typing import Any, NamedTuple, final
from unittest import mock

import torch
from torch import nn
from torch._C import _current_autograd_node
from torch._C._autograd import _get_sequence_nr
from torch._subclasses.fake_tensor import FakeTensor
from torch.distributed import ProcessGroup
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._sharding_prop import ShardingPropagator
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from layerdag.capturing.fake_tensors import DEVICE_OF
from layerdag.capturing.scopes import RunningModule
from layerdag.hardware.collectives import COMMUNICATION_OPERATORS
from layerdag.traces.pytorch.host_dataflow import Operation
from layerdag.traces.pytorch.operators import (
    OpRole,
    Signature,
    TensorView,
    signature,
)

_FAKE = torch._C._TorchDispatchModeKey.FAKE
_INDEX_PUT = torch.ops.aten.index_put.default
_RECORDED = (OpRole.ALLOCATION, OpRole.COMPUTE, OpRole.COMMUNICATION)


class _Known(NamedTuple):
    """An operator: its name in host traces, such as "aten::mm", and its arguments in order."""

    name: str
    signature: Signature
    arguments: tuple[str, ...]


@final
class OperatorRecorder(TorchDispatchMode):
    """Records the operators that run inside its ``with`` block.

    Enter it after a ``FakeTensorMode``. Operators carry two labels: "module", the path of the
    module that called them (in the backward pass: that called what they differentiate), and
    "phase", "forward", "backward" or "optimizer".

    Attributes:
        operations: What was recorded, in program order.
        elementwise: Names of those operators that work on each element alone.
        running: The module in which the capture is now.
    """

    def __init__(self, model: nn.Module | None = None) -> None:
        super().__init__()
        self.operations: list[Operation] = []
        self.elementwise: set[str] = set()
        self.last_operator = ""
        self.running = RunningModule(model)
        self._made_by: dict[int, str] = {}
        self._in_optimizer = False
        self._planning = False
        self._storages: dict[int, torch.UntypedStorage] = {}
        self._origin: dict[int, int] = {}
        self._hooks = ExitStack()

    @contextmanager
    def updating(self) -> Iterator[None]:
        """Label what runs inside as "optimizer": work on gradients between backward and update."""
        before, self._in_optimizer = self._in_optimizer, True
        try:
            yield
        finally:
            self._in_optimizer = before

    def __enter__(self) -> "OperatorRecorder":
        for handle in (
            register_optimizer_step_pre_hook(lambda *_: self._set_optimizer(True)),
            register_optimizer_step_post_hook(lambda *_: self._set_optimizer(False)),
        ):
            self._hooks.callback(handle.remove)
        self._hooks.enter_context(self.running.followed(after_errors=False))
        self._hooks.enter_context(self._without_planning())
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._hooks.close()
        super().__exit__(*error)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # see RememberingFakeMode

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one operator and record it."""
        if func is DEVICE_OF and isinstance(args[0], FakeTensor):
            return args[0].fake_device
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented  # it dispatches again, on the part of this rank
        self.last_operator = str(func)
        result = _result(func, types, args, kwargs or {})
        known = _known(func)
        adds = func is _INDEX_PUT and len(args) > 3 and args[3]
        if adds and _current_autograd_node() is not None:
            # The gradient of indexing: not in place for Python's classes of tensors, as fake ones.
            known = known._replace(name="aten::_index_put_impl_")
        if self._planning:
            return result
        if known.signature.role is OpRole.VIEW:
            self._follow(args, result)
        elif known.signature.role in _RECORDED:
            self._record(func, known, args, kwargs or {}, result)
        return result

    def _record(
        self, func: Any, known: _Known, args: Sequence[Any], kwargs: dict[str, Any], result: Any
    ) -> None:
        values = (*args, *(kwargs.get(name) for name in known.arguments[len(args) :]))
        inputs = [(at, self._view(t)) for at, value in enumerate(values) for t in _tensors(value)]
        outputs = tuple(self._view(tensor) for tensor in _tensors(result))
        if torch.Tag.pointwise in func.tags:
            self.elementwise.add(known.name)
        common = (len(self.operations), known.name, known.signature.role, 0, 0)
        phase = "forward" if _current_autograd_node() is None else "backward"
        phase = "optimizer" if self._in_optimizer else phase
        labels = (("phase", phase), ("module", self._module()))
        if known.signature.role is OpRole.COMMUNICATION:
            communication = COMMUNICATION_OPERATORS[known.name]
            sent = tuple(view for at, view in inputs if at == communication.sent)
            into = tuple(view for at, view in inputs if at == communication.received)
            received = into if communication.received >= 0 else outputs
            fresh = set() if communication.received >= 0 else _storages(outputs) - _storages(sent)
            group = _group_name(values, communication.group)
            self.operations.append(
                Operation(
                    *common, sent, received, sent, received, frozenset(fresh), tuple(values), group,
                    labels=labels,
                )
            )  # fmt: skip
            return
        held = known.signature
        arguments = tuple(view for _, view in inputs)
        reads = tuple(view for at, view in inputs if at not in held.overwritten)
        written = (view for at, view in inputs if at in held.written)
        writes = tuple(dict.fromkeys((*written, *outputs)))
        again = {view.storage for at, view in inputs if at in held.reallocated}
        fresh = (_storages(outputs) - _storages(arguments)) | again
        formula = flop_registry.get(func.overloadpacket)
        flops = None if formula is None else int(formula(*args, **kwargs, out_val=result))
        self.operations.append(
            Operation(
                *common, arguments, outputs, reads, writes, frozenset(fresh), num_ops=flops,
                labels=labels,
            )
        )  # fmt: skip

    def _view(self, tensor: torch.Tensor) -> TensorView:
        """Return the memory of a tensor; its storage is held, so that no other gets its id."""
        key = self._storage(tensor)
        shape, extent, elements, size, dtype = _layout(tensor.shape, tensor.stride(), tensor.dtype)
        begin = int(tensor.storage_offset()) * size
        end = begin + extent * size
        # A fake tensor would dispatch an operator to say what it is on.
        device = tensor.fake_device if isinstance(tensor, FakeTensor) else tensor.device
        return TensorView(key, begin, end, elements * size, shape, dtype, device.type)

    def _storage(self, tensor: torch.Tensor) -> int:
        """Return the id of a tensor's storage, that of its origin where a view has its own."""
        storage = tensor.untyped_storage()
        self._storages[storage._cdata] = storage
        return self._origin.get(storage._cdata, storage._cdata)

    def _follow(self, args: Sequence[Any], result: Any) -> None:
        source = next(_tensors(args), None)
        if source is None:
            return
        origin = self._storage(source)
        for tensor in _tensors(result):
            if self._storage(tensor) != origin:
                self._origin[tensor.untyped_storage()._cdata] = origin

    def _module(self) -> str:
        """Return the module on whose behalf an operator runs.

        Autograd numbers the functions of the forward pass; the backward pass has these numbers.
        """
        node = _current_autograd_node()
        if node is None:
            self._made_by[_get_sequence_nr() - 1] = self.running.path
            return self.running.path
        return self.running.path or self._made_by.get(node._sequence_nr(), "")

    @contextmanager
    def _without_planning(self) -> Iterator[None]:
        """Leave out what DTensor runs on tensors of the whole mesh only to learn their shapes."""
        method = "_propagate_tensor_meta_non_cached"
        original = getattr(ShardingPropagator, method)

        def quiet(*args: Any) -> Any:
            before, self._planning = self._planning, True
            try:
                return original(*args)
            finally:
                self._planning = before

        with mock.patch.object(ShardingPropagator, method, quiet):
            yield

    def _set_optimizer(self, inside: bool) -> None:
        self._in_optimizer = inside


def _result(func: Any, types: Sequence[type], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Return what an operator makes; a mode of fake tensors that is on alone is called directly."""
    fake = None
    if all(kind is FakeTensor for kind in types) and torch._C._len_torch_dispatch_stack() == 1:
        fake = torch._C._unset_dispatch_mode(_FAKE)
    if fake is None:
        return func(*args, **kwargs)
    try:
        return fake.__torch_dispatch__(func, types, args, kwargs)
    finally:
        torch._C._set_dispatch_mode(fake)


@lru_cache(maxsize=4096)
def _layout(
    shape: torch.Size, stride: tuple[int, ...], dtype: torch.dtype
) -> tuple[tuple[int, ...], int, int, int, str]:
    """Return shape, elements from the first to the last, elements, bytes of one, word of dtype."""
    sizes = tuple(map(int, shape))
    extent = 1 + sum((n - 1) * abs(int(s)) for n, s in zip(sizes, stride, strict=True))
    word = str(dtype).removeprefix("torch.")
    return sizes, extent, math.prod(sizes), dtype.itemsize, word


@lru_cache(maxsize=4096)
def _known(func: Any) -> _Known:
    schema = func._schema
    names = tuple(argument.name for argument in schema.arguments)
    return _Known(schema.name, signature(schema.name, str(schema)), names)


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        if value.numel():
            yield value
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _tensors(part)


def _storages(views: Sequence[TensorView]) -> set[int]:
    return {view.storage for view in views}


def _group_name(values: Sequence[Any], at: int) -> str | None:
    if 0 <= at < len(values) and isinstance(values[at], str):
        return str(values[at])
    for value in values:
        if isinstance(value, ProcessGroup):
            return str(value.group_name)
        if isinstance(value, torch.ScriptObject):
            try:
                return str(ProcessGroup.unbox(value).group_name)
            except (RuntimeError, TypeError):
                continue
    return None
