"""Programs from traces that keep the arguments of calls, as PyTorch's ExecutionTraceObserver does.

The outermost operators before the backward pass are the forward program. Tensors are identified by
their ids, parameters are those that the optimizer changes, in the order in which it does. What a
trace does not say is not guessed: the content of constants, module paths without scopes of their
own, numbers that PyTorch passed as tensors.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from layerdag.errors import DataError, TraceError
from layerdag.hardware.dtypes import DTYPE_BY_CODE
from layerdag.programs.nodes import Word
from layerdag.programs.operators import GETITEM, arguments, operator
from layerdag.programs.recording import (
    RecordedCall,
    RecordedLeaf,
    Recording,
    Reference,
    references,
)
from layerdag.runtime.json_shape import found_value, plain_reason
from layerdag.traces.chakra.files import read_trace
from layerdag.traces.pytorch.forward_calls import (
    UNIT_SCOPE,
    Call,
    CallTree,
    Raw,
    arguments_of,
    call_of,
    dtype_of,
    is_number,
    listed_kinds,
    stated_calls,
    updated_tensors,
)
from layerdag.traces.pytorch.kineto import stream_objects

_SCHEMA = re.compile(r"(\w+)::(\w+)(?:\.(\w+))?\(")
_EMPTY = "nullptr"
_NOT_FINITE = ("inf", "infinity", "nan")
_ASKS_CONTENT = ("aten::is_nonzero", "aten::item", "aten::_local_scalar_dense")
_MESSAGES = ("c10d::send", "c10d::recv_")
_PLAN = frozenset((*_MESSAGES, "c10d::broadcast_", "c10d::allreduce_", "c10d::barrier"))
"""Communication that belongs to the plan, not to the program."""

_COALESCED = ("aten::flatten_dense_tensors", "aten::unflatten_dense_tensors")
"""Operators around DDP's broadcast of buffers, which copies then put in their places."""

# Codes of c10/core/MemoryFormat.h that occur among arguments.
_MEMORY_FORMATS = {0: "contiguous_format", 1: "preserve_format", 2: "channels_last",
                   3: "channels_last_3d"}  # fmt: skip


def recording_of_host_trace(path: str | Path) -> Recording:
    """Return the forward pass of a host trace.

    Raises:
        TraceError: If the file is no host trace.
        DataError: If it holds no forward pass whose arguments are known, as traces before schema
            1.0.3 do, or FSDP's gathers stand where parameters were.
    """
    return _recording(list(stream_objects(path, "nodes")), path)


def recording_of_trace(path: str | Path) -> Recording:
    """Return the forward pass whose calls a Chakra trace keeps with their arguments.

    Raises:
        TraceError: If the file is no Chakra trace, or keeps no arguments.
        DataError: If it holds no forward pass.
    """
    return _recording(stated_calls(read_trace(path)), path)


def _recording(nodes: list[Raw], path: str | Path) -> Recording:
    for node in nodes:
        for key in ("id", *({"ctrl_deps", "parent"} & node.keys())):
            if type(node.get(key)) is not int:
                found = found_value(node.get(key))
                raise TraceError(
                    f"{path}: node {node.get('id')} has {found} as '{key}', which is the number "
                    "of a node; it is damaged, collect it again."
                )
        for key in ("inputs", "outputs"):
            wrong = _wrong_tensor(node.get(key))
            if wrong is not None:
                raise TraceError(
                    f"{path}: node {node['id']} has {found_value(wrong)} among its {key}, where a "
                    "tensor with a number and a shape belongs; it is damaged, collect it again."
                )
    nodes.sort(key=lambda node: int(node["id"]))
    if not nodes:
        raise TraceError(f"{path} has no nodes.")
    twice = next((a["id"] for a, b in pairwise(nodes) if a["id"] == b["id"]), None)
    if twice is not None:
        raise TraceError(f"{path}: two nodes have the id {twice}; it is damaged, collect it again.")
    try:
        return _Reader(str(path), nodes).recording()
    except TraceError as error:
        raise DataError(f"{path}: {error}") from error


