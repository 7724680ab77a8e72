"""Import of profiles with device activity: kernels, the calls that launch them, and their order.

Nodes are the kernels (COMP, or COMM_* for NCCL and RCCL), named after the operator that launched
them, and the host calls that launch or wait. ``ctrl_deps`` hold what the hardware enforces: calls
of a thread one after the other, kernels of a stream one after the other, a kernel after its launch,
a waiting call after the kernels it waited for. With a host trace of the same step, ``data_deps``
hold its data flow; a profile alone shows none.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from layerdag.errors import TraceError
from layerdag.traces import Attribute, NodeType, Trace, Wire
from layerdag.traces.analysis import WORLD
from layerdag.traces.chakra import NodeSpec, build_trace
from layerdag.traces.pytorch import MOST_RANKS, Ranks, number_groups
from layerdag.traces.pytorch.device._kineto import Event, Profile
from layerdag.traces.pytorch.device._launches import Launch, find_launches, is_wait
from layerdag.traces.pytorch.device._nccl import (
    KernelCommunication,
    kernel_communication,
    tensor_bytes,
)

NS = 1000
CLOCK_SLACK = 1000
"""Nanoseconds by which host and device clocks may disagree."""


@dataclass(frozen=True)
class DeviceTrace:
    """The imported device activity of one rank.

    Attributes:
        nodes: Kernels and calls.
        groups: Ranks of each communicator group by integer name.
        operator_of: Node id of a kernel -> the operator that launched it.
        num_kernels: Kernels, copies and fills.
        source: File name for messages.
    """

    nodes: tuple[NodeSpec, ...]
    groups: Mapping[str, Ranks]
    operator_of: Mapping[int, Event]
    num_kernels: int
    source: str

    @property
    def joined_fraction(self) -> float:
        """Share of the device work whose operator is known."""
        return len(self.operator_of) / self.num_kernels

    def trace(self) -> Trace:
        """Return the nodes as a trace."""
        return build_trace(self.nodes, source=self.source)


@dataclass
class _Builder:
    """The nodes made so far, and the last one of each thread and stream."""

    profile: Profile
    communication: Mapping[int, KernelCommunication]
    group_names: Mapping[Ranks, str]
    nodes: list[NodeSpec] = field(default_factory=list)
    last_call: dict[tuple[object, ...], int] = field(default_factory=dict)
    call_end: dict[tuple[object, ...], int] = field(default_factory=dict)
    last_kernel: dict[tuple[object, ...], int] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)
    operator_of: dict[int, Event] = field(default_factory=dict)
    origin: int = 0

    def add_call(self, launch: Launch) -> None:
        """Add a call, the kernels it starts, and the wait if it blocks."""
        call, lane = launch.call, launch.call.lane
        before = self.last_call.get(lane)
        kernels = [self.profile.kernels[at] for at in launch.kernels]
        end = call.end
        blocked = [k.end for k in kernels if k.end <= call.end + CLOCK_SLACK and not is_wait(call)]
        if blocked:
            end = max(call.start, min(min(k.start for k in kernels), call.end))
        waited = self._waited_for(call) if is_wait(call) else ()
        start = max([call.start, *(min(self.ends[node], call.end) for node in waited)])
        deps = (() if before is None else (before,)) + waited
        node = self._add(_host_spec(call.name), (start, max(end, start)), deps)
        self.last_call[lane] = node
        for at, kernel in zip(launch.kernels, kernels, strict=True):
            early = kernel.start < end
            self._add_kernel(at, kernel, launch, before if early else node)
        if blocked:
            own = tuple(sorted({self.last_kernel[k.lane] for k in kernels}))
            resumed = max([end, *(min(k.end, call.end) for k in kernels)])
            wait = self._add(_host_spec(f"{call.name}:wait"), (resumed, call.end), (node, *own))
            self.last_call[lane] = wait

    def _waited_for(self, call: Event) -> tuple[int, ...]:
        """Return the last kernel of each stream that ended by the time the call returned."""
        found = [n for n in self.last_kernel.values() if self.ends[n] <= call.end + CLOCK_SLACK]
        return tuple(sorted(node for node in found if self.ends[node] > call.start))

    def _add_kernel(self, at: int, kernel: Event, launch: Launch, cause: int | None) -> None:
        """Add a kernel behind its launch and the kernel before it in its stream."""
        before = self.last_kernel.get(kernel.lane)
        deps = tuple(sorted({node for node in (cause, before) if node is not None}))
        operator = launch.operator()
        spec = _kernel_spec(kernel, operator, self.communication.get(at), self.group_names)
        node = self._add(spec, (kernel.start, kernel.end), deps)
        self.last_kernel[kernel.lane] = node
        if operator is not None:
            self.operator_of[node] = operator

    def _add(self, spec: dict[str, Any], times: tuple[int, int], deps: tuple[int, ...]) -> int:
        """Append a node and return its id."""
        number = len(self.nodes)
        start, end = times
        duration = Attribute("duration_ns", Wire.INT64, end - start)
        begin = Attribute("start_ns", Wire.INT64, start - self.origin)
        self.ends[number] = end
        self.nodes.append(
            NodeSpec(
                id=number,
                name=spec["name"],
                type=spec["type"],
                ctrl_deps=deps,
                start_us=max(start - self.origin, 0) // NS,
                duration_us=(end - start + NS // 2) // NS,
                attributes=(*spec["attributes"], duration, begin),
            )
        )
        return number


def import_device(profile: Profile) -> DeviceTrace:
    """Import the device activity of a profile.

    Raises:
        TraceError: If the profile shows no kernel, or no call that launches one.
    """
    if not profile.kernels:
        raise TraceError(
            f"{profile.source}: no kernel, copy or fill on a device; profile with device "
            "activities, or give the host trace of a CPU run."
        )
    launches = find_launches(profile)
    communication = {
        at: kernel_comm
        for launch in launches
        for at in launch.kernels
        if (kernel_comm := kernel_communication(profile.kernels[at], launch.operators)) is not None
    }
    launched = {at for launch in launches for at in launch.kernels}
    unlaunched = [Launch(k, (), ()) for at, k in enumerate(profile.kernels) if at not in launched]
    groups = _groups(profile, communication)
    builder = _Builder(profile, communication, groups)
    builder.origin = min(event.start for event in (*profile.kernels, *(x.call for x in launches)))
    for launch in sorted([*launches, *unlaunched], key=lambda each: each.call.start):
        if not launch.kernels and not is_wait(launch.call):
            builder._add_kernel(-1, launch.call, launch, None)
        else:
            builder.add_call(launch)
    return DeviceTrace(
        nodes=tuple(builder.nodes),
        groups={name: ranks for ranks, name in groups.items()},
        operator_of=builder.operator_of,
        num_kernels=len(profile.kernels),
        source=profile.source,
    )


def _groups(profile: Profile, communication: Mapping[int, KernelCommunication]) -> dict[Ranks, str]:
    """Return the integer names of the groups in the profile."""
    declared: dict[str, Ranks] = {}
    size = profile.distributed.get("world_size")
    if isinstance(size, int) and 1 < size <= MOST_RANKS:
        declared["world"] = tuple(range(size))
    for kernel_comm in communication.values():
        if kernel_comm.ranks:
            declared[str(kernel_comm.ranks)] = kernel_comm.ranks
    return number_groups([declared])


_SUFFIX = re.compile(r"_(v\d+|ptsz)*$")


def _host_spec(name: str) -> dict[str, Any]:
    """Return what is fixed of a host call."""
    attributes = (Attribute("is_cpu_op", Wire.BOOL, True), Attribute("device", Wire.STRING, "cpu"))
    return {"name": _SUFFIX.sub("", name), "type": NodeType.COMP, "attributes": attributes}


def _kernel_spec(
    kernel: Event,
    operator: Event | None,
    kernel_comm: KernelCommunication | None,
    group_names: Mapping[Ranks, str],
) -> dict[str, Any]:
    """Return what is fixed of a kernel: its name is the operator's, never its own."""
    attributes = [Attribute("is_cpu_op", Wire.BOOL, False)]
    attributes.append(Attribute("device", Wire.STRING, "cuda"))
    name = operator.name if operator is not None else _plain_name(kernel)
    kind = NodeType.COMP
    moved = kernel.args.get("bytes", 0)
    if isinstance(moved, int) and moved:
        attributes.append(Attribute("tensor_size", Wire.UINT64, moved))
    elif operator is not None:
        attributes.append(Attribute("tensor_size", Wire.UINT64, tensor_bytes(operator.args)))
    if kernel_comm is not None:
        kind = kernel_comm.type
        name = f"nccl::{kernel_comm.collective.name.lower()}"
        if kind is NodeType.COMM_COLL:
            attributes.append(Attribute("comm_type", Wire.INT64, int(kernel_comm.collective)))
        else:
            name = "nccl::send" if kind is NodeType.COMM_SEND else "nccl::recv"
        attributes.append(Attribute("comm_size", Wire.INT64, kernel_comm.num_bytes))
        group = group_names.get(kernel_comm.ranks, WORLD)
        attributes.append(Attribute("pg_name", Wire.STRING, group))
    return {"name": name, "type": kind, "attributes": tuple(attributes)}


def _plain_name(kernel: Event) -> str:
    """Return a public name for device work without a known operator."""
    if kernel.category.lower() == "kernel":
        return "kernel"
    parts = kernel.name.split("(")[0].split()
    return "_".join(parts).lower() or kernel.category
