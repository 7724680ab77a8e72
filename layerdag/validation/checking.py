"""Check a trace, and the ranks of a job against each other."""

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from layerdag.errors import TraceError
from layerdag.graph.topology import pointers
from layerdag.hardware.collectives import COLLECTIVES, CollectiveType
from layerdag.traces.analysis import (
    WORLD_NAMES,
    CommEvents,
    MatchedCommunication,
    gather_communication,
    is_group_name,
    match_communication,
    program_order,
)
from layerdag.traces.chakra.files import FEEDER_WIRES, REQUIRED_ATTRIBUTES, START_BYTES, START_OPS
from layerdag.traces.trace import (
    IS_INTEGER,
    MAX_MICROSECONDS,
    MESSAGES,
    STORAGE,
    AttributeTable,
    NodeType,
    Trace,
    Wire,
    Workload,
    communicates,
    dependency_edges,
    rows_of,
    rows_on_a_cycle,
    wire_name,
)
from layerdag.validation.rules import TRACE_RULES, Finding, has_errors, merged
from layerdag.validation.whole_program import check_program

SUPPORTED = [row.type for row in COLLECTIVES if row.simulated]
# Nodes that hold the communication slot of a rank.
_HOLDING = (NodeType.MEM_LOAD, NodeType.MEM_STORE, NodeType.COMM_SEND, NodeType.COMM_COLL)


@dataclass(frozen=True, eq=False)
class AttributeColumn:
    """One attribute over the nodes of a trace.

    Attributes:
        wire_N: Wire type, 0 where the node does not carry the attribute.
        value_N: int64 value of integers and bools, 0 elsewhere.
        present_N: Whether the node carries the attribute.
    """

    wire_N: np.ndarray
    value_N: np.ndarray
    present_N: np.ndarray

    @property
    def integer_N(self) -> np.ndarray:
        """Whether the node carries it as an integer or bool."""
        return IS_INTEGER[self.wire_N]


@dataclass(frozen=True, eq=False)
class RuleViolations:
    """Nodes that break a rule.

    Attributes:
        found: What such a node has, or a function that says it of the node in a row.
    """

    rule: str
    bad_N: np.ndarray
    found: str | Callable[[int], str]


def column(trace: Trace, name: str) -> AttributeColumn:
    """Return the attribute ``name``; a trace without it has an absent column."""
    row_K, node_K = trace.attribute_rows(name)
    wire_N = np.zeros(trace.num_nodes, dtype=np.int64)
    wire_N[node_K] = trace.attributes.wire_A[row_K]
    value_N = np.zeros(trace.num_nodes, dtype=np.int64)
    value_N[node_K] = trace.attributes.word_A[row_K].view(np.int64)
    value_N[~IS_INTEGER[wire_N]] = 0
    return AttributeColumn(wire_N, value_N, marks(trace, node_K))


def marks(trace: Trace, rows: np.ndarray) -> np.ndarray:
    """Return an array of bools that is True in some rows of a trace."""
    marked_N = np.zeros(trace.num_nodes, dtype=bool)
    marked_N[rows] = True
    return marked_N


def repeats(*columns: np.ndarray) -> np.ndarray:
    """Return which rows of some columns of integers are equal to an earlier one."""
    rows = np.stack([column.astype(np.uint64).view(np.int64) for column in columns], axis=1)
    again = np.ones(len(rows), dtype=bool)
    again[np.unique(rows, axis=0, return_index=True)[1]] = False
    return again


def check_trace(trace: Trace) -> list[Finding]:
    """Return what is wrong with one trace; at most one finding a rule, with a count of its nodes.

    Nothing here raises because of the trace's content.
    """
    if trace.num_nodes == 0:
        return [Finding(TRACE_RULES["not-empty"], trace.source, None, "has no node")]
    findings = []
    for check in _CHECKS:
        for broken in check(trace):
            rows = np.flatnonzero(broken.bad_N).tolist()
            if rows:
                found = broken.found if isinstance(broken.found, str) else broken.found(rows[0])
                rule, node = TRACE_RULES[broken.rule], int(trace.id_N[rows[0]])
                findings.append(Finding(rule, trace.source, node, found, len(rows)))
    return findings


