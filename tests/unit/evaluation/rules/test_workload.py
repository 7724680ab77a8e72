import pytest
from small_workloads import (
    collective,
    compute,
    job,
    message,
    trace,
    with_attribute,
)

from layerdag.evaluation.rules import Severity, check_group_file, check_workload
from layerdag.traces import Attribute, CollectiveType, Wire, Workload

PAIRS = {"1": (0, 1), "2": (2, 3)}


def _send(node: int, *deps: int, source: int = 0, target: int = 1, size: int = 65_536):
    return message(node, *deps, sends=True, source=source, target=target, size=size)


def _receive(node: int, *deps: int, source: int = 0, target: int = 1, size: int = 65_536):
    return message(node, *deps, sends=False, source=source, target=target, size=size)


BROKEN = {
    "known-group": (job((collective(1, group="7"),), (collective(1, group="7"),)), 0),
    "member-of-group": (
        job(*[(collective(1, group="2"),)] * 3, groups={"2": (1, 2)}),
        0,
    ),
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


def test_broadcasts_before_a_collective_of_all_ranks_do_not_count() -> None:
    # ASTRA-sim replays them and numbers only what it simulates.
    def send_out(node: int):
        return collective(node, kind=CollectiveType.BROADCAST, group="1")

    ranks = [(send_out(1), collective(2, 1))] * 2 + [(collective(2),)] * 2
    found = check_workload(job(*ranks, groups={"1": (0, 1)}))
    assert {finding.rule.id for finding in found} == {"broadcast-is-replayed"}


def test_a_sound_job_has_no_finding() -> None:
    assert check_workload(_sound()) == []


def test_several_ranks_that_never_communicate_are_a_warning() -> None:
    (found,) = check_workload(job((compute(1),), (compute(1),)))
    assert found.rule.id == "ranks-communicate"
    assert found.rule.severity is Severity.WARNING
    assert "its 2 ranks have no collective" in found.found
    assert check_workload(job((compute(1),))) == []


@pytest.mark.parametrize("name", BROKEN)
def test_each_rule_finds_its_job(name: str) -> None:
    workload, rank = BROKEN[name]
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
def test_collectives_differ_in_number_or_type(second, says: str) -> None:
    found = check_workload(job((collective(1), compute(9)), (compute(9), *second)))
    assert [f.rule.id for f in found] == ["collectives-agree"]
    assert says in found[0].found


def test_message_sizes_and_missing_sends_are_found() -> None:
    sizes = check_workload(job((_send(1, size=65_536),), (_receive(1, size=65_537),)))
    alone = check_workload(job((compute(1),), (_receive(1),)))
    assert [f.rule.id for f in sizes] == [f.rule.id for f in alone] == ["messages-match"]
    assert "65536 bytes" in sizes[0].found


def test_ranks_that_share_a_trace_are_checked_once() -> None:
    shared = trace(with_attribute(collective(1), Attribute("is_cpu_op", Wire.BOOL, True)))
    found = check_workload(Workload((shared,) * 4, {}, "job"))
    assert [f.rule.id for f in found] == ["comm-off-cpu"]


def test_faulty_dependencies_keep_the_ranks_from_being_matched_but_not_from_being_checked() -> None:
    found = check_workload(job((compute(1, 5), collective(2)), (compute(1),)))
    assert [f.rule.id for f in found] == ["no-dangling-dependency"]
    assert all(f.rule.severity is Severity.ERROR for f in found)


@pytest.mark.parametrize("name", ["0", "default_pg", "-1", "12345678901", "\u0663", ""])
def test_a_group_file_may_use_positive_numbers_alone_for_names(name: str) -> None:
    sound = Workload(_sound().traces, {"1": (0, 1)}, "job")
    assert check_group_file(sound) == []
    (finding,) = check_group_file(Workload(sound.traces, {"1": (0, 1), name: (2, 3)}, "job"))
    assert finding.rule.id == "described-groups"
    assert (finding.where, finding.count) == ("job", 1)
    assert repr(name) in finding.found


def test_many_odd_group_names_are_counted_and_five_are_shown() -> None:
    odd = {f"g{i}": (0, 1) for i in range(9)}
    (finding,) = check_group_file(Workload(_sound().traces, odd, "job"))
    assert finding.count == 9
    assert "'g4'" in finding.found
    assert "'g5'" not in finding.found
    assert "(and 8 more)" in finding.sentence()


def test_errors_of_one_trace_hide_the_cycle_that_they_may_cause() -> None:
    waiting = (
        (_receive(1, source=1, target=0), _send(2, 1)),
        (_receive(1), _send(2, 1, source=1, target=0)),
    )
    assert [f.rule.id for f in check_workload(job(*waiting))] == ["no-deadlock"]
    first, second = waiting
    broken = with_attribute(first[1], Attribute("is_cpu_op", Wire.BOOL, True))
    found = [f.rule.id for f in check_workload(job((first[0], broken), second))]
    assert found == ["comm-off-cpu"]


def test_a_cycle_of_waits_names_its_ranks_and_nodes() -> None:
    workload, _ = BROKEN["no-deadlock"]
    (finding,) = check_workload(workload)
    for place in ("rank 0 node 1", "rank 0 node 2", "rank 1 node 1", "rank 1 node 2"):
        assert place in finding.found


def test_findings_of_several_ranks_are_joined_with_the_number_of_nodes() -> None:
    on_cpu = Attribute("is_cpu_op", Wire.BOOL, True)
    ranks = [(with_attribute(compute(1), on_cpu), with_attribute(compute(2), on_cpu))] * 3
    finding, silence = check_workload(job(*ranks))
    assert (finding.rule.id, finding.count) == ("compute-off-cpu", 6)
    assert silence.rule.id == "ranks-communicate"
    assert finding.where == "job.0.et"


def test_ids_that_descend_along_dependencies_say_nothing_about_the_order() -> None:
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
            return (
                _send(1, source=own, target=after),
                _receive(2, 1, source=before, target=own),
            )
        return (_receive(1, source=before, target=own), _send(2, 1, source=own, target=after))

    return job(*(rank(own) for own in range(ranks)))


@pytest.mark.parametrize("ranks", [2, 3, 5])
def test_a_ring_whose_ranks_all_receive_first_waits_for_ever(ranks: int) -> None:
    (finding,) = check_workload(_ring(ranks, sends_first=False))
    assert finding.rule.id == "no-deadlock"
    assert all(f"rank {rank} node" in finding.found for rank in range(min(ranks, 3)))
    assert check_workload(_ring(ranks, sends_first=True)) == []


@pytest.mark.parametrize("target", [0, 2, 99])
def test_a_message_goes_to_another_rank_of_the_job(target: int) -> None:
    found = check_workload(job((_send(1, target=target),), (compute(1),)))
    assert "known-peer" in {finding.rule.id for finding in found}
    said = next(finding.found for finding in found if finding.rule.id == "known-peer")
    assert said == f"has rank {target} at its other end, in a job of 2"


def test_messages_are_matched_by_their_tags() -> None:
    def tagged(node: int, *deps: int, sends: bool, tag: int):
        return message(node, *deps, sends=sends, source=0, target=1, tag=tag)

    crossed = job(
        (tagged(1, sends=True, tag=1), tagged(2, 1, sends=True, tag=2)),
        (tagged(1, sends=False, tag=2), tagged(2, 1, sends=False, tag=1)),
    )
    assert check_workload(crossed) == []
    other = job((tagged(1, sends=True, tag=1),), (tagged(1, sends=False, tag=3),))
    assert {finding.rule.id for finding in check_workload(other)} == {"messages-match"}


def test_one_finding_a_rule_counts_the_nodes_of_all_ranks() -> None:
    ranks = [(collective(1, group="7"), collective(2, 1, group="8"))] * 3
    found = [f for f in check_workload(job(*ranks)) if f.rule.id == "known-group"]
    assert [(f.where, f.node, f.found, f.count) for f in found] == [
        ("job.0.et (rank 0)", 1, "uses group '7'", 6)
    ]


def test_a_job_of_one_rank_may_have_groups_of_one() -> None:
    assert check_workload(job((collective(1, group="1"),), groups={"1": (0,)})) == []
    several = check_workload(job((collective(1, group="1"),), (compute(1),), groups={"1": (0,)}))
    assert "several-members" in {finding.rule.id for finding in several}


def test_members_of_a_group_are_named_where_a_rank_is_none_of_them() -> None:
    workload, _ = BROKEN["member-of-group"]
    said = next(f.found for f in check_workload(workload) if f.rule.id == "member-of-group")
    assert said == "uses group '2' of ranks [1, 2]"


@pytest.mark.parametrize("groups_before", [(1, 1), (2, 2), (0, 0)])
def test_equally_many_group_collectives_may_precede_one_of_all_ranks(
    groups_before: tuple[int, int],
) -> None:
    def rank(group: str, before: int) -> tuple:
        first = [
            collective(i, *([i - 1] if i > 1 else []), group=group) for i in range(1, before + 1)
        ]
        return (*first, collective(9, *([before] if before else [])))

    ranks = [rank("1", groups_before[0])] * 2 + [rank("2", groups_before[1])] * 2
    assert check_workload(job(*ranks, groups=PAIRS)) == []


def test_unequally_many_group_collectives_are_told_with_their_numbers() -> None:
    workload, _ = BROKEN["world-after-equal-groups"]
    (finding,) = check_workload(workload)
    assert "the ranks have issued 0 to 1 collectives" in finding.found


def test_the_order_of_sound_ranks_does_not_matter() -> None:
    """Both pairs swap their places: ranks 2 and 3 do what ranks 0 and 1 did."""
    first, second, third, fourth = (
        (collective(1, group=group), collective(2, 1)) for group in ("1", "1", "2", "2")
    )
    swapped = job(third, fourth, first, second, groups={"1": (2, 3), "2": (0, 1)})
    assert check_workload(job(first, second, third, fourth, groups=PAIRS)) == []
    assert check_workload(swapped) == []
    mixed = job(first, third, second, fourth, groups=PAIRS)
    assert "member-of-group" in {finding.rule.id for finding in check_workload(mixed)}
