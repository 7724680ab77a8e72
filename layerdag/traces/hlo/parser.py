"""Parse StableHLO and HLO text through jaxlib."""

import contextlib
import importlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

from layerdag.errors import DataError
from layerdag.hardware.collectives import COLLECTIVES
from layerdag.hardware.hlo_operators import HLO_OPERATORS, HloKind
from layerdag.runtime.notes import NoteCollector, NoteKind
from layerdag.runtime.reading import read_whole
from layerdag.traces.hlo.hlo_text import (
    COLLECTIVE_KEY,
    LAYOUT_KEY,
    in_other_words,
    needs_words,
    refuse_deep_nesting,
    spelled,
)
from layerdag.traces.hlo.operations import (
    CustomCall,
    groups_of,
    pairs_of,
    reduced_elements,
    trip_count,
    without_scratch,
)
from layerdag.traces.hlo.program import (
    Collective,
    CompiledProgram,
    Computation,
    ValueType,
    bytes_of,
    flops_of,
)

_OPERATIONS = frozenset(
    (*(row.hlo for row in COLLECTIVES if row.hlo), "collective_permute", "cross-replica-sum")
)
_INLINED = frozenset(("call", "composite", "manual_computation", "async_start"))
_BRANCHES = ("if", "case")
_UNKNOWN = ("send", "recv", "infeed", "outfeed")
MAX_OPERATIONS = 2_000_000
"""Most operations of a program, calls inlined and loops unrolled."""
_DEEPEST = 100
_RAGGED = "ragged_all_to_all"
_FRONTEND = "mhlo.frontend_attributes"

Values = dict[Any, tuple[int, ...]]


