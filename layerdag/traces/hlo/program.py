"""A compiled program with its costs and traces, by region; peak rates of devices."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from pathlib import Path

from layerdag.errors import ConfigError, UsageError
from layerdag.hardware.collectives import COLLECTIVES
from layerdag.hardware.devices import HESPAS_RATES
from layerdag.hardware.dtypes import mlir_bits
from layerdag.runtime.json_shape import found_value, parse_json
from layerdag.runtime.notes import Note, NoteCollector, NoteKind
from layerdag.runtime.reading import read_whole
from layerdag.runtime.settings import did_you_mean
from layerdag.traces.builder import NodeSpec, build_trace
from layerdag.traces.trace import Attribute, NodeType, Trace, Wire, Workload


@dataclass(frozen=True)
class ValueType:
    """Shape and element type of a value.

    Attributes:
        shape: Sizes.
        element: Name of the element type as MLIR writes it: "f32", "bf16", "i1", "complex<f32>".
    """

    shape: tuple[int, ...]
    element: str

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def element_bits(self) -> int:
        """Bits of an element, 0 if unknown; a Boolean takes a byte, as in memory."""
        return mlir_bits(self.element)

    @property
    def is_known(self) -> bool:
        """Whether the element type says how many bits it has."""
        return self.element_bits > 0

    @property
    def num_bytes(self) -> int:
        """Bytes of the whole value."""
        return -(-self.size * self.element_bits // 8)


@dataclass(frozen=True)
class Computation:
    """One operation that computes or moves data inside a device.

    Attributes:
        name: Without its dialect: "dot_general".
        flops: Floating-point (or integer) operations.
        mem_bytes: Bytes read and written.
        element: The widest element type of operands and results; "" where there is none.
        parents: Indices of the items of the program whose values it takes.
        matrix: Whether it is a matrix product or convolution, which runs on matrix units.
    """

    name: str
    flops: int
    mem_bytes: int
    element: str
    parents: tuple[int, ...]
    matrix: bool = False


@dataclass(frozen=True)
class Collective:
    """One communication operation.

    Attributes:
        name: Without its dialect: "all_reduce", "collective_permute".
        num_bytes: What one device gives: its operands.
        groups: Ranks of each group; empty means all devices.
        pairs: (source, target) of a permutation; empty for other kinds.
        parents: As of ``Computation``.
    """

    name: str
    num_bytes: int
    groups: tuple[tuple[int, ...], ...]
    pairs: tuple[tuple[int, int], ...]
    parents: tuple[int, ...]


@dataclass(frozen=True)
class CompiledProgram:
    """What one device runs; every device runs the same.

    Attributes:
        name: Of the module.
        devices: Replicas times partitions.
        items: Operations in program order, calls inlined, loops unrolled.
        notes: Operators without a rule of costs, annotations that were not applied.
    """

    name: str
    devices: int
    items: tuple[Computation | Collective, ...]
    notes: tuple[Note, ...] = ()


FREE = frozenset(
    (
        *("constant", "iota", "return", "tuple", "get_tuple_element", "optimization_barrier"),
        *("real", "imag", "complex", "after_all", "replica_id", "partition_id"),
        *("get_dimension_size", "sharding_constraint", "create_token", "async_done"),
        *("async_update", "add_dependency", "domain"),
    )
)
"""Operations that take no time."""
MOVES = frozenset(
    (
        *("transpose", "reshape", "broadcast_in_dim", "broadcast", "dynamic_broadcast_in_dim"),
        *("dynamic_reshape", "pad", "dynamic_pad", "concatenate", "slice", "dynamic_slice"),
        *("real_dynamic_slice", "dynamic_update_slice", "gather", "dynamic_gather", "scatter"),
        *("sort", "reverse", "select_and_scatter", "bitcast_convert", "copy"),
        *("dynamic_iota", "rng", "rng_bit_generator", "bitcast"),
    )
)
"""Operations that move data and compute nothing that counts."""
ELEMENTWISE = frozenset(
    (
        *("abs", "add", "and", "atan2", "cbrt", "ceil", "clamp", "compare", "convert", "cosine"),
        *("count_leading_zeros", "divide", "exponential", "exponential_minus_one", "floor"),
        *("is_finite", "log", "log_plus_one", "logistic", "map", "maximum", "minimum", "multiply"),
        *("negate", "not", "or", "popcnt", "power", "reduce_precision", "remainder"),
        *("round_nearest_afz", "round_nearest_even", "rsqrt", "select", "shift_left"),
        *("shift_right_arithmetic", "shift_right_logical", "sign", "sine", "sqrt", "subtract"),
        *("tan", "tanh", "uniform_dequantize", "uniform_quantize", "xor", "erf", "acos", "acosh"),
        *("asin", "asinh", "atan", "atanh", "cosh", "sinh", "erfc", "erf_inv", "lgamma"),
        *("digamma", "next_after", "polygamma", "zeta", "square", "topk"),
    )
)
"""Operations that count once for each element of their result."""
MATRIX = frozenset(("dot_general", "dot", "convolution", "dynamic_conv"))
_SORTED = frozenset(("sort",))
_PARTS = frozenset(("slice", "dynamic_slice", "real_dynamic_slice"))


@dataclass(frozen=True)
class Cost:
    """What an operation takes, however fast the device is."""

    flops: int
    mem_bytes: int


def flops_of(
    name: str, inputs: Sequence[ValueType], outputs: Sequence[ValueType], reduced: int
) -> int:
    """Return the operations of an operation.

    Args:
        name: Without its dialect.
        inputs: Operands.
        outputs: Results.
        reduced: Elements that make one of the result: of the contracted dimensions, the kernel and
            its input features, the window; 1 for others.
    """
    if name in FREE or name in MOVES or not outputs:
        return 0
    size = outputs[0].size
    if name in MATRIX:
        return 2 * size * reduced
    if name in ("reduce", "reduce_window"):
        return max(reduced - 1, 0) * size
    return size if name in ELEMENTWISE else 0


def bytes_of(name: str, inputs: Sequence[ValueType], outputs: Sequence[ValueType]) -> int:
    """Return the bytes that an operation reads and writes.

    A slice reads only what it returns. A sort reads and writes once for each bit of a key. Initial
    values of a reduction are not counted.
    """
    if name in FREE:
        return 0
    written = sum(tensor.num_bytes for tensor in outputs)
    if name in _PARTS:
        return 2 * written
    if name == "reduce":
        inputs = inputs[: len(inputs) // 2]
    moved = written + sum(tensor.num_bytes for tensor in inputs)
    return moved * math.ceil(inputs[0].element_bits / 8) if name in _SORTED and inputs else moved


_MAX_BYTES = 1 << 20
_KEYS = ("peak_flops", "per_datatype_flops", "memory_bandwidth", "name")


@dataclass(frozen=True)
class Hardware:
    """A device.

    Attributes:
        peak_flops: Operations per second of element types that are not listed.
        memory_bandwidth: Bytes per second.
        per_datatype_flops: Operations per second by element type; "tf32" is taken for matrix
            products and convolutions of f32.
        name: For messages.
    """

    peak_flops: float
    memory_bandwidth: float
    per_datatype_flops: Mapping[str, float] = field(default_factory=dict)
    name: str = ""

    def __post_init__(self) -> None:
        rates = {"peak_flops": self.peak_flops, "memory_bandwidth": self.memory_bandwidth}
        rates |= {f"per_datatype_flops.{name}": v for name, v in self.per_datatype_flops.items()}
        for name, rate in rates.items():
            if not 0 < rate < math.inf:
                raise ConfigError(f"{name} is {rate}; it must be a positive number, per second.")

    @classmethod
    def from_name(cls, text: str) -> "Hardware":
        """Return a preset by its name, or what a JSON file says.

        Raises:
            ConfigError: If it is neither, or a value is missing or no rate.
        """
        if text in HARDWARE:
            return HARDWARE[text]
        if not Path(text).is_file():
            raise ConfigError(
                f"There is no hardware '{text}'.{did_you_mean(text, HARDWARE)} Known: "
                f"{', '.join(HARDWARE)}, or a JSON file with peak_flops and memory_bandwidth."
            )
        return cls.from_file(text)

    @classmethod
    def from_file(cls, path: str | Path) -> "Hardware":
        """Read ``{"peak_flops": ..., "memory_bandwidth": ..., "per_datatype_flops": {...}}``.

        Raises:
            ConfigError: If the file cannot be read, or a value is missing or no rate.
        """
        try:
            data = parse_json(read_whole(path, _MAX_BYTES, ConfigError))
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{path}: is no JSON ({error!s:.100}).") from None
        if not isinstance(data, dict):
            raise ConfigError(f"{path}: holds no JSON object; write one with peak_flops.")
        unknown = [key for key in data if key not in _KEYS]
        if unknown:
            raise ConfigError(
                f"{path}: unknown key '{unknown[0]}'.{did_you_mean(unknown[0], _KEYS)} Known: "
                f"{', '.join(_KEYS)}."
            )
        listed = data.get("per_datatype_flops", {})
        if not isinstance(listed, dict):
            raise ConfigError(f"{path}: per_datatype_flops must be an object of rates by type.")
        try:
            return cls(
                _rate(data, "peak_flops"),
                _rate(data, "memory_bandwidth"),
                {name: _rate(listed, name) for name in listed},
                str(data.get("name", Path(path).stem)),
            )
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from None

    def seconds(self, operation: Computation) -> float:
        """Return the time of an operation: the larger of its operations and its bytes."""
        listed = self.per_datatype_flops
        peak = listed.get(operation.element, self.peak_flops)
        if operation.matrix and operation.element == "f32":
            peak = listed.get("tf32", peak)
        return max(operation.flops / peak, operation.mem_bytes / self.memory_bandwidth)

    def unlisted(self, program: "CompiledProgram") -> tuple[Note, ...]:
        """Return a note on each element type of matrix operations that has no rate of its own.

        A device without any such rates has one for all types.
        """
        found = NoteCollector(program.name)
        for item in program.items if self.per_datatype_flops else ():
            if isinstance(item, Computation) and item.matrix and item.element not in (
                "", "f32", *self.per_datatype_flops
            ):  # fmt: skip
                effect = f"no rate of {self.name}; timed at its {self.peak_flops:.4g} per second"
                found.add(NoteKind.DTYPE, item.element, effect, where=item.name)
        return found.notes


def _rate(data: Mapping[str, object], name: str) -> float:
    value = data.get(name)
    if value is None:
        raise ConfigError(f"'{name}' is missing; state it per second.")
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"'{name}' is {found_value(value)}; it must be a number, per second.")
    return float(value)


HARDWARE = {name: Hardware(*rates, name) for name, rates in HESPAS_RATES.items()}
"""Presets: the rates that Hespas ships for these devices."""


class DeviceSplit(Enum):
    """How operations become nodes.

    LINEAR joins all computation between two collectives into one node, and chains the nodes.
    INDIVIDUAL makes every operation that takes time a node, with its dependencies.
    """

    LINEAR = "linear"
    INDIVIDUAL = "individual"


@dataclass(frozen=True)
class Region:
    """A node: some computation, or one collective.

    Attributes:
        name: Of the operation, or "region 3".
        operations: Number of operations inside.
        flops: Of all of them.
        mem_bytes: Read and written by them.
        seconds: Sum of their times; 0 for a collective.
        element: Element type of the operation with the most time; "" for a collective.
        collective: The communication, None for computation.
        parents: Indices of the regions before it.
    """

    name: str
    operations: int
    flops: int
    mem_bytes: int
    seconds: float
    element: str
    collective: Collective | None
    parents: tuple[int, ...]


def regions(
    program: CompiledProgram, hardware: Hardware, split: DeviceSplit = DeviceSplit.LINEAR
) -> list[Region]:
    """Return the nodes of a program, in program order."""
    if split is DeviceSplit.INDIVIDUAL:
        return list(_individual(program, hardware))
    found: list[Region] = []
    joined: list[Computation] = []
    for item in (*program.items, None):
        if isinstance(item, Computation):
            joined.append(item)
            continue
        if any(operation.mem_bytes or operation.flops for operation in joined):
            found.append(_joined(joined, hardware, len(found)))
        joined = []
        if item is not None:
            before = (len(found) - 1,) if found else ()
            found.append(Region(item.name, 1, 0, 0, 0.0, "", item, before))
    return found


def _joined(operations: list[Computation], hardware: Hardware, index: int) -> Region:
    times = [hardware.seconds(operation) for operation in operations]
    longest = operations[max(range(len(times)), key=times.__getitem__)]
    return Region(
        f"region {index}",
        len(operations),
        sum(operation.flops for operation in operations),
        sum(operation.mem_bytes for operation in operations),
        sum(times),
        longest.element,
        None,
        (index - 1,) if index else (),
    )


def _individual(program: CompiledProgram, hardware: Hardware) -> Iterator[Region]:
    """Yield a region for each item that takes time; others hand their parents on."""
    index_of: list[tuple[int, ...]] = []
    made = 0
    for item in program.items:
        parents = tuple(sorted({p for parent in item.parents for p in index_of[parent]}))
        if isinstance(item, Collective):
            yield Region(item.name, 1, 0, 0, 0.0, "", item, parents)
        elif item.mem_bytes or item.flops:
            seconds = hardware.seconds(item)
            cost = (item.flops, item.mem_bytes, seconds)
            yield Region(item.name, 1, *cost, item.element, None, parents)
        else:
            index_of.append(parents)
            continue
        index_of.append((made,))
        made += 1


@dataclass(frozen=True)
class OperatorCost:
    """All operations of one name.

    Attributes:
        name: Without its dialect.
        count: How many run, loops unrolled.
        flops: Of all of them.
        mem_bytes: Of all of them.
        runtime_s: Sum of their times; None without hardware.
    """

    name: str
    count: int
    flops: int
    mem_bytes: int
    runtime_s: float | None


@dataclass(frozen=True)
class ProgramSummary:
    """What one device computes and communicates in a run of the program.

    Attributes:
        name: Of the module.
        devices: That it was compiled for.
        operations: Number of operations that take time.
        flops: Operations of all of them.
        mem_bytes: Bytes read and written.
        runtime_s: Sum of all times on the hardware, communication left out; None without one.
        hardware: Name of the hardware, None without one.
        operators: By name, those with most time (else most bytes) first.
        collectives: Count and bytes by name; the bytes that one device gives.
        regions: Of the linear split: the computation between two collectives, the longest first;
            empty without hardware.
        notes: See ``Program``.
    """

    name: str
    devices: int
    operations: int
    flops: int
    mem_bytes: int
    runtime_s: float | None
    hardware: str | None
    operators: tuple[OperatorCost, ...]
    collectives: dict[str, dict[str, int]]
    regions: tuple[Region, ...]
    notes: tuple[Note, ...]

    def to_dict(self) -> dict[str, object]:
        """Return the figures as plain data."""
        document = asdict(replace(self, notes=()))
        document["notes"] = [note.to_json() for note in self.notes]
        document["regions"] = [
            {key: getattr(region, key) for key in ("name", "operations", "flops", "mem_bytes")}
            | {"runtime_s": region.seconds}
            for region in self.regions
        ]
        return document

    def __str__(self) -> str:
        """Return the figures as lines."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        time = "" if self.runtime_s is None else f", {self.runtime_s * 1e6:,.3f} us"
        on = f" on {self.hardware}" if self.hardware else ""
        devices = "1 device" if self.devices == 1 else f"{self.devices:,} devices"
        operations = "1 operation" if self.operations == 1 else f"{self.operations:,} operations"
        yield f"{self.name}: {devices}, {operations} on each"
        yield f"{self.flops:.4g} FLOPs, {self.mem_bytes:.4g} bytes{time}{on}"
        for name, held in self.collectives.items():
            yield f"{name}: {held['count']:,}, {held['bytes'] / 1e6:,.3f} MB from each device"
        yield ""
        yield f"{'operator':<24}{'count':>8}{'GFLOPs':>14}{'MB':>14}{'us':>14}"
        for row in self.operators[:10]:
            spent = "" if row.runtime_s is None else f"{row.runtime_s * 1e6:,.3f}"
            yield (
                f"{row.name:<24}{row.count:>8,}{row.flops / 1e9:>14,.3f}"
                f"{row.mem_bytes / 1e6:>14,.3f}{spent:>14}"
            )
        if len(self.operators) > 10:
            yield f"... and {len(self.operators) - 10} more; --json shows all."
        for region in self.regions[:3] if len(self.regions) > 1 else ():
            yield (
                f"{region.name}: {region.operations:,} operations, {region.seconds * 1e6:,.3f} us"
            )


