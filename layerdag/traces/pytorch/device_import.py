"""Import device activity of a profile: kernels, launches, NCCL.

Communication kernels of NCCL and RCCL in a profile: kind, size, group.

Newer profiles describe a kernel by its arguments ("Collective name", "In msg nelems", "dtype",
"Process Group Ranks"); older ones only by its name, such as ``ncclDevKernel_AllGather_RING_LL`` or
``ncclKernel_AllReduce_RING_LL_Sum_f32``, and by the operator that launched it.

Import of profiles with device activity: kernels, the calls that launch them, and their order.

Nodes are the kernels (COMP, or COMM_* for NCCL and RCCL), named after the operator that launched
them, and the host calls that launch or wait. ``ctrl_deps`` hold what the hardware enforces: calls
of a thread one after the other, kernels of a stream one after the other, a kernel after its launch,
a waiting call after the kernels it waited for. With a host trace of the same step, ``data_deps``
hold its data flow; a profile alone shows none.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from layerdag.errors import TraceError
from layerdag.traces.analysis import WORLD
from layerdag.traces.builder import NodeSpec, build_trace
from layerdag.traces.pytorch.host_dataflow import MOST_RANKS, Ranks, number_groups
from layerdag.traces.pytorch.kineto import EXTERNAL, Event, Profile
from layerdag.traces.pytorch.operators import is_composite
from layerdag.traces.trace import Attribute, CollectiveType, NodeType, Trace, Wire


@dataclass(frozen=True, slots=True)
class Launch:
    """A runtime call with what it starts and where it stands.

    Attributes:
        call: The call.
        kernels: Positions in ``Profile.kernels`` of what it starts (several for a graph launch).
        operators: The operators around it, outermost first.
    """

    call: Event
    kernels: tuple[int, ...]
    operators: tuple[Event, ...]

    def operator(self) -> Event | None:
        """Return the outermost operator with a kernel of its own, as the data-flow import does."""
        for operator in self.operators:
            if _has_kernel(operator.name):
                return operator
        return self.operators[-1] if self.operators else None


_WRAPPERS = ("autograd::", "torch::autograd", "torch::", "profiler::")
_WAITS = ("Synchronize",)


def _has_kernel(name: str) -> bool:
    """Return whether an operator is neither a scope nor composite."""
    return "::" in name and not name.startswith(_WRAPPERS) and not is_composite(name)


def is_wait(call: Event) -> bool:
    """Return whether a call returns only when the device has caught up."""
    return any(word in call.name for word in _WAITS)


def find_launches(profile: Profile) -> list[Launch]:
    """Return the calls that start device work or wait for it, by start.

    A call and its kernel share a correlation id. The operators around a call are those of its
    thread that are open when it starts; where the profile numbers the threads of calls otherwise,
    the operator is found by "External id".
    """
    started: dict[int, list[int]] = {}
    for at, kernel in enumerate(profile.kernels):
        started.setdefault(kernel.correlation, []).append(at)
    wanted = [call for call in profile.calls if call.correlation in started or is_wait(call)]
    around = _enclosing(profile.operators, wanted)
    by_external = {op.args[EXTERNAL]: op for op in profile.operators if EXTERNAL in op.args}
    launches = []
    for call, operators in zip(wanted, around, strict=True):
        kernels = tuple(started.get(call.correlation, ())) if call.correlation else ()
        if not operators and kernels:
            hint = profile.kernels[kernels[0]].args.get(EXTERNAL)
            operators = (by_external[hint],) if hint in by_external else ()
        launches.append(Launch(call, kernels, operators))
    return launches


def _enclosing(operators: Sequence[Event], calls: Sequence[Event]) -> list[tuple[Event, ...]]:
    """Return the open operators of each call's thread, outermost first; both come by start."""
    open_of: dict[tuple[object, ...], list[Event]] = {}
    found = []
    at = 0
    for call in calls:
        while at < len(operators) and operators[at].start <= call.start:
            stack = open_of.setdefault(operators[at].lane, [])
            while stack and stack[-1].end <= operators[at].start:
                stack.pop()
            stack.append(operators[at])
            at += 1
        stack = open_of.get(call.lane, [])
        while stack and stack[-1].end <= call.start:
            stack.pop()
        found.append(tuple(stack))
    return found


