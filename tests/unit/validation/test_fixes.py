from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from broken_jobs import BEYOND_FIXING, BROKEN, exchanged, on_both
from hypothesis import given, settings, strategies as st
from random_jobs import random_job
from small_workloads import collective, compute, integer, job, message, trace, with_attribute

from layerdag.codec.unfolding import unfold
from layerdag.hardware.collectives import CollectiveType
from layerdag.traces.analysis import match_communication
from layerdag.traces.builder import with_texts, with_words
from layerdag.traces.chakra.files import decode_trace, encode_trace
from layerdag.traces.trace import Attribute, NodeType, Wire, Workload
from layerdag.validation.checking import check_group_file, check_workload
from layerdag.validation.fixes import (
    FIXABLE,
    UniformCollectives,
    UniformSize,
    drop_dangling,
    drop_duplicate_dependencies,
    drop_self_dependencies,
    fix_workload,
    make_all_to_all_uniform,
    write_feeder_types,
    write_integers,
)

THREE = trace(compute(1), collective(2, 1, group="7"), compute(3, 2))


@settings(max_examples=30)
@given(st.dictionaries(st.integers(0, 2), st.integers(-(2**31), 2**31 - 1)))
def test_a_number_is_set_where_it_was_and_where_it_was_not(word_of):
    changed = with_words(THREE, "comm_size", Wire.INT64, word_of)
    value_N, present_N = changed.integers("comm_size")
    assert present_N.tolist() == [0 in word_of, True, 2 in word_of]
    assert value_N.tolist() == [word_of.get(0, 0), word_of.get(1, 1024), word_of.get(2, 0)]
    assert changed.integers("num_ops")[0].tolist() == THREE.integers("num_ops")[0].tolist()
    assert decode_trace(encode_trace(changed)).integers("comm_size")[0].tolist() == value_N.tolist()


def test_a_text_is_set_where_it_was_and_where_it_was_not():
    changed = with_texts(THREE, "pg_name", {0: "a", 1: "b"})
    assert changed.texts("pg_name")[0] == ["a", "b", ""]
    assert THREE.texts("pg_name")[0] == ["", "7", ""]


def test_nothing_to_set_leaves_the_attributes_alone():
    assert with_words(THREE, "comm_size", Wire.INT64, {}).attributes.word_A.tolist() == (
        THREE.attributes.word_A.tolist()
    )


@pytest.mark.parametrize("row", [0, 1, 2])
def test_attributes_belong_to_the_node_whose_they_are(row):
    node_A = with_words(THREE, "new", Wire.INT64, {row: 5}).attributes.node_A
    before = THREE.attributes.node_A.tolist()
    assert node_A.tolist() == sorted([*before, row])


@pytest.mark.parametrize(
    "fix", [drop_dangling, drop_self_dependencies, drop_duplicate_dependencies]
)
def test_sound_dependencies_are_left_alone(fix):
    assert fix(trace(compute(1), compute(2, 1), compute(3, 1, 2, ctrl_deps=(1,)))) is None


def test_dependencies_keep_their_order():
    fixed = drop_duplicate_dependencies(trace(compute(1), compute(2), compute(3, 2, 1, 2, 1)))
    assert fixed is not None
    assert fixed.trace.data_deps.of(2).tolist() == [2, 1]


def test_a_dependency_may_be_listed_once_as_each_kind():
    assert drop_duplicate_dependencies(trace(compute(1), compute(2, 1, ctrl_deps=(1,)))) is None


def test_all_absent_nodes_are_dropped_of_both_kinds():
    fixed = drop_dangling(BROKEN["no-dangling-dependency"].traces[0])
    assert fixed is not None
    assert fixed.trace.data_deps.values.tolist() == [1]
    assert fixed.trace.ctrl_deps.values.size == 0
    assert fixed.rows.tolist() == [1]


@pytest.mark.parametrize(
    ("held", "value"),
    [
        (Attribute("comm_size", Wire.DOUBLE, 4096.0), 4096),
        (Attribute("comm_size", Wire.FLOAT, 2.0**40), 2**40),
        (Attribute("comm_size", Wire.STRING, "4096"), 4096),
        (Attribute("comm_size", Wire.STRING, "-1"), -1),
    ],
)
def test_whole_numbers_become_integers(held, value):
    fixed = write_integers(trace(with_attribute(collective(1), held)))
    assert fixed is not None
    assert fixed.trace.integers("comm_size")[0].tolist() == [value]