def _ids_and_types(trace: Trace) -> Iterator[RuleViolations]:
    kind_N = trace.type_N
    yield RuleViolations("distinct-ids", repeats(trace.id_N), "has the id of an earlier node")
    yield RuleViolations("no-metadata-node", kind_N == NodeType.METADATA, "is a METADATA node")
    invalid_N = (kind_N == NodeType.INVALID) | (kind_N > NodeType.CHECKPOINT)
    yield RuleViolations("no-invalid-node", invalid_N, "is an INVALID node")
    bare_N = (kind_N == NodeType.STORAGE) & ~column(trace, STORAGE).present_N
    beyond_N = (kind_N > NodeType.COMM_COLL) & ~bare_N
    yield RuleViolations(
        "storage-nodes", beyond_N, lambda row: f"is a {NodeType(int(kind_N[row])).name} node"
    )
    yield RuleViolations("storage-operation", bare_N, "does not say what it does")


def _dependencies(trace: Trace) -> Iterator[RuleViolations]:
    """Check data and control dependencies together, as feeder v3 enforces both."""
    both = (trace.data_deps, trace.ctrl_deps)
    target_E = np.concatenate([deps.node_V for deps in both])
    wanted_E = np.concatenate([deps.values for deps in both])
    kind_E = np.repeat([0, 1], [deps.values.size for deps in both])
    source_E = rows_of(trace, wanted_E)

    def absent(row: int) -> str:
        ids = wanted_E[(source_E < 0) & (target_E == row)]
        return f"waits for node {ids[0]}, which the trace does not have"

    yield RuleViolations("no-dangling-dependency", marks(trace, target_E[source_E < 0]), absent)
    itself_E = source_E == target_E
    yield RuleViolations("no-self-dependency", marks(trace, target_E[itself_E]), "waits for itself")
    twice = marks(trace, target_E[repeats(kind_E, target_E, wanted_E)])
    yield RuleViolations("no-double-dependency", twice, "lists one twice")
    sound_E = (source_E >= 0) & ~itself_E
    cycle = rows_on_a_cycle(trace.num_nodes, np.stack([source_E, target_E])[:, sound_E])
    shown = ", ".join(str(trace.id_N[row]) for row in cycle[:6])
    yield RuleViolations("acyclic", marks(trace, cycle), f"is on a cycle of waits (nodes {shown})")


def _attribute_types(trace: Trace) -> Iterator[RuleViolations]:
    for kind, names in REQUIRED_ATTRIBUTES.items():
        of_kind_N = trace.type_N == kind
        for name in names:
            missing_N = of_kind_N & ~column(trace, name).present_N
            text = f"is a {kind.name} without {name}"
            yield RuleViolations("required-attributes", missing_N, text)
    for name, wire in FEEDER_WIRES.items():
        held = column(trace, name)

        def found(row: int, name: str = name, held: AttributeColumn = held) -> str:
            return f"has {name} as {wire_name(int(held.wire_N[row]))}"

        yield RuleViolations("integer-attributes", held.present_N & ~held.integer_N, found)
        yield RuleViolations("feeder-v1-types", held.integer_N & (held.wire_N != wire), found)
    yield RuleViolations("one-value", *_contradictions(trace))
    involved = column(trace, "involved_dim")
    wrong_N = involved.present_N & (involved.wire_N != Wire.BOOL + 1)
    yield RuleViolations("involved-dim-type", wrong_N, "has an involved_dim of another type")


def _contradictions(trace: Trace) -> tuple[np.ndarray, Callable[[int], str]]:
    table = trace.attributes
    node_A = table.node_A
    order = np.lexsort((table.name_A, node_A))
    same = (node_A[order][1:] == node_A[order][:-1]) & (np.diff(table.name_A[order]) == 0)
    name_of: dict[int, str] = {}
    for at in np.flatnonzero(same).tolist():
        first, second = (_raw(table, int(row)) for row in order[at : at + 2])
        if first != second:
            name = int(table.name_A[order[at]])
            name_of.setdefault(int(node_A[order[at]]), "" if name < 0 else trace.strings[name])
    return marks(trace, np.fromiter(name_of, np.int64)), lambda row: f"carries {name_of[row]} twice"


