"""Check one execution trace, node by node, against the table of rules."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from layerdag.evaluation.rules._base import Finding
from layerdag.evaluation.rules._trace_table import TRACE_RULES
from layerdag.traces import (
    AttributeTable,
    CollectiveType,
    NodeType,
    Trace,
    Wire,
    rows_of,
    rows_on_a_cycle,
    wire_name,
)
from layerdag.traces.analysis import WORLD_NAMES
from layerdag.traces.chakra import FEEDER_WIRES, REQUIRED_ATTRIBUTES, START_BYTES, START_OPS

SUPPORTED = (
    CollectiveType.ALL_REDUCE,
    CollectiveType.ALL_GATHER,
    CollectiveType.ALL_TO_ALL,
    CollectiveType.REDUCE_SCATTER,
    CollectiveType.BROADCAST,
)
# Nodes that hold the communication slot of a rank.
_HOLDING = (NodeType.MEM_LOAD, NodeType.MEM_STORE, NodeType.COMM_SEND, NodeType.COMM_COLL)


@dataclass(frozen=True, eq=False)
class Column:
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
        inside_N = (self.wire_N >= Wire.INT32) & (self.wire_N <= Wire.BOOL)
        return self.present_N & inside_N & (self.wire_N % 2 == 1)


@dataclass(frozen=True, eq=False)
class Broken:
    """Nodes that break a rule.

    Attributes:
        rule: Id of the rule.
        bad_N: True where a node breaks it.
        found: Says what the node in a given row has.
    """

    rule: str
    bad_N: np.ndarray
    found: Callable[[int], str]


def column(trace: Trace, name: str) -> Column:
    """Return the attribute ``name``; a trace without it has an absent column."""
    wire_N = np.zeros(trace.num_nodes, dtype=np.int64)
    value_N = np.zeros(trace.num_nodes, dtype=np.int64)
    present_N = np.zeros(trace.num_nodes, dtype=bool)
    if name in trace.strings:
        table = trace.attributes
        row_A = np.flatnonzero(table.name_A == trace.strings.index(name))
        node_A = np.searchsorted(table.ptr_N1, row_A, side="right") - 1
        wire_N[node_A] = table.wire_A[row_A]
        present_N[node_A] = True
        value_N[node_A] = table.word_A[row_A].view(np.int64)
    found = Column(wire_N, value_N, present_N)
    return Column(wire_N, np.where(found.integer_N, value_N, 0), present_N)


def check_trace(trace: Trace) -> list[Finding]:
    """Return what is wrong with one trace; at most one finding a rule, with a count of its nodes.

    Nothing here raises because of the trace's content.
    """
    if trace.num_nodes == 0:
        return [Finding(TRACE_RULES["not-empty"], trace.source, None, "has no node")]
    findings = []
    for check in _CHECKS:
        for broken in check(trace):
            rows = np.flatnonzero(broken.bad_N)
            if rows.size:
                first = int(rows[0])
                node = int(trace.id_N[first])
                rule = TRACE_RULES[broken.rule]
                findings.append(
                    Finding(rule, trace.source, node, broken.found(first), int(rows.size))
                )
    return findings


def _ids_and_types(trace: Trace) -> Iterator[Broken]:
    """Check ids and node types."""
    _, first = np.unique(trace.id_N, return_index=True)
    again_N = np.ones(trace.num_nodes, dtype=bool)
    again_N[first] = False
    yield Broken("distinct-ids", again_N, lambda row: "has the id of an earlier node")
    metadata_N = trace.type_N == NodeType.METADATA
    yield Broken("no-metadata-node", metadata_N, lambda row: "is a METADATA node")
    invalid_N = (trace.type_N == NodeType.INVALID) | (trace.type_N > NodeType.COMM_COLL)
    yield Broken("no-invalid-node", invalid_N, lambda row: "is an INVALID node")


def _always(text: str) -> Callable[[int], str]:
    """Return a description that is the same for every row."""
    return lambda row: text


def _dependencies(trace: Trace) -> Iterator[Broken]:
    """Check data and control dependencies together, as feeder v3 enforces both."""
    both = (trace.data_deps, trace.ctrl_deps)
    target_E = np.concatenate(
        [np.repeat(np.arange(trace.num_nodes), np.diff(deps.ptr_N1)) for deps in both]
    )
    wanted_E = np.concatenate([deps.values for deps in both])
    kind_E = np.repeat([0, 1], [deps.values.size for deps in both])
    source_E = rows_of(trace, wanted_E)

    def nodes(bad_E: np.ndarray) -> np.ndarray:
        bad_N = np.zeros(trace.num_nodes, dtype=bool)
        bad_N[target_E[bad_E]] = True
        return bad_N

    def absent(row: int) -> str:
        ids = wanted_E[(source_E < 0) & (target_E == row)]
        return f"waits for node {ids[0]}, which the trace does not have"

    yield Broken("no-dangling-dependency", nodes(source_E < 0), absent)
    itself_E = source_E == target_E
    yield Broken("no-self-dependency", nodes(itself_E), lambda row: "waits for itself")
    key_E3 = np.stack([kind_E, target_E, wanted_E.view(np.int64)], axis=1)
    _, first = np.unique(key_E3, axis=0, return_index=True)
    repeated_E = np.ones(target_E.size, dtype=bool)
    repeated_E[first] = False
    yield Broken("no-double-dependency", nodes(repeated_E), lambda row: "lists one twice")
    sound_E = (source_E >= 0) & ~itself_E
    cycle = rows_on_a_cycle(trace.num_nodes, np.stack([source_E, target_E])[:, sound_E])
    bad_N = np.zeros(trace.num_nodes, dtype=bool)
    bad_N[cycle] = True
    shown = ", ".join(str(trace.id_N[row]) for row in cycle[:6])
    yield Broken("acyclic", bad_N, lambda row: f"is on a cycle of waits (nodes {shown})")


def _attribute_types(trace: Trace) -> Iterator[Broken]:
    """Check presence and wire types."""
    for kind, names in REQUIRED_ATTRIBUTES.items():
        of_kind_N = trace.type_N == kind
        for name in names:
            missing_N = of_kind_N & ~column(trace, name).present_N
            text = f"is a {kind.name} without {name}"
            yield Broken("required-attributes", missing_N, _always(text))
    for name, wire in FEEDER_WIRES.items():
        held = column(trace, name)

        def found(row: int, name: str = name, held: Column = held) -> str:
            return f"has {name} as {wire_name(int(held.wire_N[row]))}"

        yield Broken("integer-attributes", held.present_N & ~held.integer_N, found)
        yield Broken("feeder-v1-types", held.integer_N & (held.wire_N != wire), found)
    yield Broken("one-value", *_contradictions(trace))
    involved = column(trace, "involved_dim")
    wrong_N = involved.present_N & (involved.wire_N != Wire.BOOL + 1)
    yield Broken("involved-dim-type", wrong_N, lambda row: "has an involved_dim of another type")


def _contradictions(trace: Trace) -> tuple[np.ndarray, Callable[[int], str]]:
    """Return which nodes carry an attribute twice with different values, and which attribute."""
    table = trace.attributes
    node_A = np.repeat(np.arange(trace.num_nodes), np.diff(table.ptr_N1))
    order = np.lexsort((table.name_A, node_A))
    same = (node_A[order][1:] == node_A[order][:-1]) & (np.diff(table.name_A[order]) == 0)
    name_of: dict[int, str] = {}
    for at in np.flatnonzero(same).tolist():
        first, second = (_raw(table, int(row)) for row in order[at : at + 2])
        if first != second:
            name = int(table.name_A[order[at]])
            name_of.setdefault(int(node_A[order[at]]), "" if name < 0 else trace.strings[name])
    bad_N = np.zeros(trace.num_nodes, dtype=bool)
    bad_N[list(name_of)] = True
    return bad_N, lambda row: f"carries {name_of[row]} twice"


def _raw(table: AttributeTable, row: int) -> tuple[bool, object]:
    """Return what an attribute holds, undecoded, so that equal values compare equal."""
    wire, word = int(table.wire_A[row]), int(table.word_A[row])
    pooled = wire == Wire.BYTES or (wire != Wire.UNSET and wire % 2 == 0)
    return pooled, table.blobs[word] if pooled else word


def _devices(trace: Trace) -> Iterator[Broken]:
    """Check which nodes run on the CPU, and whether device compute carries its cost."""
    on_cpu_N = column(trace, "is_cpu_op").value_N != 0
    comm_N = trace.type_N >= NodeType.COMM_SEND
    compute_N = trace.type_N == NodeType.COMP
    yield Broken("comm-off-cpu", comm_N & on_cpu_N, lambda row: "communicates on the CPU")
    yield Broken("compute-off-cpu", compute_N & on_cpu_N, lambda row: "computes on the CPU")
    for name in ("num_ops", "tensor_size"):
        free_N = compute_N & ~on_cpu_N & (column(trace, name).value_N <= 0)
        text = f"has no positive {name}"
        yield Broken("costed-compute", free_N, _always(text))


def _start(trace: Trace) -> Iterator[Broken]:
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
    yield Broken(
        "time-at-start",
        first_N & small_N,
        lambda row: (
            f"starts its rank and moves {size_N[row]} bytes, for which a device or link of more "
            f"than {size_N[row]:,} GB/s takes 0 ns"
        ),
    )


def _lowest_id(trace: Trace, of_N: np.ndarray) -> np.ndarray:
    """Return where the node with the lowest id among ``of_N`` stands."""
    found_N = np.zeros(trace.num_nodes, dtype=bool)
    rows = np.flatnonzero(of_N)
    if rows.size:
        found_N[rows[np.argmin(trace.id_N[rows])]] = True
    return found_N


def _communication(trace: Trace) -> Iterator[Broken]:
    """Check types and sizes of collectives and messages, and the form of group names."""
    kind, size = column(trace, "comm_type"), column(trace, "comm_size")
    collective_N = (trace.type_N == NodeType.COMM_COLL) & kind.integer_N
    refused_N = collective_N & ~np.isin(kind.value_N, SUPPORTED)
    yield Broken(
        "supported-collective", refused_N, lambda row: f"has comm_type {_named(kind, row)}"
    )
    broadcast_N = collective_N & (kind.value_N == CollectiveType.BROADCAST)
    yield Broken("broadcast-is-replayed", broadcast_N, lambda row: "is a BROADCAST")
    comm_N = (trace.type_N >= NodeType.COMM_SEND) & size.integer_N
    gather_N = collective_N & (kind.value_N == CollectiveType.ALL_GATHER)
    needs_bytes_N = gather_N | (trace.type_N == NodeType.COMM_SEND)
    wrong_N = comm_N & ((size.value_N < 0) | (needs_bytes_N & (size.value_N == 0)))
    yield Broken("positive-sizes", wrong_N, lambda row: f"has comm_size {size.value_N[row]}")
    tag = column(trace, "comm_tag")
    message_N = (trace.type_N == NodeType.COMM_SEND) | (trace.type_N == NodeType.COMM_RECV)
    beyond_N = message_N & ((tag.value_N < 0) | (tag.value_N >= 2**31))
    yield Broken("message-tags", beyond_N, lambda row: f"has comm_tag {tag.value_N[row]}")
    names = group_texts(trace)
    odd = {n for n in set(names) if not (n in WORLD_NAMES or (n.isdecimal() and n.isascii()))}
    odd_N = np.array([n in odd for n in names])
    yield Broken("group-names", odd_N, lambda row: f"has pg_name {names[row]!r}")


def _named(kind: Column, row: int) -> str:
    """Return the name of a collective type, or its number."""
    value = int(kind.value_N[row])
    known = value in CollectiveType.__members__.values()
    return CollectiveType(value).name if known else str(value)


def group_texts(trace: Trace) -> list[str]:
    """Return ``pg_name`` of each node as text: "" where absent, "<bytes>" where it is no name."""
    held = column(trace, "pg_name")
    texts = [""] * trace.num_nodes
    if not held.present_N.any():
        return texts
    table = trace.attributes
    name = trace.strings.index("pg_name")
    rows_A = np.flatnonzero(table.name_A == name)
    nodes_A = np.searchsorted(table.ptr_N1, rows_A, side="right") - 1
    is_text_A = held.wire_N[nodes_A] == Wire.STRING
    words_A = table.word_A[rows_A].tolist()
    for node, is_text, word in zip(nodes_A.tolist(), is_text_A.tolist(), words_A, strict=True):
        if is_text:
            texts[node] = trace.strings[int(word)]
        elif held.integer_N[node]:
            texts[node] = str(held.value_N[node])
        else:
            texts[node] = f"<{wire_name(int(held.wire_N[node]))}>"
    return texts


_CHECKS = (_ids_and_types, _dependencies, _attribute_types, _devices, _start, _communication)
