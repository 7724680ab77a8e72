"""Columns of a trace: what attributes are read as, and what is refused."""

from dataclasses import replace

import numpy as np
import pytest
from trace_examples import comp, rich_trace

from layerdag.errors import TraceError
from layerdag.traces import Attribute, NodeType, Ragged, Trace, Wire, Workload, wire_name
from layerdag.traces.chakra import NodeSpec, build_trace


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
def test_wires_have_the_names_of_the_schema(wire: int, name: str) -> None:
    assert wire_name(wire) == name


def test_ragged_lists_are_slices() -> None:
    lists = Ragged(np.array([0, 2, 2, 3]), np.array([7, 8, 9]))
    assert [lists.of(row).tolist() for row in range(3)] == [[7, 8], [], [9]]


INTEGERS = [
    (Wire.INT32, -(2**31)), (Wire.INT64, -(2**63)), (Wire.UINT32, 2**32 - 1),
    (Wire.UINT64, 2**63 - 1), (Wire.SINT32, -5), (Wire.SINT64, -(2**62)), (Wire.FIXED32, 7),
    (Wire.FIXED64, 8), (Wire.SFIXED32, -1), (Wire.SFIXED64, -2), (Wire.BOOL, True),
]  # fmt: skip


@pytest.mark.parametrize(("wire", "value"), INTEGERS)
def test_every_integer_type_is_read_as_its_value(wire: Wire, value: int) -> None:
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
def test_what_is_no_integer_is_refused_with_its_node_and_type(wire: int, value: object) -> None:
    trace = with_attributes((Attribute("a", Wire.INT64, 1),), (Attribute("a", wire, value),))
    says = f"x.et: node 11 carries attribute 'a' as {wire_name(wire)}; an integer type such as"
    with pytest.raises(TraceError, match=says):
        trace.integers("a")


def test_texts_are_read_where_they_are_and_other_types_refused() -> None:
    trace = with_attributes((Attribute("a", Wire.STRING, "x"),), (), (Attribute("b", 29, "y"),))
    assert trace.texts("a") == (["x", "", ""], pytest.approx([True, False, False]))
    assert trace.texts("absent")[1].tolist() == [False] * 3
    wrong = with_attributes((), (Attribute("a", Wire.INT64, 1),))
    with pytest.raises(TraceError, match="node 11 carries attribute 'a' as int64_val; string_val"):
        wrong.texts("a")


@pytest.mark.parametrize(("wire", "one", "other"), [(Wire.INT64, 1, 2), (Wire.STRING, "x", "y")])
def test_an_attribute_twice_must_say_the_same_twice(wire: Wire, one: object, other: object) -> None:
    def read(trace: Trace) -> object:
        return trace.texts("a")[0] if wire is Wire.STRING else trace.integers("a")[0].tolist()

    first, second = Attribute("a", wire, one), Attribute("a", wire, other)
    assert read(with_attributes((first, first), (second,))) == [one, other]
    with pytest.raises(TraceError, match="node 11 carries attribute 'a' twice, with different"):
        read(with_attributes((first,), (first, second)))


def test_names_and_sizes() -> None:
    trace = replace(build_trace([comp(0, name="a"), comp(1)]), name_N=np.array([0, -1], np.int32))
    assert trace.names() == ["a", ""]
    assert trace.num_nodes == 2
    assert Workload((trace, rich_trace())).num_ranks == 2
