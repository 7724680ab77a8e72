"""The calls of a step's forward pass, kept in a Chakra trace with their arguments.

A Chakra trace imported here has a node for each operator that does work. Its forward program also
needs the views, the operators that only call others, and the scopes that name modules. These are
stored as a Chakra trace of their own, in an attribute of the metadata, so that simulators do not
see them: ``ctrl_deps`` names the caller, ``inputs`` and ``outputs`` state values, shapes and types
as Chakra's converter writes them. Traces of that converter hold all calls among their nodes.
"""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from layerdag.errors import LayerdagError, TraceError
from layerdag.hardware.dtypes import find_dtype
from layerdag.runtime.json_shape import plain_reason
from layerdag.traces.builder import NodeSpec, build_trace
from layerdag.traces.chakra.files import decode_trace, encode_trace
from layerdag.traces.pytorch.host_trace import argument_values, attribute, read_host_blocks
from layerdag.traces.trace import Attribute, NodeType, Trace, Wire

FORWARD_CALLS = "forward_calls"
"""Attribute of the metadata (bytes) that holds the calls of the forward pass."""
ARGUMENT_WORDS = (FORWARD_CALLS.encode(), b"op_schema")
"""What stands in a Chakra trace that keeps the arguments of calls: one of these."""
MODULE_SCOPE = "module:"
"""Begins the name of the scope of a module's call; its path follows."""
UNIT_SCOPE = "unit:"
"""The same, of a module that ``fully_shard`` gathers at once."""
AUTOCAST_SCOPE = "autocast:"
"""Begins the name of a scope under autocast; the dtype follows."""

_OPERATOR = re.compile(r"(?:aten|torchvision|c10d|_c10d_functional|fsdp)::")
_BACKWARD = "autograd::engine::evaluate_function"
_OPTIMIZER = "Optimizer.step"
_LISTED = re.compile(r"Tensor\((?:[^()]|\([^()]*\))*\)|None|\w+")
_EMPTY = "nullptr"
_NUMBERS = ("float64", "int64")
"""Dtypes of tensors without dimensions that Python's numbers become."""
_DAMAGED = (LayerdagError, TypeError, ValueError, KeyError, IndexError)
_IO = ("values", "shapes", "types")

Raw = dict[str, Any]
Texts = tuple[str | None, ...]
"""Values, shapes and types of the inputs, then of the outputs, as a node of Chakra states them."""
NO_TEXTS: Texts = (None,) * 6
TensorName = tuple[int, tuple[int, ...], str]
"""Id, shape and dtype: PyTorch gives the ids of dead tensors to others."""


class Call(NamedTuple):
    """A node of a host trace: an operator, or a scope, whose schema is "".

    Ids ascend by start; ``parent`` is the id of the node that encloses it.
    """

    id: int
    parent: int | None
    name: str
    schema: str

    @property
    def is_operator(self) -> bool:
        """Whether it is an operator."""
        return _OPERATOR.match(self.name) is not None


class CallTree:
    """Which call made which; calls are given by ascending id."""

    def __init__(self, calls: Iterable[Call]) -> None:
        self._calls = list(calls)
        self._by_id = {call.id: call for call in self._calls}
        self._above: dict[int, tuple[Call, ...]] = {}
        # Operators that autocast ran, of which no scope says so, and those around them. Autocast
        # casts what an operator is given and calls it again: the casts, and the call inside, are
        # what other devices can run, too.
        self._opened: set[int] = set()
        for call in self._calls:
            above = self.ancestors(call)
            if not above or above[0].name != call.name or not call.is_operator:
                continue
            if call.schema and call.schema == above[0].schema and not self.mode(call):
                self._opened |= {outer.id for outer in above if outer.is_operator}

    @property
    def backward(self) -> Call | None:
        """The first call of the backward pass, None without one."""
        return next((call for call in self._calls if _BACKWARD in call.name), None)

    def forward(self) -> Iterator[Call]:
        """Yield the operators of the forward pass that the model itself calls."""
        for call in self._calls:
            if _BACKWARD in call.name:
                return
            inside = any(
                (above.is_operator and above.id not in self._opened)
                or above.name.startswith("Optimizer")
                for above in self.ancestors(call)
            )
            if call.is_operator and call.id not in self._opened and not inside:
                yield call

    def optimizer(self) -> Iterator[Call]:
        """Yield all calls inside steps of optimizers."""
        for call in self._calls:
            if any(above.name.startswith(_OPTIMIZER) for above in self.ancestors(call)):
                yield call

    def ancestors(self, call: Call) -> tuple[Call, ...]:
        """Return the calls around a call, the innermost first."""
        if call.id not in self._above:
            above = None if call.parent is None else self._by_id.get(call.parent)
            outer = above is not None and above.id < call.id
            self._above[call.id] = (above, *self.ancestors(above)) if above and outer else ()
        return self._above[call.id]

    def module(self, call: Call) -> str:
        """Return the name of the innermost scope of a module around a call, "" without one."""
        names = (above.name for above in self.ancestors(call))
        return next((n for n in names if n.startswith((MODULE_SCOPE, UNIT_SCOPE))), "")

    def mode(self, call: Call) -> tuple[str, ...]:
        """Return what was switched on where an operator runs, as far as scopes say it."""
        names = (above.name for above in self.ancestors(call))
        return tuple(name for name in names if name.startswith(AUTOCAST_SCOPE))[:1]


