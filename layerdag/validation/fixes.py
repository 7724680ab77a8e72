"""Repairs of traces that have one safe answer, and of all-to-alls whose size the user chooses."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import final

import numpy as np

from layerdag.errors import TraceError
from layerdag.graph.topology import pointers
from layerdag.hardware.collectives import CollectiveType
from layerdag.traces.analysis import WORLD, WORLD_NAMES, match_communication
from layerdag.traces.builder import value_of
from layerdag.traces.chakra.files import (
    FEEDER_WIRES,
    with_communication_off_cpu,
    with_wire_type,
    without_nodes,
)
from layerdag.traces.pytorch.operators import BARRIER_BYTES
from layerdag.traces.trace import AttributeTable, NodeType, Ragged, Trace, Wire, Workload, rows_of
from layerdag.validation.checking import (
    check_group_file,
    check_workload,
    column,
    group_texts,
    is_group_name,
)
from layerdag.validation.rules import TRACE_RULES, Finding, Rule, has_errors


def with_text(trace: Trace, name: str, text_of: dict[int, str]) -> Trace:
    """Return the trace with a string attribute of some nodes.

    Args:
        trace: The trace.
        name: Of the attribute.
        text_of: Its value by row of the node.
    """
    strings = list(dict.fromkeys([*trace.strings, *text_of.values()]))
    index = {text: at for at, text in enumerate(strings)}
    pooled = replace(trace, strings=tuple(strings))
    return with_word(pooled, name, Wire.STRING, {row: index[t] for row, t in text_of.items()})


def with_word(trace: Trace, name: str, wire: Wire, word_of: dict[int, int]) -> Trace:
    """Return the trace with an attribute of some nodes, given as a word of the attribute table.

    Args:
        trace: The trace.
        name: Of the attribute.
        wire: Type of a single value.
        word_of: Word by row of the node; negative values as two's complement.
    """
    strings = trace.strings if name in trace.strings else (*trace.strings, name)
    at = strings.index(name)
    table, node_A = trace.attributes, nodes_of(trace)
    held_A = (table.name_A == at) & np.isin(node_A, np.fromiter(word_of, np.int64, len(word_of)))
    word_A, wire_A = table.word_A.copy(), table.wire_A.copy()
    for row in np.flatnonzero(held_A).tolist():
        word_A[row], wire_A[row] = word_of[int(node_A[row])] % 2**64, wire
    table = replace(table, word_A=word_A, wire_A=wire_A)
    held = set(node_A[held_A].tolist())
    new = {row: word for row, word in sorted(word_of.items()) if row not in held}
    return replace(trace, strings=strings, attributes=_with_rows(table, at, wire, new))


def nodes_of(trace: Trace) -> np.ndarray:
    """Return the row of the node that each attribute belongs to, int64 (A,)."""
    return np.repeat(np.arange(trace.num_nodes), np.diff(trace.attributes.ptr_N1))


def _with_rows(
    table: AttributeTable, name: int, wire: Wire, word_of: dict[int, int]
) -> AttributeTable:
    if not word_of:
        return table
    rows = np.fromiter(word_of, np.int64, len(word_of))
    word_K = np.array([word % 2**64 for word in word_of.values()], dtype=np.uint64)
    at_K = table.ptr_N1[rows + 1]
    count_N = np.diff(table.ptr_N1)
    count_N[rows] += 1
    return AttributeTable(
        ptr_N1=pointers(count_N),
        name_A=np.insert(table.name_A, at_K, name),
        wire_A=np.insert(table.wire_A, at_K, int(wire)),
        word_A=np.insert(table.word_A, at_K, word_K),
        doc_A=np.insert(table.doc_A, at_K, -1),
        blobs=table.blobs,
    )


@dataclass(frozen=True)
class Fix:
    """One rule that a workload broke, and what was changed so that it holds.

    Attributes:
        rule: The rule.
        where: File of the first node, or the group file.
        node: Id of the first node, None where none is concerned.
        done: What was changed, such as "one of each kept".
        count: Number of nodes (or groups) that were changed.
    """

    rule: Rule
    where: str
    node: int | None
    done: str
    count: int

    def sentence(self) -> str:
        """Return the fix as one line."""
        location = self.where if self.node is None else f"{self.where}: node {self.node}"
        more = f" (and {self.count - 1} more)" if self.count > 1 else ""
        return f"{location}: {self.done}{more}."


@dataclass(frozen=True)
class FixedWorkload:
    """A workload after everything was changed that has one safe answer.

    Attributes:
        workload: With the changes; the given one where nothing was changed.
        fixes: What was changed, one entry per rule, in the order in which it was done.
        findings: What still breaks a rule.
    """

    workload: Workload
    fixes: tuple[Fix, ...]
    findings: tuple[Finding, ...]

    @property
    def is_valid(self) -> bool:
        """Whether no error is left; warnings may be."""
        return not has_errors(self.findings)


@dataclass(frozen=True, eq=False)
class TraceFix:
    """What one fix did to one trace.

    Attributes:
        trace: With the change.
        done_N: bool over the nodes of the trace *before* the change: those concerned.
        done: What was changed.
    """

    trace: Trace
    done_N: np.ndarray
    done: str

    def as_fix(self, rule: Rule, before: Trace) -> Fix:
        """Return it as a fix of ``rule`` in the trace as it was before."""
        first = int(np.argmax(self.done_N))
        node, count = int(before.id_N[first]), int(self.done_N.sum())
        return Fix(rule, before.source, node, self.done, count)


def merged(fixes: Iterable[Fix]) -> tuple[Fix, ...]:
    """Return one fix per rule and change: the first, with the count of all."""
    kept: dict[tuple[str, str], Fix] = {}
    for fix in fixes:
        key = (fix.rule.id, fix.done)
        known = kept.get(key)
        kept[key] = replace(known, count=known.count + fix.count) if known else fix
    return tuple(kept.values())


_Chosen = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]


def drop_dangling(trace: Trace) -> TraceFix | None:
    """Drop dependencies on nodes that the trace does not have: nothing can wait for them."""
    return _without(trace, lambda target, wanted, row: row < 0, "waits no more for absent nodes")


def drop_self_dependencies(trace: Trace) -> TraceFix | None:
    """Drop dependencies of a node on itself."""
    return _without(trace, lambda target, wanted, row: row == target, "waits no more for itself")


def drop_duplicate_dependencies(trace: Trace) -> TraceFix | None:
    """Keep the first of each dependency that a node lists twice."""
    return _without(trace, _again, "keeps one of each dependency")


def _again(target_E: np.ndarray, wanted_E: np.ndarray, row_E: np.ndarray) -> np.ndarray:
    key_E2 = np.stack([target_E, wanted_E.view(np.int64)], axis=1)
    again_E = np.ones(target_E.size, dtype=bool)
    again_E[np.unique(key_E2, axis=0, return_index=True)[1]] = False
    return again_E


def _without(trace: Trace, chosen: _Chosen, done: str) -> TraceFix | None:
    """Return the trace without the dependencies that ``chosen`` finds, None if there are none."""
    done_N = np.zeros(trace.num_nodes, dtype=bool)
    kept: list[Ragged] = []
    for deps in (trace.data_deps, trace.ctrl_deps):
        target_E = np.repeat(np.arange(trace.num_nodes), np.diff(deps.ptr_N1))
        bad_E = chosen(target_E, deps.values, rows_of(trace, deps.values))
        done_N[target_E[bad_E]] = True
        count_N = np.bincount(target_E[~bad_E], minlength=trace.num_nodes)
        kept.append(Ragged(pointers(count_N), deps.values[~bad_E]))
    if not done_N.any():
        return None
    return TraceFix(replace(trace, data_deps=kept[0], ctrl_deps=kept[1]), done_N, done)


def write_integers(trace: Trace) -> TraceFix | None:
    """Write what is a whole number as an integer: 4096.0 and "4096" as 4096."""
    done_N = np.zeros(trace.num_nodes, dtype=bool)
    for name in FEEDER_WIRES:
        word_of = _whole_numbers(trace, name)
        if word_of:
            done_N[list(word_of)] = True
            trace = with_word(trace, name, Wire.INT64, word_of)
    return (
        TraceFix(trace, done_N, "whole numbers are written as integers") if done_N.any() else None
    )


def _whole_numbers(trace: Trace, name: str) -> dict[int, int]:
    if name not in trace.strings:
        return {}
    table, node_A = trace.attributes, nodes_of(trace)
    other_A = np.isin(table.wire_A, (Wire.DOUBLE, Wire.FLOAT, Wire.STRING))
    found: dict[int, int] = {}
    for row in np.flatnonzero((table.name_A == trace.strings.index(name)) & other_A).tolist():
        whole = _whole(value_of(table, row, trace.strings))
        if whole is not None and -(2**63) <= whole < 2**63:
            found[int(node_A[row])] = whole
    return found


def _whole(value: object) -> int | None:
    """Return the whole number that a float or a text is, None if it is none."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and value.isascii() and value.removeprefix("-").isdigit():
        return int(value)
    return None


