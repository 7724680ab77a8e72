import re

import numpy as np
import pytest
from hypothesis import given, strategies as st
from laws import tried
from trace_examples import coll, comp, message

from layerdag.errors import TraceError
from layerdag.traces import Attribute, NodeType, Trace, Wire
from layerdag.traces.chakra import (
    FEEDER_WIRES,
    NodeSpec,
    attribute_at,
    build_trace,
    normalize,
    without_nodes,
)


def spec(kind: NodeType, *attributes: Attribute) -> Trace:
    return build_trace([NodeSpec(4, "x", kind, attributes=attributes)], source="x.et")


def found(trace: Trace) -> dict[str, tuple[int, object]]:
    rows = range(trace.attributes.wire_A.size)
    each = [attribute_at(trace.attributes, row, trace.strings) for row in rows]
    return {a.name: (a.wire, a.value) for a in each}


def test_attributes_get_the_type_that_feeder_v1_reads() -> None:
    trace = spec(
        NodeType.COMM_COLL,
        Attribute("is_cpu_op", Wire.INT32, 0),
        Attribute("comm_type", Wire.UINT32, 6),
        Attribute("comm_size", Wire.UINT64, 2**40),
        Attribute("other", Wire.UINT64, 5),
    )
    assert found(normalize(trace)) == {
        "is_cpu_op": (Wire.BOOL, False),
        "comm_type": (Wire.INT64, 6),
        "comm_size": (Wire.INT64, 2**40),
        "other": (Wire.UINT64, 5),
    }


def test_communication_leaves_the_cpu_and_computation_stays() -> None:
    cpu = Attribute("is_cpu_op", Wire.BOOL, True)
    trace = build_trace(
        [
            NodeSpec(0, "a", NodeType.COMP, attributes=(cpu,)),
            NodeSpec(1, "b", NodeType.COMM_COLL, attributes=(cpu, *coll(1).attributes[1:])),
        ]
    )
    assert normalize(trace).integers("is_cpu_op")[0].tolist() == [1, 0]


@pytest.mark.parametrize(
    ("trace", "expected"),
    [
        (
            spec(NodeType.COMM_COLL, Attribute("comm_type", Wire.INT64, 0)),
            "no attribute 'comm_size",
        ),
        (
            spec(NodeType.COMM_COLL, Attribute("comm_size", Wire.DOUBLE, 1.0)),
            "'comm_size' as double_val",
        ),
        (spec(NodeType.COMM_SEND, Attribute("comm_dst", Wire.INT32, 1)), "no attribute 'comm_tag'"),
        (spec(NodeType.MEM_LOAD), "no attribute 'tensor_size'"),
        (spec(NodeType.COMP, Attribute("comm_tag", Wire.INT64, 2**31)), "does not fit into int32"),
        (spec(NodeType.COMP, Attribute("tensor_size", Wire.INT64, -1)), "does not fit into uint64"),
        (spec(NodeType.COMP, Attribute("num_ops", Wire.UINT64, 2**63)), "does not fit into int64"),
        (build_trace([coll(4, group="default_pg")], source="x.et"), "group 'default_pg'"),
        (build_trace([comp(4, 9)], source="x.et"), "depends on node 9"),
        (build_trace([comp(4, 5), comp(5, 4)], source="x.et"), "wait for each other"),
    ],
)
def test_what_astra_sim_cannot_run_is_refused(trace: Trace, expected: str) -> None:
    with pytest.raises(TraceError, match=expected) as caught:
        normalize(trace)
    assert str(caught.value).startswith("x.et: ")
    assert "4" in str(caught.value)


@pytest.mark.parametrize("tag", [2**31 - 1, -(2**31)])
def test_the_largest_tags_stay(tag: int) -> None:
    trace = normalize(spec(NodeType.COMP, Attribute("comm_tag", Wire.INT64, tag)))
    assert found(trace)["comm_tag"] == (Wire.INT32, tag)


def test_metadata_nodes_go_and_their_children_inherit() -> None:
    meta = NodeSpec(1, "process_group:init", NodeType.METADATA, (0,))
    second = NodeSpec(2, "", NodeType.INVALID, (1,), (0,))
    trace = normalize(build_trace([comp(0), meta, second, comp(3, 2, 0), comp(4, ctrl=(1,))]))
    assert trace.id_N.tolist() == [0, 3, 4]
    assert trace.data_deps.of(1).tolist() == [0]
    assert trace.ctrl_deps.of(2).tolist() == [0]
    assert trace.names() == ["aten::mm"] * 3
    assert trace.integers("is_cpu_op")[1].all()


def test_sound_trace_is_left_alone() -> None:
    trace = build_trace([comp(0), coll(1, 0), message(2, NodeType.COMM_SEND, 1, 1)])
    assert normalize(trace) is trace
    assert without_nodes(trace, trace.type_N > 7) is trace


@pytest.mark.parametrize(
    ("name", "wire", "value", "shown"),
    [
        ("tensor_size", Wire.INT64, -5, "'tensor_size' = -5, which does not fit into uint64_val"),
        ("comm_tag", Wire.INT64, -(2**31) - 1, "= -2147483649, which does not fit into int32_val"),
        ("comm_tag", Wire.UINT64, 2**31, "= 2147483648, which does not fit into int32_val"),
        ("comm_size", Wire.UINT64, 2**63, "= 9223372036854775808, which does not fit into int64"),
        ("is_cpu_op", Wire.INT32, 2, "'is_cpu_op' = 2, which does not fit into bool_val"),
    ],
)
def test_a_value_that_the_feeders_type_cannot_hold_is_shown_as_it_is(
    name: str, wire: Wire, value: int, shown: str
) -> None:
    sound = NodeSpec(3, "a", NodeType.COMP, attributes=(Attribute(name, wire, 1),))
    wrong = NodeSpec(4, "a", NodeType.COMP, attributes=(Attribute(name, wire, value),))
    with pytest.raises(TraceError, match=f"node 4 carries .*{re.escape(shown)}"):
        normalize(build_trace([sound, wrong]))


