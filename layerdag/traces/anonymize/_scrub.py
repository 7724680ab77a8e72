"""Take out of a workload what may not be shared, and say what was taken out.

What stays: the graph, node types, operator names that PyTorch itself registers, sizes, operation
counts, durations, collectives, groups and messages. What goes: every other string, attributes that
are not well known, inputs and outputs, start times, file metadata, and the numbers that processes
made up (ids, group names, tags, streams, priorities), which are counted anew. This lowers the risk
of sharing; it is no proof of anonymity, since structure and sizes remain.
"""

import functools
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import resources

import numpy as np

from layerdag.traces import Attribute, NodeType, Trace, Workload
from layerdag.traces.analysis import WORLD_NAMES, program_order
from layerdag.traces.chakra import NodeSpec, attribute_at, build_trace
from layerdag.traces.pytorch.operators import COMMUNICATION, DTYPES, UNKNOWN_DTYPE

# Attributes whose numbers are part of the workload; strings among them are checked one by one.
_NUMBERS = (
    *("is_cpu_op", "num_ops", "tensor_size", "duration_ns"),
    *("comm_type", "comm_size", "comm_src", "comm_dst"),
)
_DEVICE = re.compile(r"(cpu|cuda|hip|xpu|mtia|mps|meta)(:\d{1,4})?")
_DTYPES = frozenset({UNKNOWN_DTYPE, *DTYPES.values(), *DTYPES})
_SOURCE = "<scrubbed>"
_CALL_NUMBER = re.compile(r"\(\d+\)$")


@dataclass(frozen=True)
class ScrubReport:
    """What was removed.

    Attributes:
        replaced_names: Node names outside the vocabulary, replaced by the node's type.
        kept_names: Node names inside the vocabulary.
        removed_attributes: How often an attribute of each name was removed.
        removed_io: Input and output strings removed.
        removed_start_times: Start times set to 0.
        removed_metadata: Attributes of file heads removed.
        renumbered_nodes: Nodes that got a new id.
        renamed_groups: Communicator groups that got a new name.
        renumbered_tags: Distinct message tags that got a new number.
        renumbered_streams: Distinct streams that got a new number, by first use.
        renumbered_priorities: Distinct priorities that became their place in ascending order.
    """

    replaced_names: int
    kept_names: int
    removed_attributes: Mapping[str, int]
    removed_io: int
    removed_start_times: int
    removed_metadata: int
    renumbered_nodes: int
    renamed_groups: int
    renumbered_tags: int
    renumbered_streams: int
    renumbered_priorities: int


@functools.cache
def public_operators() -> frozenset[str]:
    """Return the operator names that PyTorch registers itself, and those of communication."""
    text = (
        resources.files("layerdag.traces.anonymize")
        .joinpath("public_operators.txt")
        .read_text("utf-8")
    )
    lines = (line for line in text.splitlines() if line and not line.startswith("#"))
    known = {operator.name for operator in COMMUNICATION.values()}
    return frozenset({*lines, *COMMUNICATION, *known})


def scrub(workload: Workload) -> tuple[Workload, ScrubReport]:
    """Return the workload without what may not be shared, and what was removed.

    Raises:
        TraceError: If the dependencies of a trace are faulty.
    """
    groups = {name: str(at + 1) for at, name in enumerate(workload.groups)}
    scrubber = _Scrubber(groups, _priorities(workload))
    done: dict[int, Trace] = {}
    for trace in workload.traces:
        if id(trace) not in done:
            done[id(trace)] = scrubber.trace(trace)
    clean = Workload(
        traces=tuple(done[id(trace)] for trace in workload.traces),
        groups={scrubber.groups[name]: ranks for name, ranks in workload.groups.items()},
        source=_SOURCE,
    )
    return clean, scrubber.report()


def _priorities(workload: Workload) -> dict[int, int]:
    """Return the place of each priority among all of the workload: their order is all they say."""
    known = {int(value) for trace in workload.traces for value in _values(trace, "comm_priority")}
    return {value: index for index, value in enumerate(sorted(known))}


def _values(trace: Trace, name: str) -> Iterator[int]:
    """Yield the integers that nodes carry under a name."""
    codes = [code for code, text in enumerate(trace.strings) if text == name]
    for row in np.flatnonzero(np.isin(trace.attributes.name_A, codes)).tolist():
        value = attribute_at(trace.attributes, row, trace.strings).value
        if type(value) is int:
            yield value


