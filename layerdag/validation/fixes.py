"""Repairs of traces that have one safe answer, and of all-to-alls whose size the user chooses."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from layerdag.errors import TraceError
from layerdag.hardware.collectives import CollectiveType
from layerdag.traces.analysis import WORLD, WORLD_NAMES, is_group_name, match_communication
from layerdag.traces.builder import value_of, with_texts, with_words
from layerdag.traces.chakra.files import (
    FEEDER_WIRES,
    with_communication_off_cpu,
    with_wire_type,
    without_nodes,
)
from layerdag.traces.pytorch.operators import BARRIER_BYTES
from layerdag.traces.trace import (
    MESSAGES,
    NodeType,
    Trace,
    Wire,
    Workload,
    rows_of,
    without_dangling,
    without_dependencies,
)
from layerdag.validation.checking import (
    check_group_file,
    check_workload,
    column,
    group_texts,
    repeats,
)
from layerdag.validation.rules import TRACE_RULES, Finding, Fix, has_errors, merged


@dataclass(frozen=True)
class FixedWorkload:
    """A workload after everything was changed that has one safe answer.

    Attributes:
        workload: With the changes; the given one where nothing was changed.
        fixes: What was changed, one entry per rule, in the order in which it was done.
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
        rows: The nodes concerned, ascending, in the trace *before* the change.
    """

    trace: Trace
    rows: np.ndarray
    done: str


def _fix(trace: Trace, rows: Iterable[int] | np.ndarray, done: str) -> TraceFix | None:
    row_K = np.unique(np.fromiter(rows, np.int64))
    return TraceFix(trace, row_K, done) if row_K.size else None


def drop_dangling(trace: Trace) -> TraceFix | None:
    """Drop dependencies on nodes that the trace does not have: nothing can wait for them."""
    return _fix(*without_dangling(trace), "waits no more for absent nodes")


def drop_self_dependencies(trace: Trace) -> TraceFix | None:
    """Drop dependencies of a node on itself."""
    found = without_dependencies(trace, lambda deps: rows_of(trace, deps.values) == deps.node_V)
    return _fix(*found, "waits no more for itself")


def drop_duplicate_dependencies(trace: Trace) -> TraceFix | None:
    """Keep the first of each dependency that a node lists twice."""
    found = without_dependencies(trace, lambda deps: repeats(deps.node_V, deps.values))
    return _fix(*found, "keeps one of each dependency")


def write_integers(trace: Trace) -> TraceFix | None:
    """Write what is a whole number as an integer: 4096.0 and "4096" as 4096."""
    rows: set[int] = set()
    for name in FEEDER_WIRES:
        word_of: dict[int, int] = {}
        for at, node in zip(*map(np.ndarray.tolist, trace.attribute_rows(name)), strict=True):
            if trace.attributes.wire_A[at] in (Wire.DOUBLE, Wire.FLOAT, Wire.STRING):
                whole = _whole(value_of(trace.attributes, at, trace.strings))
                if whole is not None and -(2**63) <= whole < 2**63:
                    word_of[node] = whole
        rows |= word_of.keys()
        trace = with_words(trace, name, Wire.INT64, word_of)
    return _fix(trace, rows, "whole numbers are written as integers")


def _whole(value: object) -> int | None:
    """Return the whole number that a float or a text is, None if it is not one."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and value.isascii() and value.removeprefix("-").isdigit():
        return int(value)
    return None


def write_feeder_types(trace: Trace) -> TraceFix | None:
    """Give attributes the integer type from which Chakra's feeder v1 reads them."""
    rows: list[int] = []
    for name, wire in FEEDER_WIRES.items():
        try:
            after = with_wire_type(trace, name, wire)
        except TraceError:  # no integer, or one that does not fit: stays a finding
            continue
        row_K, node_K = trace.attribute_rows(name)
        rows += node_K[after.attributes.wire_A[row_K] != trace.attributes.wire_A[row_K]].tolist()
        trace = after
    return _fix(trace, rows, "attributes have the types that feeder v1 reads")


def move_communication_to_gpu(trace: Trace) -> TraceFix | None:
    """Mark communication as not on the CPU."""
    after = with_communication_off_cpu(trace)
    changed_A = after.attributes.word_A != trace.attributes.word_A
    return _fix(after, trace.attributes.node_A[changed_A], "is marked as not on the CPU")


def replace_barriers(trace: Trace) -> TraceFix | None:
    """Make a barrier an all-reduce of one float, which is how NCCL's process group does it."""
    kind, size = column(trace, "comm_type"), column(trace, "comm_size")
    is_barrier_N = kind.integer_N & (kind.value_N == CollectiveType.BARRIER)
    rows = np.flatnonzero(is_barrier_N & (trace.type_N == NodeType.COMM_COLL)).tolist()
    words = dict.fromkeys(rows, int(CollectiveType.ALL_REDUCE))
    after = with_words(trace, "comm_type", Wire.INT64, words)
    sizes = {row: max(int(size.value_N[row]), BARRIER_BYTES) for row in rows}
    after = with_words(after, "comm_size", Wire.INT64, sizes)
    return _fix(after, rows, "a barrier became an all-reduce of one float")