def summarize_program(program: CompiledProgram, hardware: Hardware | None = None) -> ProgramSummary:
    """Return the figures of a program; times only with hardware."""
    computed = [item for item in program.items if isinstance(item, Computation)]
    counts, flops, moved = Counter[str](), Counter[str](), Counter[str]()
    seconds: defaultdict[str, float] = defaultdict(float)
    for item in computed:
        counts[item.name] += 1
        flops[item.name] += item.flops
        moved[item.name] += item.mem_bytes
        if hardware is not None:
            seconds[item.name] += hardware.seconds(item)
    rows = [
        OperatorCost(n, counts[n], flops[n], moved[n], None if hardware is None else seconds[n])
        for n in counts
    ]
    rows.sort(key=lambda row: (row.runtime_s or 0.0, row.mem_bytes), reverse=True)
    cut = [] if hardware is None else regions(program, hardware)
    longest = sorted((r for r in cut if r.collective is None), key=lambda r: -r.seconds)
    return ProgramSummary(
        program.name,
        program.devices,
        len(computed),
        sum(flops.values()),
        sum(moved.values()),
        None if hardware is None else sum((hardware.seconds(item) for item in computed), 0.0),
        None if hardware is None else hardware.name,
        tuple(rows),
        _collectives(program),
        tuple(longest),
        program.notes if hardware is None else (*program.notes, *hardware.unlisted(program)),
    )


