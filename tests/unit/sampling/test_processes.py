"""Processes that draw samples side by side, and finish them."""

import os
import subprocess
import sys
import time
from functools import partial
from itertools import islice
from multiprocessing import active_children

import pytest
import torch
from other_processes import (
    first_waits_for_last,
    killed_at_one,
    numbers_below,
    numbers_or_death,
    refused_at_three,
    slow_at_first,
    unchanged,
    whose,
    with_what_is_shared,
)

from layerdag.errors import LayerdagError, UsageError
from layerdag.sampling.processes import sample_in_processes


@pytest.mark.usefixtures("ready_processes")
def test_parts_and_errors_come_in_order_from_as_many_processes_and_a_slow_one_holds_up_none(
    tmp_path,
):
    asked = [(tmp_path / "drawn", number, 6) for number in range(7)]
    found = sample_in_processes(first_waits_for_last, asked, 2)
    parts, ends, workers, threads = zip(*islice(found, 6), strict=True)
    with pytest.raises(UsageError, match=r"a seventh part is refused\."):
        next(found)
    assert parts == (0, 1, 2, 3, 4, 5)
    assert (ends[0], ends[-1]) == (True, True)
    assert len(set(workers)) == 2
    assert os.getpid() not in workers
    assert set(threads) == {torch.get_num_threads()}


@pytest.mark.parametrize(("parts", "processes"), [(5, 1), (1, 4), (0, 4)])
def test_no_other_process_is_started_where_one_is_enough(parts, processes):
    drawn = list(sample_in_processes(whose, range(parts), processes))
    assert drawn == [os.getpid()] * parts


@pytest.mark.usefixtures("ready_processes")
def test_a_process_that_is_killed_is_told():
    found = sample_in_processes(killed_at_one, range(4), 2)
    assert next(found) == 0
    with pytest.raises(LayerdagError, match="A process that draws samples ended early"):
        next(found)


def test_a_script_without_a_guard_is_told_what_is_missing(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        # In the other process, where the import takes seconds, the last line would raise this.
        "from multiprocessing import get_context\n"
        "if __name__ == '__mp_main__': get_context('spawn').Process().start()\n"
        "from functools import partial\n"
        "from operator import concat\n"
        "import threading, time\n"  # beside which no process is copied
        "threading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n"
        "from layerdag.sampling.processes import sample_in_processes\n"
        "list(sample_in_processes(partial(concat, b'-' * 4_000_000), [b'a', b'b'], 2))\n"
    )
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=600, check=False
    )
    assert "A process that draws samples ended early" in done.stderr
    assert done.returncode == 1


@pytest.mark.usefixtures("ready_processes")
def test_no_process_stays_where_nobody_wants_the_rest():
    found = sample_in_processes(whose, range(50), 2)
    next(found)
    found.close()
    end = time.monotonic() + 20
    while active_children() and time.monotonic() < end:
        time.sleep(0.05)
    assert not active_children()


@pytest.mark.usefixtures("ready_processes")
def test_graphs_of_one_part_are_finished_by_all_processes_and_come_in_order():
    found = list(sample_in_processes(numbers_below, [9, 0, 1], 2, finish=slow_at_first))
    asked = [*((9, i, i) for i in range(9)), (1, 0, 0)]
    assert [(part, at, number) for part, at, number, _ in found] == asked
    assert len({worker for *_, worker in found}) == 2


@pytest.mark.usefixtures("ready_processes")
def test_a_process_that_is_killed_takes_nothing_of_other_parts_with_it():
    found = sample_in_processes(numbers_or_death, [8, 0, 3, 3], 2, finish=unchanged)
    assert list(islice(found, 8)) == list(range(8))
    with pytest.raises(LayerdagError, match="A process that draws samples ended early"):
        next(found)


@pytest.mark.usefixtures("ready_processes")
def test_what_is_shared_goes_to_a_process_once_and_is_that_of_this_one_afterwards():
    shared = {"words": "many " * 1000}
    draw = partial(with_what_is_shared, shared)
    found = list(sample_in_processes(draw, [0, 1], 1, shared, unchanged))
    assert [part for _, part in found] == [0, 1]
    assert all(given is shared for given, _ in found)
    found = list(sample_in_processes(draw, [0, 1], 2, shared))
    assert all(given is shared for graphs in found for given, _ in graphs)


@pytest.mark.usefixtures("ready_processes")
def test_what_refuses_a_graph_is_told_where_it_would_come():
    found = sample_in_processes(numbers_below, [2, 9], 2, finish=refused_at_three)
    assert list(islice(found, 2)) == [0, 1]
    for expected in range(3):
        assert next(found) == expected
    with pytest.raises(UsageError, match="three is refused"):
        next(found)
