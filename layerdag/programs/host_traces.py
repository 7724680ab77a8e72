"""Programs from host traces: PyTorch's ExecutionTraceObserver writes every argument of a call.

The outermost operators before the backward pass are the forward program. Tensors are told apart by
their ids, parameters are those that the optimizer changes, in the order in which it does. What a
trace does not say is not guessed: the content of constants, module paths without scopes of their
own, numbers that PyTorch passed as tensors.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, final

from layerdag.capturing.scopes import AUTOCAST_SCOPE, MODULE_SCOPE, UNIT_SCOPE
from layerdag.errors import DataError, TraceError
from layerdag.programs.nodes import Word
from layerdag.programs.operators import GETITEM, arguments, operator
from layerdag.programs.recording import (
    RecordedCall,
    RecordedLeaf,
    Recording,
    Reference,
)
from layerdag.runtime.json_shape import found_value, plain_reason
from layerdag.traces.pytorch.host_trace import argument_values, attribute
from layerdag.traces.pytorch.kineto import Raw, stream_objects
from layerdag.traces.pytorch.operators import scalar_type

_OPERATOR = re.compile(r"(?:aten|torchvision|c10d|_c10d_functional|fsdp)::")
_SCHEMA = re.compile(r"(\w+)::(\w+)(?:\.(\w+))?\(")
_LISTED = re.compile(r"Tensor\((?:[^()]|\([^()]*\))*\)|None|\w+")
_EMPTY = "nullptr"
_BACKWARD = "autograd::engine::evaluate_function"
_ASKS_CONTENT = ("aten::is_nonzero", "aten::item", "aten::_local_scalar_dense")
_MESSAGES = ("c10d::send", "c10d::recv_")
_PLAN = frozenset((*_MESSAGES, "c10d::broadcast_", "c10d::allreduce_", "c10d::barrier"))
"""Communication that belongs to the plan, not to the program."""

_COALESCED = ("aten::flatten_dense_tensors", "aten::unflatten_dense_tensors")
"""Operators around DDP's broadcast of buffers, which copies then put in their places."""

# Codes of c10/core/ScalarType.h and c10/core/MemoryFormat.h that occur among arguments.
_DTYPES = {
    0: "uint8", 1: "int8", 2: "int16", 3: "int32", 4: "int64", 5: "float16", 6: "float32",
    7: "float64", 9: "complex64", 10: "complex128", 11: "bool", 15: "bfloat16",
}  # fmt: skip
_MEMORY_FORMATS = {0: "contiguous_format", 1: "preserve_format", 2: "channels_last",
                   3: "channels_last_3d"}  # fmt: skip
Tensor = tuple[int, tuple[int, ...], str]
"""Id, shape and dtype: PyTorch gives the ids of dead tensors to others."""

_NUMBERS = ("float64", "int64")
"""Dtypes of tensors without dimensions that Python's numbers become."""


def recording_of_host_trace(path: str | Path) -> Recording:
    """Return the forward pass of a host trace.

    Raises:
        TraceError: If the file is no host trace.
        DataError: If it holds no forward pass whose arguments are known, as traces before schema
            1.0.3 do, or FSDP's gathers stand where parameters were.
    """
    nodes = list(stream_objects(path, "nodes"))
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
    return _Reader(str(path), nodes).recording()


@dataclass
class _Values:
    """The values of the recording while it grows.

    Attributes:
        rows: Leaves and calls.
        at: Position of the value that a tensor id names now.
        leaves: Position of each leaf by id, shape and dtype.
    """

    rows: list[RecordedLeaf | RecordedCall] = field(default_factory=list)
    at: dict[int, int] = field(default_factory=dict)
    leaves: dict[Any, int] = field(default_factory=dict)

    def describes(self, value: int, shape: tuple[int, ...], dtype: str) -> bool:
        """Return whether a value has a shape and dtype; PyTorch gives ids of dead tensors anew."""
        row = self.rows[value]
        if isinstance(row, RecordedLeaf):
            return (row.shape, row.dtype) == (shape, dtype)
        return (row.shapes[0], row.dtypes[0]) == (shape, dtype)


