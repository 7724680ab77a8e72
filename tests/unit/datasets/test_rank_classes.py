from small_workloads import collective, compute, job, message, trace

from layerdag.datasets.rank_classes import rank_classes
from layerdag.traces.trace import Workload


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