def _remove(trace: Trace, gone_N: np.ndarray, done: str) -> TraceFix | None:
    """Take nodes out; what waited for them waits for what they waited for."""
    if not gone_N.any() or gone_N.all():
        return None
    try:
        return _fix(without_nodes(trace, gone_N), np.flatnonzero(gone_N), f"{done} taken out")
    except TraceError:  # the dependencies are faulty: stays a finding
        return None


def remove_empty_messages(trace: Trace) -> TraceFix | None:
    """Take messages and all-gathers of 0 bytes out: they move nothing."""
    size, kind = column(trace, "comm_size"), column(trace, "comm_type")
    gather_N = (trace.type_N == NodeType.COMM_COLL) & (kind.value_N == CollectiveType.ALL_GATHER)
    moves_N = np.isin(trace.type_N, MESSAGES) | (gather_N & kind.integer_N)
    empty_N = moves_N & size.integer_N & (size.value_N == 0)
    return _remove(trace, empty_N, "communication of 0 bytes is")


MAX_TAG = 2**31 - 1


def set_sender_rank(trace: Trace, rank: int) -> TraceFix | None:
    """Let sends come from, and receives go to, the rank whose trace they stand in."""
    found: list[int] = []
    for kind, name in zip(MESSAGES, ("comm_src", "comm_dst"), strict=True):
        held = column(trace, name)
        wrong_N = (trace.type_N == kind) & held.integer_N & (held.value_N >= 0)
        rows = np.flatnonzero(wrong_N & (held.value_N != rank)).tolist()
        found += rows
        trace = with_words(trace, name, Wire.INT32, dict.fromkeys(rows, rank))
    return _fix(trace, found, "its own end is the rank of the trace")


def _tags(trace: Trace) -> tuple[np.ndarray, np.ndarray]:
    held = column(trace, "comm_tag")
    rows = np.flatnonzero(np.isin(trace.type_N, MESSAGES) & held.integer_N)
    return rows, held.value_N[rows]


def tag_map(traces: Iterable[Trace]) -> dict[int, int]:
    """Return a free tag from 0 to 2^31 - 1 for each tag outside, the same one on all ranks."""
    used = {tag for trace in traces for tag in _tags(trace)[1].tolist()}
    wrong = sorted(tag for tag in used if not 0 <= tag <= MAX_TAG)
    free = (tag for tag in range(MAX_TAG + 1) if tag not in used)
    return dict(zip(wrong, free, strict=False))


def renumber_tags(trace: Trace, tag_of: Mapping[int, int]) -> TraceFix | None:
    """Give messages the tags of ``tag_map``."""
    pairs = zip(*map(np.ndarray.tolist, _tags(trace)), strict=True)
    word_of = {row: tag_of[tag] for row, tag in pairs if tag in tag_of}
    after = with_words(trace, "comm_tag", Wire.INT32, word_of)
    return _fix(after, word_of, "has a tag that fits, the same at both ends")


def remove_singleton_collectives(trace: Trace, alone: frozenset[str]) -> TraceFix | None:
    """Take collectives out of the groups ``alone`` of one rank: nobody else takes part."""
    named_N = np.array([name in alone for name in group_texts(trace)], dtype=bool)
    alone_N = named_N & (trace.type_N == NodeType.COMM_COLL)
    return _remove(trace, alone_N, "collectives of one rank are")


def rename_groups(trace: Trace, name_of: Mapping[str, str]) -> TraceFix | None:
    """Give nodes the new names of their groups, and write names that are numbers as text."""
    is_number_N = column(trace, "pg_name").integer_N
    text_of = {
        row: name_of.get(name, name)
        for row, name in enumerate(group_texts(trace))
        if name in name_of or is_number_N[row]
    }
    after = with_texts(trace, "pg_name", text_of)
    return _fix(after, text_of, "its group has an integer as its name")


def set_world_group(trace: Trace, name: str) -> TraceFix | None:
    """Let collectives of all ranks name the group of all ranks."""
    texts = group_texts(trace)
    rows = np.flatnonzero(trace.type_N == NodeType.COMM_COLL).tolist()
    text_of = {row: name for row in rows if texts[row] in WORLD_NAMES}
    after = with_texts(trace, "pg_name", text_of)
    return _fix(after, text_of, f"names group {name}, that of all ranks")