def _raw(table: AttributeTable, row: int) -> tuple[bool, object]:
    """Return what an attribute holds, undecoded, so that equal values compare equal."""
    wire, word = int(table.wire_A[row]), int(table.word_A[row])
    pooled = wire == Wire.BYTES or (wire != Wire.UNSET and wire % 2 == 0)
    return pooled, table.blobs[word] if pooled else word


def _devices(trace: Trace) -> Iterator[RuleViolations]:
    on_cpu_N = column(trace, "is_cpu_op").value_N != 0
    comm_N = communicates(trace.type_N)
    compute_N = trace.type_N == NodeType.COMP
    yield RuleViolations("comm-off-cpu", comm_N & on_cpu_N, "communicates on the CPU")
    unplaced_N = compute_N & on_cpu_N & ~_host_calls(trace, compute_N & ~on_cpu_N)
    yield RuleViolations("compute-off-cpu", unplaced_N, "computes on the CPU")
    for name in ("num_ops", "tensor_size"):
        free_N = compute_N & ~on_cpu_N & (column(trace, name).value_N <= 0)
        yield RuleViolations("costed-compute", free_N, f"has no positive {name}")


def _host_calls(trace: Trace, on_device_N: np.ndarray) -> np.ndarray:
    """Return the nodes that say they run on the CPU beside others that run on a device.

    These are the launch calls of a profile, marked by who imported it.
    """
    row_K, node_K = trace.attribute_rows("device")
    if not on_device_N.any() or "cpu" not in trace.strings:
        return marks(trace, node_K[:0])
    table, cpu = trace.attributes, trace.strings.index("cpu")
    is_cpu_K = (table.wire_A[row_K] == Wire.STRING) & (table.word_A[row_K] == cpu)
    return marks(trace, node_K[is_cpu_K])


def _start(trace: Trace) -> Iterator[RuleViolations]:
    """Check that what a rank starts with takes time: its first operator, its first communication.

    Of the nodes that wait for nothing the one with the lowest id comes first.
    """
    waits_N = (np.diff(trace.data_deps.ptr_N1) > 0) | (np.diff(trace.ctrl_deps.ptr_N1) > 0)
    computes_N = (trace.type_N == NodeType.COMP) & (column(trace, "is_cpu_op").value_N == 0)
    holds_N = np.isin(trace.type_N, _HOLDING)
    first_N = _lowest_id(trace, computes_N & ~waits_N) | _lowest_id(trace, holds_N & ~waits_N)
    sends_N = trace.type_N == NodeType.COMM_SEND
    size_N = np.where(
        sends_N, column(trace, "comm_size").value_N, column(trace, "tensor_size").value_N
    )
    small_N = (size_N > 0) & (size_N < START_BYTES) & (trace.type_N != NodeType.COMM_COLL)
    small_N &= ~computes_N | (column(trace, "num_ops").value_N < START_OPS)
    yield RuleViolations(
        "time-at-start",
        first_N & small_N,
        lambda row: (
            f"starts its rank and moves {size_N[row]} bytes, for which a device or link of more "
            f"than {size_N[row]:,} GB/s takes 0 ns"
        ),
    )


def _lowest_id(trace: Trace, of_N: np.ndarray) -> np.ndarray:
    """Return where the node with the lowest id among ``of_N`` stands."""
    rows = np.flatnonzero(of_N)
    return marks(trace, rows[np.argsort(trace.id_N[rows], kind="stable")][:1])


