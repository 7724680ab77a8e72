from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
from small_workloads import (
    collective,
    compute,
    integer,
    message,
    trace,
    with_attribute,
    without,
)

from layerdag.evaluation.rules._trace import check_trace, column, group_texts
from layerdag.traces import Attribute, CollectiveType, NodeType, Trace, Wire
from layerdag.traces.chakra import START_BYTES, START_OPS, NodeSpec


def _twin_ids() -> Trace:
    sound = trace(compute(1), compute(2))
    return replace(sound, id_N=np.array([1, 1], dtype=np.uint64))


def _twice(spec: NodeSpec, attribute: Attribute) -> NodeSpec:
    return replace(spec, attributes=(*spec.attributes, attribute))


def sized(spec: NodeSpec, size: int) -> NodeSpec:
    """Return a compute node that moves so many bytes."""
    return with_attribute(without(spec, "tensor_size"), integer("tensor_size", size, Wire.UINT64))


ON_CPU = Attribute("is_cpu_op", Wire.BOOL, True)
ABSENT_PARENT = trace(compute(1), compute(2, 1, 77))
GATHER = CollectiveType.ALL_GATHER

# (rule, a trace that breaks it and no other error, id of the node it must name, words it must say)
BROKEN = {
    "not-empty": (trace(), None, "no node"),
    "distinct-ids": (_twin_ids(), 1, "earlier node"),
    "no-dangling-dependency": (ABSENT_PARENT, 2, "node 77"),
    "no-self-dependency": (trace(compute(1), compute(2, 2)), 2, "itself"),
    "acyclic": (trace(compute(1), compute(2, 3), compute(3, ctrl_deps=(2,))), 2, "2, 3"),
    "no-double-dependency": (trace(compute(1), compute(2, 1, 1)), 2, "twice"),
    "no-metadata-node": (trace(compute(1), compute(2, type=NodeType.METADATA)), 2, "METADATA"),
    "no-invalid-node": (trace(compute(1), compute(2, type=NodeType.INVALID)), 2, "INVALID"),
    "required-attributes": (
        trace(without(collective(3), "comm_type")),
        3,
        "COMM_COLL without comm_type",
    ),
    "integer-attributes": (
        trace(with_attribute(collective(4), Attribute("comm_priority", Wire.DOUBLE, 1.0))),
        4,
        "comm_priority as double_val",
    ),
    "one-value": (
        trace(_twice(collective(14), integer("comm_size", 77))),
        14,
        "carries comm_size twice",
    ),
    "message-tags": (
        trace(message(15, sends=True, source=0, target=1, tag=-1)),
        15,
        "has comm_tag -1",
    ),
    "feeder-v1-types": (
        trace(with_attribute(collective(5), integer("comm_size", 64, Wire.UINT64))),
        5,
        "comm_size as uint64_val",
    ),
    "comm-off-cpu": (
        trace(with_attribute(collective(6), Attribute("is_cpu_op", Wire.BOOL, True))),
        6,
        "on the CPU",
    ),
    "compute-off-cpu": (
        trace(with_attribute(compute(7), Attribute("is_cpu_op", Wire.BOOL, True))),
        7,
        "on the CPU",
    ),
    "supported-collective": (trace(collective(8, kind=CollectiveType.BARRIER)), 8, "BARRIER"),
    "broadcast-is-replayed": (trace(collective(9, kind=CollectiveType.BROADCAST)), 9, "BROADCAST"),
    "positive-sizes": (trace(collective(10, kind=GATHER, size=0)), 10, "comm_size 0"),
    "costed-compute": (trace(without(compute(11), "num_ops")), 11, "no positive num_ops"),
    "time-at-start": (trace(compute(12, 11), sized(compute(11), 8)), 11, "moves 8 bytes"),
    "involved-dim-type": (
        trace(with_attribute(collective(12), integer("involved_dim", 1))),
        12,
        "involved_dim",
    ),
    "group-names": (trace(collective(13, group="default_pg")), 13, "'default_pg'"),
}


