"""Set an attribute on some nodes of a trace, whether they carry it yet or not."""

from dataclasses import replace

import numpy as np

from layerdag.graph import pointers
from layerdag.traces import AttributeTable, Trace, Wire


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
    """Return the table with one more attribute at the end of each of the given nodes."""
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