def _collectives(program: CompiledProgram) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for item in program.items:
        if isinstance(item, Collective):
            held = found.setdefault(item.name, {"count": 0, "bytes": 0})
            held["count"] += 1
            held["bytes"] += item.num_bytes
    return found


_TYPES = {row.hlo: row.type for row in COLLECTIVES if row.hlo}


@dataclass(frozen=True)
class _Part:
    """What one rank does in a communication.

    Attributes:
        group: Name of its group; "" for all ranks, None if it takes no part.
        targets: Ranks that it sends to.
        sources: Ranks that it receives from.
    """

    group: str | None = None
    targets: tuple[int, ...] = ()
    sources: tuple[int, ...] = ()


def program_workload(
    program: CompiledProgram,
    hardware: Hardware,
    *,
    split: DeviceSplit = DeviceSplit.LINEAR,
    ranks: int | None = None,
) -> Workload:
    """Return one trace for each device; devices with the same groups and peers share one.

    Computation has its duration on the hardware, and its operations and bytes, so that another
    ``--compute`` of the simulator can time it anew. Communication of a rank is chained in program
    order, so that no two ranks wait for each other.

    Args:
        program: What every device runs.
        hardware: For durations.
        split: How operations become nodes.
        ranks: Devices; those of the program where not given. A program compiled for one device runs
            on any number: its collectives are then of all of them.

    Raises:
        UsageError: If the program was compiled for another number of devices.
    """
    devices = program.devices
    if ranks is not None and ranks != devices:
        if devices != 1:
            raise UsageError(
                f"{program.name} was compiled for {devices} devices, so that it cannot run on "
                f"{ranks}; leave --ranks out, or compile it anew."
            )
        devices = ranks
        items = tuple(
            replace(item, groups=()) if isinstance(item, Collective) else item
            for item in program.items
        )
        program = replace(program, devices=devices, items=items)
    nodes = regions(program, hardware, split)
    names = _group_names(nodes, devices)
    made: dict[tuple[_Part, ...], Trace] = {}
    traces = []
    for rank in range(devices):
        parts = tuple(_part(region.collective, rank, names) for region in nodes)
        if parts not in made:
            made[parts] = _trace(program.name, nodes, parts)
        traces.append(made[parts])
    groups = {name: ranks for ranks, name in names.items() if name}
    notes = (*program.notes, *hardware.unlisted(program))
    return Workload(tuple(traces), groups, program.name, notes)


