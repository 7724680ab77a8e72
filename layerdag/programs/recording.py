"""Record the calls of one forward pass of a module and its loss.

The recorder sits above autograd and autocast, so that it sees the operators that the code calls
(``aten::linear``, not the product that it becomes), with the branches that a real step takes. What
a step of the program then runs is recorded below autograd (``layerdag.capturing.recorder``).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, final
from unittest import mock

import torch
from torch import Tensor, nn
from torch._dispatch.python import enable_python_dispatcher

from layerdag.capturing.device_kernels import ModeAboveAutograd
from layerdag.capturing.scopes import RunningModule, unit_paths
from layerdag.errors import UsageError
from layerdag.programs.nodes import Word
from layerdag.programs.operators import GETITEM, arguments, operator

_KEPT = 64  # elements of a constant whose content is kept
_DYNAMIC, _CONTENT = torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output
_MASKS = (torch.bool, torch.uint8)


_WHERE = Word("device", "run")


@final
@dataclass(frozen=True)
class Reference:
    """A tensor among the arguments of a call: the position of the value in the recording."""

    value: int


def references(value: Any) -> Iterator[int]:
    """Yield the positions of the values in an argument, or in a tuple of arguments."""
    if isinstance(value, Reference):
        yield value.value
    elif isinstance(value, tuple):
        for part in value:
            yield from references(part)


@final
@dataclass(frozen=True)
class RecordedLeaf:
    """A tensor that no call made."""

    kind: str  # "input", "parameter", "buffer" or "constant"
    name: str  # of a parameter or buffer, its path
    shape: tuple[int, ...]
    dtype: str
    trained: bool = False  # whether it gets a gradient
    # The numbers of a small constant, flat; None where they are not kept
    content: tuple[float, ...] | None = None


@final
@dataclass(frozen=True)
class RecordedCall:
    """A call of an operator."""

    operator: str
    # Values of the arguments by name, in the order of the schema, without defaults
    arguments: tuple[tuple[str, Any], ...]
    module: str
    mode: tuple[str, ...]  # what was switched on: "no_grad", "autocast:bfloat16"
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]


@final
@dataclass(frozen=True)
class Recording:
    """The values of one forward pass in program order."""

    name: str
    # Leaves and calls; a leaf comes before its first use
    values: tuple[RecordedLeaf | RecordedCall, ...]
    # Positions of what the pass returned: the loss, or the outputs of an inference
    outputs: tuple[int, ...]
    order: tuple[str, ...] = ()  # names of all parameters in the order of their registration
    unused: tuple[RecordedLeaf, ...] = ()
    units: tuple[str, ...] = ()  # paths of the modules that ``fully_shard`` gathers at once
    branches: tuple[str, ...] = ()  # modules and operators that asked for the content of a tensor
    # Operators that take a number which the source does not state
    unknown_numbers: tuple[str, ...] = ()
    messages: int = 0  # how many sends and receives between ranks were left out


def dtype_name(dtype: torch.dtype) -> str:
    """Return a dtype without its prefix, such as "float32"."""
    return str(dtype).removeprefix("torch.")


class _CallRecorder(ModeAboveAutograd):
    def __init__(self, model: nn.Module, inputs: Sequence[Tensor]) -> None:
        super().__init__()
        self.values: list[RecordedLeaf | RecordedCall] = []
        self.branches: list[str] = []
        self.running = RunningModule(model)
        self._held: list[Any] = []  # an id names a tensor only while it lives
        self._at: dict[int, int] = {}
        self._parts: dict[int, tuple[int, int]] = {}
        self._made: dict[Any, int] = {}  # factories hand out another object than they were given
        self._named = {id(p): ("parameter", name) for name, p in model.named_parameters()}
        self._named |= {id(b): ("buffer", name) for name, b in model.named_buffers()}
        for number, tensor in enumerate(inputs):
            self._leaf(tensor, "input", str(number))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run a call and record it."""
        kwargs = kwargs or {}
        name, tags = str(func), func.tags
        self._require_shapes(name, tags, args, kwargs)
        if _CONTENT in tags:
            result = func(*args, **kwargs)
            self.branches.append(f"{self.place}: {name}")
            return result
        given = self._arguments(name, args, kwargs)
        result = func(*args, **kwargs)
        if _tensors(result):
            operator(name)
            self._add(name, given, result)
        return result

    @property
    def place(self) -> str:
        """The module that runs, for messages."""
        return self.running.path or "the model"

    def position(self, tensor: Tensor) -> int:
        """Return the position of a tensor's value, which is added if it is a leaf or a part."""
        key = id(tensor)
        if key in self._at:
            return self._at[key]
        if key in self._parts:
            call, part = self._parts[key]
            whole = self.values[call]
            assert isinstance(whole, RecordedCall)
            taken = (("self", Reference(call)), ("index", part))
            shape, dtype = whole.shapes[part], whole.dtypes[part]
            self._at[key] = len(self.values)
            self.values.append(
                RecordedCall(GETITEM, taken, whole.module, whole.mode, (shape,), (dtype,))
            )
            return self._at[key]
        if key in self._named:
            return self._leaf(tensor, *self._named[key])
        made = self._made.get(_memory(tensor))
        if made is not None:
            self._held.append(tensor)
            self._at[key] = made
            return made
        return self._leaf(tensor, "constant", "")

    def _leaf(self, tensor: Tensor, kind: str, name: str) -> int:
        self._held.append(tensor)
        self._at[id(tensor)] = len(self.values)
        self.values.append(leaf(tensor, kind, name))
        return self._at[id(tensor)]

    def _arguments(
        self, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[tuple[str, Any], ...]:
        known = arguments(name)
        given = [*zip(known, args, strict=False)]
        given += [(part, kwargs[part.name]) for part in known[len(args) :] if part.name in kwargs]
        return tuple(
            (part.name, _WHERE if part.runtime else self._value(value))
            for part, value in given
            if not part.has_default or not (part.runtime or _equal(value, part.default))
        )

    def _value(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            return Reference(self.position(value))
        if isinstance(value, list | tuple):
            return tuple(self._value(part) for part in value)
        if isinstance(value, torch.dtype):
            return Word("dtype", dtype_name(value))
        if isinstance(value, torch.memory_format):
            return Word("memory_format", str(value).removeprefix("torch."))
        if value is None or isinstance(value, bool | int | float | str):
            return value
        raise UsageError(
            f"{self.place}: an operator takes a {type(value).__name__}, which no program can hold."
        )

    def _add(self, name: str, given: tuple[tuple[str, Any], ...], result: Any) -> None:
        found = _tensors(result)
        call = len(self.values)
        shapes = tuple(tuple(int(n) for n in tensor.shape) for tensor in found)
        dtypes = tuple(dtype_name(tensor.dtype) for tensor in found)
        self.values.append(RecordedCall(name, given, self.running.path, _mode(), shapes, dtypes))
        self._held.append(result)
        if isinstance(result, Tensor):
            self._at[id(result)] = call
            self._made[_memory(result)] = call
            return
        for part, tensor in enumerate(found):
            self._at.pop(id(tensor), None)
            self._parts[id(tensor)] = (call, part)

    def _require_shapes(
        self, name: str, tags: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> None:
        """Refuse operators whose shapes depend on the content of a tensor."""
        if _DYNAMIC not in tags:
            return
        classes = args[1] if len(args) > 1 else kwargs.get("num_classes", -1)
        if name == "aten.one_hot.default" and classes > 0:
            return
        masks = [t for t in args[1] if t is not None] if name.startswith("aten.index.") else None
        if masks is not None and not any(mask.dtype in _MASKS for mask in masks):
            return
        raise UsageError(
            f"{self.place}: {name} returns as many numbers as its data have; a "
            "program has no such sizes. Leave this part out, or give it a fixed size."
        )


def _memory(tensor: Tensor) -> Any:
    if tensor.layout is not torch.strided:
        return id(tensor)
    storage = tensor.untyped_storage()._cdata
    return storage, tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype


def leaf(tensor: Tensor, kind: str, name: str) -> RecordedLeaf:
    """Return the description of a tensor that no call made."""
    content = None
    if kind == "constant" and tensor.numel() <= _KEPT and not tensor.is_complex():
        content = tuple(tensor.detach().reshape(-1).tolist())
    shape = tuple(int(length) for length in tensor.shape)
    trained = kind == "parameter" and tensor.requires_grad
    return RecordedLeaf(kind, name, shape, dtype_name(tensor.dtype), trained, content)


def _tensors(result: Any) -> list[Tensor]:
    """Return the tensors of a result; nothing where some part is none."""
    if isinstance(result, Tensor):
        return [result]
    parts = list(result) if isinstance(result, list | tuple) else []
    return parts if parts and all(isinstance(part, Tensor) for part in parts) else []


def _equal(value: Any, default: Any) -> bool:
    if isinstance(value, Tensor) or isinstance(value, bool) is not isinstance(default, bool):
        return False
    if isinstance(value, list | tuple) and isinstance(default, list | tuple):
        return list(value) == list(default)
    return bool(value == default)


def _mode() -> tuple[str, ...]:
    found: tuple[str, ...] = () if torch.is_grad_enabled() else ("no_grad",)
    if torch.is_autocast_enabled("cpu"):
        found += (f"autocast:{dtype_name(torch.get_autocast_dtype('cpu'))}",)
    return found


def record(
    model: nn.Module,
    inputs: Sequence[Any],
    loss: Callable[[Any], Tensor] | None = None,
    name: str | None = None,
) -> Recording:
    """Run a module once on its inputs and return what it called.

    Its buffers are what they were before; random numbers are those of a copy of the generator.

    Args:
        model: The module, on a CPU, in the mode (training or evaluation) to be recorded.
        inputs: What it is called with; tensors, and anything that holds none.
        loss: Scalar of the module's output; None to record the output itself.
        name: Of the program; the module's class by default.

    Raises:
        UsageError: If tensors are not on a CPU, shapes depend on data, or an own
            ``autograd.Function`` hides operators.
    """
    seen: set[int] = set()
    given = []
    for at, value in enumerate(inputs := list(inputs)):
        if isinstance(value, Tensor):
            if id(value) in seen:  # a tensor that is given twice is two inputs
                inputs[at] = value.detach()
            seen.add(id(value))
            given.append(inputs[at])
    other = {tensor.device.type for tensor in (*model.parameters(), *given)} - {"cpu"}
    if other:
        raise UsageError(
            f"{name or type(model).__name__} is on {', '.join(sorted(other))}; a program is "
            "recorded on a processor: move the module and its inputs there with .cpu()."
        )
    recorder = _CallRecorder(model, given)
    followed = recorder.running.followed(after_errors=True)
    with (
        _unchanged(model),
        followed,
        _asked_content(recorder),
        enable_python_dispatcher(),
        recorder,
    ):
        output = model(*inputs)
        output = output if loss is None else loss(output)
    outputs = _outputs(output)
    _refuse_own_functions(type(model).__name__, outputs)
    used = tuple(recorder.position(tensor) for tensor in outputs)
    read = {value.name for value in recorder.values if isinstance(value, RecordedLeaf)}
    named = dict(model.named_parameters())
    return Recording(
        name=name or type(model).__name__,
        values=tuple(recorder.values),
        outputs=used,
        order=tuple(named),
        unused=tuple(leaf(p, "parameter", n) for n, p in named.items() if n not in read),
        units=unit_paths(model),
        branches=tuple(recorder.branches),
    )


def other_sizes(
    model: nn.Module, inputs: Sequence[Any], loss: Callable[[Any], Tensor] | None = None
) -> Iterator[Recording]:
    """Record a module again with a larger batch, and with shorter inputs, where it takes them.

    Further observations distinguish sizes of the same value: the batch from a width, the
    length of a sequence from a head's width.
    """
    tensors = [value for value in inputs if isinstance(value, Tensor) and value.ndim]
    if not tensors:
        return
    batch = tensors[0].shape[0]
    leading = len({value.shape[0] for value in tensors}) == 1
    larger = [_longer(v, batch, leading) if isinstance(v, Tensor) else v for v in inputs]
    tried = [larger]
    for length in dict.fromkeys(n for value in tensors for n in value.shape[1:]):
        if length > _MIN_LENGTH and (leading or length != batch):
            tried.append([_shorter(v, length) if isinstance(v, Tensor) else v for v in inputs])
    for again in tried:
        with suppress(RuntimeError, ValueError, IndexError, AssertionError, TypeError):
            yield record(model, again, loss)


def _longer(tensor: Tensor, batch: int, leading: bool) -> Tensor:
    """Return a tensor with half as many rows again, the first ones repeated.

    The batch is the first dimension (``leading``), or each dimension of its length.
    """
    dims = [0] if leading and tensor.ndim else [d for d, n in enumerate(tensor.shape) if n == batch]
    for dim in dims:
        tensor = torch.cat([tensor, tensor.narrow(dim, 0, max(1, batch // 2))], dim)
    return tensor


_MIN_LENGTH = 4


def _shorter(tensor: Tensor, length: int) -> Tensor:
    kept = max(_MIN_LENGTH, length - 32 if length > 2 * 32 else length // 2)
    for dim in range(1, tensor.ndim):
        if tensor.shape[dim] == length:
            tensor = tensor.narrow(dim, 0, kept)
    return tensor.contiguous()


def _outputs(output: Any) -> list[Tensor]:
    if isinstance(output, Tensor):
        return [output]
    if isinstance(output, Mapping):
        output = list(output.values())
    if not isinstance(output, list | tuple):
        return []
    return [tensor for part in output for tensor in _outputs(part)]


def _refuse_own_functions(name: str, outputs: Sequence[Tensor]) -> None:
    todo = [tensor.grad_fn for tensor in outputs if tensor.grad_fn is not None]
    seen = set(todo)
    while todo:
        node = todo.pop()
        if isinstance(node, torch.autograd.function.BackwardCFunction):
            raise UsageError(
                f"{name}: {type(node).__name__.removesuffix('Backward')} is an autograd.Function "
                "of its own, whose backward pass is not in the operators that are called; a "
                "program cannot hold it."
            )
        for before, _ in node.next_functions:
            if before is not None and before not in seen:
                seen.add(before)
                todo.append(before)


@contextmanager
def _unchanged(model: nn.Module) -> Iterator[None]:
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    with torch.random.fork_rng(devices=[]):
        try:
            yield
        finally:
            with torch.no_grad():
                for name, buffer in model.named_buffers():
                    if name in before and buffer.shape == before[name].shape:
                        buffer.copy_(before[name])


_CONTENT_METHODS = ("__bool__", "__int__", "__float__", "item", "tolist", "numpy")


@contextmanager
def _asked_content(recorder: _CallRecorder) -> Iterator[None]:
    """Tell a recorder when the code looks at the content of a tensor.

    Python's methods read a tensor on a CPU without calling an operator.
    """

    def watched(name: str) -> Callable[..., Any]:
        own = getattr(Tensor, name)

        def ask(tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
            recorder.branches.append(f"{recorder.place}: {name.strip('_')}()")
            return own(tensor, *args, **kwargs)

        return ask

    with ExitStack() as stack:
        for name in _CONTENT_METHODS:
            stack.enter_context(mock.patch.object(Tensor, name, watched(name)))
        yield


def same_structure(first: Recording, other: Recording) -> bool:
    """Return whether two recordings differ in numbers alone."""
    if len(first.values) != len(other.values) or first.outputs != other.outputs:
        return False
    return all(
        _structure(a) == _structure(b) for a, b in zip(first.values, other.values, strict=True)
    )


def _structure(value: RecordedLeaf | RecordedCall) -> Any:
    if isinstance(value, RecordedLeaf):
        return replace(value, shape=tuple(0 for _ in value.shape), content=None)
    given = tuple((name, _without_numbers(part)) for name, part in value.arguments)
    return (value.operator, given, value.module, value.mode, value.dtypes,
            tuple(len(shape) for shape in value.shapes))  # fmt: skip


def _without_numbers(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(_without_numbers(part) for part in value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return 0
    return value