def write_feeder_types(trace: Trace) -> TraceFix | None:
    """Give attributes the integer type from which Chakra's feeder v1 reads them."""
    node_A = nodes_of(trace)
    done_N = np.zeros(trace.num_nodes, dtype=bool)
    before = trace
    for name, wire in FEEDER_WIRES.items():
        try:
            after = with_wire_type(trace, name, wire)
        except TraceError:  # no integer, or one that does not fit: stays a finding
            continue
        changed_A = after.attributes.wire_A != trace.attributes.wire_A
        done_N[node_A[changed_A]] = True
        trace = after
    if trace is before or not done_N.any():
        return None
    return TraceFix(trace, done_N, "attributes have the types that feeder v1 reads")


def move_communication_to_gpu(trace: Trace) -> TraceFix | None:
    """Mark communication as not on the CPU."""
    after = with_communication_off_cpu(trace)
    changed_A = after.attributes.word_A != trace.attributes.word_A
    if not changed_A.any():
        return None
    done_N = np.zeros(trace.num_nodes, dtype=bool)
    done_N[nodes_of(trace)[changed_A]] = True
    return TraceFix(after, done_N, "is marked as not on the CPU")


def remove_nodes(trace: Trace, gone_N: np.ndarray, done: str) -> TraceFix | None:
    """Take nodes out; what waited for them waits for what they waited for."""
    if not gone_N.any() or gone_N.all():
        return None
    try:
        return TraceFix(without_nodes(trace, gone_N), gone_N, done)
    except TraceError:  # the dependencies are faulty: stays a finding
        return None