def _group_names(nodes: Sequence[Region], devices: int) -> dict[tuple[int, ...], str]:
    """Return the name of each group of ranks: numbers from 1 on, "" for all ranks in order."""
    names = {(): "", tuple(range(devices)): ""}
    for region in nodes:
        for group in region.collective.groups if region.collective else ():
            names.setdefault(group, str(len(names) - 1))
    if devices == 1:
        names[()] = ""
    return names


def _part(found: Collective | None, rank: int, names: dict[tuple[int, ...], str]) -> _Part:
    """Return the part of a rank; nobody communicates alone."""
    if found is None:
        return _Part()
    if found.name == "collective_permute":
        targets = tuple(b for a, b in found.pairs if a == rank != b)
        return _Part(None, targets, tuple(a for a, b in found.pairs if b == rank != a))
    all_ranks = max(names, key=len) if () in names else ()
    groups = found.groups or (all_ranks,)
    own = next((group for group in groups if rank in group), ())
    return _Part(names[own]) if len(own) > 1 else _Part()


def _trace(source: str, nodes: Sequence[Region], parts: Sequence[_Part]) -> Trace:
    specs: list[NodeSpec] = []
    behind: list[tuple[int, ...]] = []
    last: tuple[int, ...] = ()
    for index, (region, part) in enumerate(zip(nodes, parts, strict=True)):
        parents = tuple(sorted({node for parent in region.parents for node in behind[parent]}))
        if region.collective is None:
            made = [_computation(len(specs), region, parents)]
        else:
            after = tuple(sorted({*parents, *last}))
            made = list(_communication(len(specs), index, region.collective, part, after))
            last = tuple(node.id for node in made) or last
        specs += made
        behind.append(tuple(node.id for node in made) or parents)
    return build_trace(specs, source=source)


