from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
from small_workloads import (
    collective,
    compute,
    integer,
    job,
    message,
    trace,
    with_attribute,
    without,
)

from layerdag.errors import TraceError
from layerdag.hardware.collectives import CollectiveType
from layerdag.traces.analysis import summarize_trace
from layerdag.traces.builder import NodeSpec, build_trace
from layerdag.traces.chakra.files import START_BYTES, START_OPS
from layerdag.traces.trace import Attribute, NodeType, Trace, Wire, Workload
from layerdag.validation.checking import (
    check_group_file,
    check_trace,
    check_workload,
    column,
    group_texts,
)
from layerdag.validation.rules import Severity


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
    "storage-nodes": (trace(compute(1), compute(2, type=NodeType.BATCH)), 2, "is a BATCH node"),
    "storage-operation": (trace(compute(1), compute(2, type=NodeType.STORAGE)), 2, "what it does"),
    "numbers-in-range": (trace(compute(1), compute(2, duration_us=10**12 + 1)), 2, "lasts 10000"),
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


def test_a_sound_trace_has_no_finding():
    sound = trace(
        compute(1),
        compute(2, 1, ctrl_deps=(1,)),
        collective(3, 2),
        collective(4, 3, kind=GATHER, group="0"),
        message(5, 4, sends=True, source=0, target=1),
        message(6, sends=False, source=1, target=0),
    )
    assert check_trace(sound) == []


def test_an_attribute_may_stand_twice_with_one_value():
    assert check_trace(trace(_twice(collective(3), integer("comm_size", 1024)))) == []


@pytest.mark.parametrize("name", BROKEN)
def test_each_rule_finds_its_trace_and_names_the_node(name):
    bad, node, words = BROKEN[name]
    found = check_trace(bad)
    assert [finding.rule.id for finding in found] == [name]
    assert found[0].node == node
    assert words in found[0].found
    assert found[0].where == "job.0.et"
    assert found[0].rule.remedy in found[0].sentence()


def test_only_what_starts_a_rank_without_time_is_found():
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
def test_every_required_attribute_is_missed(spec, missing):
    found = check_trace(trace(without(spec, missing)))
    assert "required-attributes" in {finding.rule.id for finding in found}
    assert any(missing in finding.found for finding in found)


def test_equal_findings_are_counted_not_repeated():
    cpu = Attribute("is_cpu_op", Wire.BOOL, True)
    found = check_trace(trace(*(with_attribute(compute(i), cpu) for i in range(40))))
    assert [(finding.rule.id, finding.count) for finding in found] == [("compute-off-cpu", 40)]


def test_a_cycle_beside_a_dangling_dependency_is_found_too():
    found = check_trace(trace(compute(1, 77), compute(2, 3), compute(3, 2)))
    assert {finding.rule.id for finding in found} == {"no-dangling-dependency", "acyclic"}


def test_forward_references_and_large_ids_are_fine():
    assert check_trace(trace(compute(2**63 + 5, 0), compute(0))) == []


def test_findings_on_dependencies_are_those_of_loops_over_nodes(rng):
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
def test_message_tags_are_32_bits_without_a_sign(tag, fine):
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
def test_only_what_sends_or_gathers_needs_bytes(spec, fine):
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
def test_group_names_are_read_as_text_and_must_be_numbers(attribute, text, fine):
    named = trace(with_attribute(collective(1), attribute), compute(2))
    assert group_texts(named) == [text, ""]
    rules = {finding.rule.id for finding in check_trace(named)}
    assert ("group-names" not in rules) is fine


def test_a_column_tells_absent_values_and_those_that_are_no_integers_from_zeros():
    text = with_attribute(collective(3), Attribute("comm_size", Wire.STRING, "1024"))
    found = column(trace(compute(1), collective(2, size=0), text), "comm_size")
    assert found.present_N.tolist() == [False, True, True]
    assert found.value_N.tolist() == [0, 0, 0]
    assert found.integer_N.tolist() == [False, True, False]
    none = column(trace(compute(1)), "never_heard_of")
    assert not none.present_N.any()
    assert none.wire_N.tolist() == [0]


def test_costs_must_be_positive_on_the_device_alone():
    def costed(ops: int, size: int, on_cpu: bool) -> set[str]:
        spec = with_attribute(sized(compute(1), size), integer("num_ops", ops))
        spec = with_attribute(spec, Attribute("is_cpu_op", Wire.BOOL, on_cpu))
        return {finding.rule.id for finding in check_trace(trace(spec))}

    assert "costed-compute" in costed(0, 65_536, on_cpu=False)
    assert "costed-compute" in costed(100, 0, on_cpu=False)
    assert "costed-compute" not in costed(100, 65_536, on_cpu=False)
    assert costed(0, 0, on_cpu=True) == {"compute-off-cpu"}