class HloLowering:
    """Collects the items of a module that jaxlib has parsed.

    ``counts`` are the replicas and partitions that the text of an HLO module states.
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
        replicas = (counts.get("replica_count", 1), counts.get("num_replicas", 1))
        self._replicas = max(self._stated(listed, "mhlo.num_replicas"), *replicas)
        partitions = counts.get("num_partitions", 1)
        self._partitions = max(self._stated(listed, "mhlo.num_partitions"), partitions)
        self._items: list[Computation | Collective] = []
        self._found = NoteCollector(source)
        self._static: dict[Any, Computation] = {}
        self._turns: dict[Any, int] = {}
        self._sizes: dict[str, int] = {}
        self._depth = 0

    def program(self) -> CompiledProgram:
        """Return everything that the entry function does.

        Raises:
            DataError: As ``read_program``.
        """
        entry = self._functions.get("main") or next(iter(self._functions.values()), None)
        if entry is None:
            self._refuse("holds no function")
        begin = self._body(entry)
        size = self._size(begin)
        if size > MAX_OPERATIONS:
            self._refuse(
                f"has {size:,} operations when its calls are inlined and its loops unrolled; at "
                f"most {MAX_OPERATIONS:,} are taken, so give a smaller model or fewer turns"
            )
        self._block(begin, {})
        meshes = [name for name, found in self._meshes.items() if _name(found) == "mesh"]
        if meshes and not any(isinstance(item, Collective) for item in self._items):
            effect = (
                "shardings are annotations only and no collective is there; compile the module "
                "for its devices first and give the partitioned HLO"
            )
            self._found.add(NoteKind.ATTRIBUTE, f"sdy.mesh @{meshes[0]}", effect)
        named = [
            rank
            for item in self._items
            if isinstance(item, Collective)
            for group in (*item.groups, *item.pairs)
            for rank in group
        ]
        devices = max(self._replicas * self._partitions, 1 + max(named, default=0))
        name = self._module.operation.attributes
        return CompiledProgram(
            _text(name["sym_name"]) if "sym_name" in name else self._source,
            devices,
            tuple(self._items),
            self._found.notes,
        )

    @contextlib.contextmanager
    def _deeper(self) -> Iterator[None]:
        self._depth += 1
        if self._depth > _DEEPEST:
            self._refuse(f"nests calls and loops more than {_DEEPEST} deep")
        yield
        self._depth -= 1

    def _size(self, block: Any) -> int:
        """Return how many operations a block runs; functions are counted once."""
        total = 0
        with self._deeper():
            for view in block.operations:
                operation, name = view.operation, _name(view)
                total += 1
                if name in _INLINED and _has_body(operation):
                    total += self._size(operation.regions[0].blocks[0])
                elif name in _INLINED:
                    function = self._callee(operation)
                    called = _text(function.attributes["sym_name"])
                    if called not in self._sizes:
                        self._sizes[called] = self._size(self._body(function))
                    total += self._sizes[called]
                elif name == "while":
                    total += self._turns_of(operation) * self._size(operation.regions[1].blocks[0])
                elif name in _BRANCHES:
                    total += sum(self._size(region.blocks[0]) for region in operation.regions)
        return total

    def _turns_of(self, operation: Any) -> int:
        if operation not in self._turns:
            turns = trip_count(operation)
            if turns is None:
                self._refuse(
                    "has a loop whose trip count does not follow from constants "
                    f"({operation.location}); unroll it, or give the HLO that XLA compiled"
                )
            self._turns[operation] = turns
        return self._turns[operation]

    def _body(self, function: Any) -> Any:
        if not _has_body(function):
            name = _text(function.attributes["sym_name"])
            self._refuse(f"declares the function '{name}' without a body; link it before")
        return function.regions[0].blocks[0]

    def _block(self, block: Any, values: Values) -> Sequence[tuple[int, ...]]:
        """Add the operations of a block; return the items behind what it returns."""
        with self._deeper():
            for view in block.operations:
                operation, name = view.operation, _name(view)
                given = [values.get(value, ()) for value in operation.operands]
                if name == "return":
                    return given
                if name in _INLINED:
                    results = self._inlined(operation, given, values)
                elif name == "while":
                    results = self._loop(operation, given, values)
                elif name in _BRANCHES:
                    results = self._branches(operation, values)
                elif name in _UNKNOWN:
                    self._refuse(
                        f"has the operation '{name}', which names no device of the same program"
                    )
                else:
                    parents = tuple(sorted({item for of in given for item in of}))
                    results = [self._added(operation, name, parents)] * len(operation.results)
                values.update(zip(operation.results, results, strict=False))
        return ()

    def _added(self, operation: Any, name: str, parents: tuple[int, ...]) -> tuple[int, ...]:
        """Add an operation that is not taken apart; one without cost hands its parents on."""
        if name in _OPERATIONS:
            self._items.append(self._collective(operation, name, parents))
        elif name == "custom_call" and _text(operation.attributes["call_target_name"]) == _RAGGED:
            self._items.append(self._ragged(operation, parents))
        else:
            cost = self._cost(operation, name)
            if not cost.flops and not cost.mem_bytes:
                return parents
            self._items.append(replace(cost, parents=parents))
        return (len(self._items) - 1,)

    def _cost(self, operation: Any, name: str) -> Computation:
        """Return the operation without parents; loops ask for the same one many times."""
        if operation not in self._static:
            inputs, outputs = self._tensors(operation.operands), self._tensors(operation.results)
            if name == "custom_call":
                self._static[operation] = self._custom(operation, inputs, outputs)
                return self._static[operation]
            if name == "fusion":
                flops = sum(self._inner_flops(region) for region in operation.regions)
            else:
                flops = flops_of(name, outputs, reduced_elements(operation, name, inputs))
                if name not in HLO_OPERATORS:
                    effect = "no rule of costs; counted by its bytes alone"
                    self._found.add(NoteKind.OPERATOR, name, effect)
            moved = bytes_of(name, inputs, outputs)
            element = _widest((*inputs, *outputs))
            matrix = HLO_OPERATORS.get(name) is HloKind.MATRIX
            self._static[operation] = Computation(name, flops, moved, element, (), matrix)
        return self._static[operation]

    def _custom(
        self, operation: Any, inputs: list[ValueType], outputs: list[ValueType]
    ) -> Computation:
        said = operation.attributes
        target = _text(said["call_target_name"])
        config = ""
        if "backend_config" in said and type(said["backend_config"]).__name__ == "StringAttr":
            config = str(said["backend_config"].value)
        results = without_scratch(target, outputs)
        call = CustomCall(target, config, _frontend(operation, LAYOUT_KEY), inputs, results)
        if call.is_annotation():
            return Computation(target, 0, 0, "", ())
        moved = bytes_of("custom_call", inputs, results)
        flops = call.matrix_flops()
        if flops is None:
            effect = "a custom call whose work is not known; counted by its bytes alone"
            self._found.add(NoteKind.OPERATOR, target, effect)
            return Computation(target, 0, moved, _widest((*inputs, *results)), ())
        return Computation(target, flops, moved, inputs[0].element, (), matrix=True)

    def _inner_flops(self, region: Any) -> int:
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
        given = sum(tensor.num_bytes for tensor in self._tensors(operation.operands))
        devices = (self._replicas, self._partitions)
        name = _frontend(operation, COLLECTIVE_KEY) or name
        if name == "collective_permute":
            return Collective(name, given, (), pairs_of(operation, devices), parents)
        groups = groups_of(operation, devices, self._meshes)
        return Collective(name, given, groups, (), parents)

    def _ragged(self, operation: Any, parents: tuple[int, ...]) -> Collective:
        effect = "the sizes of its parts depend on the data; counted as an exchange of all of them"
        self._found.add(NoteKind.SIZE, _RAGGED, effect)
        config = operation.attributes["backend_config"]
        stated = {"replica_groups": config["replica_groups"]}
        if "channel_id" in config:
            stated["channel_handle"] = f"handle = {int(config['channel_id'])}"
        found = SimpleNamespace(attributes=stated, name="all_to_all")
        groups = groups_of(found, (self._replicas, self._partitions), self._meshes)
        given = self._tensors(operation.operands)[0].num_bytes
        return Collective("all_to_all", given, groups, (), parents)

    def _inlined(
        self, operation: Any, given: list[tuple[int, ...]], values: Values
    ) -> Sequence[tuple[int, ...]]:
        if _has_body(operation):
            block = operation.regions[0].blocks[0]
            inner = dict(values)
        else:
            block, inner = self._body(self._callee(operation)), {}
        inner.update(zip(block.arguments, given, strict=False))
        return self._block(block, inner)

    def _callee(self, operation: Any) -> Any:
        for key in ("callee", "decomposition", "called_computation"):
            if key in operation.attributes:
                called = str(operation.attributes[key]).lstrip("@").strip('"')
                if called in self._functions:
                    return self._functions[called]
        self._refuse(f"calls a function that is not there ({operation.name})")

    def _loop(
        self, operation: Any, given: list[tuple[int, ...]], values: Values
    ) -> Sequence[tuple[int, ...]]:
        body = operation.regions[1].blocks[0]
        carried: Sequence[tuple[int, ...]] = given
        for _ in range(self._turns_of(operation)):
            inner = dict(zip(body.arguments, carried, strict=False))
            carried = self._block(body, {**values, **inner})
        return carried

    def _branches(self, operation: Any, values: Values) -> Sequence[tuple[int, ...]]:
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
        found = ValueType(tuple(kind.shape), str(kind.element_type))
        if not found.element_bits:
            self._refuse(
                f"has tensors of the element type '{found.element}', whose size is unknown"
            )
        return [found]

    def _stated(self, attributes: Any, name: str) -> int:
        """Return a whole number among attributes, 1 where it is absent."""
        if name not in attributes:
            return 1
        found = str(attributes[name]).partition(":")[0].strip()
        if not found.isdecimal() or not int(found):
            self._refuse(f"states {name} = {found:.40}, which is no positive whole number")
        return int(found)

    def _refuse(self, what: str) -> NoReturn:
        raise DataError(f"{self._source}: {what}.")


def _has_body(operation: Any) -> bool:
    return bool(operation.regions) and len(operation.regions[0].blocks) > 0


def _name(operation: Any) -> str:
    return str(operation.operation.name).rpartition(".")[2]


def _text(attribute: Any) -> str:
    return str(attribute).strip('"')


def _frontend(operation: Any, key: str) -> str:
    """Return a frontend attribute of an operation, "" where it is absent."""
    if _FRONTEND not in operation.attributes:
        return ""
    found = operation.attributes[_FRONTEND]
    return _text(found[key]) if key in found else ""


def _widest(tensors: Sequence[ValueType]) -> str:
    """Return the widest element type, "" where there is none."""
    found = max(tensors, key=lambda tensor: tensor.element_bits, default=None)
    return found.element if found else ""


MAX_TEXT_BYTES = 256 << 20
_MLIR = re.compile(rb'\s*(?:(?://|#)[^\n]*\s*)*(?:module\b|func\.func\b|"builtin\.module")')
_HLO = re.compile(rb"\s*(?://[^\n]*\s*)*HloModule\b")
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
        DataError: If the file is neither, jaxlib is missing, the text cannot be parsed, a shape is
            dynamic, the trip count of a loop does not follow from constants, or the program has
            too many operations when it is unrolled.
    """
    data = read_whole(path, MAX_TEXT_BYTES)
    refuse_deep_nesting(data, str(path))
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
    try:
        return HloLowering(module, Path(path).name, counts).program()
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        # The parser takes operations of unknown dialects that are named as those of StableHLO.
        reason = " ".join(str(error).split())
        raise DataError(
            f"{path}: holds an operation without what StableHLO demands of it ({reason:.200})."
        ) from None