@final
class _Reader:
    def __init__(self, source: str, nodes: list[Raw]) -> None:
        self._source, self._nodes = source, nodes
        self._by_id = {int(node["id"]): node for node in nodes}
        self._above: dict[int, tuple[Raw, ...]] = {}
        self._values = _Values()
        self._updated = self._parameters()
        self._opened = self._autocast()
        self._branches: list[str] = []
        self._unknown: list[str] = []
        self._flat: set[int] = set()
        self._units: dict[str, None] = {}
        self._messages = 0

    def recording(self) -> Recording:
        """Return the forward pass."""
        trained = False
        for node in self._nodes:
            name = str(node.get("name", ""))
            if _BACKWARD in name:
                trained = True
                break
            if _OPERATOR.match(name) and not self._inside(node) and node["id"] not in self._opened:
                self._add(node, name)
        rows = self._values.rows
        if trained and rows and _operator_of(rows[-1]) == "aten.ones_like.default":
            rows.pop()  # where the backward pass begins
        outputs = self._outputs(trained)
        if not outputs:
            raise DataError(f"{self._source} has no forward pass on floating-point tensors.")
        order = [tensor for tensor, *_ in sorted(self._updated, key=self._updated.__getitem__)]
        return Recording(
            name=Path(self._source).name.split(".")[0],
            values=tuple(rows),
            outputs=outputs,
            order=tuple(f"t{tensor}" for tensor in order),
            units=tuple(self._units),
            branches=tuple(self._branches),
            unknown_numbers=tuple(self._unknown),
            messages=self._messages,
        )

    def _ancestors(self, node: Raw) -> tuple[Raw, ...]:
        key = int(node["id"])
        if key not in self._above:
            parent = node.get("ctrl_deps", node.get("parent"))
            above = None if parent is None else self._by_id.get(int(parent))
            outer = above is not None and int(above["id"]) < key
            self._above[key] = (above, *self._ancestors(above)) if above and outer else ()
        return self._above[key]

    def _inside(self, node: Raw) -> bool:
        return any(
            (_is_operator(above) and above["id"] not in self._opened)
            or str(above.get("name", "")).startswith("Optimizer")
            for above in self._ancestors(node)
        )

    def _autocast(self) -> set[int]:
        """Return the operators that autocast ran, of which no scope tells, and those around them.

        Autocast casts what an operator is given and calls it again: the casts, and the call inside,
        are what other devices can run, too.
        """
        found: set[int] = set()
        for node in self._nodes:
            name, above = str(node.get("name", "")), self._ancestors(node)
            if not above or above[0].get("name") != name or not _OPERATOR.match(name):
                continue
            schema = attribute(node, "op_schema")
            if schema and schema == attribute(above[0], "op_schema") and not self._mode(node):
                found |= {int(outer["id"]) for outer in above if _is_operator(outer)}
        return found

    def _parameters(self) -> dict[Tensor, int]:
        found: dict[Tensor, int] = {}
        for node in self._nodes:
            names = (str(above.get("name", "")) for above in self._ancestors(node))
            if not any(name.startswith("Optimizer.step") for name in names):
                continue
            for value, kind, shape in _inputs(node):
                for tensor in _tensors(value, kind, shape, self._source):
                    # A number of Python's may have the place, and so the id, that one of the
                    # forward pass had.
                    if tensor[1] != () or tensor[2] not in _NUMBERS:
                        found.setdefault(tensor, len(found))
        return found

    def _add(self, node: Raw, name: str) -> None:
        if name in _ASKS_CONTENT:
            self._branches.append(f"{self._module(node) or 'the model'}: {name}")
            return
        self._messages += name in _MESSAGES
        try:
            if name in _PLAN or self._moves_buffers(node, name):
                return
            found = _SCHEMA.match(str(attribute(node, "op_schema") or ""))
        except TraceError as error:
            raise DataError(f"{self._source}: {error}") from error
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise DataError(
                f"{self._source}: node {node.get('id')} ({name}) has inputs or outputs of another "
                f"form than a host trace ({plain_reason(error)}); record it again."
            ) from error
        if found is None or name.startswith(("c10d", "_c10d_functional", "fsdp")):
            raise DataError(
                f"{self._source}: node {node.get('id')} ({name}) has no operator schema, or "
                "belongs to FSDP or tensor parallelism; its forward program cannot be taken out. "
                "Record a run on one rank or with DDP, by PyTorch 2.1 or later."
            )
        overload = f"{found[1]}.{found[2]}.{found[3] or 'default'}"
        operator(overload)
        try:
            given = tuple(self._arguments(node, overload))
            self._result(node, overload, given)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise DataError(
                f"{self._source}: node {node.get('id')} ({name}) has arguments that do not fit its "
                f"schema ({type(error).__name__}: {error})."
            ) from error

    def _moves_buffers(self, node: Raw, name: str) -> bool:
        given = {t for value, kind, _ in _inputs(node) for t in _tensor_ids(value, kind)}
        if name not in _COALESCED and not (name == "aten::copy_" and given & self._flat):
            return False
        made = node.get("outputs", {})
        for value, kind in zip(made.get("values", ()), made.get("types", ()), strict=False):
            if name in _COALESCED:
                self._flat.update(_tensor_ids(value, str(kind)))
        return True

    def _arguments(self, node: Raw, overload: str) -> Iterator[tuple[str, Any]]:
        for part, (value, kind, shape) in zip(arguments(overload), _inputs(node), strict=False):
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
                for v, k, s in zip(value, _listed(kind), shape, strict=True)
            )
        if name == "dtype" and isinstance(value, int):
            return Word("dtype", _DTYPES[value])
        if name == "memory_format":
            return Word("memory_format", _MEMORY_FORMATS[value])
        if isinstance(value, str) and value.lower() in ("inf", "-inf", "infinity", "-infinity"):
            return float(value)
        return _frozen(value)

    def _tensor(self, tensor: int, kind: str, shape: Any, name: str, overload: str) -> Any:
        values, dtype = self._values, _dtype(kind, self._source)
        if tensor in values.at and values.describes(values.at[tensor], tuple(shape), dtype):
            return Reference(values.at[tensor])
        key = (tensor, tuple(shape), dtype)
        known = key in self._updated
        if list(shape) == [] and dtype in _NUMBERS and not known and name != "self":
            self._unknown.append(overload)  # a number of Python's; a trace has no content
            return 0.5 if dtype == "float64" else 1  # the next index, and no index too large
        if key not in values.leaves:
            kind_of_leaf = _leaf_kind(name, overload, dtype, tuple(shape), known)
            if not self._updated and name in ("weight", "bias"):
                kind_of_leaf = "parameter"
            values.leaves[key] = len(values.rows)
            trained = kind_of_leaf == "parameter"
            values.rows.append(
                RecordedLeaf(kind_of_leaf, f"t{tensor}", tuple(shape), dtype, trained)
            )
        return Reference(values.leaves[key])

    def _result(self, node: Raw, overload: str, given: tuple[tuple[str, Any], ...]) -> None:
        values, outputs = self._values, node["outputs"]
        ids: list[int] = []
        shapes: list[tuple[int, ...]] = []
        dtypes: list[str] = []
        listed = False
        found = zip(outputs["values"], outputs["types"], outputs["shapes"], strict=True)
        for value, kind, shape in found:
            if str(kind).startswith("GenericList[") and "Tensor(" in kind:
                listed = True
                parts = list(zip(value, _listed(kind), shape, strict=True))
            elif str(kind).startswith("Tensor("):
                parts = [(value, kind, shape)]
            else:
                continue
            for own, own_kind, own_shape in parts:
                ids.append(own[0])
                shapes.append(tuple(own_shape))
                dtypes.append(_dtype(own_kind, self._source))
        if not ids:
            return
        several = listed or len(operator(overload)._schema.returns) > 1
        call, module, mode = len(values.rows), self._module(node), self._mode(node)
        values.rows.append(
            RecordedCall(overload, given, module, mode, tuple(shapes), tuple(dtypes))
        )
        if not several:
            values.at[ids[0]] = call
            return
        for part, tensor in enumerate(ids):
            values.at[tensor] = len(values.rows)
            taken = (("self", Reference(call)), ("index", part))
            values.rows.append(
                RecordedCall(GETITEM, taken, module, mode, (shapes[part],), (dtypes[part],))
            )

    def _module(self, node: Raw) -> str:
        names = [str(above.get("name", "")) for above in self._ancestors(node)]
        scopes = [name for name in names if name.startswith((MODULE_SCOPE, UNIT_SCOPE))]
        self._units.update(
            (name.removeprefix(UNIT_SCOPE), None) for name in scopes if name.startswith(UNIT_SCOPE)
        )
        return scopes[0].partition(":")[2] if scopes else ""

    def _mode(self, node: Raw) -> tuple[str, ...]:
        """Return what was switched on where a node runs, as far as scopes say it."""
        for above in self._ancestors(node):
            name = str(above.get("name", ""))
            if name.startswith(AUTOCAST_SCOPE):
                return (name,)
        return ()

    def _outputs(self, trained: bool) -> tuple[int, ...]:
        rows = self._values.rows
        read = {at for row in rows if isinstance(row, RecordedCall) for at in _read(row.arguments)}
        ends = {
            at: row.shapes[0]
            for at, row in enumerate(rows)
            if isinstance(row, RecordedCall)
            and at not in read
            and len(row.shapes) == 1
            and row.dtypes[0].startswith(("float", "bfloat"))
        }
        scalars = [at for at, shape in ends.items() if shape == ()]
        return tuple((scalars if trained and scalars else list(ends))[-1:])