class _Reader:
    def __init__(self, source: str, nodes: list[Raw]) -> None:
        self._source = source
        self._tree = CallTree(map(call_of, nodes))
        self._rows: list[RecordedLeaf | RecordedCall] = []
        self._at: dict[int, int] = {}  # position of the value that a tensor id names now
        self._leaves: dict[Any, int] = {}  # positions by id, shape and dtype
        self._node_of = {int(node["id"]): node for node in nodes}
        self._updated = updated_tensors(self._node_of[c.id] for c in self._tree.optimizer())
        self._branches: list[str] = []
        self._unknown: list[str] = []
        self._flat: set[int] = set()
        self._units: dict[str, None] = {}
        self._messages = 0

    def recording(self) -> Recording:
        """Return the forward pass."""
        for call in self._tree.forward():
            self._add(self._node_of[call.id], call)
        trained, rows = self._tree.backward is not None, self._rows
        begin = rows[-1] if trained and rows else None
        if isinstance(begin, RecordedCall) and begin.operator == "aten.ones_like.default":
            rows.pop()  # where the backward pass begins
        outputs = self._outputs(trained)
        if not outputs:
            raise DataError(f"{self._source} has no forward pass on floating-point tensors.")
        updated = sorted(self._updated, key=self._updated.__getitem__)
        return Recording(
            name=Path(self._source).name.split(".")[0],
            values=tuple(rows),
            outputs=outputs,
            order=tuple(f"t{tensor[0]}" for tensor in updated if tensor in self._leaves),
            units=tuple(self._units),
            branches=tuple(self._branches),
            unknown_numbers=tuple(self._unknown),
            messages=self._messages,
        )

    def _add(self, node: Raw, call: Call) -> None:
        name = call.name
        if name in _ASKS_CONTENT:
            self._branches.append(f"{self._module(call) or 'the model'}: {name}")
            return
        self._messages += name in _MESSAGES
        try:
            if name in _PLAN or self._moves_buffers(node, name):
                return
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise DataError(
                f"{self._source}: node {call.id} ({name}) has inputs or outputs of another "
                f"form than a host trace ({plain_reason(error)}); record it again."
            ) from error
        found = _SCHEMA.match(call.schema)
        if found is None or name.startswith(("c10d", "_c10d_functional", "fsdp")):
            raise DataError(
                f"{self._source}: node {call.id} ({name}) has no operator schema, or "
                "belongs to FSDP or tensor parallelism; its forward program cannot be taken out. "
                "Record a run on one rank or with DDP, by PyTorch 2.1 or later."
            )
        overload = f"{found[1]}.{found[2]}.{found[3] or 'default'}"
        operator(overload)
        try:
            given = tuple(self._arguments(node, overload))
            self._result(node, call, overload, given)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise DataError(
                f"{self._source}: node {call.id} ({name}) has arguments that do not fit its "
                f"schema ({type(error).__name__}: {error})."
            ) from error

    def _moves_buffers(self, node: Raw, name: str) -> bool:
        given = {t for value, kind, _ in arguments_of(node) for t in _tensor_ids(value, kind)}
        if name not in _COALESCED and not (name == "aten::copy_" and given & self._flat):
            return False
        made = node.get("outputs", {})
        for value, kind in zip(made.get("values", ()), made.get("types", ()), strict=False):
            if name in _COALESCED:
                self._flat.update(_tensor_ids(value, str(kind)))
        return True

    def _arguments(self, node: Raw, overload: str) -> Iterator[tuple[str, Any]]:
        for part, (value, kind, shape) in zip(
            arguments(overload), arguments_of(node), strict=False
        ):
            if part.runtime:
                if not part.has_default:
                    yield part.name, Word("device", "run")
                continue
            made = self._value(value, kind, shape, part.name, overload)
            if not (part.has_default and made == part.default) and not (
                part.keyword and made is None
            ):
                yield part.name, made

    def _value(self, value: Any, kind: str, shape: Any, name: str, overload: str) -> Any:
        if value == "<None>" or kind == "None":
            return None
        if kind.startswith("Tensor("):
            return None if _EMPTY in kind else self._tensor(value[0], kind, shape, name, overload)
        if kind.startswith("GenericList[") and "Tensor(" in kind:
            return tuple(
                None if k == "None" or _EMPTY in k else self._tensor(v[0], k, s, name, overload)
                for v, k, s in zip(value, listed_kinds(kind), shape, strict=True)
            )
        if name == "dtype" and isinstance(value, int):
            return Word("dtype", DTYPE_BY_CODE[value].name)
        if name == "memory_format":
            return Word("memory_format", _MEMORY_FORMATS[value])
        if isinstance(value, str) and value.lower().removeprefix("-") in _NOT_FINITE:
            return float(value)
        return _frozen(value)

    def _tensor(self, tensor: int, kind: str, shape: Any, name: str, overload: str) -> Any:
        dtype = dtype_of(kind)
        if tensor in self._at:  # PyTorch gives ids of dead tensors anew
            row = self._rows[self._at[tensor]]
            if isinstance(row, RecordedLeaf):
                held = (row.shape, row.dtype)
            else:
                held = (row.shapes[0], row.dtypes[0])
            if held == (tuple(shape), dtype):
                return Reference(self._at[tensor])
        key = (tensor, tuple(shape), dtype)
        known = key in self._updated
        if is_number(key) and not known and name != "self":
            self._unknown.append(overload)  # a number of Python's; a trace has no content
            return 0.5 if dtype == "float64" else 1  # the next index, and no index too large
        if key not in self._leaves:
            counts = overload.startswith("aten.add_.") and dtype == "int64" and not shape
            trained = (known and dtype.startswith(("float", "bfloat"))) or (
                not self._updated and name in ("weight", "bias")
            )
            sort = "buffer" if name in ("running_mean", "running_var") or counts else "input"
            sort = "parameter" if trained else sort
            self._leaves[key] = len(self._rows)
            self._rows.append(RecordedLeaf(sort, f"t{tensor}", tuple(shape), dtype, trained))
        return Reference(self._leaves[key])

    def _result(
        self, node: Raw, call: Call, overload: str, given: tuple[tuple[str, Any], ...]
    ) -> None:
        rows, outputs = self._rows, node["outputs"]
        ids: list[int] = []
        shapes: list[tuple[int, ...]] = []
        dtypes: list[str] = []
        listed = False
        found = zip(outputs["values"], outputs["types"], outputs["shapes"], strict=True)
        for value, kind, shape in found:
            parts: Iterable[tuple[Any, str, Any]] = ()
            if str(kind).startswith("GenericList[") and "Tensor(" in kind:
                listed = True
                parts = zip(value, listed_kinds(kind), shape, strict=True)
            elif str(kind).startswith("Tensor("):
                parts = [(value, kind, shape)]
            for own, own_kind, own_shape in parts:
                ids.append(own[0])
                shapes.append(tuple(own_shape))
                dtypes.append(dtype_of(own_kind))
        if not ids:
            return
        several = listed or len(operator(overload)._schema.returns) > 1
        at, module, mode = len(rows), self._module(call), self._tree.mode(call)
        rows.append(RecordedCall(overload, given, module, mode, tuple(shapes), tuple(dtypes)))
        if not several:
            self._at[ids[0]] = at
            return
        for part, tensor in enumerate(ids):
            self._at[tensor] = len(rows)
            taken = (("self", Reference(at)), ("index", part))
            rows.append(
                RecordedCall(GETITEM, taken, module, mode, (shapes[part],), (dtypes[part],))
            )

    def _module(self, call: Call) -> str:
        scope = self._tree.module(call)
        for above in self._tree.ancestors(call):
            if above.name.startswith(UNIT_SCOPE):
                self._units[above.name.removeprefix(UNIT_SCOPE)] = None
        return scope.partition(":")[2]

    def _outputs(self, trained: bool) -> tuple[int, ...]:
        rows = self._rows
        calls = {at: row for at, row in enumerate(rows) if isinstance(row, RecordedCall)}
        read = {at for call in calls.values() for at in references(call.arguments)}
        ends = {
            at: call.shapes[0]
            for at, call in calls.items()
            if at not in read
            and len(call.shapes) == 1
            and call.dtypes[0].startswith(("float", "bfloat"))
        }
        scalars = [at for at, shape in ends.items() if shape == ()]
        return tuple((scalars if trained and scalars else list(ends))[-1:])