def _communication(trace: Trace) -> Iterator[RuleViolations]:
    kind, size = column(trace, "comm_type"), column(trace, "comm_size")
    collective_N = (trace.type_N == NodeType.COMM_COLL) & kind.integer_N
    refused_N = collective_N & ~np.isin(kind.value_N, SUPPORTED)

    def named(row: int) -> str:
        value = int(kind.value_N[row])
        known = value in CollectiveType.__members__.values()
        return f"has comm_type {CollectiveType(value).name if known else value}"

    yield RuleViolations("supported-collective", refused_N, named)
    broadcast_N = collective_N & (kind.value_N == CollectiveType.BROADCAST)
    yield RuleViolations("broadcast-is-replayed", broadcast_N, "is a BROADCAST")
    comm_N = communicates(trace.type_N) & size.integer_N
    gather_N = collective_N & (kind.value_N == CollectiveType.ALL_GATHER)
    needs_bytes_N = gather_N | (trace.type_N == NodeType.COMM_SEND)
    wrong_N = comm_N & ((size.value_N < 0) | (needs_bytes_N & (size.value_N == 0)))
    yield RuleViolations(
        "positive-sizes", wrong_N, lambda row: f"has comm_size {size.value_N[row]}"
    )
    tag = column(trace, "comm_tag")
    message_N = np.isin(trace.type_N, MESSAGES)
    beyond_N = message_N & ((tag.value_N < 0) | (tag.value_N >= 2**31))
    yield RuleViolations("message-tags", beyond_N, lambda row: f"has comm_tag {tag.value_N[row]}")
    names = group_texts(trace)
    odd = {n for n in set(names) if not (n in WORLD_NAMES or (n.isdecimal() and n.isascii()))}
    odd_N = np.array([n in odd for n in names])
    yield RuleViolations("group-names", odd_N, lambda row: f"has pg_name {names[row]!r}")


def group_texts(trace: Trace) -> list[str]:
    """Return ``pg_name`` of each node as text: "" where absent, "<bytes>" where not a name."""
    held = column(trace, "pg_name")
    texts = [""] * trace.num_nodes
    row_K, node_K = trace.attribute_rows("pg_name")
    words_K = trace.attributes.word_A[row_K].tolist()
    for node, word in zip(node_K.tolist(), words_K, strict=True):
        if held.wire_N[node] == Wire.STRING:
            texts[node] = trace.strings[int(word)]
        elif held.integer_N[node]:
            texts[node] = str(held.value_N[node])
        else:
            texts[node] = f"<{wire_name(int(held.wire_N[node]))}>"
    return texts


def _ranges(trace: Trace) -> Iterator[RuleViolations]:
    us_N = trace.duration_us_N
    yield RuleViolations(
        "numbers-in-range", us_N > MAX_MICROSECONDS, lambda row: f"lasts {us_N[row]} us"
    )
    for name in ("tensor_size", "comm_size", "num_ops"):
        held = column(trace, name)
        # Of unsigned numbers beyond the range the column has the negative twin.
        large_N = np.isin(held.wire_N, (Wire.UINT64, Wire.FIXED64)) & (held.value_N < 0)

        def found(row: int, name: str = name, held: AttributeColumn = held) -> str:
            return f"has {name} {int(held.value_N[row]) + 2**64}"

        yield RuleViolations("numbers-in-range", large_N, found)


_CHECKS = (
    _ids_and_types,
    _ranges,
    _dependencies,
    _attribute_types,
    _devices,
    _start,
    _communication,
)


# With one of these the ranks cannot be matched at all.
_BLOCKING = ("not-empty", "distinct-ids", "no-dangling-dependency", "no-self-dependency", "acyclic")


def check_workload(workload: Workload) -> list[Finding]:
    """Return everything that is wrong with a job: each distinct trace, then the ranks together.

    Ranks that share a trace are checked once. The checks over ranks need sound traces: they are
    left out where a rule on ids or dependencies, or an integer's type, is broken. Whether the job
    is a step that PyTorch could run is asked of jobs without errors alone.
    """
    by_trace = [check_trace(trace) for trace, _ in workload.ranks_by_trace()]
    traces = Counter(rule for found in by_trace for rule in {each.rule.id for each in found})
    findings = [
        replace(finding, found=f"{finding.found}; {traces[finding.rule.id]} traces have such nodes")
        if traces[finding.rule.id] > 1
        else finding
        for finding in merged(itertools.chain.from_iterable(by_trace), _rule_id)
    ]
    broken = {finding.rule.id for finding in findings}
    if broken & {*_BLOCKING, "integer-attributes", "one-value"}:
        return findings
    findings += merged(_groups(workload), _rule_id)
    events = gather_communication(workload)
    findings += merged(_peers(workload, events), _rule_id)
    if workload.num_ranks > 1 and not len(events.rank_K):
        silent = f"its {workload.num_ranks} ranks have no collective and no message"
        rule = TRACE_RULES["ranks-communicate"]
        findings.append(Finding(rule, workload.source, None, silent))
    try:
        matched = match_communication(workload)
    except TraceError as error:
        findings.append(Finding(TRACE_RULES["readable"], workload.source, None, str(error)))
        return findings
    for mismatch in matched.mismatches:
        trace = workload.traces[mismatch.rank]
        kind = trace.type_N[trace.id_N == mismatch.node][0]
        name = "collectives-agree" if kind == NodeType.COMM_COLL else "messages-match"
        said = mismatch.message.removeprefix(f"Rank {mismatch.rank}, node {mismatch.node}: ")
        findings.append(_finding(workload, name, mismatch.rank, mismatch.node, said.rstrip(".")))
    if not has_errors(findings):
        findings += _deadlocks(workload, matched)
        findings += _world_after_groups(workload, events)
    if not has_errors(findings):
        findings += check_program(workload)
    return findings


