"""Check the ranks of a job against each other: groups, matching, deadlock."""

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from layerdag.errors import TraceError
from layerdag.evaluation.rules._base import Finding, Severity
from layerdag.evaluation.rules._trace import check_trace, group_texts
from layerdag.evaluation.rules._trace_table import TRACE_RULES
from layerdag.graph import pointers
from layerdag.traces import (
    CollectiveType,
    NodeType,
    Trace,
    Workload,
    dependency_edges,
    rows_on_a_cycle,
)
from layerdag.traces.analysis import (
    WORLD_NAMES,
    CommEvents,
    Communication,
    gather_communication,
    match_communication,
    program_order,
)

# With one of these the ranks cannot be matched at all.
_BLOCKING = ("not-empty", "distinct-ids", "no-dangling-dependency", "no-self-dependency", "acyclic")


def check_workload(workload: Workload) -> list[Finding]:
    """Return everything that is wrong with a job: each distinct trace, then the ranks together.

    Ranks that share a trace are checked once. The checks over ranks need sound traces: they are
    left out where a rule on ids or dependencies, or an integer's type, is broken.
    """
    distinct = {id(trace): trace for trace in workload.traces}
    findings = _over_ranks([check_trace(trace) for trace in distinct.values()])
    broken = {finding.rule.id for finding in findings}
    if broken & {*_BLOCKING, "integer-attributes", "one-value"}:
        return findings
    findings += _merged(_groups(workload))
    events = gather_communication(workload)
    findings += _merged(_peers(workload, events))
    findings += _silence(workload, events)
    try:
        matched = match_communication(workload)
    except TraceError as error:
        findings.append(Finding(TRACE_RULES["readable"], workload.source, None, str(error)))
        return findings
    findings += _mismatches(workload, matched)
    if not any(f.rule.severity is Severity.ERROR for f in findings):
        findings += _deadlocks(workload, matched)
        findings += _world_after_groups(workload, events)
    return findings


def _silence(workload: Workload, events: CommEvents) -> list[Finding]:
    """Return a finding if there are several ranks and no communication."""
    if workload.num_ranks < 2 or len(events.rank_K):
        return []
    found = f"its {workload.num_ranks} ranks have no collective and no message"
    return [Finding(TRACE_RULES["ranks-communicate"], workload.source, None, found)]


def check_group_file(workload: Workload) -> list[Finding]:
    """Return what is wrong with the names of groups, as they stand in a group file."""
    odd = [name for name in workload.groups if not is_group_name(name)]
    if not odd:
        return []
    found = f"its groups are called {', '.join(map(repr, odd[:5]))}"
    return [Finding(TRACE_RULES["described-groups"], workload.source, None, found, len(odd))]


def is_group_name(name: str) -> bool:
    """Return whether a group file may name a group so: an integer above 0, for ASTRA-sim."""
    return name.isascii() and name.isdigit() and len(name) <= 10 and int(name) > 0


def _over_ranks(by_trace: list[list[Finding]]) -> list[Finding]:
    """Join the findings of one rule in several traces: the first, with the count of all nodes."""
    joined: dict[str, Finding] = {}
    traces: Counter[str] = Counter()
    for found in by_trace:
        traces.update({finding.rule.id for finding in found})
    for finding in itertools.chain.from_iterable(by_trace):
        known = joined.setdefault(finding.rule.id, finding)
        if known is not finding:
            joined[finding.rule.id] = replace(known, count=known.count + finding.count)
    return [
        replace(finding, found=f"{finding.found}; {traces[rule]} traces have such nodes")
        if traces[rule] > 1
        else finding
        for rule, finding in joined.items()
    ]


def _merged(found: Iterator[Finding]) -> list[Finding]:
    """Keep the first finding of each rule, with the count of all."""
    kept: dict[str, Finding] = {}
    for finding in found:
        known = kept.setdefault(finding.rule.id, finding)
        if known is not finding:
            kept[finding.rule.id] = replace(known, count=known.count + 1)
    return list(kept.values())


def _groups(workload: Workload) -> Iterator[Finding]:
    """Check that collectives use described groups that their rank belongs to."""
    members = {name: set(ranks) for name, ranks in workload.groups.items()}
    cached: dict[int, list[tuple[int, str]]] = {}
    for rank, trace in enumerate(workload.traces):
        if id(trace) not in cached:
            cached[id(trace)] = _grouped_collectives(trace)
        for node, name in cached[id(trace)]:
            where = f"{trace.source} (rank {rank})"
            if name not in members:
                found = f"uses group '{name}'"
                yield Finding(TRACE_RULES["known-group"], where, node, found)
            elif rank not in members[name]:
                found = f"uses group '{name}' of ranks {sorted(members[name])[:8]}"
                yield Finding(TRACE_RULES["member-of-group"], where, node, found)
            elif len(members[name]) == 1 and workload.num_ranks > 1:
                found = f"uses group '{name}' of one rank"
                yield Finding(TRACE_RULES["several-members"], where, node, found)