_KERNEL = re.compile(r"^(nccl|rccl|mscclKernel|ncclx)", re.IGNORECASE)
_KINDS: tuple[tuple[str, CollectiveType], ...] = (
    ("allreduce", CollectiveType.ALL_REDUCE),
    ("reducescatter", CollectiveType.REDUCE_SCATTER),
    ("allgather", CollectiveType.ALL_GATHER),
    ("alltoall", CollectiveType.ALL_TO_ALL),
    ("broadcast", CollectiveType.BROADCAST),
    ("gather", CollectiveType.GATHER),
    ("scatter", CollectiveType.SCATTER),
    ("reduce", CollectiveType.REDUCE),
    ("barrier", CollectiveType.BARRIER),
)
_WIDTHS = {
    "double": 8, "long int": 8, "long": 8, "float": 4, "int": 4, "float32": 4, "float64": 8,
    "c10::half": 2, "c10::bfloat16": 2, "half": 2, "bfloat16": 2, "byte": 1, "bool": 1,
    "unsigned char": 1, "signed char": 1, "short": 2, "short int": 2, "int64": 8, "int32": 4,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class KernelCommunication:
    """What a communication kernel does.

    Attributes:
        type: COMM_COLL, COMM_SEND or COMM_RECV.
        collective: Collective type; INVALID for a message.
        num_bytes: Size as ASTRA-sim counts it; 0 if the profile does not say.
        ranks: Members of the group; empty if the profile does not say.
        peer: Peer of a message, -1 if unknown.
    """

    type: NodeType
    collective: CollectiveType
    num_bytes: int
    ranks: tuple[int, ...]
    peer: int = -1


def kernel_communication(kernel: Event, operators: tuple[Event, ...]) -> KernelCommunication | None:
    """Return what a kernel communicates, None if it computes.

    Args:
        kernel: Device event.
        operators: The operators around its launch, outermost first.
    """
    if not _KERNEL.match(kernel.name):
        return None
    collective_name = str(kernel.args.get("Collective name", ""))
    names = [collective_name, kernel.name, *(operator.name for operator in reversed(operators))]
    ranks = _ranks(kernel.args.get("Process Group Ranks"))
    for name in names:
        plain = re.sub(r"[^a-z]", "", name.lower().rpartition("::")[2])
        for kind, collective in _KINDS:
            if kind in plain and "sendrecv" not in plain:
                size = _size(kernel, operators)
                return KernelCommunication(NodeType.COMM_COLL, collective, size, ranks)
        if plain in ("send", "recv") or plain.endswith(("ncclsend", "ncclrecv")):
            kind_of = NodeType.COMM_SEND if "send" in plain else NodeType.COMM_RECV
            size = _size(kernel, operators)
            return KernelCommunication(kind_of, CollectiveType.INVALID, size, ranks)
    # A grouped send and receive moves data both ways: ASTRA-sim's nearest notion is all-to-all.
    size = _size(kernel, operators)
    return KernelCommunication(NodeType.COMM_COLL, CollectiveType.ALL_TO_ALL, size, ranks)


def _size(kernel: Event, operators: tuple[Event, ...]) -> int:
    """Return the bytes that a rank gives, from the kernel's arguments or the operator's tensors."""
    count, dtype = kernel.args.get("In msg nelems"), str(kernel.args.get("dtype", "")).lower()
    if isinstance(count, int) and count > 0:
        return count * _WIDTHS.get(dtype, 4)
    sizes = [tensor_bytes(operator.args) for operator in operators]
    return max(sizes, default=0)


def tensor_bytes(args: dict[str, Any]) -> int:
    """Return the bytes of an operator's largest tensor argument ("Input Dims", "Input type")."""
    shapes, kinds = args.get("Input Dims"), args.get("Input type")
    if not isinstance(shapes, list) or not isinstance(kinds, list):
        return 0
    return max((_bytes(s, str(k)) for s, k in zip(shapes, kinds, strict=False)), default=0)


def _bytes(shape: Any, kind: str) -> int:
    """Return the bytes of one tensor, or of the tensors of one list."""
    if not isinstance(shape, list) or not shape:
        return 0
    width = _WIDTHS.get(kind.lower(), 4 if "tensor" in kind.lower() else 0)
    shapes = [shape] if _is_shape(shape) else [inner for inner in shape if _is_shape(inner)]
    return sum(math.prod(sizes) for sizes in shapes) * width


def _is_shape(value: Any) -> bool:
    """Return whether a value is the shape of a tensor with elements in at least one dimension."""
    return isinstance(value, list) and bool(value) and all(isinstance(n, int) for n in value)


def _ranks(value: object) -> tuple[int, ...]:
    """Return the ranks in a text such as "[0, 1, 2]"; cut-off lists ("...") count as unknown."""
    try:
        ranks: Any = json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        return ()
    known = isinstance(ranks, list) and all(type(rank) is int and rank >= 0 for rank in ranks)
    return tuple(ranks) if known else ()


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