def _computation(number: int, region: Region, parents: tuple[int, ...]) -> NodeSpec:
    attributes = (
        Attribute("is_cpu_op", Wire.BOOL, False),
        Attribute("num_ops", Wire.INT64, max(region.flops, 1)),
        Attribute("tensor_size", Wire.UINT64, max(region.mem_bytes, 1)),
        Attribute("duration_ns", Wire.INT64, max(round(region.seconds * 1e9), 1)),
    )
    micros = round(region.seconds * 1e6)
    return NodeSpec(number, region.name, NodeType.COMP, parents, (), 0, micros, attributes)


def _communication(
    number: int, tag: int, found: Collective, part: _Part, after: tuple[int, ...]
) -> Iterator[NodeSpec]:
    size = Attribute("comm_size", Wire.INT64, found.num_bytes)
    on_device = Attribute("is_cpu_op", Wire.BOOL, False)
    if part.group is not None:
        kind = Attribute("comm_type", Wire.INT64, int(_TYPES[found.name]))
        named = (Attribute("pg_name", Wire.STRING, part.group),) if part.group else ()
        attributes = (on_device, kind, size, *named)
        yield NodeSpec(number, found.name, NodeType.COMM_COLL, after, attributes=attributes)
    ends = [("comm_dst", NodeType.COMM_SEND, rank) for rank in part.targets]
    ends += [("comm_src", NodeType.COMM_RECV, rank) for rank in part.sources]
    for offset, (end, node_type, peer) in enumerate(ends):
        attributes = (
            on_device,
            size,
            Attribute(end, Wire.INT32, peer),
            Attribute("comm_tag", Wire.INT32, tag),
        )
        yield NodeSpec(number + offset, found.name, node_type, after, attributes=attributes)