PAIRS = {"1": (0, 1), "2": (2, 3)}


def _send(node: int, *deps: int, source: int = 0, target: int = 1, size: int = 65_536):
    return message(node, *deps, sends=True, source=source, target=target, size=size)


def _receive(node: int, *deps: int, source: int = 0, target: int = 1, size: int = 65_536):
    return message(node, *deps, sends=False, source=source, target=target, size=size)


WORKLOAD_BROKEN = {
    "known-group": (job((collective(1, group="7"),), (collective(1, group="7"),)), 0),
    "member-of-group": (job(*[(collective(1, group="2"),)] * 3, groups={"2": (1, 2)}), 0),
    "several-members": (job((collective(1, group="1"),), (compute(1),), groups={"1": (0,)}), 0),
    "known-peer": (job((_send(1, target=9),), (compute(1),)), 0),
    "own-sender": (
        job((_send(1, source=1, target=2),), (compute(1),), (_receive(1, source=1, target=2),)),
        0,
    ),
    "collectives-agree": (job((collective(1),), (collective(1, size=2048),)), 0),
    "messages-match": (job((_send(1),), (compute(1),)), 0),
    # Each rank sends only after it has received.
    "no-deadlock": (
        job(
            (_receive(1, source=1, target=0), _send(2, 1)),
            (_receive(1), _send(2, 1, source=1, target=0)),
        ),
        0,
    ),
    # Group 1 and the world are called in opposite orders; nothing but the order of ids says so.
    "one-communication-order": (
        job(
            (collective(1, group="1"), collective(2, group="2")),
            (collective(1, group="2"), collective(2, group="1")),
            groups={"1": (0, 1), "2": (0, 1)},
        ),
        0,
    ),
    "world-after-equal-groups": (
        job(
            (collective(1, group="1"), collective(2, 1)),
            (collective(1, group="1"), collective(2, 1)),
            (collective(2),),
            groups={"1": (0, 1)},
        ),
        0,
    ),
}


def _sound() -> Workload:
    def rank(group: str, *last):
        return (compute(1), collective(2, 1, group=group), collective(3, 2), *last)

    return job(
        rank("1", _send(4, 3)),
        rank("1", _receive(4, 3)),
        rank("2", _send(4, 3, source=2, target=3)),
        rank("2", _receive(4, 3, source=2, target=3)),
        groups=PAIRS,
    )


def test_broadcasts_before_a_collective_of_all_ranks_do_not_count():
    # ASTRA-sim replays them and numbers only what it simulates.
    def send_out(node: int):
        return collective(node, kind=CollectiveType.BROADCAST, group="1")

    ranks = [(send_out(1), collective(2, 1))] * 2 + [(collective(2),)] * 2
    found = check_workload(job(*ranks, groups={"1": (0, 1)}))
    assert {finding.rule.id for finding in found} == {"broadcast-is-replayed"}


def test_a_sound_job_has_no_finding():
    assert check_workload(_sound()) == []


def test_several_ranks_that_never_communicate_are_a_warning():
    (found,) = check_workload(job((compute(1),), (compute(1),)))
    assert found.rule.id == "ranks-communicate"
    assert found.rule.severity is Severity.WARNING
    assert "its 2 ranks have no collective" in found.found
    assert check_workload(job((compute(1),))) == []


@pytest.mark.parametrize("name", WORKLOAD_BROKEN)
def test_each_rule_finds_its_job(name):
    workload, rank = WORKLOAD_BROKEN[name]
    found = [finding for finding in check_workload(workload) if finding.rule.id == name]
    assert found
    assert found[0].where == f"job.{rank}.et (rank {rank})"
    assert found[0].node is not None


@pytest.mark.parametrize(
    ("second", "says"),
    [
        ((), "never called by rank 1"),
        ((collective(1, kind=CollectiveType.ALL_GATHER),), "type"),
        ((collective(1), collective(2)), "never called by rank 0"),
    ],
)
def test_collectives_differ_in_number_or_type(second, says):
    found = check_workload(job((collective(1), compute(9)), (compute(9), *second)))
    assert [f.rule.id for f in found] == ["collectives-agree"]
    assert says in found[0].found


def test_message_sizes_and_missing_sends_are_found():
    sizes = check_workload(job((_send(1, size=65_536),), (_receive(1, size=65_537),)))
    alone = check_workload(job((compute(1),), (_receive(1),)))
    assert [f.rule.id for f in sizes] == [f.rule.id for f in alone] == ["messages-match"]
    assert "65536 bytes" in sizes[0].found


