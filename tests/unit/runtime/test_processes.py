"""Processes that are told over a connection what to do."""

import os
import pickle

import pytest
from answering import cut_off, half

from layerdag.errors import LayerdagError
from layerdag.runtime.processes import Worker, in_any_order, wait_for_any

LARGE = pickle.dumps(b"-" * 4_000_000)
"""More than any pipe holds."""


def test_what_is_sent_is_answered_and_the_process_can_be_ended():
    workers = [Worker.start(half), Worker.start(half)]
    workers[1].send(2 * pickle.dumps(b"answer"))
    assert wait_for_any(workers) == workers[1:]
    assert workers[1].receive() == b"answer"
    workers[0].stop()
    assert wait_for_any(workers[:1]) == workers[:1]
    with pytest.raises(EOFError):
        workers[0].receive()


@pytest.mark.parametrize("target", [os._exit, cut_off], ids=["starting", "answering"])
def test_a_process_that_dies_is_noticed(target):
    worker = Worker.start(target)
    worker.send(LARGE)
    assert wait_for_any([worker]) == [worker]
    with pytest.raises(EOFError):
        worker.receive()


@pytest.mark.parametrize("processes", [1, 2])
def test_calls_are_made_here_or_in_other_processes(processes):
    found = list(in_any_order(divmod, [(7, 2), (9, 5)], processes))
    assert sorted(found) == [(1, 4), (3, 1)]


def test_a_pool_that_loses_a_process_says_so():
    with pytest.raises(LayerdagError, match="A process that simulates ended early"):
        list(in_any_order(os._exit, [(9,), (9,)], 2))
