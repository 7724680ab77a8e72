import pytest
from hypothesis import given, strategies as st
from laws import tried
from small_workloads import collective, compute, job, message, trace

from layerdag.codec import rank_classes
from layerdag.errors import TraceError
from layerdag.traces import Workload


def ranks(workload: Workload) -> list[tuple[int, ...]]:
    return [part.ranks for part in rank_classes(workload)]


def test_ranks_with_the_same_program_are_one_class_whatever_their_times():
    first = (compute(0, duration_us=5), collective(1, 0))
    second = (compute(0, duration_us=9), collective(1, 0))
    assert ranks(job(first, second)) == [(0, 1)]


def test_a_different_size_makes_another_class():
    assert ranks(job((collective(0),), (collective(0),), (collective(0, size=8),))) == [
        (0, 1),
        (2,),
    ]


def test_pipeline_stages_with_two_ranks_each_are_two_classes():
    def sender(rank: int):
        return (compute(0), message(1, 0, sends=True, source=rank, target=rank + 2))

    def receiver(rank: int):
        return (message(0, sends=False, source=rank - 2, target=rank), compute(1, 0))

    assert ranks(job(sender(0), sender(1), receiver(2), receiver(3))) == [(0, 1), (2, 3)]


def test_groups_count_by_their_shape_not_by_their_name():
    groups = {"1": (0, 1), "2": (2, 3)}
    parts = [(collective(0, group=name),) for name in ("1", "1", "2", "2")]
    assert ranks(job(*parts, groups=groups)) == [(0, 1, 2, 3)]


def test_a_shared_trace_is_one_class_in_no_time():
    shared = trace(compute(0), collective(1, 0))
    assert ranks(Workload((shared,) * 64)) == [tuple(range(64))]


def pipeline(*ranks: int) -> tuple:
    """Return the traces of the ranks of a pipeline, in the order of its stages."""
    before, after = (-1, *ranks[:-1]), (*ranks[1:], -1)
    by_rank = {}
    for source, rank, target in zip(before, ranks, after, strict=True):
        received = () if source < 0 else (message(0, sends=False, source=source, target=rank),)
        sent = () if target < 0 else (message(2, 1, sends=True, source=rank, target=target),)
        by_rank[rank] = (*received, compute(1, *(0,) * len(received)), *sent)
    return tuple(by_rank[rank] for rank in sorted(by_rank))


def test_stages_of_a_pipeline_with_the_same_program_are_classes_of_their_own():
    assert ranks(job(*pipeline(0, 1, 2, 3))) == [(0,), (1,), (2,), (3,)]


def test_replicas_of_a_pipeline_share_classes_however_they_are_numbered():
    one, two = pipeline(0, 2, 4, 6), pipeline(1, 3, 5, 7)
    assert ranks(job(*(t for pair in zip(one, two, strict=True) for t in pair))) == [
        (0, 1), (2, 3), (4, 5), (6, 7),
    ]  # fmt: skip
    assert ranks(job(*pipeline(0, 1, 2, 3), *pipeline(4, 5, 6, 7))) == [
        (0, 4), (1, 5), (2, 6), (3, 7),
    ]  # fmt: skip


def around(*ring: int) -> list[tuple]:
    """Return the traces of ranks that each send to the next one of a ring."""
    return [
        (
            message(0, sends=True, source=rank, target=ring[(place + 1) % len(ring)]),
            message(1, sends=False, source=ring[place - 1], target=rank),
        )
        for place, rank in enumerate(ring)
    ]


def test_a_ring_inside_a_stage_is_one_class_wherever_its_ranks_lie():
    parts = around(1, 2, 3)
    assert ranks(job((compute(0),), *parts)) == [(0,), (1, 2, 3)]


def test_a_message_to_a_rank_that_the_job_lacks_is_refused():
    with pytest.raises(TraceError, match="names rank 7"):
        rank_classes(job((message(0, sends=True, source=0, target=7),), (compute(0),)))


@pytest.mark.parametrize(
    "other",
    [
        (compute(0, name="other"), collective(1, 0)),
        (compute(0, type=2), collective(1, 0)),
        (compute(0), collective(1)),
        (compute(0), collective(1, 0, kind=2)),
        (compute(0), collective(1, 0, group="1")),
        (collective(0), compute(1, 0)),
    ],
)
def test_every_part_of_a_program_tells_ranks_apart(other: tuple) -> None:
    same = (compute(0), collective(1, 0))
    assert ranks(job(same, other, same, groups={"1": (0, 1)})) == [(0, 2), (1,)]


def test_ids_and_tags_do_not_tell_ranks_apart() -> None:
    first = (compute(3, name="a"), collective(9, 3))
    assert ranks(job(first, (compute(1, name="a"), collective(2, 1)))) == [(0, 1)]
    pair = (
        (message(0, sends=True, source=0, target=1, tag=5),),
        (message(0, sends=False, source=0, target=1, tag=5),),
        (message(0, sends=True, source=2, target=3, tag=77),),
        (message(0, sends=False, source=2, target=3, tag=77),),
    )
    assert ranks(job(*pair)) == [(0, 2), (1, 3)]


@pytest.mark.parametrize("target", [-3, 2])
def test_a_peer_outside_the_job_is_named_with_the_ranks_that_there_are(target: int) -> None:
    parts = ((message(0, sends=True, source=0, target=target),), (compute(0),))
    with pytest.raises(TraceError, match=rf"names rank {target}, but the job has ranks 0 to 1"):
        rank_classes(job(*parts))


@tried(25)
@given(st.permutations(range(6)))
def test_renumbering_the_ranks_renumbers_their_classes(order: list[int]) -> None:
    """Two replicas of a pipeline of three stages, at any places."""
    place = {old: new for new, old in enumerate(order)}
    by_rank: dict[int, tuple] = {}
    for first in (0, 3):
        chain = [place[first + at] for at in range(3)]
        for at, rank in enumerate(chain):
            got = () if at == 0 else (message(0, sends=False, source=chain[at - 1], target=rank),)
            sent = (
                () if at == 2 else (message(2, 1, sends=True, source=rank, target=chain[at + 1]),)
            )
            by_rank[rank] = (*got, compute(1, *(0,) * len(got)), *sent)
    found = {frozenset(part) for part in ranks(job(*(by_rank[rank] for rank in range(6))))}
    pairs = {frozenset({place[at], place[3 + at]}) for at in range(3)}
    if all((place[0] < place[3]) == (place[at] < place[3 + at]) for at in (1, 2)):
        assert found == pairs
    else:  # replicas that are crossed do not meet at the same places
        assert found != pairs
