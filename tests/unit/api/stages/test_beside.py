"""Work in a second process."""

import operator
import pickle
from functools import partial
from multiprocessing import Pipe

import pytest
import torch

from layerdag.api.stages import _beside, begin_beside


class Context:
    """Stands in for a way to start processes: does their work when one is started."""

    def __init__(self, *, dies: bool) -> None:
        self.dies = dies
        self.Pipe = Pipe

    def Process(self, target: object, args: tuple, daemon: bool) -> "Context":
        self.begin = partial(target, *args)
        assert daemon
        return self

    def start(self) -> None:
        if not self.dies:
            self.begin()


@pytest.mark.parametrize("dies", [False, True])
def test_the_result_comes_back_and_is_found_here_if_the_process_died(
    dies: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_beside, "get_context", lambda name: Context(dies=dies))
    found = begin_beside(partial(operator.add, torch.arange(3), 1))
    assert found().tolist() == [1, 2, 3]


def test_an_error_of_the_work_is_raised_where_the_result_is_wanted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_beside, "get_context", lambda name: Context(dies=True))
    found = begin_beside(partial(operator.truediv, 1, 0))
    with pytest.raises(ZeroDivisionError):
        found()


def test_the_other_process_has_as_many_threads() -> None:
    here, there = Pipe(duplex=False)
    _beside._answer(there, pickle.dumps((torch.get_num_threads, torch.get_num_threads())))
    assert pickle.loads(here.recv_bytes()) == torch.get_num_threads()


@pytest.mark.slow
def test_a_process_of_its_own_finds_the_same() -> None:
    found = begin_beside(partial(operator.add, torch.arange(3), 1))
    assert found().tolist() == [1, 2, 3]
