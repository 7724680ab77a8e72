"""Parse StableHLO and HLO text through jaxlib."""

import importlib
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from layerdag.errors import DataError
from layerdag.runtime.reading import read_whole
from layerdag.traces.hlo.program import (
    ELEMENTWISE,
    FREE,
    MATRIX,
    MOVES,
    Collective,
    CompiledProgram,
    Computation,
    ValueType,
    bytes_of,
    flops_of,
)

_CONSTANTS_DEEP = 8


def reduced_elements(operation: Any, name: str, inputs: Sequence[ValueType]) -> int:
    """Return the elements behind one of the result: contracted, in the kernel, in the window."""
    if name == "dot":
        return inputs[0].shape[-1] if inputs[0].shape else 1
    if name == "dot_general":
        contracted = _listed(operation, "dot_dimension_numbers", "lhs_contracting_dimensions")
        return math.prod(inputs[0].shape[i] for i in contracted)
    if name in ("convolution", "dynamic_conv"):
        spatial = _listed(operation, "dimension_numbers", "kernel_spatial_dimensions")
        features = _kernel_input_features(operation)
        return math.prod(inputs[1].shape[i] for i in (*spatial, features))
    if name == "reduce":
        return math.prod(inputs[0].shape[i] for i in _integers(operation.attributes["dimensions"]))
    if name == "reduce_window":
        return math.prod(_integers(operation.attributes["window_dimensions"]))
    return 1


def groups_of(
    operation: Any, devices: tuple[int, int], meshes: Mapping[str, Any]
) -> tuple[tuple[int, ...], ...]:
    """Return the ranks of each group of a collective; empty means all devices.

    A rank is replica times partitions plus partition. Ids are replicas without a channel, pairs of
    replica and all partitions with one, and ranks with ``use_global_device_ids`` (StableHLO,
    "Process groups").
    """
    replicas, partitions = devices
    table = operation.attributes["replica_groups"]
    rows = _mesh_groups(str(table), meshes) if "mesh_axes" in str(table) else _rows(table)
    rows = [[device for device in row if device >= 0] for row in rows]
    rows = [row for row in rows if row]
    if not rows:
        return ()
    everywhere = "use_global_device_ids" in operation.attributes
    channel = _channel(operation)
    if everywhere or replicas == 1 or partitions == 1:
        found = rows
    elif channel and operation.name.endswith("all_to_all"):
        found = [[r * partitions + p for p in row] for r in range(replicas) for row in rows]
    elif channel:
        found = [[r * partitions + p for r in row for p in range(partitions)] for row in rows]
    else:
        found = [[r * partitions + p for r in row] for p in range(partitions) for row in rows]
    return tuple(map(tuple, found))


def pairs_of(operation: Any, devices: tuple[int, int]) -> tuple[tuple[int, int], ...]:
    """Return source and target of each message of a permutation, as ranks."""
    replicas, partitions = devices
    rows = _rows(operation.attributes["source_target_pairs"])
    if replicas == 1 or partitions == 1:
        return tuple((a, b) for a, b in rows)
    if _channel(operation):
        shifts = [r * partitions for r in range(replicas)]
        return tuple((s + a, s + b) for s in shifts for a, b in rows)
    return tuple(
        (a * partitions + p, b * partitions + p) for p in range(partitions) for a, b in rows
    )


def trip_count(operation: Any) -> int | None:
    """Return how often the body of a loop runs, None where it does not follow from constants."""
    test, body = (region.blocks[0] for region in operation.regions)
    *_, last = test.operations
    compare = _owner(last.operation.operands[0])
    if compare is None or not str(compare.name).endswith("compare"):
        return None
    counter, bound = compare.operands
    index = _argument(counter, test)
    limit = _constant(bound, operation, test)
    if index is None or limit is None:
        return None
    begin = _constant(operation.operands[index])
    *_, back = body.operations
    step = _step(back.operation.operands[index], body, index, operation)
    if begin is None or step is None or not step:
        return None
    return _turns(begin, limit, step, str(compare.attributes["comparison_direction"]))