def remove_metadata(trace: Trace) -> TraceFix | None:
    """Take METADATA nodes out."""
    return remove_nodes(trace, trace.type_N == NodeType.METADATA, "METADATA nodes are taken out")


def replace_barriers(trace: Trace) -> TraceFix | None:
    """Make a barrier an all-reduce of one float, which is how NCCL's process group does it."""
    kind, size = column(trace, "comm_type"), column(trace, "comm_size")
    is_barrier_N = kind.integer_N & (kind.value_N == CollectiveType.BARRIER)
    is_barrier_N &= trace.type_N == NodeType.COMM_COLL
    if not is_barrier_N.any():
        return None
    rows = np.flatnonzero(is_barrier_N).tolist()
    words = dict.fromkeys(rows, int(CollectiveType.ALL_REDUCE))
    after = with_word(trace, "comm_type", Wire.INT64, words)
    sizes = {row: max(int(size.value_N[row]), BARRIER_BYTES) for row in rows}
    after = with_word(after, "comm_size", Wire.INT64, sizes)
    return TraceFix(after, is_barrier_N, "a barrier became an all-reduce of one float")


def remove_invalid(trace: Trace) -> TraceFix | None:
    """Take INVALID nodes out, as every writer of this package does."""
    return remove_nodes(trace, trace.type_N == NodeType.INVALID, "INVALID nodes are taken out")


MAX_TAG = 2**31 - 1
_OWN_END = {NodeType.COMM_SEND: "comm_src", NodeType.COMM_RECV: "comm_dst"}


def set_sender_rank(trace: Trace, rank: int) -> TraceFix | None:
    """Let sends come from, and receives go to, the rank whose trace they stand in."""
    done_N = np.zeros(trace.num_nodes, dtype=bool)
    for kind, name in _OWN_END.items():
        held = column(trace, name)
        wrong_N = (trace.type_N == kind) & held.integer_N & (held.value_N >= 0)
        rows = np.flatnonzero(wrong_N & (held.value_N != rank)).tolist()
        if rows:
            done_N[rows] = True
            trace = with_word(trace, name, Wire.INT32, dict.fromkeys(rows, rank))
    if not done_N.any():
        return None
    return TraceFix(trace, done_N, "its own end is the rank of the trace")


