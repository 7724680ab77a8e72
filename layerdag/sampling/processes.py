"""Processes that draw samples side by side, and make their files.

Parts are drawn whole, since graphs that are drawn together cost less. What is made of each graph
afterwards is shared out among all processes, so that none waits for the one with the largest.
"""

import pickle
import signal
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, Generic, TypeVar, cast, final

import torch

from layerdag.errors import LayerdagError
from layerdag.runtime.processes import Worker, wait_for_any

Part = TypeVar("Part")
Drawn = TypeVar("Drawn")
Graph = TypeVar("Graph")

_SHARES_PER_PROCESS = 4
"""Shares of a part that each process finishes: more would carry the graphs to and fro."""


def sample_in_processes(
    draw: Callable[[Part], Drawn], parts: Sequence[Part], processes: int
) -> Iterator[Drawn]:
    """Yield ``draw(part)`` for each part, in order.

    Args:
        draw: What pickles: a function of a module, a method, or a ``functools.partial`` of one.
        parts: What to draw.
        processes: Processes that draw. With 1 it is this one. Each has as many threads as this one,
            so that results do not depend on how many there are.

    Raises:
        LayerdagError: If a process ends early, or what ``draw`` raises.
    """
    processes = min(processes, len(parts))
    if processes < 2:
        return map(draw, parts)
    drawing = _Tasks(draw, None, parts)
    return (cast("Drawn", drawing.drawn[at]) for at in drawing.run(processes))


def sample_and_finish(
    draw: Callable[[Part], Sequence[Graph]],
    finish: Callable[[Part, int, Graph], Graph],
    parts: Sequence[Part],
    processes: int,
) -> Iterator[list[Graph]]:
    """Yield the graphs of each part, in order, each as ``finish`` leaves it.

    Args:
        draw: What pickles, as ``sample_in_processes`` takes it.
        finish: Takes a part, the place of a graph in it, and the graph; what pickles, too. Any of
            the processes calls it.
        parts: What to draw.
        processes: Processes beside this one, at least one.

    Raises:
        LayerdagError: If a process ends early, or what ``draw`` or ``finish`` raises.
    """
    drawing = _Tasks(draw, finish, parts)
    return (cast("list[Graph]", drawing.drawn[at]) for at in drawing.run(processes))


@dataclass(frozen=True)
class _Task:
    """What a process is to do.

    Attributes:
        part: Number of the part that it draws, or of which it finishes some graphs.
        places: Of those graphs in the part; None draws it.
    """

    part: int
    places: range | None = None


@final
class _Tasks(Generic[Part]):
    """Hands tasks to processes and collects what they make.

    Args:
        draw: Draws a part.
        finish: Finishes a graph, None if nothing is left to do.
        parts: What to draw.

    Attributes:
        drawn: What each part consists of as far as it is known, by number.
    """

    def __init__(
        self,
        draw: Callable[[Part], Any],
        finish: Callable[[Part, int, Any], Any] | None,
        parts: Sequence[Part],
    ) -> None:
        self._draw, self._finish, self._parts = draw, finish, parts
        self.drawn: dict[int, Any] = {}
        self._missing: dict[int, int] = {}
        self._failed: dict[int, LayerdagError] = {}
        self._todo = deque(map(_Task, range(len(parts))))

    def run(self, processes: int) -> Iterator[int]:
        """Yield the number of each part in order, as soon as all of it is drawn and finished.

        Raises:
            LayerdagError: If a process ends early, or what drawing raises.
        """
        workers: list[Worker] = []
        doing: dict[Worker, _Task] = {}
        sent = pickle.dumps((self._draw, self._finish, torch.get_num_threads()))
        try:
            # All start side by side; a large model is taken only when a process listens.
            workers.extend(Worker.start(_work) for _ in range(processes))
            for worker in workers:
                worker.send(sent)
            for number in range(len(self._parts)):
                while not self._is_done(number):
                    for worker in workers:
                        if self._todo and worker not in doing:
                            doing[worker] = self._todo.popleft()
                            worker.send(pickle.dumps(self._arguments(doing[worker])))
                    for worker in wait_for_any(doing):
                        try:
                            found = worker.receive()
                        except EOFError:
                            workers.remove(worker)
                            found = _ended_early()
                        self._take(doing.pop(worker), found, processes)
                    if not workers:
                        raise _ended_early()
                yield number
                del self.drawn[number]
        finally:
            for worker in workers:
                worker.stop()

    def _is_done(self, number: int) -> bool:
        """Return whether all of a part is there; raise what made it fail."""
        if number in self._failed:
            raise self._failed[number]
        return self._missing.get(number) == 0

    def _arguments(self, task: _Task) -> tuple[Any, ...]:
        """Return what a process needs to know of a task."""
        part = self._parts[task.part]
        if task.places is None:
            return (part,)
        return part, task.places, [self.drawn[task.part][at] for at in task.places]

    def _take(self, task: _Task, found: Any, processes: int) -> None:
        """Keep what a process made, and begin what follows."""
        if isinstance(found, LayerdagError):
            self._failed.setdefault(task.part, found)
        elif task.places is not None:
            for at, graph in zip(task.places, found, strict=True):
                self.drawn[task.part][at] = graph
            self._missing[task.part] -= len(task.places)
        else:
            self.drawn[task.part] = found
            count = 0 if self._finish is None else len(found)
            self._missing[task.part] = count
            share = max(1, -(-count // (_SHARES_PER_PROCESS * processes)))
            shares = [range(at, min(at + share, count)) for at in range(0, count, share)]
            # Ahead of further parts, so that few graphs wait to be finished.
            self._todo.extendleft(_Task(task.part, places) for places in reversed(shares))


def _ended_early() -> LayerdagError:
    """Return why a process has made nothing."""
    return LayerdagError(
        "A process that draws samples ended early: it was killed, perhaps for lack of memory, "
        "or failed as said above. Ask for fewer with 'processes'. A script that asks for "
        "several must do so under 'if __name__ == \"__main__\":'."
    )


def _work(connection: Connection) -> None:
    """Do, in a process of its own, each task that comes, until nobody is there any more."""
    # The process that reads the results is the one to interrupt; it ends this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with suppress(EOFError, ConnectionError):
        draw, finish, threads = pickle.loads(connection.recv_bytes())
        torch.set_num_threads(threads)
        while True:
            part, *graphs = pickle.loads(connection.recv_bytes())
            found: Any
            try:
                found = (
                    [finish(part, at, graph) for at, graph in zip(*graphs, strict=True)]
                    if graphs
                    else draw(part)
                )
            except LayerdagError as error:
                found = error
            connection.send_bytes(pickle.dumps(found))