def call_of(node: Raw) -> Call:
    """Return the call that a node of a host trace is."""
    schema = str(attribute(node, "op_schema") or "")
    parent = node.get("ctrl_deps", node.get("parent"))
    return Call(int(node["id"]), parent, str(node.get("name", "")), schema)


def arguments_of(node: Raw) -> Iterable[tuple[Any, str, Any]]:
    """Return value, type and shape of each argument; nothing where the schema is too old."""
    inputs = node.get("inputs")
    if not isinstance(inputs, Mapping) or "values" not in inputs:
        return ()
    kinds = [str(kind) for kind in inputs.get("types", ())]
    return zip(argument_values(node), kinds, inputs.get("shapes", ()), strict=False)


def tensors_of(value: Any, kind: str, shape: Any) -> Iterator[TensorName]:
    """Yield the tensors of an argument. Raises TraceError if a dtype is not PyTorch's."""
    if kind.startswith("Tensor(") and isinstance(value, list) and value:
        if _EMPTY not in kind:
            yield int(value[0]), tuple(shape), dtype_of(kind)
    elif kind.startswith("GenericList[") and isinstance(value, list):
        for part, own, lengths in zip(value, listed_kinds(kind), shape, strict=False):
            yield from tensors_of(part, own, lengths)


def listed_kinds(kind: str) -> list[str]:
    """Return the types of the elements of a list of tensors."""
    return _LISTED.findall(kind.removeprefix("GenericList[").removesuffix("]"))


def dtype_of(kind: str) -> str:
    """Return the dtype of a tensor's type. Raises TraceError if PyTorch has none such."""
    found = find_dtype(kind.removeprefix("Tensor(").removesuffix(")"))
    if found is None:
        raise TraceError(f"{kind} is no dtype that PyTorch is known to have.")
    return found.name


def is_number(tensor: TensorName) -> bool:
    """Return whether a tensor may be a number of Python's: it has no dimensions."""
    return tensor[1] == () and tensor[2] in _NUMBERS


def updated_tensors(nodes: Iterable[Raw]) -> dict[TensorName, int]:
    """Return the tensors that nodes inside the optimizer's step are given, in order of first use.

    A number of Python's may have the place, and so the id, that one of the forward pass had; those
    are left out.
    """
    found: dict[TensorName, int] = {}
    for node in nodes:
        for argument in arguments_of(node):
            for tensor in tensors_of(*argument):
                if not is_number(tensor):
                    found.setdefault(tensor, len(found))
    return found


def argument_texts(node: Raw) -> Texts:
    """Return inputs and outputs of a node of a host trace as Chakra's fields hold them."""
    found: list[str | None] = []
    for side in ("inputs", "outputs"):
        held = node.get(side)
        if not isinstance(held, Mapping):  # before schema 1.0.2 they lie side by side
            one = side[:-1]
            held = {"values": held, "shapes": node.get(f"{one}_shapes"),
                    "types": node.get(f"{one}_types")}  # fmt: skip
        found += [None if (value := held.get(name)) is None else str(value) for name in _IO]
    return tuple(found)