def test_ranks_that_share_a_trace_are_checked_once():
    shared = trace(with_attribute(collective(1), Attribute("is_cpu_op", Wire.BOOL, True)))
    found = check_workload(Workload((shared,) * 4, {}, "job"))
    assert [f.rule.id for f in found] == ["comm-off-cpu"]


def test_faulty_dependencies_keep_the_ranks_from_being_matched_but_not_from_being_checked():
    found = check_workload(job((compute(1, 5), collective(2)), (compute(1),)))
    assert [f.rule.id for f in found] == ["no-dangling-dependency"]
    assert all(f.rule.severity is Severity.ERROR for f in found)


@pytest.mark.parametrize("name", ["0", "default_pg", "-1", "12345678901", "\u0663", ""])
def test_a_group_file_may_use_positive_numbers_alone_for_names(name):
    sound = Workload(_sound().traces, {"1": (0, 1)}, "job")
    assert check_group_file(sound) == []
    (finding,) = check_group_file(Workload(sound.traces, {"1": (0, 1), name: (2, 3)}, "job"))
    assert finding.rule.id == "described-groups"
    assert (finding.where, finding.count) == ("job", 1)
    assert repr(name) in finding.found


def test_many_odd_group_names_are_counted_and_five_are_shown():
    odd = {f"g{i}": (0, 1) for i in range(9)}
    (finding,) = check_group_file(Workload(_sound().traces, odd, "job"))
    assert finding.count == 9
    assert "'g4'" in finding.found
    assert "'g5'" not in finding.found
    assert "(and 8 more)" in finding.sentence()


def test_errors_of_one_trace_hide_the_cycle_that_they_may_cause():
    waiting = (
        (_receive(1, source=1, target=0), _send(2, 1)),
        (_receive(1), _send(2, 1, source=1, target=0)),
    )
    assert [f.rule.id for f in check_workload(job(*waiting))] == ["no-deadlock"]
    first, second = waiting
    broken = with_attribute(first[1], Attribute("is_cpu_op", Wire.BOOL, True))
    found = [f.rule.id for f in check_workload(job((first[0], broken), second))]
    assert found == ["comm-off-cpu"]


def test_a_cycle_of_waits_names_its_ranks_and_nodes():
    workload, _ = WORKLOAD_BROKEN["no-deadlock"]
    (finding,) = check_workload(workload)
    for place in ("rank 0 node 1", "rank 0 node 2", "rank 1 node 1", "rank 1 node 2"):
        assert place in finding.found


def test_findings_of_several_ranks_are_joined_with_the_number_of_nodes():
    on_cpu = Attribute("is_cpu_op", Wire.BOOL, True)
    ranks = [(with_attribute(compute(1), on_cpu), with_attribute(compute(2), on_cpu))] * 3
    finding, silence = check_workload(job(*ranks))
    assert (finding.rule.id, finding.count) == ("compute-off-cpu", 6)
    assert silence.rule.id == "ranks-communicate"
    assert finding.where == "job.0.et"


def test_ids_that_descend_along_dependencies_say_nothing_about_the_order():
    # As in "one-communication-order", but a timer that comes first has the larger id.
    ranks = (
        (compute(9), collective(1, 9, group="1"), collective(2, 9, group="2")),
        (compute(9), collective(2, 9, group="2"), collective(1, 9, group="1")),
    )
    groups = {"1": (0, 1), "2": (0, 1)}
    assert "no-deadlock" not in {f.rule.id for f in check_workload(job(*ranks, groups=groups))}


def _ring(ranks: int, *, sends_first: bool) -> Workload:
    """Every rank sends to the next one and receives from the one before, in either order."""

    def rank(own: int) -> tuple:
        after, before = (own + 1) % ranks, (own - 1) % ranks
        if sends_first:
            return (_send(1, source=own, target=after), _receive(2, 1, source=before, target=own))
        return (_receive(1, source=before, target=own), _send(2, 1, source=own, target=after))

    return job(*(rank(own) for own in range(ranks)))


@pytest.mark.parametrize("ranks", [2, 3, 5])
def test_a_ring_whose_ranks_all_receive_first_waits_for_ever(ranks):
    (finding,) = check_workload(_ring(ranks, sends_first=False))
    assert finding.rule.id == "no-deadlock"
    assert all(f"rank {rank} node" in finding.found for rank in range(min(ranks, 3)))
    assert check_workload(_ring(ranks, sends_first=True)) == []


@pytest.mark.parametrize("target", [0, 2, 99])
def test_a_message_goes_to_another_rank_of_the_job(target):
    found = check_workload(job((_send(1, target=target),), (compute(1),)))
    assert "known-peer" in {finding.rule.id for finding in found}
    said = next(finding.found for finding in found if finding.rule.id == "known-peer")
    assert said == f"has rank {target} at its other end, in a job of 2"


