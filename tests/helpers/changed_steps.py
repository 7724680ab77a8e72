"""Single changes of captured steps, for tests of what breaks a rule."""

from dataclasses import replace

import numpy as np

from layerdag.traces.trace import Ragged, Trace, Workload


def rows_of(trace: Trace, name: str) -> list[int]:
    """Return the rows of the operators of a name."""
    found = [row for row, word in enumerate(trace.names()) if word == name]
    assert found, f"there is no {name}"
    return found


def with_number(trace: Trace, row: int, attribute: str, value: int) -> Trace:
    """Return the trace in which a node states another number."""
    table = trace.attributes
    at = np.arange(table.ptr_N1[row], table.ptr_N1[row + 1])
    place = at[table.name_A[at] == trace.strings.index(attribute)]
    word_A = table.word_A.copy()
    word_A[place] = value
    return replace(trace, attributes=replace(table, word_A=word_A))


def renamed(trace: Trace, row: int, name: str) -> Trace:
    """Return the trace in which a node is another operator."""
    name_N = trace.name_N.copy()
    name_N[row] = len(trace.strings)
    return replace(trace, name_N=name_N, strings=(*trace.strings, name))


def unused(trace: Trace, row: int) -> Trace:
    """Return the trace in which nothing waits for a node."""
    deps = trace.data_deps
    kept = deps.values != trace.id_N[row]
    count = [int(kept[a:b].sum()) for a, b in zip(deps.ptr_N1, deps.ptr_N1[1:], strict=False)]
    pointers = np.concatenate([[0], np.cumsum(count)])
    return replace(trace, data_deps=Ragged(pointers, deps.values[kept]))


def without_nodes_named(trace: Trace, name: str, other: str) -> Trace:
    """Return the trace in which all operators of a name are others."""
    for row in rows_of(trace, name):
        trace = renamed(trace, row, other)
    return trace


def on_all_ranks(workload: Workload, trace: Trace) -> Workload:
    """Return a job whose ranks all run a trace."""
    return replace(workload, traces=(trace,) * workload.num_ranks)
