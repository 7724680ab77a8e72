"""Figures of a compiled program."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from layerdag.workloads.hlo._hardware import Hardware
from layerdag.workloads.hlo._program import Collective, Computation, Program
from layerdag.workloads.hlo._regions import Region, regions


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
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, object]:
        """Return the figures as plain data."""
        document = asdict(self)
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
        plural = "s" if self.devices != 1 else ""
        yield f"{self.name}: {self.devices} device{plural}, {self.operations:,} operations on each"
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
        yield from self.notes


def summarize_program(program: Program, hardware: Hardware | None = None) -> ProgramSummary:
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
        program.notes,
    )


def _collectives(program: Program) -> dict[str, dict[str, int]]:
    """Return count and bytes of each kind of communication."""
    found: dict[str, dict[str, int]] = {}
    for item in program.items:
        if isinstance(item, Collective):
            held = found.setdefault(item.name, {"count": 0, "bytes": 0})
            held["count"] += 1
            held["bytes"] += item.num_bytes
    return found