def _rule_id(finding: Finding) -> str:
    return finding.rule.id


def check_group_file(workload: Workload) -> list[Finding]:
    """Return what is wrong with the names of groups, as they stand in a group file."""
    odd = [name for name in workload.groups if not is_group_name(name)]
    if not odd:
        return []
    found = f"its groups are called {', '.join(map(repr, odd[:5]))}"
    return [Finding(TRACE_RULES["described-groups"], workload.source, None, found, len(odd))]


def _groups(workload: Workload) -> Iterator[Finding]:
    members = {name: set(ranks) for name, ranks in workload.groups.items()}

    def collectives(trace: Trace) -> list[tuple[int, str]]:
        names = group_texts(trace)
        rows = np.flatnonzero(trace.type_N == NodeType.COMM_COLL).tolist()
        return [(int(trace.id_N[r]), names[r]) for r in rows if names[r] not in WORLD_NAMES]

    for rank, held in enumerate(workload.for_each_rank(collectives)):
        for node, name in held:
            if name not in members:
                yield _finding(workload, "known-group", rank, node, f"uses group '{name}'")
            elif rank not in members[name]:
                found = f"uses group '{name}' of ranks {sorted(members[name])[:8]}"
                yield _finding(workload, "member-of-group", rank, node, found)
            elif len(members[name]) == 1 and workload.num_ranks > 1:
                found = f"uses group '{name}' of one rank"
                yield _finding(workload, "several-members", rank, node, found)


def _peers(workload: Workload, events: CommEvents) -> Iterator[Finding]:
    send_K = events.type_K == NodeType.COMM_SEND
    own_K = np.where(send_K, events.source_K, events.target_K)
    peer_K = np.where(send_K, events.target_K, events.source_K)
    message_K = np.isin(events.type_K, MESSAGES)
    outside_K = (peer_K < 0) | (peer_K >= workload.num_ranks) | (peer_K == events.rank_K)
    for rule, bad_K in (("known-peer", outside_K), ("own-sender", own_K != events.rank_K)):
        for row in np.flatnonzero(message_K & bad_K).tolist():
            rank, node = int(events.rank_K[row]), int(events.id_K[row])
            if rule == "known-peer":
                found = f"has rank {peer_K[row]} at its other end, in a job of {workload.num_ranks}"
            else:
                found = f"stands in the trace of rank {rank} but names rank {own_K[row]}"
            yield _finding(workload, rule, rank, node, found)


def _finding(workload: Workload, rule: str, rank: int, node: int, found: str) -> Finding:
    where = f"{workload.traces[rank].source} (rank {rank})"
    return Finding(TRACE_RULES[rule], where, node, found)