def test_a_sound_trace_has_no_finding() -> None:
    sound = trace(
        compute(1),
        compute(2, 1, ctrl_deps=(1,)),
        collective(3, 2),
        collective(4, 3, kind=GATHER, group="0"),
        message(5, 4, sends=True, source=0, target=1),
        message(6, sends=False, source=1, target=0),
    )
    assert check_trace(sound) == []


def test_an_attribute_may_stand_twice_with_one_value() -> None:
    assert check_trace(trace(_twice(collective(3), integer("comm_size", 1024)))) == []


@pytest.mark.parametrize("name", BROKEN)
def test_each_rule_finds_its_trace_and_names_the_node(name: str) -> None:
    bad, node, words = BROKEN[name]
    found = check_trace(bad)
    assert [finding.rule.id for finding in found] == [name]
    assert found[0].node == node
    assert words in found[0].found
    assert found[0].where == "job.0.et"
    assert found[0].rule.remedy in found[0].sentence()


def test_only_what_starts_a_rank_without_time_is_found() -> None:
    for nodes in (
        (sized(compute(1), START_BYTES),),
        (with_attribute(without(sized(compute(1), 8), "num_ops"), integer("num_ops", START_OPS)),),
        (compute(1), sized(compute(2), 8)),
        (with_attribute(without(sized(compute(1), 8), "is_cpu_op"), ON_CPU),),
        (collective(1, size=8), message(2, sends=True, source=0, target=1, size=8)),
        (message(1, sends=False, source=1, target=0, size=8),),
    ):
        assert "time-at-start" not in {finding.rule.id for finding in check_trace(trace(*nodes))}
    first = message(1, sends=True, source=0, target=1, size=8)
    one_byte = message(1, sends=True, source=0, target=1, size=1)
    assert [f.rule.id for f in check_trace(trace(one_byte, compute(2)))] == ["time-at-start"]
    assert [f.rule.id for f in check_trace(trace(first, compute(2)))] == ["time-at-start"]


@pytest.mark.parametrize(
    ("spec", "missing"),
    [
        (collective(1), "comm_size"),
        (message(1, sends=True, source=0, target=1), "comm_dst"),
        (message(1, sends=True, source=0, target=1), "comm_tag"),
        (message(1, sends=False, source=1, target=0), "comm_src"),
        (compute(1, type=NodeType.MEM_LOAD), "tensor_size"),
    ],
)
def test_every_required_attribute_is_missed(spec, missing: str) -> None:
    found = check_trace(trace(without(spec, missing)))
    assert "required-attributes" in {finding.rule.id for finding in found}
    assert any(missing in finding.found for finding in found)


def test_equal_findings_are_counted_not_repeated() -> None:
    cpu = Attribute("is_cpu_op", Wire.BOOL, True)
    found = check_trace(trace(*(with_attribute(compute(i), cpu) for i in range(40))))
    assert [(finding.rule.id, finding.count) for finding in found] == [("compute-off-cpu", 40)]


def test_a_cycle_beside_a_dangling_dependency_is_found_too() -> None:
    found = check_trace(trace(compute(1, 77), compute(2, 3), compute(3, 2)))
    assert {finding.rule.id for finding in found} == {"no-dangling-dependency", "acyclic"}


def test_forward_references_and_large_ids_are_fine() -> None:
    assert check_trace(trace(compute(2**63 + 5, 0), compute(0))) == []


def test_findings_on_dependencies_are_those_of_loops_over_nodes(rng: np.random.Generator) -> None:
    for _ in range(10):
        count = int(rng.integers(1, 10))
        deps = [rng.integers(1, count + 2, rng.integers(0, 3)).tolist() for _ in range(count)]
        found = check_trace(trace(*(compute(i + 1, *deps[i]) for i in range(count))))
        nodes = {f.rule.id: (f.node, f.count) for f in found}
        ids = range(1, count + 1)
        wanted = {
            "no-dangling-dependency": [i for i in ids if any(d > count for d in deps[i - 1])],
            "no-self-dependency": [i for i in ids if i in deps[i - 1]],
            "no-double-dependency": [i for i in ids if len(set(deps[i - 1])) < len(deps[i - 1])],
        }
        for rule, bad in wanted.items():
            assert nodes.get(rule) == ((bad[0], len(bad)) if bad else None)
        edges = [(d, i) for i in ids for d in deps[i - 1] if d in ids and d != i]
        assert ("acyclic" in nodes) is not nx.is_directed_acyclic_graph(nx.DiGraph(edges))