class _Scrubber:
    """Scrubs traces, keeps new group names and tags the same on all ranks, and counts."""

    def __init__(self, groups: dict[str, str], priorities: Mapping[int, int]) -> None:
        self.groups = groups
        self._priorities = priorities
        self._tags: dict[int, int] = {}
        self._streams: dict[int, int] = {}
        self._attributes: Counter[str] = Counter()
        self._count: Counter[str] = Counter()

    def report(self) -> ScrubReport:
        """Return what was removed so far."""
        return ScrubReport(
            replaced_names=self._count["replaced name"],
            kept_names=self._count["kept name"],
            removed_attributes=dict(self._attributes.most_common()),
            removed_io=self._count["io"],
            removed_start_times=self._count["start"],
            removed_metadata=self._count["metadata"],
            renumbered_nodes=self._count["node"],
            renamed_groups=len(self.groups),
            renumbered_tags=len(self._tags),
            renumbered_streams=len(self._streams),
            renumbered_priorities=len(self._priorities),
        )

    def trace(self, trace: Trace) -> Trace:
        """Return a scrubbed trace; nodes come in the order in which the rank issues them."""
        order = program_order(trace).tolist()
        new_id = {int(trace.id_N[row]): at for at, row in enumerate(order)}
        self._count["metadata"] += len(trace.metadata)
        self._count["io"] += int((trace.io_N6 >= 0).sum())
        self._count["start"] += int((trace.start_us_N > 0).sum())
        nodes = [
            NodeSpec(
                id=at,
                name=self._name(trace, row),
                type=int(trace.type_N[row]),
                data_deps=tuple(sorted(new_id[d] for d in trace.data_deps.of(row).tolist())),
                ctrl_deps=tuple(sorted(new_id[d] for d in trace.ctrl_deps.of(row).tolist())),
                duration_us=int(trace.duration_us_N[row]),
                attributes=self._public_attributes(trace, row),
            )
            for at, row in enumerate(order)
        ]
        self._count["node"] += len(nodes)
        return build_trace(nodes, source=_SOURCE)

    def _name(self, trace: Trace, row: int) -> str:
        """Return the operator's name if it is public, else the node type."""
        name = "" if trace.name_N[row] < 0 else trace.strings[trace.name_N[row]]
        name = _CALL_NUMBER.sub("", name)
        is_public = name in public_operators()
        self._count["kept name" if is_public else "replaced name"] += 1
        return name if is_public else NodeType(int(trace.type_N[row])).name

    def _public_attributes(self, trace: Trace, row: int) -> tuple[Attribute, ...]:
        """Return the attributes of a node that may stay."""
        table = trace.attributes
        kept = []
        for at in range(int(table.ptr_N1[row]), int(table.ptr_N1[row + 1])):
            attribute = attribute_at(table, at, trace.strings)
            value = self._public_value(attribute)
            if value is None:
                self._attributes[attribute.name] += 1
            else:
                kept.append(Attribute(attribute.name, attribute.wire, value))
        return tuple(kept)

    def _public_value(self, attribute: Attribute) -> object | None:
        """Return the value that may stay, None if none may."""
        name, value = attribute.name, attribute.value
        if name == "pg_name":
            return self._group(value)
        if name == "comm_tag" and type(value) is int:
            return self._tags.setdefault(value, len(self._tags))
        if name == "stream" and type(value) is int:
            return self._streams.setdefault(value, len(self._streams))
        if name == "comm_priority" and type(value) is int:
            return self._priorities[value]
        if name in _NUMBERS and isinstance(value, int | float):
            return value
        if name == "involved_dim" and isinstance(value, tuple) and set(map(type, value)) <= {bool}:
            return value
        if name == "device" and isinstance(value, str) and _DEVICE.fullmatch(value):
            return value
        if name == "dtype" and isinstance(value, str) and value in _DTYPES:
            return value
        return None

    def _group(self, value: object) -> object | None:
        """Return the new name of a communicator group; an integer stays one, all else goes."""
        if type(value) not in (int, str):
            return None
        old = str(value)
        new = old if old in WORLD_NAMES else self.groups.setdefault(old, str(len(self.groups) + 1))
        return int(new) if isinstance(value, int) else new