def _deadlocks(workload: Workload, matched: MatchedCommunication) -> list[Finding]:
    """Look for cycles of waits over all ranks, first by dependencies, then with program order.

    A collective is one event of all its members; a receive waits for its send. If communication of
    a rank also runs one after the other in program order, further cycles can appear; since the
    true order depends on times, those are warnings.
    """
    base = pointers([trace.num_nodes for trace in workload.traces])
    event_N = np.arange(int(base[-1]))
    rows = base[matched.rank_C] + matched.row_C
    if rows.size:
        # All participants of a collective become the event of its first one.
        _, first, instance = np.unique(matched.instance_C, return_index=True, return_inverse=True)
        event_N[rows] = rows[first][instance]
    messages = np.stack(
        [
            base[matched.send_rank_M] + matched.send_row_M,
            base[matched.recv_rank_M] + matched.recv_row_M,
        ]
    )
    own_2E = _edges_of_ranks(workload, base, lambda trace: dependency_edges(trace)[0])
    waits_2E = event_N[np.concatenate([own_2E, messages], axis=1)]
    cycle = rows_on_a_cycle(event_N.size, waits_2E)
    if cycle.size:
        return [_cycle_finding(workload, base, "no-deadlock", cycle)]
    issued_2E = event_N[_edges_of_ranks(workload, base, _program_order_edges)]
    ordered_2E = np.concatenate([waits_2E, issued_2E], axis=1)
    cycle = rows_on_a_cycle(event_N.size, ordered_2E)
    return [_cycle_finding(workload, base, "one-communication-order", cycle)] if cycle.size else []


def _edges_of_ranks(
    workload: Workload, base: np.ndarray, edges_of: Callable[[Trace], np.ndarray]
) -> np.ndarray:
    """Return the edges (2, E) of all ranks, whose rows begin at ``base``."""
    each = workload.for_each_rank(edges_of)
    return np.concatenate([edges + base[rank] for rank, edges in enumerate(each)], axis=1)


def _program_order_edges(trace: Trace) -> np.ndarray:
    """Return an edge from each blocking communication of a rank to the next one it issues.

    Known only where ids ascend along the dependencies: elsewhere the order is one of times.
    """
    order = program_order(trace)
    blocks = np.isin(trace.type_N[order], (NodeType.COMM_COLL, NodeType.COMM_SEND))
    ascends = (np.diff(trace.id_N[order].astype(np.int64)) > 0).all()
    rows = order[blocks & ascends]
    return np.stack([rows[:-1], rows[1:]])


def _cycle_finding(workload: Workload, base: np.ndarray, rule: str, cycle: np.ndarray) -> Finding:
    rank_K = np.searchsorted(base, cycle, side="right") - 1
    shown: list[str] = []
    for rank, row in zip(rank_K.tolist(), (cycle - base[rank_K]).tolist(), strict=True):
        trace = workload.traces[rank]
        if communicates(trace.type_N)[row] and len(shown) < 6:
            shown.append(f"rank {rank} node {trace.id_N[row]}")
    rank = int(rank_K[0])
    node = int(workload.traces[rank].id_N[int(cycle[0] - base[rank])])
    return _finding(workload, rule, rank, node, f"waits in a cycle ({', '.join(shown)})")


def _world_after_groups(workload: Workload, events: CommEvents) -> list[Finding]:
    # Broadcasts are replayed there and not numbered.
    numbered_K = events.comm_type_K != CollectiveType.BROADCAST
    collective = np.flatnonzero((events.type_K == NodeType.COMM_COLL) & numbered_K)
    if not collective.size:
        return []
    rank_K, group_K = events.rank_K[collective], events.group_K[collective]
    first_of_rank = np.searchsorted(rank_K, np.arange(workload.num_ranks))
    before_K = np.arange(rank_K.size) - first_of_rank[rank_K]
    world = np.flatnonzero(group_K == 0)
    if world.size % workload.num_ranks:
        return []
    # Every rank calls equally many: the matching has found no mismatch.
    before_RW = before_K[world].reshape(workload.num_ranks, -1)
    unequal_W = (before_RW != before_RW[0]).any(axis=0)
    if not unequal_W.any():
        return []
    at = int(np.argmax(unequal_W))
    row = collective[world.reshape(workload.num_ranks, -1)[0, at]]
    counts = f"{before_RW[:, at].min()} to {before_RW[:, at].max()}"
    found = f"is a collective of all ranks before which the ranks have issued {counts} collectives"
    return [_finding(workload, "world-after-equal-groups", 0, int(events.id_K[row]), found)]
