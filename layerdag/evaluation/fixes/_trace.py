"""The fixes that need to see one trace only: dependencies, wire types, devices, node types."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from layerdag.errors import TraceError
from layerdag.evaluation.fixes._attributes import nodes_of, with_word
from layerdag.evaluation.fixes._fix import TraceFix
from layerdag.graph import pointers
from layerdag.traces import NodeType, Ragged, Trace, Wire, rows_of
from layerdag.traces.chakra import FEEDER_WIRES, off_the_cpu, retyped, value_of, without_nodes

_Chosen = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]


def drop_dangling(trace: Trace) -> TraceFix | None:
    """Drop dependencies on nodes that the trace does not have: nothing can wait for them."""
    return _without(trace, lambda target, wanted, row: row < 0, "waits no more for absent nodes")


def drop_own(trace: Trace) -> TraceFix | None:
    """Drop dependencies of a node on itself."""
    return _without(trace, lambda target, wanted, row: row == target, "waits no more for itself")


def drop_doubles(trace: Trace) -> TraceFix | None:
    """Keep the first of each dependency that a node lists twice."""
    return _without(trace, _again, "keeps one of each dependency")


def _again(target_E: np.ndarray, wanted_E: np.ndarray, row_E: np.ndarray) -> np.ndarray:
    """Return which dependencies their node has listed before."""
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
    """Return the whole number that each node carries as a float or text, by row."""
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
            after = retyped(trace, name, wire)
        except TraceError:  # no integer, or one that does not fit: stays a finding
            continue
        changed_A = after.attributes.wire_A != trace.attributes.wire_A
        done_N[node_A[changed_A]] = True
        trace = after
    if trace is before or not done_N.any():
        return None
    return TraceFix(trace, done_N, "attributes have the types that feeder v1 reads")


def take_communication_off_the_cpu(trace: Trace) -> TraceFix | None:
    """Mark communication as not on the CPU."""
    after = off_the_cpu(trace)
    changed_A = after.attributes.word_A != trace.attributes.word_A
    if not changed_A.any():
        return None
    done_N = np.zeros(trace.num_nodes, dtype=bool)
    done_N[nodes_of(trace)[changed_A]] = True
    return TraceFix(after, done_N, "is marked as not on the CPU")


def take_out(trace: Trace, gone_N: np.ndarray, done: str) -> TraceFix | None:
    """Take nodes out; what waited for them waits for what they waited for."""
    if not gone_N.any() or gone_N.all():
        return None
    try:
        return TraceFix(without_nodes(trace, gone_N), gone_N, done)
    except TraceError:  # the dependencies are faulty: stays a finding
        return None


def take_out_metadata(trace: Trace) -> TraceFix | None:
    """Take METADATA nodes out."""
    return take_out(trace, trace.type_N == NodeType.METADATA, "METADATA nodes are taken out")


def take_out_invalid(trace: Trace) -> TraceFix | None:
    """Take INVALID nodes out, as every writer of this package does."""
    return take_out(trace, trace.type_N == NodeType.INVALID, "INVALID nodes are taken out")