@pytest.mark.parametrize(
    "held",
    [
        Attribute("comm_size", Wire.DOUBLE, 0.5),
        Attribute("comm_size", Wire.DOUBLE, float("nan")),
        Attribute("comm_size", Wire.DOUBLE, 1e300),
        Attribute("comm_size", Wire.STRING, "4 KiB"),
        Attribute("comm_size", Wire.STRING, ""),
        Attribute("comm_size", Wire.INT64 + 1, (4096,)),
    ],
)
def test_what_is_no_whole_number_stays(held):
    assert write_integers(trace(with_attribute(collective(1), held))) is None


def test_a_value_that_does_not_fit_keeps_its_type():
    large = with_attribute(collective(1), integer("comm_priority", 2**40))
    assert write_feeder_types(trace(large)) is None


def rules_of(workload: Workload) -> set[str]:
    """Return the rules that a workload breaks."""
    return {f.rule.id for f in (*check_group_file(workload), *check_workload(workload))}


def operators(workload: Workload) -> Counter[tuple[int, str, int]]:
    """Return how often each rank computes what, at what cost."""
    found: Counter[tuple[int, str, int]] = Counter()
    for rank, ranked in enumerate(workload.traces):
        ops_N = ranked.integers("num_ops")[0]
        for row in np.flatnonzero(ranked.type_N == NodeType.COMP).tolist():
            found[rank, ranked.names()[row], int(ops_N[row])] += 1
    return found


def test_every_rule_that_can_be_fixed_has_an_example():
    assert set(BROKEN) == FIXABLE


@pytest.mark.parametrize("rule", BROKEN)
def test_a_broken_job_breaks_nothing_after_it_was_fixed(rule):
    broken = BROKEN[rule]
    assert rule in rules_of(broken)
    fixed = fix_workload(broken)
    assert rule in {fix.rule.id for fix in fixed.fixes}
    assert rules_of(fixed.workload) - {"costed-compute", "ranks-communicate"} == set()
    assert fixed.is_valid


@pytest.mark.parametrize("rule", [*BROKEN, *BEYOND_FIXING])
def test_fixing_twice_changes_nothing_more(rule):
    once = fix_workload({**BEYOND_FIXING, **BROKEN}[rule])
    again = fix_workload(once.workload)
    assert again.fixes == ()
    assert again.workload is once.workload


@pytest.mark.parametrize("rule", BEYOND_FIXING)
def test_what_has_no_safe_answer_is_left_alone_and_found(rule):
    broken = BEYOND_FIXING[rule]
    fixed = fix_workload(broken)
    assert fixed.workload is broken
    assert rule in {finding.rule.id for finding in fixed.findings}
    assert not fixed.is_valid


@pytest.mark.parametrize("rule", sorted(set(BROKEN) - {"integer-attributes"}))
def test_computation_stays_what_it_was(rule):
    fixed = fix_workload(BROKEN[rule])
    assert operators(fixed.workload) == operators(BROKEN[rule])


@settings(max_examples=6)
@given(st.integers(0, 10_000), st.integers(1, 4))
def test_a_sound_workload_is_returned_as_it_is(seed, num_stages):
    workload = unfold(random_job(seed, num_stages), 2 * num_stages).workload
    assert rules_of(workload) & FIXABLE == set()
    fixed = fix_workload(workload)
    assert fixed.workload is workload
    assert fixed.fixes == ()


def test_the_given_workload_is_not_changed():
    for broken in BROKEN.values():
        before = [encode_trace(trace) for trace in broken.traces]
        fix_workload(broken)
        assert [encode_trace(trace) for trace in broken.traces] == before


def test_what_waited_for_a_node_that_goes_waits_for_what_it_waited_for():
    trace = fix_workload(BROKEN["no-metadata-node"]).workload.traces[0]
    assert trace.id_N.tolist() == [1, 3]
    assert trace.data_deps.of(1).tolist() == [1]