def _is_operator(node: Raw) -> bool:
    return _OPERATOR.match(str(node.get("name", ""))) is not None


def _wrong_tensor(held: Any) -> object:
    """Return what stands where a tensor belongs and is none, None if all are sound."""
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
        parts = zip(value, _listed(kind), shape if isinstance(shape, list) else [], strict=False)
        return all(_is_sound(*part) for part in parts)
    return True


def _inputs(node: Raw) -> Iterable[tuple[Any, str, Any]]:
    """Return value, type and shape of each argument."""
    inputs = node.get("inputs")
    if not isinstance(inputs, Mapping) or "values" not in inputs:
        return ()
    kinds = [str(kind) for kind in inputs.get("types", ())]
    return zip(argument_values(node), kinds, inputs.get("shapes", ()), strict=False)


def _tensors(value: Any, kind: str, shape: Any, source: str) -> Iterator[Tensor]:
    """Yield id, shape and dtype of each tensor of an argument."""
    if kind.startswith("Tensor(") and isinstance(value, list) and value:
        if _EMPTY not in kind:
            yield int(value[0]), tuple(shape), _dtype(kind, source)
    elif kind.startswith("GenericList[") and isinstance(value, list):
        for part, own, lengths in zip(value, _listed(kind), shape, strict=False):
            yield from _tensors(part, own, lengths, source)


