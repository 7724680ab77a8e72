"""Columns of a trace: what attributes are read as, and what is refused."""

from dataclasses import replace

import numpy as np
import pytest
from trace_examples import comp

from layerdag.errors import TraceError
from layerdag.traces.builder import NodeSpec, build_trace
from layerdag.traces.trace import (
    CONTROL,
    DATA,
    Attribute,
    NodeType,
    Ragged,
    Trace,
    Wire,
    Workload,
    dependency_edges,
    drop_dangling,
    trace_layers,
    wire_name,
)


def test_edges_go_from_parent_row_to_child_row_whatever_the_ids():
    trace = build_trace([comp(30, 10, 2**63), comp(10), comp(2**63, 10)])
    edges, kinds = dependency_edges(trace)
    assert sorted(zip(*edges.tolist(), strict=True)) == [(1, 0), (1, 2), (2, 0)]
    assert set(kinds.tolist()) == {DATA}
    assert trace_layers(trace).tolist() == [2, 0, 1]


def test_pair_that_is_both_counts_once_as_data():
    trace = build_trace([comp(0), comp(1, 0, 0, ctrl=(0,)), comp(2, ctrl=(1,))])
    edges, kinds = dependency_edges(trace)
    assert edges.tolist() == [[0, 1], [1, 2]]
    assert kinds.tolist() == [DATA, CONTROL]


def test_dangling_double_and_cyclic_are_named():
    with pytest.raises(TraceError, match="node 1 depends on node 5, which is not in the trace"):
        dependency_edges(build_trace([comp(0), comp(1, 5)]))
    trace = build_trace([comp(0), comp(1)])
    twice = replace(trace, id_N=np.zeros(2, np.uint64))
    with pytest.raises(TraceError, match="first id 0"):
        dependency_edges(twice)
    with pytest.raises(TraceError, match=r"3 nodes wait for each other in a cycle \(ids 7, 8, 9\)"):
        trace_layers(build_trace([comp(6), comp(7, 6, 9), comp(8, 7), comp(9, ctrl=(8,))]))
    with pytest.raises(TraceError, match="node 4 depends on itself"):
        trace_layers(build_trace([comp(4, 4)]))


def test_dropping_dangling_dependencies_keeps_the_others():
    trace = build_trace([comp(0, 9), comp(1, 0, 7, ctrl=(8, 0))])
    clean, dropped = drop_dangling(Workload((trace, trace)))
    assert dropped == 3
    assert clean.traces[0] is clean.traces[1]
    assert clean.traces[0].data_deps.of(0).tolist() == []
    assert clean.traces[0].data_deps.of(1).tolist() == [0]
    assert clean.traces[0].ctrl_deps.of(1).tolist() == [0]


def with_attributes(*lists: tuple[Attribute, ...]) -> Trace:
    """Return a trace of one node for each list of attributes, with ids 10, 11, ..."""
    nodes = [
        NodeSpec(10 + at, "n", NodeType.COMP, attributes=attributes)
        for at, attributes in enumerate(lists)
    ]
    return build_trace(nodes, source="x.et")


@pytest.mark.parametrize(
    ("wire", "name"),
    [
        (Wire.UNSET, "unset"),
        (Wire.DOUBLE, "double_val"),
        (Wire.DOUBLE + 1, "double_list"),
        (Wire.SFIXED64, "sfixed64_val"),
        (Wire.BOOL + 1, "bool_list"),
        (Wire.BYTES, "bytes_val"),
        (Wire.BYTES + 1, "bytes_list"),
    ],
)
def test_wires_have_the_names_of_the_schema(wire, name):
    assert wire_name(wire) == name


def test_ragged_lists_are_slices():
    lists = Ragged(np.array([0, 2, 2, 3]), np.array([7, 8, 9]))
    assert [lists.of(row).tolist() for row in range(3)] == [[7, 8], [], [9]]


INTEGERS = [
    (Wire.INT32, -(2**31)), (Wire.INT64, -(2**63)), (Wire.UINT32, 2**32 - 1),
    (Wire.UINT64, 2**63 - 1), (Wire.SINT32, -5), (Wire.SINT64, -(2**62)), (Wire.FIXED32, 7),
    (Wire.FIXED64, 8), (Wire.SFIXED32, -1), (Wire.SFIXED64, -2), (Wire.BOOL, True),
]  # fmt: skip


@pytest.mark.parametrize(("wire", "value"), INTEGERS)
def test_every_integer_type_is_read_as_its_value(wire, value):
    trace = with_attributes((), (Attribute("a", wire, value),), ())
    value_N, present_N = trace.integers("a", default=-9)
    assert value_N.tolist() == [-9, int(value), -9]
    assert present_N.tolist() == [False, True, False]
    assert value_N.dtype == np.int64


@pytest.mark.parametrize(
    ("wire", "value"),
    [
        (Wire.DOUBLE, 1.0),
        (Wire.FLOAT, 1.0),
        (Wire.STRING, "1"),
        (Wire.BYTES, b"1"),
        (Wire.INT64 + 1, (1,)),
        (Wire.UNSET, None),
    ],
)
def test_what_is_no_integer_is_refused_with_its_node_and_type(wire, value):
    trace = with_attributes((Attribute("a", Wire.INT64, 1),), (Attribute("a", wire, value),))
    says = f"x.et: node 11 carries attribute 'a' as {wire_name(wire)}; an integer type such as"
    with pytest.raises(TraceError, match=says):
        trace.integers("a")


def test_texts_are_read_where_they_are_and_other_types_refused():
    trace = with_attributes((Attribute("a", Wire.STRING, "x"),), (), (Attribute("b", 29, "y"),))
    assert trace.texts("a") == (["x", "", ""], pytest.approx([True, False, False]))
    assert trace.texts("absent")[1].tolist() == [False] * 3
    wrong = with_attributes((), (Attribute("a", Wire.INT64, 1),))
    with pytest.raises(TraceError, match="node 11 carries attribute 'a' as int64_val; string_val"):
        wrong.texts("a")


@pytest.mark.parametrize(("wire", "one", "other"), [(Wire.INT64, 1, 2), (Wire.STRING, "x", "y")])
def test_an_attribute_twice_must_say_the_same_twice(wire, one, other):
    def read(trace: Trace) -> object:
        return trace.texts("a")[0] if wire is Wire.STRING else trace.integers("a")[0].tolist()

    first, second = Attribute("a", wire, one), Attribute("a", wire, other)
    assert read(with_attributes((first, first), (second,))) == [one, other]
    with pytest.raises(TraceError, match="node 11 carries attribute 'a' twice, with different"):
        read(with_attributes((first,), (first, second)))