def _wrong_tensor(held: Any) -> object:
    """Return the first entry that is no sound tensor, None if there is none."""
    if not isinstance(held, Mapping):
        return None  # older schemas, whose arguments have no types
    lists = [held.get(name, []) for name in ("values", "types", "shapes")]
    if not all(isinstance(one, list) for one in lists):
        return held
    for value, kind, shape in zip(*lists, strict=False):
        if not isinstance(kind, str) or not _is_sound(value, kind, shape):
            return [value, kind, shape]
    return None


def _is_sound(value: Any, kind: str, shape: Any) -> bool:
    if not isinstance(value, list) or not value:
        return True
    if kind.startswith("Tensor("):
        sizes = shape if isinstance(shape, list) else [None]
        return all(type(n) is int and n >= 0 for n in sizes) and type(value[0]) is int
    if kind.startswith("GenericList["):
        shapes = shape if isinstance(shape, list) else []
        return all(map(_is_sound, value, listed_kinds(kind), shapes))
    return True


def _tensor_ids(value: Any, kind: str) -> Iterator[int]:
    if kind.startswith("Tensor(") and isinstance(value, list) and value:
        yield int(value[0])
    elif kind.startswith("GenericList[") and isinstance(value, list):
        for part, own in zip(value, listed_kinds(kind), strict=False):
            yield from _tensor_ids(part, own)


def _frozen(value: Any) -> Any:
    return tuple(_frozen(part) for part in value) if isinstance(value, list) else value
