from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from broken_jobs import BEYOND_FIXING, BROKEN, exchanged, on_both
from hypothesis import given, settings, strategies as st
from random_jobs import random_job
from small_workloads import collective, compute, job, message

from layerdag.codec._unfold import unfold
from layerdag.evaluation.fixes import FIXABLE, fix_workload
from layerdag.evaluation.rules import check_group_file, check_workload
from layerdag.traces import NodeType, Workload
from layerdag.traces.chakra import encode_trace


def rules_of(workload: Workload) -> set[str]:
    """Return the rules that a workload breaks."""
    return {f.rule.id for f in (*check_group_file(workload), *check_workload(workload))}


def operators(workload: Workload) -> Counter[tuple[int, str, int]]:
    """Return how often each rank computes what, at what cost."""
    found: Counter[tuple[int, str, int]] = Counter()
    for rank, trace in enumerate(workload.traces):
        ops_N = trace.integers("num_ops")[0]
        for row in np.flatnonzero(trace.type_N == NodeType.COMP).tolist():
            found[rank, trace.names()[row], int(ops_N[row])] += 1
    return found


def test_every_rule_that_can_be_fixed_has_an_example() -> None:
    assert set(BROKEN) == FIXABLE


@pytest.mark.parametrize("rule", BROKEN)
def test_a_broken_job_breaks_nothing_after_it_was_fixed(rule: str) -> None:
    broken = BROKEN[rule]
    assert rule in rules_of(broken)
    fixed = fix_workload(broken)
    assert rule in {fix.rule.id for fix in fixed.fixes}
    assert rules_of(fixed.workload) - {"costed-compute", "ranks-communicate"} == set()
    assert fixed.is_valid


@pytest.mark.parametrize("rule", [*BROKEN, *BEYOND_FIXING])
def test_fixing_twice_changes_nothing_more(rule: str) -> None:
    once = fix_workload({**BEYOND_FIXING, **BROKEN}[rule])
    again = fix_workload(once.workload)
    assert again.fixes == ()
    assert again.workload is once.workload


@pytest.mark.parametrize("rule", BEYOND_FIXING)
def test_what_has_no_safe_answer_is_left_alone_and_found(rule: str) -> None:
    broken = BEYOND_FIXING[rule]
    fixed = fix_workload(broken)
    assert fixed.workload is broken
    assert rule in {finding.rule.id for finding in fixed.findings}
    assert not fixed.is_valid


@pytest.mark.parametrize("rule", sorted(set(BROKEN) - {"integer-attributes"}))
def test_computation_stays_what_it_was(rule: str) -> None:
    fixed = fix_workload(BROKEN[rule])
    assert operators(fixed.workload) == operators(BROKEN[rule])


@settings(max_examples=15)
@given(st.integers(0, 10_000), st.integers(1, 4))
def test_a_sound_workload_is_returned_as_it_is(seed: int, num_stages: int) -> None:
    workload = unfold(random_job(seed, num_stages), 2 * num_stages).workload
    assert rules_of(workload) & FIXABLE == set()
    fixed = fix_workload(workload)
    assert fixed.workload is workload
    assert fixed.fixes == ()


def test_the_given_workload_is_not_changed() -> None:
    for broken in BROKEN.values():
        before = [encode_trace(trace) for trace in broken.traces]
        fix_workload(broken)
        assert [encode_trace(trace) for trace in broken.traces] == before


def test_what_waited_for_a_node_that_goes_waits_for_what_it_waited_for() -> None:
    trace = fix_workload(BROKEN["no-metadata-node"]).workload.traces[0]
    assert trace.id_N.tolist() == [1, 3]
    assert trace.data_deps.of(1).tolist() == [1]


@settings(max_examples=30)
@given(st.integers(-(2**62), 2**62))
def test_both_ends_of_a_message_get_one_tag_that_no_other_has(tag: int) -> None:
    fixed = fix_workload(exchanged(tag)).workload
    tags = [trace.integers("comm_tag")[0].tolist() for trace in fixed.traces]
    assert tags[0] == tags[1]
    assert len(set(tags[0])) == len({tag, 0})
    assert all(0 <= one < 2**31 for one in tags[0])


def test_groups_get_free_integers_in_their_order_and_keep_their_ranks() -> None:
    nodes = (collective(1, group="tp"), collective(2, 1, group="dp"), collective(3, 2, group="1"))
    fixed = fix_workload(on_both(*nodes, groups={"tp": (0, 1), "dp": (1, 0), "1": (0, 1)})).workload
    assert dict(fixed.groups) == {"2": (0, 1), "3": (1, 0), "1": (0, 1)}
    assert fixed.traces[0].texts("pg_name")[0] == ["2", "3", "1"]


def test_a_group_0_of_all_ranks_needs_no_entry_but_one_of_some_stays_a_finding() -> None:
    whole = fix_workload(on_both(compute(1), groups={"0": (0, 1)}))
    assert dict(whole.workload.groups) == {}
    assert whole.is_valid
    part = fix_workload(on_both(compute(1), groups={"0": (0,)}))
    assert "described-groups" in {finding.rule.id for finding in part.findings}


def test_ranks_that_share_a_trace_go_on_sharing_it_and_are_counted_once() -> None:
    one = on_both(compute(1), compute(2, 1, 1)).traces[0]
    fixed = fix_workload(Workload((one, one, one)))
    assert len({id(trace) for trace in fixed.workload.traces}) == 1
    assert [fix.count for fix in fixed.fixes] == [1]


def test_a_trace_shared_by_senders_is_told_apart_by_rank() -> None:
    sends = message(1, sends=True, source=0, target=2)
    trace = job((sends,)).traces[0]
    last = job((), (), (message(1, sends=False, source=0, target=2),)).traces[2]
    fixed = fix_workload(Workload((trace, trace, last))).workload
    assert [t.integers("comm_src")[0].tolist() for t in fixed.traces[:2]] == [[0], [1]]


def test_equal_fixes_of_several_ranks_are_one_line_with_their_count() -> None:
    fixed = fix_workload(BROKEN["no-double-dependency"])
    (fix,) = fixed.fixes
    assert fix.count == 2
    assert fix.sentence() == "job.0.et: node 2: keeps one of each dependency (and 1 more)."


def test_nothing_is_taken_out_if_nothing_would_be_left() -> None:
    lone = on_both(replace(compute(1), type=NodeType.METADATA))
    fixed = fix_workload(lone)
    assert fixed.workload is lone
    assert "no-metadata-node" in {finding.rule.id for finding in fixed.findings}