def _grouped_collectives(trace: Trace) -> list[tuple[int, str]]:
    """Return (id, group) of each collective of a group other than all ranks."""
    names = group_texts(trace)
    rows = np.flatnonzero(trace.type_N == NodeType.COMM_COLL).tolist()
    return [(int(trace.id_N[r]), names[r]) for r in rows if names[r] not in WORLD_NAMES]


def _peers(workload: Workload, events: CommEvents) -> Iterator[Finding]:
    """Check the ranks at both ends of messages."""
    send_K = events.type_K == NodeType.COMM_SEND
    receive_K = events.type_K == NodeType.COMM_RECV
    own_K = np.where(send_K, events.source_K, events.target_K)
    peer_K = np.where(send_K, events.target_K, events.source_K)
    message_K = send_K | receive_K
    outside_K = (peer_K < 0) | (peer_K >= workload.num_ranks) | (peer_K == events.rank_K)
    for row in np.flatnonzero(message_K & outside_K).tolist():
        found = f"has rank {peer_K[row]} at its other end, in a job of {workload.num_ranks}"
        yield _finding(
            workload, "known-peer", int(events.rank_K[row]), int(events.id_K[row]), found
        )
    for row in np.flatnonzero(message_K & (own_K != events.rank_K)).tolist():
        found = f"stands in the trace of rank {events.rank_K[row]} but names rank {own_K[row]}"
        yield _finding(
            workload, "own-sender", int(events.rank_K[row]), int(events.id_K[row]), found
        )


def _finding(workload: Workload, rule: str, rank: int, node: int, found: str) -> Finding:
    where = f"{workload.traces[rank].source} (rank {rank})"
    return Finding(TRACE_RULES[rule], where, node, found)


def _mismatches(workload: Workload, matched: Communication) -> list[Finding]:
    """Sort what does not match into the rules on collectives and on messages."""
    findings = []
    for mismatch in matched.mismatches:
        trace = workload.traces[mismatch.rank]
        kind = trace.type_N[trace.id_N == mismatch.node][0]
        rule = "collectives-agree" if kind == NodeType.COMM_COLL else "messages-match"
        found = mismatch.message.removeprefix(f"Rank {mismatch.rank}, node {mismatch.node}: ")
        findings.append(_finding(workload, rule, mismatch.rank, mismatch.node, found.rstrip(".")))
    return findings


def _deadlocks(workload: Workload, matched: Communication) -> list[Finding]:
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
    waits_2E = event_N[np.concatenate([_dependency_edges(workload, base), messages], axis=1)]
    cycle = rows_on_a_cycle(event_N.size, waits_2E)
    if cycle.size:
        return [_cycle_finding(workload, base, "no-deadlock", cycle)]
    ordered_2E = np.concatenate([waits_2E, event_N[_program_order_edges(workload, base)]], axis=1)
    cycle = rows_on_a_cycle(event_N.size, ordered_2E)
    return [_cycle_finding(workload, base, "one-communication-order", cycle)] if cycle.size else []


def _dependency_edges(workload: Workload, base: np.ndarray) -> np.ndarray:
    """Return the dependencies of all ranks as edges between rows of the whole job."""
    cached: dict[int, np.ndarray] = {}
    parts = []
    for rank, trace in enumerate(workload.traces):
        if id(trace) not in cached:
            cached[id(trace)] = dependency_edges(trace)[0]
        parts.append(cached[id(trace)] + base[rank])
    return np.concatenate(parts, axis=1)


def _program_order_edges(workload: Workload, base: np.ndarray) -> np.ndarray:
    """Return an edge from each blocking communication of a rank to the next one it issues.

    Known only where ids ascend along the dependencies: elsewhere the order is one of times.
    """
    cached: dict[int, np.ndarray] = {}
    parts = []
    for rank, trace in enumerate(workload.traces):
        if id(trace) not in cached:
            order = program_order(trace)
            blocks = np.isin(trace.type_N[order], (NodeType.COMM_COLL, NodeType.COMM_SEND))
            ascends = (np.diff(trace.id_N[order].astype(np.int64)) > 0).all()
            cached[id(trace)] = order[blocks & ascends]
        rows = cached[id(trace)] + base[rank]
        parts.append(np.stack([rows[:-1], rows[1:]]))
    return np.concatenate(parts, axis=1)


def _cycle_finding(workload: Workload, base: np.ndarray, rule: str, cycle: np.ndarray) -> Finding:
    """Describe a cycle of waits by its communication nodes."""
    rank_K = np.searchsorted(base, cycle, side="right") - 1
    shown: list[str] = []
    for rank, row in zip(rank_K.tolist(), (cycle - base[rank_K]).tolist(), strict=True):
        trace = workload.traces[rank]
        if trace.type_N[row] >= NodeType.COMM_SEND and len(shown) < 6:
            shown.append(f"rank {rank} node {trace.id_N[row]}")
    rank = int(rank_K[0])
    node = int(workload.traces[rank].id_N[int(cycle[0] - base[rank])])
    return _finding(workload, rule, rank, node, f"waits in a cycle ({', '.join(shown)})")


def _world_after_groups(workload: Workload, events: CommEvents) -> list[Finding]:
    """Find the first collective of all ranks before which ranks have issued unequally many."""
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