def _turns(begin: int, limit: int, step: int, direction: str) -> int | None:
    """Return the turns of ``for (i = begin; i <direction> limit; i += step)``."""
    word = next((w for w in ("LT", "LE", "GT", "GE", "NE") if w in direction), "")
    entered = {"LT": begin < limit, "LE": begin <= limit, "GT": begin > limit, "GE": begin >= limit}
    if word and not entered.get(word, begin != limit):
        return 0
    if word in ("LT", "LE") and step > 0:
        return -(-(limit - begin + (word == "LE")) // step)
    if word in ("GT", "GE") and step < 0:
        return -(-(begin - limit + (word == "GE")) // -step)
    exact = word == "NE" and (limit - begin) % step == 0 and (limit - begin) // step > 0
    return (limit - begin) // step if exact else None


def _step(value: Any, body: Any, index: int, loop: Any) -> int | None:
    """Return what one turn adds to the counter."""
    added = _owner(value)
    if added is None or not str(added.name).endswith(("add", "subtract")):
        return None
    sign = -1 if str(added.name).endswith("subtract") else 1
    first, second = added.operands
    if _argument(first, body) == index:
        step = _constant(second, loop, body)
        return None if step is None else sign * step
    if sign == 1 and _argument(second, body) == index:
        return _constant(first, loop, body)
    return None


def _constant(value: Any, loop: Any = None, block: Any = None) -> int | None:
    """Return the whole number that a value always is, None where it is not constant."""
    for _ in range(_CONSTANTS_DEEP):
        index = None if block is None else _argument(value, block)
        if index is not None:
            # Carried through the loop unchanged?
            *_, back = loop.regions[1].blocks[0].operations
            if _argument(back.operation.operands[index], loop.regions[1].blocks[0]) != index:
                return None
            value, block = loop.operands[index], None
            continue
        owner = _owner(value)
        if owner is None:
            return None
        if str(owner.name).endswith("constant"):
            found = np.array(owner.attributes["value"]).reshape(-1)
            return int(found[0]) if found.size == 1 and found.dtype.kind in "iub" else None
        if not str(owner.name).endswith(("convert", "reshape", "copy")):
            return None
        value = owner.operands[0]
    return None


def _owner(value: Any) -> Any:
    """Return the operation that makes a value, None for an argument of a block."""
    owner = value.owner
    return owner.operation if hasattr(owner, "operation") and hasattr(owner, "attributes") else None


def _argument(value: Any, block: Any) -> int | None:
    """Return which argument of a block a value is, None for other values."""
    return next((i for i, own in enumerate(block.arguments) if own == value), None)


def _channel(operation: Any) -> bool:
    """Return whether a collective has a channel, and so spans partitions."""
    if "channel_handle" not in operation.attributes:
        return False
    found = re.search(r"handle\s*=\s*(\d+)", str(operation.attributes["channel_handle"]))
    return found is not None and int(found[1]) > 0


def _rows(table: Any) -> list[list[int]]:
    """Return a table of whole numbers."""
    found = np.array(table, dtype=np.int64)
    return found.reshape(len(found), -1).tolist() if found.size else []


def _mesh_groups(text: str, meshes: Mapping[str, Any]) -> list[list[int]]:
    """Return the groups along some axes of a mesh: devices that agree in all other axes."""
    named = re.search(r"mesh\s*=\s*@([\w.$-]+)", text)
    mesh = meshes.get(named[1]) if named else None
    if mesh is None:
        raise DataError(f"a collective names a mesh that is not there ({text:.100}).")
    layout = str(mesh.attributes["mesh"])
    sizes = {name: int(size) for name, size in re.findall(r'"([^"]+)"\s*=\s*(\d+)', layout)}
    listed = re.search(r"device_ids\s*=\s*\[([\d,\s]+)\]", layout)
    count = math.prod(sizes.values())
    order = [int(i) for i in listed[1].split(",")] if listed else list(range(count))
    axes = re.findall(r'name = "([^"]+)"', text)
    if "sub_axis" in text or any(axis not in sizes for axis in axes):
        raise DataError(f"a collective is split along a part of an axis ({text:.100}).")
    names = list(sizes)
    grid = np.array(order).reshape(*sizes.values())
    moved = np.moveaxis(grid, [names.index(axis) for axis in axes], range(-len(axes), 0))
    return moved.reshape(-1, math.prod(sizes[axis] for axis in axes)).tolist()


def _listed(operation: Any, attribute: str, key: str) -> list[int]:
    """Return a list of dimensions of a StableHLO attribute."""
    from jaxlib.mlir.dialects import stablehlo

    kind = {
        "dot_dimension_numbers": stablehlo.DotDimensionNumbers,
        "dimension_numbers": stablehlo.ConvDimensionNumbers,
    }[attribute]
    return list(getattr(kind(operation.attributes[attribute]), key))


def _kernel_input_features(operation: Any) -> int:
    """Return the dimension of a kernel that holds its input features."""
    from jaxlib.mlir.dialects import stablehlo

    numbers = stablehlo.ConvDimensionNumbers(operation.attributes["dimension_numbers"])
    return int(numbers.kernel_input_feature_dimension)


def _integers(attribute: Any) -> Iterable[int]:
    """Return a list of whole numbers."""
    return [int(number) for number in attribute]


COLLECTIVES = frozenset(
    (
        *("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "collective_broadcast"),
        *("collective_permute", "cross-replica-sum"),
    )
)
_INLINED = frozenset(("call", "composite", "manual_computation", "async_start"))
_BRANCHES = frozenset(("if", "case"))
_UNKNOWN = frozenset(("send", "recv", "infeed", "outfeed"))
_MOST_ITEMS = 5_000_000
_DEEPEST = 100

Values = dict[Any, tuple[int, ...]]


class Walk:
    """Collects the items of a module.

    Args:
        module: Parsed by jaxlib.
        source: For messages.
        counts: Replicas and partitions that the text of an HLO module states.
    """

    def __init__(self, module: Any, source: str, counts: Mapping[str, int]) -> None:
        self._module, self._source = module, source
        self._functions: dict[str, Any] = {}
        self._meshes: dict[str, Any] = {}
        for operation in module.body.operations:
            found = self._functions if _name(operation) == "func" else self._meshes
            if "sym_name" in operation.attributes:
                found[_text(operation.attributes["sym_name"])] = operation
        listed = module.operation.attributes
        self._replicas = max(
            _stated(listed, "mhlo.num_replicas"),
            counts.get("replica_count", 1),
            counts.get("num_replicas", 1),
        )
        self._partitions = max(
            _stated(listed, "mhlo.num_partitions"), counts.get("num_partitions", 1)
        )
        self._items: list[Computation | Collective] = []
        self._without_rule: Counter[str] = Counter()
        self._static: dict[Any, Computation] = {}
        self._depth = 0

    def program(self) -> CompiledProgram:
        """Return everything that the entry function does.

        Raises:
            DataError: As ``read_program``.
        """
        entry = self._functions.get("main") or next(iter(self._functions.values()), None)
        if entry is None:
            self._refuse("holds no function")
        self._block(entry.regions[0].blocks[0], {})
        name = self._module.operation.attributes
        return CompiledProgram(
            _text(name["sym_name"]) if "sym_name" in name else self._source,
            self._devices(),
            tuple(self._items),
            tuple(self._notes()),
        )

    def _devices(self) -> int:
        """Return the number of devices: stated, or the largest that a collective names."""
        named = [
            rank
            for item in self._items
            if isinstance(item, Collective)
            for group in (*item.groups, *item.pairs)
            for rank in group
        ]
        return max(self._replicas * self._partitions, 1 + max(named, default=0))

    def _notes(self) -> list[str]:
        notes = []
        if self._without_rule:
            listed = ", ".join(f"{name} ({count})" for name, count in self._without_rule.items())
            notes.append(f"no rule of costs, counted by their bytes alone: {listed}.")
        has_mesh = any(_name(found) == "mesh" for found in self._meshes.values())
        if has_mesh and not any(isinstance(item, Collective) for item in self._items):
            notes.append(
                "shardings are annotations only and no collective is there: compile the module for "
                "its devices first and give the partitioned HLO."
            )
        return notes

    def _block(self, block: Any, values: Values) -> tuple[tuple[int, ...], ...]:
        """Add the operations of a block; return the items behind what it returns."""
        self._depth += 1
        if self._depth > _DEEPEST:
            self._refuse(f"nests calls and loops more than {_DEEPEST} deep")
        returned: tuple[tuple[int, ...], ...] = ()
        for view in block.operations:
            operation = view.operation
            if _name(operation) == "return":
                returned = tuple(values.get(value, ()) for value in operation.operands)
                break
            self._operation(operation, values)
        self._depth -= 1
        return returned

    def _operation(self, operation: Any, values: Values) -> None:
        """Add one operation, or those inside it."""
        name = _name(operation)
        given = [values.get(value, ()) for value in operation.operands]
        if name in _INLINED:
            results = self._inlined(operation, name, given, values)
        elif name == "while":
            results = self._loop(operation, given, values)
        elif name in _BRANCHES:
            results = self._branches(operation, values)
        elif name in _UNKNOWN:
            self._refuse(f"has the operation '{name}', which names no device of the same program")
        else:
            parents = tuple(sorted({item for of in given for item in of}))
            results = [self._added(operation, name, parents)] * len(operation.results)
        for value, behind in zip(operation.results, results, strict=False):
            values[value] = behind

    def _added(self, operation: Any, name: str, parents: tuple[int, ...]) -> tuple[int, ...]:
        """Add an operation that is not taken apart; one without cost hands its parents on."""
        if name in COLLECTIVES:
            self._items.append(self._collective(operation, name, parents))
        else:
            cost = self._cost(operation, name)
            if not cost.flops and not cost.mem_bytes:
                return parents
            item = Computation(
                name, cost.flops, cost.mem_bytes, cost.element, parents, name in MATRIX
            )
            self._items.append(item)
        if len(self._items) > _MOST_ITEMS:
            self._refuse(f"has more than {_MOST_ITEMS:,} operations when its loops are unrolled")
        return (len(self._items) - 1,)

    def _cost(self, operation: Any, name: str) -> Computation:
        """Return the operation without parents; loops ask for the same one many times."""
        if operation not in self._static:
            inputs, outputs = self._tensors(operation.operands), self._tensors(operation.results)
            if name == "fusion":
                flops = sum(self._inner_flops(region) for region in operation.regions)
            else:
                reduced = reduced_elements(operation, name, inputs)
                flops = flops_of(name, inputs, outputs, reduced)
                if name not in (FREE | MOVES | ELEMENTWISE | MATRIX) and (
                    name not in ("reduce", "reduce_window")
                ):
                    self._without_rule[name] += 1
            moved = bytes_of(name, inputs, outputs)
            widest = max((*inputs, *outputs), key=lambda t: t.element_bits, default=None)
            element = widest.element if widest else ""
            self._static[operation] = Computation(name, flops, moved, element, ())
        return self._static[operation]

    def _inner_flops(self, region: Any) -> int:
        """Return the operations inside a fusion."""
        total = 0
        for block in region.blocks:
            for view in block.operations:
                name = _name(view.operation)
                if name in _INLINED:
                    total += self._inner_flops(self._callee(view.operation).regions[0])
                elif name != "return":
                    total += self._cost(view.operation, name).flops
        return total

    def _collective(self, operation: Any, name: str, parents: tuple[int, ...]) -> Collective:
        """Return a communication operation, its devices as ranks."""
        given = sum(tensor.num_bytes for tensor in self._tensors(operation.operands))
        devices = (self._replicas, self._partitions)
        if name == "collective_permute":
            return Collective(name, given, (), pairs_of(operation, devices), parents)
        groups = groups_of(operation, devices, self._meshes)
        return Collective(name, given, groups, (), parents)

    def _inlined(
        self, operation: Any, name: str, given: list[tuple[int, ...]], values: Values
    ) -> Sequence[tuple[int, ...]]:
        """Add the operations of a called function or a region that runs once."""
        if operation.regions and len(operation.regions[0].blocks):
            block = operation.regions[0].blocks[0]
            inner = dict(values)
        else:
            block, inner = self._callee(operation).regions[0].blocks[0], {}
        inner.update(zip(block.arguments, given, strict=False))
        return self._block(block, inner)

    def _callee(self, operation: Any) -> Any:
        """Return the function that an operation calls."""
        for key in ("callee", "decomposition", "called_computation"):
            if key in operation.attributes:
                called = str(operation.attributes[key]).lstrip("@").strip('"')
                if called in self._functions:
                    return self._functions[called]
        self._refuse(f"calls a function that is not there ({operation.name})")

    def _loop(
        self, operation: Any, given: list[tuple[int, ...]], values: Values
    ) -> Sequence[tuple[int, ...]]:
        """Add the body of a loop as often as it runs."""
        turns = trip_count(operation)
        if turns is None:
            self._refuse(
                "has a loop whose trip count does not follow from constants "
                f"({operation.location}); unroll it, or give the HLO that XLA compiled"
            )
        body = operation.regions[1].blocks[0]
        carried: Sequence[tuple[int, ...]] = given
        for _ in range(turns):
            carried = self._block(
                body, {**values, **dict(zip(body.arguments, carried, strict=False))}
            )
        return carried

    def _branches(self, operation: Any, values: Values) -> Sequence[tuple[int, ...]]:
        """Add the branch that moves most bytes."""
        begin, tried = len(self._items), []
        for region in operation.regions:
            returned = self._block(region.blocks[0], dict(values))
            items = self._items[begin:]
            moved = sum(i.mem_bytes if isinstance(i, Computation) else i.num_bytes for i in items)
            tried.append((moved, items, returned))
            del self._items[begin:]
        _, items, returned = max(tried, key=lambda found: found[0])
        self._items += items
        return returned

    def _tensors(self, values: Any) -> list[ValueType]:
        """Return the tensors of operands or results, those of tuples one by one."""
        return [tensor for value in values for tensor in self._tensors_of(value.type)]

    def _tensors_of(self, kind: Any) -> list[ValueType]:
        name = type(kind).__name__
        if name == "TupleType":
            parts = (kind.get_type(i) for i in range(kind.num_types))
            return [tensor for part in parts for tensor in self._tensors_of(part)]
        if name != "RankedTensorType":
            return []
        if not kind.has_static_shape:
            self._refuse(f"has a dynamic shape ({kind}); refine it to sizes first")
        return [ValueType(tuple(kind.shape), str(kind.element_type))]

    def _refuse(self, what: str) -> NoReturn:
        raise DataError(f"{self._source}: {what}.")


def _name(operation: Any) -> str:
    """Return the name of an operation without its dialect."""
    return str(operation.operation.name).rpartition(".")[2]


def _text(attribute: Any) -> str:
    return str(attribute).strip('"')


def _stated(attributes: Any, name: str) -> int:
    """Return a whole number among attributes, 1 where it is absent."""
    if name not in attributes:
        return 1
    return max(int(str(attributes[name]).partition(":")[0]), 1)


MAX_TEXT_BYTES = 256 << 20
_MLIR = re.compile(rb'\s*(?:(?://|#)[^\n]*\s*)*(?:module\b|func\.func\b|"builtin\.module")')
_HLO = re.compile(rb"\s*(?://[^\n]*\s*)*HloModule\b")
_DIALECTS = ("stablehlo", "sdy", "mhlo")
_COUNT = re.compile(r"\b(num_partitions|replica_count|num_replicas)=(\d+)")


def begins_program(data: bytes) -> bool:
    """Return whether a file that begins so holds StableHLO (MLIR) or HLO text."""
    start = data[: 1 << 16]
    return bool(_MLIR.match(start) or _HLO.match(start))


def read_program(path: str | Path) -> CompiledProgram:
    """Read a StableHLO module or an HLO module as text.

    HLO may be partitioned already (the output of XLA's SPMD pass); its three notations of replica
    groups and its fusions and loops are understood. Loops are unrolled.

    Raises:
        DataError: If the file is none, jaxlib is missing, the text cannot be parsed, a shape is
            dynamic, or the trip count of a loop does not follow from constants.
    """
    data = read_whole(path, MAX_TEXT_BYTES)
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise DataError(f"{path}: is no UTF-8 text; give StableHLO or HLO as text.") from None
    counts: dict[str, int] = {}
    if _HLO.match(data):
        counts = {name: int(number) for name, number in _COUNT.findall(text.partition("\n")[0])}
        text = _stablehlo(text, str(path))
    elif not _MLIR.match(data):
        raise DataError(f"{path}: begins like neither a StableHLO module nor an HLO module.")
    module = _parsed(text, str(path))
    return Walk(module, Path(path).name, counts).program()


@dataclass(frozen=True)
class _Bindings:
    """Modules of jaxlib; all of them are typed as little as jaxlib is.

    Attributes:
        ir: MLIR.
        dialects: Those that need a class each, and those that XLA registers together.
        hlo: HLO modules.
        jax: Their conversion.
    """

    ir: Any
    dialects: tuple[Any, Any, Any, Any]
    hlo: Any
    jax: Any


def _jaxlib() -> _Bindings:
    """Return the bindings that are needed.

    Raises:
        DataError: If jaxlib is not there, or another one than the extra asks for.
    """
    try:
        named = [importlib.import_module(f"jaxlib.mlir.dialects.{n}") for n in _DIALECTS]
        together = importlib.import_module("jaxlib.mlir._mlir_libs._jax_mlir_ext")
        ir, hlo, jax = (importlib.import_module(f"jaxlib.{n}") for n in ("mlir.ir", "_hlo", "_jax"))
    except ImportError as error:
        raise DataError(
            "StableHLO and HLO are parsed by jaxlib, which is missing or of another version "
            f"({error}); install it with: pip install 'layerdag[hlo]'."
        ) from None
    stablehlo, sdy, mhlo = named
    return _Bindings(ir, (together, stablehlo, sdy, mhlo), hlo, jax)


def _parsed(text: str, source: str) -> Any:
    """Return the module.

    Raises:
        DataError: If it cannot be parsed, with the first message of the parser.
    """
    found = _jaxlib()
    ir = found.ir
    together, stablehlo, sdy, mhlo = found.dialects
    context = ir.Context()
    registry = ir.DialectRegistry()
    together.register_dialects(registry)
    context.append_dialect_registry(registry)
    context.load_all_available_dialects()
    stablehlo.register_dialect(context)
    sdy.register_dialect(context)
    mhlo.register_mhlo_dialect(context)
    context.allow_unregistered_dialects = True
    try:
        return ir.Module.parse(text, context=context)
    except (ir.MLIRError, ValueError) as error:
        lines = [line for line in str(error).splitlines() if "error:" in line]
        reason = (lines or [str(error)])[0].replace('error: "-":', "line ").strip()
        raise DataError(f"{source}: cannot be parsed as StableHLO ({reason:.300}).") from None


def _stablehlo(text: str, source: str) -> str:
    """Return an HLO module as StableHLO."""
    found = _jaxlib()
    try:
        module = found.hlo.hlo_module_from_text(text)
        computation = found.hlo.XlaComputation(module.as_serialized_hlo_module_proto())
        converted = found.jax.mlir.xla_computation_to_mlir_module(computation)
    except Exception as error:  # XLA's errors have types of several modules
        reason = " ".join(str(error).split())
        raise DataError(f"{source}: cannot be parsed as HLO ({reason:.300}).") from None
    return str(converted)
