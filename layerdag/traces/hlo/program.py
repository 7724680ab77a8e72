"""A compiled program with its costs and traces, by region."""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from enum import Enum

from layerdag.errors import UsageError
from layerdag.hardware.collectives import COLLECTIVES
from layerdag.hardware.devices import Hardware
from layerdag.hardware.dtypes import mlir_bits
from layerdag.hardware.hlo_operators import HLO_OPERATORS, HloKind
from layerdag.runtime.notes import Note, NoteCollector, NoteKind
from layerdag.traces.builder import NodeSpec, build_trace
from layerdag.traces.trace import Attribute, NodeType, Trace, Wire, Workload


@dataclass(frozen=True)
class ValueType:
    """Shape of a value, and element type as MLIR writes it: "f32", "i1", "complex<f32>"."""

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
    def num_bytes(self) -> int:
        """Bytes of the whole value."""
        return -(-self.size * self.element_bits // 8)


@dataclass(frozen=True)
class Computation:
    """One operation that computes or moves data inside a device.

    Attributes:
        name: Without its dialect: "dot_general".
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

    def seconds(self, hardware: Hardware) -> float:
        """Return its time on a device."""
        return hardware.seconds(self.flops, self.mem_bytes, self.element, matrix=self.matrix)


@dataclass(frozen=True)
class Collective:
    """One communication operation.

    Attributes:
        name: Without its dialect: "all_reduce", "collective_permute".
        num_bytes: What one device gives: its operands.
        groups: Ranks of each group; empty means all devices.
        pairs: (source, target) of a permutation; empty for other kinds.
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
        devices: Replicas times partitions.
        items: Operations in program order, calls inlined, loops unrolled.
        notes: Operators without a rule of costs, annotations that were not applied.
    """

    name: str
    devices: int
    items: tuple[Computation | Collective, ...]
    notes: tuple[Note, ...] = ()


def flops_of(name: str, outputs: Sequence[ValueType], reduced: int) -> int:
    """Return the floating-point operations of an operation, named without its dialect.

    ``reduced`` elements make one of the result: of the contracted dimensions, the kernel and its
    input features, the window; 1 for others.
    """
    kind, size = HLO_OPERATORS.get(name), outputs[0].size if outputs else 0
    if kind is HloKind.MATRIX:
        return 2 * size * reduced
    if kind is HloKind.REDUCTION:
        return max(reduced - 1, 0) * size
    return size if kind is HloKind.ELEMENTWISE else 0


def bytes_of(name: str, inputs: Sequence[ValueType], outputs: Sequence[ValueType]) -> int:
    """Return the bytes that an operation reads and writes.

    A slice reads only what it returns. A sort reads and writes once for each bit of a key. Initial
    values of a reduction are not counted.
    """
    if HLO_OPERATORS.get(name) is HloKind.FREE:
        return 0
    written = sum(tensor.num_bytes for tensor in outputs)
    if name in ("slice", "dynamic_slice", "real_dynamic_slice"):
        return 2 * written
    if name == "reduce":
        inputs = inputs[: len(inputs) // 2]
    moved = written + sum(tensor.num_bytes for tensor in inputs)
    return moved * math.ceil(inputs[0].element_bits / 8) if name == "sort" and inputs else moved


def unlisted_rates(program: CompiledProgram, hardware: Hardware) -> tuple[Note, ...]:
    """Return a note on each element type of matrix operations that has no rate of its own.

    A device without any such rates has one for all types.
    """
    found = NoteCollector(program.name)
    known = ("", "f32", *hardware.per_datatype_flops)
    for item in program.items if hardware.per_datatype_flops else ():
        if isinstance(item, Computation) and item.matrix and item.element not in known:
            rate = f"{hardware.peak_flops:.4g} per second"
            effect = f"no rate of {hardware.name}; timed at its {rate}"
            found.add(NoteKind.DTYPE, item.element, effect, where=item.name)
    return found.notes


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
        seconds: Sum of their times; 0 for a collective.
        element: Element type of the operation with the most time; "" for a collective.
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
    times = [operation.seconds(hardware) for operation in operations]
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
            seconds = item.seconds(hardware)
            cost = (item.flops, item.mem_bytes, seconds)
            yield Region(item.name, 1, *cost, item.element, None, parents)
        else:
            index_of.append(parents)
            continue
        index_of.append((made,))
        made += 1


@dataclass(frozen=True)
class OperatorCost:
    """All operations of one name that run, loops unrolled; the time is None without hardware."""

    name: str
    count: int
    flops: int
    mem_bytes: int
    runtime_s: float | None


@dataclass(frozen=True)
class ProgramSummary:
    """What one device computes and communicates in a run of the program.

    Attributes:
        devices: That it was compiled for.
        operations: Number of operations that take time.
        runtime_s: Sum of all times on the hardware, communication left out; None without one.
        operators: By name, those with most time (else most bytes) first.
        collectives: Count and bytes by name; the bytes that one device gives.
        regions: Of the linear split: the computation between two collectives, the longest first;
            empty without hardware.
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
        time = "" if self.runtime_s is None else f", {self.runtime_s * 1e6:,.3f} us"
        on = f" on {self.hardware}" if self.hardware else ""
        devices = "1 device" if self.devices == 1 else f"{self.devices:,} devices"
        operations = "1 operation" if self.operations == 1 else f"{self.operations:,} operations"
        lines = [
            f"{self.name}: {devices}, {operations} on each",
            f"{self.flops:.4g} FLOPs, {self.mem_bytes:.4g} bytes{time}{on}",
        ]
        lines += [
            f"{name}: {held['count']:,}, {held['bytes'] / 1e6:,.3f} MB from each device"
            for name, held in self.collectives.items()
        ]
        lines += ["", f"{'operator':<24}{'count':>8}{'GFLOPs':>14}{'MB':>14}{'us':>14}"]
        for row in self.operators[:10]:
            spent = "" if row.runtime_s is None else f"{row.runtime_s * 1e6:,.3f}"
            lines.append(
                f"{row.name:<24}{row.count:>8,}{row.flops / 1e9:>14,.3f}"
                f"{row.mem_bytes / 1e6:>14,.3f}{spent:>14}"
            )
        if len(self.operators) > 10:
            lines.append(f"... and {len(self.operators) - 10} more; --json shows all.")
        for region in self.regions[:3] if len(self.regions) > 1 else ():
            spent = f"{region.seconds * 1e6:,.3f} us"
            lines.append(f"{region.name}: {region.operations:,} operations, {spent}")
        return "\n".join(lines)


def summarize_program(program: CompiledProgram, hardware: Hardware | None = None) -> ProgramSummary:
    """Return the figures of a program; times only with hardware."""
    of_name: defaultdict[str, list[Computation]] = defaultdict(list)
    collectives: dict[str, dict[str, int]] = {}
    for item in program.items:
        if isinstance(item, Computation):
            of_name[item.name].append(item)
        else:
            held = collectives.setdefault(item.name, {"count": 0, "bytes": 0})
            held["count"] += 1
            held["bytes"] += item.num_bytes
    rows = [
        OperatorCost(
            name,
            len(items),
            sum(item.flops for item in items),
            sum(item.mem_bytes for item in items),
            None if hardware is None else sum((item.seconds(hardware) for item in items), 0.0),
        )
        for name, items in of_name.items()
    ]
    rows.sort(key=lambda row: (row.runtime_s or 0.0, row.mem_bytes), reverse=True)
    cut = [] if hardware is None else regions(program, hardware)
    longest = sorted((r for r in cut if r.collective is None), key=lambda r: -r.seconds)
    computed = [item for item in program.items if isinstance(item, Computation)]
    return ProgramSummary(
        program.name,
        program.devices,
        len(computed),
        sum(row.flops for row in rows),
        sum(row.mem_bytes for row in rows),
        None if hardware is None else sum((item.seconds(hardware) for item in computed), 0.0),
        None if hardware is None else hardware.name,
        tuple(rows),
        collectives,
        tuple(longest),
        program.notes if hardware is None else (*program.notes, *unlisted_rates(program, hardware)),
    )


_TYPES = {row.hlo: row.type for row in COLLECTIVES if row.hlo}


@dataclass(frozen=True)
class _Part:
    """Whom one rank talks to: a group ("" for all ranks, None for no group), or single ranks."""

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

    A program compiled for one device runs on any number of ``ranks``: its collectives are then of
    all of them.

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
    notes = (*program.notes, *unlisted_rates(program, hardware))
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


_ON_DEVICE = Attribute("is_cpu_op", Wire.BOOL, False)


def _trace(source: str, nodes: Sequence[Region], parts: Sequence[_Part]) -> Trace:
    specs: list[NodeSpec] = []
    behind: list[tuple[int, ...]] = []
    last: tuple[int, ...] = ()
    for index, (region, part) in enumerate(zip(nodes, parts, strict=True)):
        parents = tuple(sorted({node for parent in region.parents for node in behind[parent]}))
        if region.collective is None:
            attributes = (
                _ON_DEVICE,
                Attribute("num_ops", Wire.INT64, max(region.flops, 1)),
                Attribute("tensor_size", Wire.UINT64, max(region.mem_bytes, 1)),
                Attribute("duration_ns", Wire.INT64, max(round(region.seconds * 1e9), 1)),
            )
            times_us = (0, round(region.seconds * 1e6))
            kind = NodeType.COMP
            made = [NodeSpec(len(specs), region.name, kind, parents, (), *times_us, attributes)]
        else:
            after = tuple(sorted({*parents, *last}))
            made = list(_communication(len(specs), index, region.collective, part, after))
            last = tuple(node.id for node in made) or last
        specs += made
        behind.append(tuple(node.id for node in made) or parents)
    return build_trace(specs, source=source)


def _communication(
    number: int, tag: int, found: Collective, part: _Part, after: tuple[int, ...]
) -> Iterator[NodeSpec]:
    size = Attribute("comm_size", Wire.INT64, found.num_bytes)
    if part.group is not None:
        kind = Attribute("comm_type", Wire.INT64, int(_TYPES[found.name]))
        named = (Attribute("pg_name", Wire.STRING, part.group),) if part.group else ()
        attributes = (_ON_DEVICE, kind, size, *named)
        yield NodeSpec(number, found.name, NodeType.COMM_COLL, after, attributes=attributes)
    ends = [("comm_dst", NodeType.COMM_SEND, rank) for rank in part.targets]
    ends += [("comm_src", NodeType.COMM_RECV, rank) for rank in part.sources]
    for offset, (end, node_type, peer) in enumerate(ends):
        attributes = (
            _ON_DEVICE,
            size,
            Attribute(end, Wire.INT32, peer),
            Attribute("comm_tag", Wire.INT32, tag),
        )
        yield NodeSpec(number + offset, found.name, node_type, after, attributes=attributes)