def _jaxlib(name: str) -> Any:
    """Return a module of jaxlib. Raises DataError if it is missing, or of another version."""
    try:
        return importlib.import_module(f"jaxlib.{name}")
    except ImportError as error:
        raise DataError(
            "StableHLO and HLO are parsed by jaxlib, which is missing or of another version "
            f"({error}); install it with: pip install 'layerdag[hlo]'."
        ) from None


def _parsed(text: str, source: str) -> Any:
    ir = _jaxlib("mlir.ir")
    context, registry = ir.Context(), ir.DialectRegistry()
    _jaxlib("mlir._mlir_libs._jax_mlir_ext").register_dialects(registry)
    context.append_dialect_registry(registry)
    context.load_all_available_dialects()
    _jaxlib("mlir.dialects.stablehlo").register_dialect(context)
    _jaxlib("mlir.dialects.sdy").register_dialect(context)
    _jaxlib("mlir.dialects.mhlo").register_mhlo_dialect(context)
    context.allow_unregistered_dialects = True
    try:
        return ir.Module.parse(text, context=context)
    except (ir.MLIRError, ValueError) as error:
        lines = [line for line in str(error).splitlines() if "error:" in line]
        reason = (lines or [str(error)])[0].replace('error: "-":', "line ").strip()
        raise DataError(f"{source}: cannot be parsed as StableHLO ({reason:.300}).") from None


def _stablehlo(text: str, source: str) -> str:
    hlo, jax = _jaxlib("_hlo"), _jaxlib("_jax")
    try:
        module = hlo.hlo_module_from_text(spelled(text))
        if needs_words(text):
            shapes = hlo.HloPrintOptions()
            shapes.print_operand_shape, shapes.print_metadata = True, False
            module = hlo.hlo_module_from_text(in_other_words(module.to_string(shapes)))
        computation = hlo.XlaComputation(module.as_serialized_hlo_module_proto())
        converted = jax.mlir.xla_computation_to_mlir_module(computation)
    except Exception as error:  # XLA's errors have types of several modules
        reason = " ".join(str(error).split())
        raise DataError(f"{source}: cannot be parsed as HLO ({reason:.300}).") from None
    return str(converted)