def tag_map(traces: Iterable[Trace]) -> dict[int, int]:
    """Return a free tag from 0 to 2^31 - 1 for each tag outside, the same one on all ranks."""
    used: set[int] = set()
    for trace in traces:
        held = column(trace, "comm_tag")
        used.update(held.value_N[_messages(trace) & held.integer_N].tolist())
    wrong = sorted(tag for tag in used if not 0 <= tag <= MAX_TAG)
    free = (tag for tag in range(MAX_TAG + 1) if tag not in used)
    return dict(zip(wrong, free, strict=False))


def renumber_tags(trace: Trace, tag_of: Mapping[int, int]) -> TraceFix | None:
    """Give messages the tags of ``tag_map``."""
    held = column(trace, "comm_tag")
    wrong_N = _messages(trace) & held.integer_N & np.isin(held.value_N, list(tag_of))
    if not wrong_N.any():
        return None
    word_of = {row: tag_of[int(held.value_N[row])] for row in np.flatnonzero(wrong_N).tolist()}
    after = with_word(trace, "comm_tag", Wire.INT32, word_of)
    return TraceFix(after, wrong_N, "has a tag that fits, the same at both ends")


def _messages(trace: Trace) -> np.ndarray:
    return (trace.type_N == NodeType.COMM_SEND) | (trace.type_N == NodeType.COMM_RECV)


def remove_empty_messages(trace: Trace) -> TraceFix | None:
    """Take messages and all-gathers of 0 bytes out: they move nothing."""
    size, kind = column(trace, "comm_size"), column(trace, "comm_type")
    gather_N = (trace.type_N == NodeType.COMM_COLL) & (kind.value_N == CollectiveType.ALL_GATHER)
    moves_N = _messages(trace) | (gather_N & kind.integer_N)
    empty_N = moves_N & size.integer_N & (size.value_N == 0)
    return remove_nodes(trace, empty_N, "communication of 0 bytes is taken out")


def remove_singleton_collectives(trace: Trace, alone: frozenset[str]) -> TraceFix | None:
    """Take collectives of groups of one rank out: nobody takes part but that rank.

    Args:
        trace: The trace.
        alone: Names of the groups of one rank.
    """
    if not alone or "pg_name" not in trace.strings:
        return None
    named_N = np.array([name in alone for name in group_texts(trace)], dtype=bool)
    alone_N = named_N & (trace.type_N == NodeType.COMM_COLL)
    return remove_nodes(trace, alone_N, "collectives of one rank are taken out")


def rename_groups(trace: Trace, name_of: Mapping[str, str]) -> TraceFix | None:
    """Give nodes the new names of their groups, and write names that are numbers as text."""
    if "pg_name" not in trace.strings:
        return None
    held = column(trace, "pg_name")
    text_of = {
        row: name_of.get(name, name)
        for row, name in enumerate(group_texts(trace))
        if name in name_of or held.integer_N[row]
    }
    if not text_of:
        return None
    done_N = np.zeros(trace.num_nodes, dtype=bool)
    done_N[list(text_of)] = True
    return TraceFix(
        with_text(trace, "pg_name", text_of), done_N, "its group has an integer as its name"
    )


def set_world_group(trace: Trace, name: str) -> TraceFix | None:
    """Let collectives of all ranks name the group of all ranks.

    Args:
        trace: The trace.
        name: Of that group.
    """
    texts = group_texts(trace)
    rows = np.flatnonzero(trace.type_N == NodeType.COMM_COLL).tolist()
    text_of = {row: name for row in rows if texts[row] in WORLD_NAMES}
    if not text_of:
        return None
    done_N = np.zeros(trace.num_nodes, dtype=bool)
    done_N[list(text_of)] = True
    done = f"names group {name}, that of all ranks"
    return TraceFix(with_text(trace, "pg_name", text_of), done_N, done)