@pytest.mark.parametrize(
    ("name", "wire", "value"),
    [
        ("tensor_size", Wire.UINT64, 2**64 - 1),
        ("tensor_size", Wire.INT64, 2**63 - 1),
        ("comm_tag", Wire.INT64, -(2**31)),
        ("comm_tag", Wire.SINT64, 2**31 - 1),
        ("comm_size", Wire.FIXED64, 2**63 - 1),
        ("num_ops", Wire.UINT32, 2**32 - 1),
        ("is_cpu_op", Wire.INT64, 1),
    ],
)
def test_the_largest_values_change_their_type_and_nothing_else(
    name: str, wire: Wire, value: int
) -> None:
    before = build_trace(
        [NodeSpec(3, "a", NodeType.COMP, attributes=(Attribute(name, wire, value),))]
    )
    table = normalize(before).attributes
    assert table.wire_A.tolist() == [FEEDER_WIRES[name]]
    assert table.word_A.tolist() == before.attributes.word_A.tolist() == [value % 2**64]


@pytest.mark.parametrize("value", ["7", (1, 2), 1.0, b"1"])
def test_a_well_known_attribute_of_no_integer_type_is_refused_by_name(value: object) -> None:
    wire = {str: Wire.STRING, tuple: Wire.INT64 + 1, float: Wire.DOUBLE, bytes: Wire.BYTES}
    node = NodeSpec(
        4, "a", NodeType.COMP, attributes=(Attribute("num_ops", wire[type(value)], value),)
    )
    with pytest.raises(TraceError, match="node 4 carries attribute 'num_ops' as"):
        normalize(build_trace([node]))


@pytest.mark.parametrize("gone", [NodeType.METADATA, NodeType.INVALID])
def test_inheritance_goes_through_chains_of_removed_nodes(gone: NodeType) -> None:
    """1 and 2 go: 3 waited for 2, which waited for 1 and 9; 1 waited for 0."""
    nodes = [
        comp(0),
        NodeSpec(1, "", gone, (0,)),
        NodeSpec(2, "", gone, (1,), (9,)),
        comp(3, 2, 0, ctrl=(1,)),
        comp(9),
    ]
    trace = normalize(build_trace(nodes))
    assert trace.id_N.tolist() == [0, 3, 9]
    assert trace.data_deps.of(1).tolist() == [0, 9]  # each once
    assert trace.ctrl_deps.of(1).tolist() == [0]


def test_removed_nodes_take_their_attributes_with_them() -> None:
    marked = [
        NodeSpec(n, "", kind, attributes=(Attribute(f"of {n}", Wire.BYTES, bytes([n])),) * count)
        for n, kind, count in ((0, 4, 2), (1, 1, 3), (2, 4, 0), (3, 4, 1))
    ]
    trace = normalize(build_trace(marked))
    table = trace.attributes
    assert table.ptr_N1.tolist() == [0, 2, 2, 3]
    found = [attribute_at(table, row, trace.strings) for row in range(3)]
    assert [(a.name, a.value) for a in found] == [("of 0", b"\0"), ("of 0", b"\0"), ("of 3", b"\3")]


def test_removed_nodes_on_a_cycle_are_told_instead_of_bridged() -> None:
    nodes = [NodeSpec(1, "", NodeType.METADATA, (2,)), NodeSpec(2, "", NodeType.METADATA, (1,))]
    with pytest.raises(TraceError, match="2 nodes wait for each other in a cycle"):
        without_nodes(build_trace(nodes), np.array([True, True]))


@pytest.mark.parametrize(
    ("group", "sound"), [("0", True), ("17", True), ("", True), ("tp", False), ("-1", False),
                         ("1.0", False), ("\u0661", False), (" 1", False)]
)  # fmt: skip
def test_groups_are_integers_in_ascii_digits(group: str, sound: bool) -> None:
    trace = build_trace([coll(5, group=group)])
    if sound:
        assert normalize(trace) is trace
        return
    with pytest.raises(
        TraceError, match=f"node 5 communicates in group '{group}'; ASTRA-sim needs"
    ):
        normalize(trace)


@tried(40)
@given(st.integers(0, 2**32 - 1))
def test_taking_nodes_out_keeps_who_waits_for_whom(seed: int) -> None:
    """The ancestors of a kept node are its ancestors before, without those that went."""
    rng = np.random.default_rng(seed)
    size = int(rng.integers(1, 10))
    nodes = [
        comp(
            n,
            *(d for d in range(n) if rng.random() < 0.3),
            ctrl=tuple(d for d in range(n) if rng.random() < 0.2),
        )
        for n in range(size)
    ]
    gone_N = rng.random(size) < 0.4
    before, after = build_trace(nodes), without_nodes(build_trace(nodes), gone_N)

    def ancestors(trace) -> dict[int, set[int]]:
        parents = {
            int(number): {*trace.data_deps.of(row).tolist(), *trace.ctrl_deps.of(row).tolist()}
            for row, number in enumerate(trace.id_N)
        }
        known: dict[int, set[int]] = {}
        for number in sorted(parents):
            known[number] = set().union(*(known[p] | {p} for p in parents[number]))
        return known

    kept = [n for n in range(size) if not gone_N[n]]
    assert after.id_N.tolist() == kept
    assert ancestors(after) == {n: ancestors(before)[n] & set(kept) for n in kept}
