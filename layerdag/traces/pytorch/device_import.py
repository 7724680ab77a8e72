"""Import of profiles with device activity: kernels, the calls that launch them, and their order.

Nodes are the kernels (COMP, or COMM_* for NCCL and RCCL), named after the operator that launched
them, and the host calls that launch or wait. ``ctrl_deps`` hold what the hardware enforces: calls
of a thread one after the other, kernels of a stream one after the other, a kernel after its launch,
a waiting call after the kernels it waited for. With a host trace of the same step, ``data_deps``
hold its data flow; a profile alone shows none. Communication whose size, peer or kind the profile
does not show stays work of its recorded time, and is noted; so are launches that show no work.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from layerdag.errors import TraceError
from layerdag.hardware.collectives import CollectiveType
from layerdag.hardware.dtypes import find_dtype
from layerdag.hardware.operators import is_composite
from layerdag.runtime.notes import Note, NoteCollector, NoteKind
from layerdag.traces.analysis import WORLD
from layerdag.traces.builder import NodeSpec, build_trace
from layerdag.traces.pytorch.host_dataflow import MAX_RANKS, Ranks, number_groups
from layerdag.traces.pytorch.kernel_communication import (
    ELEMENTS,
    KernelCommunication,
    declared_ranks,
    kernel_communication,
    plain_kernel_name,
    tensor_bytes,
    unknown_shapes,
    unknown_types,
)
from layerdag.traces.pytorch.kineto import DEVICE_CATEGORIES, EXTERNAL, Event, Profile
from layerdag.traces.pytorch.operators import BARRIER_BYTES
from layerdag.traces.trace import Attribute, NodeType, Trace, Wire


@dataclass(frozen=True, slots=True)
class Launch:
    """A runtime call with what it starts and where it stands.

    Attributes:
        call: The call, or the kernel itself where its call is not in the profile.
        kernels: Positions in ``Profile.kernels`` of what it starts (several for a graph launch).
        operators: The operators around it, outermost first.
    """

    call: Event
    kernels: tuple[int, ...]
    operators: tuple[Event, ...]

    @property
    def is_kernel(self) -> bool:
        """Whether the call is missing and its kernel takes its place."""
        return self.call.category in DEVICE_CATEGORIES

    def operator(self) -> Event | None:
        """Return the outermost operator with a kernel of its own, as the data-flow import does."""
        for operator in self.operators:
            name = operator.name
            if "::" in name and not name.startswith(_WRAPPERS) and not is_composite(name):
                return operator
        return self.operators[-1] if self.operators else None


_WRAPPERS = ("autograd::", "torch::", "profiler::")


def is_wait(call: Event) -> bool:
    """Return whether a call returns only when the device has caught up."""
    return "Synchronize" in call.name


def find_launches(profile: Profile) -> list[Launch]:
    """Return the calls that start device work or wait for it, by start.

    A call and its kernel share a correlation id; where the profile has none (ROCm), "External id"
    joins both to their operator. The operators around a call are those of its thread that are open
    when it starts; where the profile numbers the threads of calls otherwise, the operator is found
    by "External id".
    """
    started = _started(profile)
    wanted = [
        (call, kernels)
        for at, call in enumerate(profile.calls)
        if (kernels := started.get(at, ())) or is_wait(call)
    ]
    around = _enclosing(profile.operators, [call for call, _ in wanted])
    by_external = operators_by_external(profile)
    launches = []
    for (call, kernels), operators in zip(wanted, around, strict=True):
        if not operators and kernels:
            hint = by_external.get(profile.kernels[kernels[0]].args.get(EXTERNAL))
            operators = () if hint is None else (hint,)
        launches.append(Launch(call, kernels, operators))
    return launches


def operators_by_external(profile: Profile) -> dict[object, Event]:
    """Return the operators by "External id"; 0 means none."""
    return {op.args[EXTERNAL]: op for op in profile.operators if op.args.get(EXTERNAL)}


def _started(profile: Profile) -> dict[int, tuple[int, ...]]:
    of_number: dict[int, list[int]] = {}
    of_operator: dict[object, list[int]] = {}
    for at, kernel in enumerate(profile.kernels):
        if kernel.correlation:
            of_number.setdefault(kernel.correlation, []).append(at)
        elif kernel.args.get(EXTERNAL):
            of_operator.setdefault(kernel.args[EXTERNAL], []).append(at)
    started: dict[int, tuple[int, ...]] = {}
    calls: dict[object, list[int]] = {}
    for at, call in enumerate(profile.calls):
        if call.correlation:
            # A kernel belongs to one call: the first, which is outside where calls are nested.
            started[at] = tuple(of_number.pop(call.correlation, ()))
        elif call.args.get(EXTERNAL) in of_operator and _STARTS.search(call.name):
            calls.setdefault(call.args[EXTERNAL], []).append(at)
    for hint, launches in calls.items():
        # One kernel for each call, and all that are left for the last one.
        kernels, last = of_operator[hint], len(launches) - 1
        for number, launch in enumerate(launches):
            started[launch] = tuple(kernels[number : None if number == last else number + 1])
    return started


# Calls of CUDA, HIP, SYCL, Level Zero and others, of many versions: their names follow these words,
# and the correlation with a kernel, not the name, says what a call started.
_STARTS = re.compile(r"Launch|Memcpy|Memset|Enqueue|AppendKernel|AppendMemory")
_ONE_KERNEL = re.compile(r"(cuda|hip|cu)LaunchKernel(ExC|Ex)?$")
_LAUNCHES = re.compile(r"Launch|EnqueueKernel|AppendLaunchKernel")


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


NS = 1000
CLOCK_SLACK = 1000
"""Nanoseconds by which host and device clocks may disagree."""


@dataclass(frozen=True, slots=True)
class IncompleteKernel:
    """A kernel that communicates, but of which the profile does not show everything.

    Attributes:
        missing: "size", "peer" or "collective".
    """

    missing: str
    word: str
    duration_ns: int


@dataclass(frozen=True)
class DeviceTrace:
    """The imported device activity of one rank.

    Attributes:
        operator_of: Node id of a kernel -> the operator that launched it.
        num_kernels: Kernels, copies and fills.
        untold: Node id of a kernel -> what the profile does not show of its communication.
        other_notes: What was not understood besides.
    """

    nodes: tuple[NodeSpec, ...]
    groups: Mapping[str, Ranks]
    operator_of: Mapping[int, Event]
    num_kernels: int
    source: str
    untold: Mapping[int, IncompleteKernel] = field(default_factory=dict)
    world_size: int = 1
    other_notes: tuple[Note, ...] = ()

    @property
    def notes(self) -> tuple[Note, ...]:
        """What was not understood, such as communication that is not shown completely."""
        notes = NoteCollector(self.source)
        notes.extend(self.other_notes)
        kinds: dict[tuple[str, str], list[IncompleteKernel]] = {}
        for each in self.untold.values():
            kinds.setdefault((each.missing, each.word), []).append(each)
        for (missing, word), kernels in kinds.items():
            took = sum(kernel.duration_ns for kernel in kernels)
            effect = (
                f"communicates, but the profile does not tell its {missing}; became work of the "
                "recorded time"
            )
            where = f"kernels of {took / NS:,.0f} us in all"
            notes.add(NoteKind(missing), word, effect, where=where, count=len(kernels))
        if self.world_size > 1 and all(node.type < NodeType.COMM_SEND for node in self.nodes):
            like = ", ".join(sorted({word for _, word in kinds})[:8])
            listed = f"kernels that look like it: {like}" if like else "no kernel looks so"
            effect = f"the trace has no communication; {listed}"
            notes.add(NoteKind.COLLECTIVE, f"none of {self.world_size} ranks", effect)
        return notes.notes

    @property
    def joined_fraction(self) -> float:
        """Share of the device work whose operator is known."""
        return len(self.operator_of) / self.num_kernels

    def trace(self) -> Trace:
        """Return the nodes as a trace."""
        return replace(build_trace(self.nodes, source=self.source), notes=self.notes)


@dataclass
class _Builder:
    profile: Profile
    communication: Mapping[int, KernelCommunication]
    group_names: Mapping[Ranks, str]
    origin: int
    nodes: list[NodeSpec] = field(default_factory=list)
    last_call: dict[tuple[object, ...], int] = field(default_factory=dict)
    last_kernel: dict[tuple[object, ...], int] = field(default_factory=dict)
    ends: list[int] = field(default_factory=list)
    operator_of: dict[int, Event] = field(default_factory=dict)
    node_of: dict[int, int] = field(default_factory=dict)

    def add_call(self, launch: Launch) -> None:
        """Add a call, the kernels it starts, and the wait if it blocks."""
        call, lane = launch.call, launch.call.lane
        before = self.last_call.get(lane)
        kernels = [self.profile.kernels[at] for at in launch.kernels]
        end = call.end
        blocked = [k.end for k in kernels if k.end <= call.end + CLOCK_SLACK and not is_wait(call)]
        if blocked:
            end = max(call.start, min(min(k.start for k in kernels), call.end))
        waited: tuple[int, ...] = ()
        if is_wait(call):
            soon = call.end + CLOCK_SLACK
            waited = tuple(
                sorted(n for n in self.last_kernel.values() if call.start < self.ends[n] <= soon)
            )
        start = max([call.start, *(min(self.ends[node], call.end) for node in waited)])
        deps = (() if before is None else (before,)) + waited
        node = self._add_host(call.name, (start, max(end, start)), deps)
        self.last_call[lane] = node
        for at, kernel in zip(launch.kernels, kernels, strict=True):
            early = kernel.start < end
            self.add_kernel(at, kernel, launch, before if early else node)
        if blocked:
            own = tuple(sorted({self.last_kernel[k.lane] for k in kernels}))
            resumed = max([end, *(min(k.end, call.end) for k in kernels)])
            times = (resumed, call.end)
            self.last_call[lane] = self._add_host(f"{call.name}:wait", times, (node, *own))

    def _add_host(self, name: str, times: tuple[int, int], deps: tuple[int, ...]) -> int:
        attributes = (
            Attribute("is_cpu_op", Wire.BOOL, True),
            Attribute("device", Wire.STRING, "cpu"),
        )
        return self._add(_SUFFIX.sub("", name), NodeType.COMP, attributes, times, deps)

    def add_kernel(self, at: int, kernel: Event, launch: Launch, cause: int | None) -> None:
        """Add a kernel behind its launch and the kernel before it in its stream."""
        before = self.last_kernel.get(kernel.lane)
        deps = tuple(sorted({node for node in (cause, before) if node is not None}))
        operator, what = launch.operator(), self.communication.get(at)
        attributes = [Attribute("is_cpu_op", Wire.BOOL, False)]
        attributes.append(Attribute("device", Wire.STRING, self.profile.device))
        moved = kernel.args.get("bytes")
        if not (isinstance(moved, int) and moved > 0):
            moved = None if operator is None else tensor_bytes(operator.args)
        if moved is not None:
            attributes.append(Attribute("tensor_size", Wire.UINT64, moved))
        kind = NodeType.COMP
        if operator is not None:
            name = operator.name
        elif kernel.category.lower() == "kernel":
            name = "kernel"
        else:
            name = "_".join(kernel.name.split("(")[0].split()).lower() or kernel.category
        if what is not None:
            kind, name = what.type, what.name
            attributes += _communication_attributes(what)
            group = self.group_names.get(what.ranks, WORLD)
            attributes.append(Attribute("pg_name", Wire.STRING, group))
        node = self._add(name, kind, tuple(attributes), (kernel.start, kernel.end), deps)
        self.last_kernel[kernel.lane] = self.node_of[at] = node
        if operator is not None:
            self.operator_of[node] = operator

    def _add(
        self,
        name: str,
        kind: NodeType,
        attributes: tuple[Attribute, ...],
        times: tuple[int, int],
        deps: tuple[int, ...],
    ) -> int:
        number = len(self.nodes)
        start, end = times
        duration = Attribute("duration_ns", Wire.INT64, end - start)
        begin = Attribute("start_ns", Wire.INT64, start - self.origin)
        self.ends.append(end)
        self.nodes.append(
            NodeSpec(
                id=number,
                name=name,
                type=kind,
                ctrl_deps=deps,
                start_us=max(start - self.origin, 0) // NS,
                duration_us=(end - start + NS // 2) // NS,
                attributes=(*attributes, duration, begin),
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
    notes = NoteCollector(profile.source)
    notes.extend(profile.notes)
    launches = find_launches(profile)
    launched = {at for launch in launches for at in launch.kernels}
    hints = operators_by_external(profile)
    unlaunched = [
        Launch(kernel, (at,), tuple(op for op in (hints.get(kernel.args.get(EXTERNAL)),) if op))
        for at, kernel in enumerate(profile.kernels)
        if at not in launched
    ]
    _note_lost(profile, launches, notes)
    _note_doubled(profile, launches, notes)
    if unlaunched:
        first = profile.kernels[unlaunched[0].kernels[0]].name
        effect = "no call of the profile started it; it waits for those before it in its stream"
        notes.add(NoteKind.KERNEL, first, effect, where="kernels", count=len(unlaunched))
    _note_early(profile, launches, notes)
    found, untold = _communication(profile, [*launches, *unlaunched])
    groups = _groups(profile, found, notes)
    origin = min(event.start for event in (*profile.kernels, *(x.call for x in launches)))
    builder = _Builder(profile, found, groups, origin)
    for launch in sorted([*launches, *unlaunched], key=lambda each: each.call.start):
        if launch.is_kernel:
            builder.add_kernel(launch.kernels[0], launch.call, launch, None)
        else:
            builder.add_call(launch)
    _note_types(profile.kernels, builder.operator_of.values(), notes)
    return DeviceTrace(
        nodes=tuple(builder.nodes),
        groups={name: ranks for ranks, name in groups.items()},
        operator_of=builder.operator_of,
        num_kernels=len(profile.kernels),
        source=profile.source,
        untold={builder.node_of[at]: each for at, each in untold.items()},
        world_size=profile.world_size,
        other_notes=notes.notes,
    )


def _note_lost(profile: Profile, launches: Sequence[Launch], notes: NoteCollector) -> None:
    shown = {id(launch.call) for launch in launches}
    lost: dict[str, list[Event]] = {}
    for call in profile.calls:
        if id(call) not in shown and _LAUNCHES.search(call.name):
            lost.setdefault(call.name, []).append(call)
    events = (*profile.operators, *profile.calls, *profile.kernels)
    span = max(event.end for event in events) - min(event.start for event in events)
    for name, calls in lost.items():
        took = sum(call.end - call.start for call in calls)
        share = f"{100 * took / max(span, 1):.0f} % of the profile"
        where = f"calls of {took / NS:,.0f} us in all, {share}"
        effect = "the profile shows no kernel of it; what it started is not in the trace"
        notes.add(NoteKind.KERNEL, name, effect, where=where, count=len(calls))


def _note_doubled(profile: Profile, launches: Sequence[Launch], notes: NoteCollector) -> None:
    for launch in launches:
        call, count = launch.call, len(launch.kernels)
        if count > 1 and call.correlation and _ONE_KERNEL.match(call.name):
            effect = "a launch of one kernel; kernels that share its correlation are kept"
            place = f"correlation {call.correlation}, {count} kernels"
            notes.add(NoteKind.KERNEL, call.name, effect, where=place)
    seen: set[tuple[object, ...]] = set()
    for kernel in profile.kernels:
        key = (kernel.lane, kernel.start, kernel.end, kernel.name, kernel.correlation)
        if key in seen and kernel.end > kernel.start:
            effect = "an event that stands there twice; kept as recorded"
            place = f"correlation {kernel.correlation}"
            notes.add(NoteKind.KERNEL, kernel.name, effect, where=place)
        seen.add(key)


def _note_early(profile: Profile, launches: Sequence[Launch], notes: NoteCollector) -> None:
    early = [
        (kernel, launch.call.start - kernel.start)
        for launch in launches
        for kernel in (profile.kernels[at] for at in launch.kernels)
        if kernel.start < launch.call.start - CLOCK_SLACK
    ]
    if early:
        excess = max(excess for _, excess in early) / NS
        where = f"kernel '{early[0][0].name[:40]}', up to {excess:,.0f} us"
        effect = "clocks of host and device differ; kept as recorded"
        word = "kernel begins before its launch"
        notes.add(NoteKind.TIME, word, effect, where=where, count=len(early))


def _communication(
    profile: Profile, launches: Sequence[Launch]
) -> tuple[dict[int, KernelCommunication], dict[int, IncompleteKernel]]:
    declared = declared_ranks(profile.distributed)
    found: dict[int, KernelCommunication] = {}
    untold: dict[int, IncompleteKernel] = {}
    for launch in launches:
        for at in launch.kernels:
            kernel = profile.kernels[at]
            what = kernel_communication(kernel, launch.operators, declared)
            if what is not None and what.missing:
                word = str(kernel.args.get("Collective name") or plain_kernel_name(kernel.name))
                untold[at] = IncompleteKernel(what.missing, word, kernel.end - kernel.start)
            elif what is not None:
                found[at] = what
    return found, untold


def _note_types(kernels: Iterable[Event], operators: Iterable[Event], notes: NoteCollector) -> None:
    for kernel in kernels:
        dtype = kernel.args.get("dtype")
        if dtype is not None and find_dtype(str(dtype)) is None:
            notes.add(NoteKind.DTYPE, dtype, "not known; these messages have no size")
        for name in ELEMENTS:
            count = kernel.args.get(name)
            if count is not None and (type(count) is not int or count < 0):
                effect = f"no '{name}'; the message has the size of what else is told"
                where = f"kernel '{kernel.name[:40]}'"
                notes.add(NoteKind.SIZE, count, effect, where=where)
    for operator in operators:
        where = f"operator '{operator.name[:40]}'"
        for word in unknown_types(operator.args):
            notes.add(NoteKind.DTYPE, word, "not known; these tensors have no size", where=where)
        for word in unknown_shapes(operator.args):
            notes.add(NoteKind.SIZE, word, "no shapes; these tensors have no size", where=where)


def _groups(
    profile: Profile, communication: Mapping[int, KernelCommunication], notes: NoteCollector
) -> dict[Ranks, str]:
    declared: dict[str, Ranks] = {}
    size = profile.distributed.get("world_size")
    if isinstance(size, int) and 1 < size <= MAX_RANKS:
        declared["world"] = tuple(range(size))
    elif size is not None and size != 1:
        notes.add(NoteKind.NUMBER, size, "no number of ranks; the world is that of the groups")
    for kernel_comm in communication.values():
        if kernel_comm.ranks:
            declared[str(kernel_comm.ranks)] = kernel_comm.ranks
    told = {*declared.values(), *declared_ranks(profile.distributed).values()}
    unnamed = [what.name for what in communication.values() if not what.ranks]
    if unnamed and len(told) != 1:
        effect = "the profile does not tell its group; taken for all ranks"
        notes.add(NoteKind.GROUP, unnamed[0], effect, count=len(unnamed))
    return number_groups([declared])


_SUFFIX = re.compile(r"_(v\d+|ptsz)*$")


def _communication_attributes(what: KernelCommunication) -> list[Attribute]:
    """Return type, size and peer; the messages of a group follow each other and need no tags."""
    size, collective = what.num_bytes or 0, what.collective
    if what.type is NodeType.COMM_COLL:
        if collective is CollectiveType.BARRIER:
            collective, size = CollectiveType.ALL_REDUCE, size or BARRIER_BYTES
        return [
            Attribute("comm_type", Wire.INT64, int(collective)),
            Attribute("comm_size", Wire.INT64, size),
        ]
    side = "comm_dst" if what.type is NodeType.COMM_SEND else "comm_src"
    return [
        Attribute(side, Wire.INT32, what.peer),
        Attribute("comm_tag", Wire.INT32, 0),
        Attribute("comm_size", Wire.INT64, size),
    ]