_OF_A_TRACE: dict[str, Callable[[Trace], TraceFix | None]] = {
    "no-dangling-dependency": drop_dangling,
    "no-self-dependency": drop_self_dependencies,
    "no-double-dependency": drop_duplicate_dependencies,
    "integer-attributes": write_integers,
    "feeder-v1-types": write_feeder_types,
    "comm-off-cpu": move_communication_to_gpu,
    "no-metadata-node": remove_metadata,
    "no-invalid-node": remove_invalid,
    "positive-sizes": remove_empty_messages,
    "supported-collective": replace_barriers,
}
_WORLD_RULE = "world-after-equal-groups"
FIXABLE = frozenset(
    {*_OF_A_TRACE, "own-sender", "message-tags", "described-groups", "group-names"}
    | {"several-members", _WORLD_RULE}
)
"""Rules whose breaking can have one safe answer: it keeps which operators run at what cost, and
which ranks exchange what."""


def fix_workload(workload: Workload) -> FixedWorkload:
    """Change everything that breaks a rule and has one safe answer.

    What has none (a cycle, a missing size, members of a group that disagree) stays as it is, and
    is among the findings. Fixes drop dependencies that nothing can satisfy (on absent nodes, on
    the node itself, listed twice), write values in the types that readers expect, take nodes out
    that do nothing (METADATA, INVALID, 0 bytes, groups of one rank), make barriers the all-reduce
    of one float that they are, give groups integers as names
    and messages tags that fit, and name the group of all ranks where ASTRA-sim needs it.

    Nothing is raised because of the content of the traces. The given workload is not changed.
    """
    repair = _Repair(workload)
    for rule, fix in _OF_A_TRACE.items():
        repair.each(rule, fix)
    repair.own_ranks()
    repair.tags()
    repair.group_names()
    repair.groups_of_one()
    repair.world()
    left = [*check_group_file(repair.workload), *check_workload(repair.workload)]
    return FixedWorkload(repair.workload, merged(repair.fixes), tuple(left))


@final
class _Repair:
    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        self.fixes: list[Fix] = []

    def each(self, rule: str, fix: Callable[[Trace], TraceFix | None]) -> None:
        """Apply a fix to every trace; ranks that share one go on sharing it."""
        self._ranks(rule, lambda trace, rank: fix(trace), shared=True)

    def own_ranks(self) -> None:
        """Let messages name the rank in whose trace they stand."""
        self._ranks("own-sender", set_sender_rank, shared=False)

    def tags(self) -> None:
        """Give messages tags that fit."""
        tag_of = tag_map(_distinct(self.workload))
        if tag_of:
            self.each("message-tags", partial(renumber_tags, tag_of=tag_of))

    def group_names(self) -> None:
        """Give groups integers as names, in the group file and in the traces."""
        groups = dict(self.workload.groups)
        if groups.get(WORLD) and len(groups[WORLD]) == self.workload.num_ranks:
            del groups[WORLD]  # stands for all ranks without an entry
        odd = [name for name in groups if not is_group_name(name) and name not in WORLD_NAMES]
        name_of: dict[str, str] = {}
        for name in odd:
            name_of[name] = _free_name({*groups, *name_of.values()})
        renamed = {name_of.get(name, name): ranks for name, ranks in groups.items()}
        changed = len(odd) + len(self.workload.groups) - len(groups)
        if changed:
            done = "groups have integers above 0 as names"
            rule, where = TRACE_RULES["described-groups"], self.workload.source
            self.fixes.append(Fix(rule, where, None, done, changed))
            self.workload = replace(self.workload, groups=renamed)
        self.each("group-names", partial(rename_groups, name_of=name_of))

    def groups_of_one(self) -> None:
        """Take collectives of one rank out of a job of several."""
        if self.workload.num_ranks > 1:
            found = frozenset(n for n, ranks in self.workload.groups.items() if len(ranks) == 1)
            self.each("several-members", partial(remove_singleton_collectives, alone=found))

    def world(self) -> None:
        """Name the group of all ranks where collectives of groups come before unequally often."""
        broken = {finding.rule.id for finding in check_workload(self.workload)}
        if _WORLD_RULE not in broken:
            return
        used = {name for trace in _distinct(self.workload) for name in group_texts(trace)}
        name = _free_name({*self.workload.groups, *used})
        groups = {**self.workload.groups, name: tuple(range(self.workload.num_ranks))}
        self.each(_WORLD_RULE, partial(set_world_group, name=name))
        self.workload = replace(self.workload, groups=groups)

    def _ranks(
        self, rule: str, fix: Callable[[Trace, int], TraceFix | None], *, shared: bool
    ) -> None:
        before = tuple(self.workload.traces)  # holds the traces, so that their ids stay distinct
        known: dict[int, Trace] = {}
        traces: list[Trace] = []
        count = len(self.fixes)
        for rank, trace in enumerate(before):
            if not (shared and id(trace) in known):
                found = fix(trace, rank)
                known[id(trace)] = found.trace if found else trace
                if found:
                    self.fixes.append(found.as_fix(TRACE_RULES[rule], trace))
            traces.append(known[id(trace)])
        if len(self.fixes) > count:
            self.workload = replace(self.workload, traces=tuple(traces))