@settings(max_examples=30)
@given(st.integers(-(2**62), 2**62))
def test_both_ends_of_a_message_get_one_tag_that_no_other_has(tag):
    fixed = fix_workload(exchanged(tag)).workload
    tags = [trace.integers("comm_tag")[0].tolist() for trace in fixed.traces]
    assert tags[0] == tags[1]
    assert len(set(tags[0])) == len({tag, 0})
    assert all(0 <= one < 2**31 for one in tags[0])


def test_groups_get_free_integers_in_their_order_and_keep_their_ranks():
    nodes = (collective(1, group="tp"), collective(2, 1, group="dp"), collective(3, 2, group="1"))
    fixed = fix_workload(on_both(*nodes, groups={"tp": (0, 1), "dp": (1, 0), "1": (0, 1)})).workload
    assert dict(fixed.groups) == {"2": (0, 1), "3": (1, 0), "1": (0, 1)}
    assert fixed.traces[0].texts("pg_name")[0] == ["2", "3", "1"]


def test_a_group_0_of_all_ranks_needs_no_entry_but_one_of_some_stays_a_finding():
    whole = fix_workload(on_both(compute(1), groups={"0": (0, 1)}))
    assert dict(whole.workload.groups) == {}
    assert whole.is_valid
    part = fix_workload(on_both(compute(1), groups={"0": (0,)}))
    assert "described-groups" in {finding.rule.id for finding in part.findings}


def test_ranks_that_share_a_trace_go_on_sharing_it_and_are_counted_once():
    one = on_both(compute(1), compute(2, 1, 1)).traces[0]
    fixed = fix_workload(Workload((one, one, one)))
    assert len({id(trace) for trace in fixed.workload.traces}) == 1
    assert [fix.count for fix in fixed.fixes] == [1]


def test_a_trace_shared_by_senders_is_told_apart_by_rank():
    sends = message(1, sends=True, source=0, target=2)
    trace = job((sends,)).traces[0]
    last = job((), (), (message(1, sends=False, source=0, target=2),)).traces[2]
    fixed = fix_workload(Workload((trace, trace, last))).workload
    assert [t.integers("comm_src")[0].tolist() for t in fixed.traces[:2]] == [[0], [1]]


def test_equal_fixes_of_several_ranks_are_one_line_with_their_count():
    fixed = fix_workload(BROKEN["no-double-dependency"])
    (fix,) = fixed.fixes
    assert fix.count == 2
    assert fix.sentence() == "job.0.et: node 2: keeps one of each dependency (and 1 more)."


def test_nothing_is_taken_out_if_nothing_would_be_left():
    lone = on_both(replace(compute(1), type=NodeType.METADATA))
    fixed = fix_workload(lone)
    assert fixed.workload is lone
    assert "no-metadata-node" in {finding.rule.id for finding in fixed.findings}


A2A = CollectiveType.ALL_TO_ALL


def sizes(workload, row):
    return [int(trace.integers("comm_size")[0][row]) for trace in workload.traces]


@pytest.mark.parametrize(
    ("size", "first", "second", "after"),
    [(UniformSize.MAX, 30, 8, 76), (UniformSize.MEAN, 20, 6, 52)],
)
def test_members_of_one_all_to_all_agree(size, first, second, after):
    uneven = job(
        *(
            (compute(1), collective(2, 1, kind=A2A, size=bytes_, group=group), collective(3, 2))
            for bytes_, group in ((10, "1"), (30, "1"), (4, "2"), (8, "2"))
        ),
        groups={"1": (0, 1), "2": (2, 3)},
    )
    (mismatch, _) = match_communication(uneven).mismatches
    assert "--uneven max" in mismatch.message
    even, told = make_all_to_all_uniform(uneven, size)
    assert sizes(even, 1) == [first, first, second, second]
    assert sizes(even, 2) == sizes(uneven, 2)
    assert not match_communication(even).mismatches
    assert told == UniformCollectives(2, 52, after)


def test_a_job_without_uneven_all_to_alls_stays_as_it_is():
    other = job((collective(1, size=8),), (collective(1, size=16),))  # no all-to-all
    assert make_all_to_all_uniform(other, UniformSize.MAX) == (other, UniformCollectives(0, 0, 0))