def forward_calls(path: str | Path) -> Attribute | None:
    """Return the calls of the forward pass of a host trace as an attribute of a trace's metadata.

    The optimizer, which is given the parameters, distinguishes them from inputs: the calls that it
    makes with a tensor of the forward pass are kept, too. The file is read twice; calls that are
    not kept take no memory but for their ids. None if nothing can be kept: several nodes share an
    id, or no operator has arguments.

    Raises:
        TraceError: If the file is not a host trace, or a node is not JSON.
    """
    calls = [
        Call(number, parent, block.kinds[kind].name, block.kinds[kind].schema)
        for block in read_host_blocks(path, lambda kind: False)
        for number, parent, kind in zip(
            *(block.nodes_N[name].tolist() for name in ("id", "parent", "kind")), strict=True
        )
    ]
    calls.sort()
    if len({call.id for call in calls}) < len(calls) or (calls and calls[0].id < 0):
        return None
    tree = CallTree(calls)
    operators = list(tree.forward())
    optimizer = list(tree.optimizer())
    around = {c.id: {c.id, *(a.id for a in tree.ancestors(c))} for c in (*operators, *optimizer)}
    begun = () if tree.backward is None else (tree.backward.id,)
    wanted = np.array(sorted(set(begun).union(*around.values())), dtype=np.int64)
    try:
        nodes = {
            int(block.nodes_N["id"][row]): block.json_of(row)
            for block in read_host_blocks(path, lambda kind: False)
            for row in np.flatnonzero(np.isin(block.nodes_N["id"], wanted)).tolist()
        }
    except (ValueError, RecursionError) as error:
        raise TraceError(f"{path}: a node is no valid JSON ({error}); collect it again.") from error
    given = [nodes[call.id] for call in operators]
    first = _first_uses([nodes[call.id] for call in optimizer], given)
    kept = {*begun}.union(*(around[n] for n in (*(call.id for call in operators), *first)))
    specs = []
    for number in sorted(kept):
        call = call_of(nodes[number])
        specs.append(
            NodeSpec(
                call.id,
                call.name,
                NodeType.COMP,
                ctrl_deps=() if call.parent is None or call.parent < 0 else (call.parent,),
                attributes=(Attribute("op_schema", Wire.STRING, call.schema),) * bool(call.schema),
                io=argument_texts(nodes[number]) if number in around else NO_TEXTS,
            )
        )
    if not any(spec.io[0] for spec in specs):
        return None
    data = encode_trace(build_trace(specs, source=str(path)))
    return Attribute(FORWARD_CALLS, Wire.BYTES, data)


def _first_uses(nodes: Iterable[Raw], forward: Iterable[Raw]) -> Iterator[int]:
    """Yield the ids of the nodes that are the first to use a tensor of the forward pass.

    The first node with a tensor is among them, as it shows that there is an optimizer, and so are
    damaged ones, which are refused where the program is read.
    """
    known: set[TensorName] = set()
    try:
        left = {
            tensor
            for node in forward
            for argument in arguments_of(node)
            for tensor in tensors_of(*argument)
        }
    except _DAMAGED:
        return
    for node in nodes:
        try:
            found = updated_tensors([node]).keys()
        except _DAMAGED:
            yield int(node["id"])
            continue
        if found & left or (found and not known):
            yield int(node["id"])
        known |= found
        left -= found


def stated_calls(trace: Trace) -> list[Raw]:
    """Return the calls of a Chakra trace in the form of a host trace, as far as it keeps them.

    Raises:
        TraceError: If it states no arguments, or in another form than PyTorch's.
    """
    held = next((a.value for a in trace.metadata if a.name == FORWARD_CALLS), None)
    calls = decode_trace(held, trace.source) if isinstance(held, bytes) else trace
    schemas, stated_N = calls.texts("op_schema")
    if not (stated_N & (calls.io_N6[:, 0] >= 0)).any():
        raise TraceError(
            f"{trace.source}: does not keep the arguments of its forward calls, so that it has no "
            "program; convert the host trace again with 'layerdag convert', or name that one."
        )
    return [_raw(calls, row, schema) for row, schema in enumerate(schemas)]


def _raw(calls: Trace, row: int, schema: str) -> Raw:
    number = int(calls.id_N[row])
    name = int(calls.name_N[row])
    texts = [calls.strings[at] if at >= 0 else None for at in calls.io_N6[row].tolist()]
    try:
        held = [None if text is None else ast.literal_eval(text) for text in texts]
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError) as error:
        raise TraceError(
            f"{calls.source}: node {number} states inputs or outputs that are no list of PyTorch's "
            f"({plain_reason(error)}); convert the host trace again."
        ) from None
    found: Raw = {"id": number, "name": calls.strings[name] if name >= 0 else ""}
    for side, values in (("inputs", held[:3]), ("outputs", held[3:])):
        found[side] = {part: v for part, v in zip(_IO, values, strict=True) if v is not None}
    above = calls.ctrl_deps.of(row)
    if above.size:
        found["ctrl_deps"] = int(above[0])
    return {**found, "attrs": [{"name": "op_schema", "value": schema}]}
