"""The trace of each device that runs a compiled program."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from layerdag.errors import UsageError
from layerdag.traces import Attribute, CollectiveType, NodeType, Trace, Wire, Workload
from layerdag.traces.chakra import NodeSpec, build_trace
from layerdag.workloads.hlo._hardware import Hardware
from layerdag.workloads.hlo._program import Collective, Program
from layerdag.workloads.hlo._regions import Region, Split, regions

_TYPES = {
    "all_reduce": CollectiveType.ALL_REDUCE,
    "all_gather": CollectiveType.ALL_GATHER,
    "reduce_scatter": CollectiveType.REDUCE_SCATTER,
    "all_to_all": CollectiveType.ALL_TO_ALL,
    "collective_broadcast": CollectiveType.BROADCAST,
}


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
    program: Program,
    hardware: Hardware,
    *,
    split: Split = Split.LINEAR,
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
    return Workload(tuple(traces), groups, program.name)


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
    everyone = max(names, key=len) if () in names else ()
    groups = found.groups or (everyone,)
    own = next((group for group in groups if rank in group), ())
    return _Part(names[own]) if len(own) > 1 else _Part()


def _trace(source: str, nodes: Sequence[Region], parts: Sequence[_Part]) -> Trace:
    """Return the trace of a rank that takes these parts."""
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
    """Return the node of some computation."""
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
    """Yield the nodes of a rank's part in a communication."""
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