@pytest.mark.parametrize(
    ("tag", "fine"), [(0, True), (2**31 - 1, True), (2**31, False), (-1, False)]
)
def test_message_tags_are_32_bits_without_a_sign(tag: int, fine: bool) -> None:
    tagged = with_attribute(
        message(1, sends=True, source=0, target=1), integer("comm_tag", tag, Wire.INT64)
    )
    rules = {finding.rule.id for finding in check_trace(trace(tagged))}
    assert ("message-tags" not in rules) is fine


@pytest.mark.parametrize(
    ("spec", "fine"),
    [
        (collective(1, size=0), True),
        (collective(1, size=-1), False),
        (collective(1, kind=GATHER, size=0), False),
        (collective(1, kind=GATHER, size=1), True),
        (message(1, sends=True, source=0, target=1, size=0), False),
        (message(1, sends=False, source=1, target=0, size=0), True),
        (message(1, sends=False, source=1, target=0, size=-5), False),
    ],
)
def test_only_what_sends_or_gathers_needs_bytes(spec: NodeSpec, fine: bool) -> None:
    rules = {finding.rule.id for finding in check_trace(trace(spec))}
    assert ("positive-sizes" not in rules) is fine


@pytest.mark.parametrize(
    ("attribute", "text", "fine"),
    [
        (Attribute("pg_name", Wire.STRING, ""), "", True),
        (Attribute("pg_name", Wire.STRING, "12"), "12", True),
        (Attribute("pg_name", Wire.STRING, "-3"), "-3", False),
        (Attribute("pg_name", Wire.STRING, "\u0663"), "\u0663", False),
        (integer("pg_name", 4), "4", True),
        (Attribute("pg_name", Wire.DOUBLE, 1.5), "<double_val>", False),
    ],
)
def test_group_names_are_read_as_text_and_must_be_numbers(
    attribute: Attribute, text: str, fine: bool
) -> None:
    named = trace(with_attribute(collective(1), attribute), compute(2))
    assert group_texts(named) == [text, ""]
    rules = {finding.rule.id for finding in check_trace(named)}
    assert ("group-names" not in rules) is fine


def test_a_column_tells_absent_values_from_zeros() -> None:
    found = column(trace(compute(1), collective(2, size=0)), "comm_size")
    assert found.present_N.tolist() == [False, True]
    assert found.value_N.tolist() == [0, 0]
    assert found.integer_N.tolist() == [False, True]
    none = column(trace(compute(1)), "never_heard_of")
    assert not none.present_N.any()
    assert none.wire_N.tolist() == [0]


def test_values_that_are_no_integers_count_as_zero_and_are_told_apart() -> None:
    text = Attribute("comm_size", Wire.STRING, "1024")
    found = column(trace(with_attribute(collective(1), text)), "comm_size")
    assert found.present_N.tolist() == [True]
    assert found.integer_N.tolist() == [False]
    assert found.value_N.tolist() == [0]


def test_costs_must_be_positive_on_the_device_alone() -> None:
    def costed(ops: int, size: int, on_cpu: bool) -> set[str]:
        spec = with_attribute(sized(compute(1), size), integer("num_ops", ops))
        spec = with_attribute(spec, Attribute("is_cpu_op", Wire.BOOL, on_cpu))
        return {finding.rule.id for finding in check_trace(trace(spec))}

    assert "costed-compute" in costed(0, 65_536, on_cpu=False)
    assert "costed-compute" in costed(100, 0, on_cpu=False)
    assert "costed-compute" not in costed(100, 65_536, on_cpu=False)
    assert costed(0, 0, on_cpu=True) == {"compute-off-cpu"}