def test_messages_are_matched_by_their_tags():
    def tagged(node: int, *deps: int, sends: bool, tag: int):
        return message(node, *deps, sends=sends, source=0, target=1, tag=tag)

    crossed = job(
        (tagged(1, sends=True, tag=1), tagged(2, 1, sends=True, tag=2)),
        (tagged(1, sends=False, tag=2), tagged(2, 1, sends=False, tag=1)),
    )
    assert check_workload(crossed) == []
    other = job((tagged(1, sends=True, tag=1),), (tagged(1, sends=False, tag=3),))
    assert {finding.rule.id for finding in check_workload(other)} == {"messages-match"}


def test_one_finding_a_rule_counts_the_nodes_of_all_ranks():
    ranks = [(collective(1, group="7"), collective(2, 1, group="8"))] * 3
    found = [f for f in check_workload(job(*ranks)) if f.rule.id == "known-group"]
    assert [(f.where, f.node, f.found, f.count) for f in found] == [
        ("job.0.et (rank 0)", 1, "uses group '7'", 6)
    ]


def test_a_job_of_one_rank_may_have_groups_of_one():
    assert check_workload(job((collective(1, group="1"),), groups={"1": (0,)})) == []


def test_members_of_a_group_are_named_where_a_rank_is_none_of_them():
    workload, _ = WORKLOAD_BROKEN["member-of-group"]
    said = next(f.found for f in check_workload(workload) if f.rule.id == "member-of-group")
    assert said == "uses group '2' of ranks [1, 2]"


@pytest.mark.parametrize("groups_before", [(1, 1), (2, 2), (0, 0)])
def test_equally_many_group_collectives_may_precede_one_of_all_ranks(groups_before):
    def rank(group: str, before: int) -> tuple:
        first = [
            collective(i, *([i - 1] if i > 1 else []), group=group) for i in range(1, before + 1)
        ]
        return (*first, collective(9, *([before] if before else [])))

    ranks = [rank("1", groups_before[0])] * 2 + [rank("2", groups_before[1])] * 2
    assert check_workload(job(*ranks, groups=PAIRS)) == []


def test_unequally_many_group_collectives_are_told_with_their_numbers():
    workload, _ = WORKLOAD_BROKEN["world-after-equal-groups"]
    (finding,) = check_workload(workload)
    assert "the ranks have issued 0 to 1 collectives" in finding.found


def test_the_order_of_sound_ranks_does_not_matter():
    """Both pairs swap their places: ranks 2 and 3 do what ranks 0 and 1 did."""
    first, second, third, fourth = (
        (collective(1, group=group), collective(2, 1)) for group in ("1", "1", "2", "2")
    )
    swapped = job(third, fourth, first, second, groups={"1": (2, 3), "2": (0, 1)})
    assert check_workload(job(first, second, third, fourth, groups=PAIRS)) == []
    assert check_workload(swapped) == []
    mixed = job(first, third, second, fourth, groups=PAIRS)
    assert "member-of-group" in {finding.rule.id for finding in check_workload(mixed)}


def test_launch_calls_beside_kernels_are_no_computation_on_the_cpu():
    """Profiles have them, and mark them as calls of the host."""
    host = (Attribute("is_cpu_op", Wire.BOOL, True), Attribute("device", Wire.STRING, "cpu"))
    call = NodeSpec(0, "cudaLaunchKernel", NodeType.COMP, duration_us=1, attributes=host)
    kernel = NodeSpec(1, "mm", NodeType.COMP, (0,), duration_us=5)
    assert "compute-off-cpu" not in {f.rule.id for f in check_trace(build_trace([call, kernel]))}
    assert "compute-off-cpu" in {f.rule.id for f in check_trace(build_trace([call]))}
    bare = replace(call, attributes=host[:1])
    assert "compute-off-cpu" in {f.rule.id for f in check_trace(build_trace([bare, kernel]))}


@pytest.mark.parametrize(
    "node",
    [
        NodeSpec(0, "a", NodeType.COMP, duration_us=10**12 + 1),
        NodeSpec(0, "a", NodeType.COMP, attributes=(Attribute("tensor_size", Wire.UINT64, 2**63),)),
        NodeSpec(
            0, "a", NodeType.COMP, attributes=(Attribute("num_ops", Wire.FIXED64, 2**64 - 1),)
        ),
    ],
)
def test_numbers_that_nobody_can_add_up_are_errors_here_and_refused_elsewhere(node):
    trace = build_trace([node])
    assert [f.node for f in check_trace(trace) if f.rule.id == "numbers-in-range"] == [0]
    with pytest.raises(TraceError, match="at most"):
        summarize_trace(trace) if "num_ops" not in trace.strings else trace.integers("num_ops")
