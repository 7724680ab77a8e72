"""Parts of a micro-batch whose gradients a processor computes side by side.

The operators of a training step are short: two threads inside each of them gain nothing over one,
while one thread for each half of the graphs takes little more than half of the time. A part has
noise of its own, and one thread computes the same parts one after the other.

Shape letters: G graphs.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import cached_property
from threading import Barrier
from typing import TypeVar

import numpy as np
import torch

from layerdag.dag.dag import DAGBatch
from layerdag.training.batches import take_graphs

PART_NODES = 1024
"""Nodes of a part, about: the states of so many fit into the cache of a core."""

T = TypeVar("T")
R = TypeVar("R")


def parts_of(batch: DAGBatch) -> list[DAGBatch]:
    """Return the graphs of a batch in parts of about the same number of nodes.

    They depend on the batch alone, however many processors compute them.
    """
    sizes_G = batch.node_ptr.diff().cpu().numpy()
    count = min(-(-int(sizes_G.sum()) // PART_NODES), len(sizes_G))
    if count < 2:
        return [batch]
    nodes = [0] * count
    parts: list[list[int]] = [[] for _ in range(count)]
    for graph in np.argsort(-sizes_G, kind="stable").tolist():
        smallest = nodes.index(min(nodes))
        parts[smallest].append(graph)
        nodes[smallest] += int(sizes_G[graph])
    return [take_graphs(batch, torch.tensor(sorted(part))) for part in parts]


_NUMBERS_FOR_THREADS = 1 << 23


@contextlib.contextmanager
def threads_for(numbers: int) -> Iterator[None]:
    """Let an operator inside the block use one thread where tensors have few numbers in all.

    Waking another thread for each of a hundred small tensors takes longer than the work.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1 if numbers < _NUMBERS_FOR_THREADS else threads)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def use_one_processor() -> None:
    """Let operators of this thread use one thread, whatever is set in another one from now on."""
    torch.set_num_threads(1)
    torch.get_num_threads()  # The first operator that asks would take what was set last.


class PartThreads:
    """Threads on the processors that PyTorch may use, each with one of them."""

    def map(
        self,
        function: Callable[[T], R],
        items: Sequence[T],
        meanwhile: Callable[[], None] | None = None,
    ) -> Iterator[R]:
        """Yield what a function returns for each item, in order.

        One call after the other runs in this thread where there is one item or one processor. If
        one fails, the others end before its error is raised. ``meanwhile`` is called in this thread
        while others have work, to give them more (``later``).
        """
        threads = torch.get_num_threads()
        if min(threads, len(items)) < 2:
            yield from map(function, items)
            return
        calls = [self._pool.submit(function, item) for item in items]
        try:
            if meanwhile is not None:
                meanwhile()
            for call in calls:
                yield call.result()
        finally:
            wait(calls)
            # PyTorch gives threads made later the number that was set last, in whichever thread.
            torch.set_num_threads(threads)

    def later(self, function: Callable[[], R]) -> "Future[R]":
        """Let the first thread that has nothing else to do call a function."""
        return self._pool.submit(function)

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        threads = torch.get_num_threads()
        pool = ThreadPoolExecutor(threads, "part", use_one_processor)
        # All begin now: one that began later would set the number of threads after ``map``.
        begun = Barrier(threads)
        try:
            for _ in range(threads):
                pool.submit(begun.wait)
        except BaseException:  # no thread can be started: those that wait would wait for ever
            begun.abort()
            raise
        return pool
