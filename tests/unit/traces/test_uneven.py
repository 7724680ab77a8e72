"""Uneven all-to-alls get one size, in each group its own, and nothing else changes."""

import pytest
from small_workloads import collective, compute, job

from layerdag.traces.analysis import match_communication
from layerdag.traces.trace import CollectiveType
from layerdag.traces.uneven import EvenedCollectives, EvenSize, even_all_to_all

A2A = CollectiveType.ALL_TO_ALL


def sizes(workload, row):
    return [int(trace.integers("comm_size")[0][row]) for trace in workload.traces]


@pytest.mark.parametrize(
    ("size", "first", "second", "after"),
    [(EvenSize.MAX, 30, 8, 76), (EvenSize.MEAN, 20, 6, 52)],
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
    even, told = even_all_to_all(uneven, size)
    assert sizes(even, 1) == [first, first, second, second]
    assert sizes(even, 2) == sizes(uneven, 2)
    assert not match_communication(even).mismatches
    assert told == EvenedCollectives(2, 52, after)


def test_a_job_without_uneven_all_to_alls_stays_as_it_is():
    other = job((collective(1, size=8),), (collective(1, size=16),))  # no all-to-all
    assert even_all_to_all(other, EvenSize.MAX) == (other, EvenedCollectives(0, 0, 0))
