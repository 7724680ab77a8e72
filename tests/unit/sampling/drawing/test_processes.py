"""Parts that several processes draw come back in order, whatever happens to a process."""

import os
import time
from multiprocessing import active_children
from pathlib import Path

import pytest
import torch
from other_processes import first_waits_for_last, killed_at_one, refused_at_two, whose

from layerdag.errors import LayerdagError, UsageError
from layerdag.sampling.drawing import drawn_in_order


def test_parts_come_back_in_order_from_as_many_processes_as_asked_for() -> None:
    parts, workers, threads = zip(*drawn_in_order(whose, range(5), 2), strict=True)
    assert parts == (0, 1, 2, 3, 4)
    assert len(set(workers)) == 2
    assert os.getpid() not in workers
    assert set(threads) == {torch.get_num_threads()}


@pytest.mark.parametrize(("parts", "processes"), [(5, 1), (1, 4), (0, 4)])
def test_no_other_process_is_started_where_one_is_enough(parts: int, processes: int) -> None:
    drawn = list(drawn_in_order(whose, range(parts), processes))
    assert [part for part, _, _ in drawn] == list(range(parts))
    assert {pid for _, pid, _ in drawn} <= {os.getpid()}


def test_what_a_process_raises_is_raised_after_what_came_before() -> None:
    found = drawn_in_order(refused_at_two, range(4), 2)
    assert [next(found), next(found)] == [0, 1]
    with pytest.raises(UsageError, match=r"two is refused\."):
        next(found)


def test_a_slow_part_does_not_keep_other_processes_waiting(tmp_path: Path) -> None:
    parts = [(tmp_path / "drawn", n == 0, n == 5) for n in range(6)]
    drawn = list(drawn_in_order(first_waits_for_last, parts, 2))
    assert (drawn[0], drawn[-1]) == (True, True)


def test_a_process_that_is_killed_is_told() -> None:
    found = drawn_in_order(killed_at_one, range(4), 2)
    assert next(found) == 0
    with pytest.raises(LayerdagError, match="A process that draws samples ended early"):
        next(found)


def test_no_process_stays_where_nobody_wants_the_rest() -> None:
    found = drawn_in_order(whose, range(50), 2)
    next(found)
    found.close()
    end = time.monotonic() + 20
    while active_children() and time.monotonic() < end:
        time.sleep(0.05)
    assert not active_children()