_OF_A_TRACE: dict[str, Callable[[Trace], TraceFix | None]] = {
    "no-dangling-dependency": drop_dangling,
    "no-self-dependency": drop_self_dependencies,
    "no-double-dependency": drop_duplicate_dependencies,
    "integer-attributes": write_integers,
    "feeder-v1-types": write_feeder_types,
    "comm-off-cpu": move_communication_to_gpu,
    "no-metadata-node": lambda trace: _remove(
        trace, trace.type_N == NodeType.METADATA, "METADATA nodes are"
    ),
    "no-invalid-node": lambda trace: _remove(
        trace, trace.type_N == NodeType.INVALID, "INVALID nodes are"
    ),
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
    of one float that they are, give groups integers as names and messages tags that fit, and name
    the group of all ranks where ASTRA-sim needs it.

    Nothing is raised because of the content of the traces. The given workload is not changed.
    """
    fixes: list[Fix] = []

    def each(rule: str, fix: Callable[[Trace], TraceFix | None]) -> None:
        nonlocal workload
        workload = _with_fix(workload, rule, lambda trace, rank: fix(trace), fixes)

    for rule, fix in _OF_A_TRACE.items():
        each(rule, fix)
    workload = _with_fix(workload, "own-sender", set_sender_rank, fixes, of_rank=True)
    tag_of = tag_map(trace for trace, _ in workload.ranks_by_trace())
    each("message-tags", lambda trace: renumber_tags(trace, tag_of))

    groups = dict(workload.groups)
    if groups.get(WORLD) and len(groups[WORLD]) == workload.num_ranks:
        del groups[WORLD]  # stands for all ranks without an entry
    name_of: dict[str, str] = {}
    for name in groups:
        if not is_group_name(name) and name not in WORLD_NAMES:
            name_of[name] = _free_name({*groups, *name_of.values()})
    changed = len(name_of) + len(workload.groups) - len(groups)
    if changed:
        rule_of_names = TRACE_RULES["described-groups"]
        done = "groups have integers above 0 as names"
        fixes.append(Fix(rule_of_names, workload.source, None, done, changed))
        renamed = {name_of.get(name, name): ranks for name, ranks in groups.items()}
        workload = replace(workload, groups=renamed)
    each("group-names", lambda trace: rename_groups(trace, name_of))

    if workload.num_ranks > 1:
        alone = frozenset(name for name, ranks in workload.groups.items() if len(ranks) == 1)
        each("several-members", lambda trace: remove_singleton_collectives(trace, alone))

    if _WORLD_RULE in {finding.rule.id for finding in check_workload(workload)}:
        used = {name for trace, _ in workload.ranks_by_trace() for name in group_texts(trace)}
        world = _free_name({*workload.groups, *used})
        groups = {**workload.groups, world: tuple(range(workload.num_ranks))}
        each(_WORLD_RULE, lambda trace: set_world_group(trace, world))
        workload = replace(workload, groups=groups)
    left = (*check_group_file(workload), *check_workload(workload))
    return FixedWorkload(workload, tuple(merged(fixes, lambda fix: (fix.rule.id, fix.done))), left)


def _with_fix(
    workload: Workload,
    rule: str,
    fix: Callable[[Trace, int], TraceFix | None],
    fixes: list[Fix],
    *,
    of_rank: bool = False,
) -> Workload:
    """Return the job with every trace fixed; ranks that share one go on sharing it.

    ``of_rank`` is for a fix by which ranks that share a trace may need different ones. What was
    done is added to ``fixes``.
    """
    before = tuple(workload.traces)  # holds the traces, so that their ids stay distinct
    known: dict[tuple[int, int], Trace] = {}
    traces = []
    for rank, trace in enumerate(before):
        key = (id(trace), rank if of_rank else 0)
        if key not in known:
            found = fix(trace, rank)
            known[key] = found.trace if found else trace
            if found:
                first = int(trace.id_N[found.rows[0]])
                fixes.append(
                    Fix(TRACE_RULES[rule], trace.source, first, found.done, found.rows.size)
                )
        traces.append(known[key])
    same = all(map(lambda one, other: one is other, traces, before))
    return workload if same else replace(workload, traces=tuple(traces))


def _free_name(used: set[str]) -> str:
    """Return the lowest integer above 0 that is not the name of a group yet."""
    return next(str(number) for number in range(1, len(used) + 2) if str(number) not in used)


class UniformSize(StrEnum):
    """The size that every member of an uneven all-to-all gets."""

    MAX = "max"
    MEAN = "mean"


@dataclass(frozen=True)
class UniformCollectives:
    """How many all-to-alls had members of unequal sizes, and the bytes of these before and now."""

    count: int
    before: int
    after: int


def make_all_to_all_uniform(
    workload: Workload, size: UniformSize
) -> tuple[Workload, UniformCollectives]:
    """Return the job with one size for the members of each all-to-all.

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
    starts = np.flatnonzero(np.diff(matched.instance_C[order], prepend=-1))
    for members in np.split(order, starts[1:]) if order.size else ():
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
            stated_N = trace.integers("comm_size")[1]
            words = {row: even for row, even in size_of.items() if stated_N[row]}
            made[key] = with_words(trace, "comm_size", Wire.INT64, words)
        traces[rank] = made[key]
    even_job = replace(workload, traces=tuple(traces)) if changed else workload
    return even_job, UniformCollectives(count, before, after)