def _tensor_ids(value: Any, kind: str) -> Iterator[int]:
    if kind.startswith("Tensor(") and isinstance(value, list) and value:
        yield int(value[0])
    elif kind.startswith("GenericList[") and isinstance(value, list):
        for part, own in zip(value, _listed(kind), strict=False):
            yield from _tensor_ids(part, own)


def _listed(kind: str) -> list[str]:
    return _LISTED.findall(kind.removeprefix("GenericList[").removesuffix("]"))


def _dtype(kind: str, source: str) -> str:
    found = scalar_type(kind.removeprefix("Tensor(").removesuffix(")"))
    if found is None:
        raise DataError(f"{source}: {kind} is no dtype that PyTorch is known to have.")
    return found.name


def _leaf_kind(name: str, overload: str, dtype: str, shape: tuple[int, ...], updated: bool) -> str:
    if updated and dtype.startswith(("float", "bfloat")):
        return "parameter"
    counts = overload.startswith("aten.add_.") and dtype == "int64" and shape == ()
    return "buffer" if name in ("running_mean", "running_var") or counts else "input"


def _frozen(value: Any) -> Any:
    return tuple(_frozen(part) for part in value) if isinstance(value, list) else value


def _read(value: Any) -> Iterator[int]:
    if isinstance(value, Reference):
        yield value.value
    elif isinstance(value, tuple):
        for part in value:
            yield from _read(part)


def _operator_of(row: RecordedLeaf | RecordedCall) -> str:
    return row.operator if isinstance(row, RecordedCall) else ""