def _distinct(workload: Workload) -> list[Trace]:
    return list({id(trace): trace for trace in workload.traces}.values())


def _free_name(used: set[str]) -> str:
    """Return the lowest integer above 0 that is no name of a group yet."""
    return next(str(number) for number in range(1, len(used) + 2) if str(number) not in used)


class UniformSize(StrEnum):
    """The size that every member of an uneven all-to-all gets."""

    MAX = "max"
    MEAN = "mean"


@dataclass(frozen=True)
class UniformCollectives:
    """What was made even.

    Attributes:
        count: All-to-alls whose members gave unequal sizes.
        before: Bytes of all their members before.
        after: Bytes of all their members now.
    """

    count: int
    before: int
    after: int


def make_all_to_all_uniform(
    workload: Workload, size: UniformSize
) -> tuple[Workload, UniformCollectives]:
    """Return the job with one size for the members of each all-to-all.

    Args:
        workload: The job.
        size: Which one.

    Raises:
        TraceError: If a trace has faulty dependencies or attributes.
    """
    matched = match_communication(workload)
    kind_C, size_C = np.empty_like(matched.row_C), np.empty_like(matched.row_C)
    for rank in np.unique(matched.rank_C).tolist():
        of_rank_C = matched.rank_C == rank
        for column_C, name in ((kind_C, "comm_type"), (size_C, "comm_size")):
            values_N = workload.traces[rank].integers(name, -1)[0]
            column_C[of_rank_C] = values_N[matched.row_C[of_rank_C]]
    changed: dict[int, dict[int, int]] = {}
    count = before = after = 0
    order = np.argsort(matched.instance_C, kind="stable")
    edges = np.flatnonzero(np.diff(matched.instance_C[order], prepend=-1, append=-1))
    for begin, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        members = order[begin:end]
        sizes = size_C[members].tolist()
        if (kind_C[members] != CollectiveType.ALL_TO_ALL).any() or len(set(sizes)) == 1:
            continue
        even = max(sizes) if size is UniformSize.MAX else round(sum(sizes) / len(sizes))
        count, before, after = count + 1, before + sum(sizes), after + even * len(sizes)
        for member in members.tolist():
            rank, row = int(matched.rank_C[member]), int(matched.row_C[member])
            changed.setdefault(rank, {})[row] = even
    traces = list(workload.traces)
    made: dict[tuple[int, tuple[tuple[int, int], ...]], Trace] = {}
    for rank, size_of in changed.items():
        trace = workload.traces[rank]
        key = (id(trace), tuple(sorted(size_of.items())))
        if key not in made:
            made[key] = _with_sizes(trace, size_of)
        traces[rank] = made[key]
    even_job = replace(workload, traces=tuple(traces)) if changed else workload
    return even_job, UniformCollectives(count, before, after)


def _with_sizes(trace: Trace, size_of: dict[int, int]) -> Trace:
    table = trace.attributes
    word_A = table.word_A.copy()
    name = trace.strings.index("comm_size")
    for row, size in size_of.items():
        begin, end = int(table.ptr_N1[row]), int(table.ptr_N1[row + 1])
        word_A[begin + np.flatnonzero(table.name_A[begin:end] == name)] = size
    return replace(trace, attributes=replace(table, word_A=word_A))
