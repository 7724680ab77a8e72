"""Processes that draw samples side by side, and make their files.

Parts are drawn whole, since graphs that are drawn together cost less. What is made of each graph
afterwards is shared out among all processes one by one, so that none waits for another.
"""

import io
import pickle
import signal
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, Generic, TypeVar, final

import torch

from layerdag.errors import LayerdagError
from layerdag.runtime.processes import Worker, wait_for_any

Part = TypeVar("Part")


def sample_in_processes(
    draw: Callable[[Part], Any],
    parts: Sequence[Part],
    processes: int,
    shared: object = None,
    finish: Callable[[Part, int, Any], Any] | None = None,
) -> Iterator[Any]:
    """Yield ``draw(part)`` for each part in order, or its graphs, each as ``finish`` leaves it.

    ``draw`` and ``finish(part, place, graph)`` must pickle, and any of the processes calls them.
    One process with nothing to finish is this one. Each has as many threads as this one, so that
    results do not depend on how many there are. Each gets ``shared``, to which ``draw`` and what it
    returns refer, once. Raises what they raise, and LayerdagError if a process ends early.
    """
    if finish is not None:
        return _Tasks(draw, finish, parts, shared).run(processes)
    processes = min(processes, len(parts))
    return map(draw, parts) if processes < 2 else _Tasks(draw, None, parts, shared).run(processes)


@dataclass(frozen=True)
class _Task:
    """The number of a part to draw, or of which to finish the graph at a place."""

    part: int
    place: int | None = None


@final
class _Tasks(Generic[Part]):
    """Hands tasks to processes and collects what they make."""

    def __init__(
        self,
        draw: Callable[[Part], Any],
        finish: Callable[[Part, int, Any], Any] | None,
        parts: Sequence[Part],
        shared: object,
    ) -> None:
        self._draw, self._finish, self._parts, self._shared = draw, finish, parts, shared
        self._workers: list[Worker] = []
        self._doing: dict[Worker, _Task] = {}
        self._todo = deque(map(_Task, range(len(parts))))
        self._drawn: dict[int, Any] = {}
        self._unfinished: set[_Task] = set()
        self._failed: dict[_Task, LayerdagError] = {}

    def run(self, processes: int) -> Iterator[Any]:
        """Yield each part as it is drawn, or its graphs as they are finished, in order."""
        sent = pickle.dumps((self._draw, self._finish, self._shared, torch.get_num_threads()))
        try:
            # All start side by side; a large model is taken only when a process listens.
            self._workers.extend(Worker.start(_work) for _ in range(processes))
            for worker in self._workers:
                worker.send(sent)
            for part in range(len(self._parts)):
                while part not in self._drawn:
                    self._wait_for(_Task(part))
                if self._finish is None:
                    yield self._drawn[part]
                else:
                    yield from self._graphs(part)
                del self._drawn[part]
        finally:
            for worker in self._workers:
                worker.stop()

    def _graphs(self, part: int) -> Iterator[Any]:
        for place in range(len(self._drawn[part])):
            self._take_answers(timeout_s=0)  # others go on while the caller works on this graph
            while (task := _Task(part, place)) in self._unfinished:
                self._wait_for(task)
            yield self._drawn[part][place]

    def _wait_for(self, task: _Task) -> None:
        """Wait until some task is done; raise what made this one fail."""
        if task in self._failed:
            raise self._failed[task]
        if not self._workers:
            raise _ended_early()
        self._take_answers()

    def _take_answers(self, timeout_s: float | None = None) -> None:
        self._hand_out()
        for worker in wait_for_any(self._doing, timeout_s):
            task = self._doing.pop(worker)
            try:
                found = _loads(worker.receive_bytes(), self._shared)
            except EOFError:
                self._workers.remove(worker)
                found = _ended_early()
            self._take(task, found)
        self._hand_out()

    def _hand_out(self) -> None:
        for worker in self._workers:
            if self._todo and worker not in self._doing:
                task = self._doing[worker] = self._todo.popleft()
                part = self._parts[task.part]
                graphs = () if task.place is None else (self._drawn[task.part][task.place],)
                worker.send(_dumps((part, task.place, *graphs), self._shared))

    def _take(self, task: _Task, found: Any) -> None:
        if isinstance(found, LayerdagError):
            self._failed[task] = found
        elif task.place is not None:
            self._drawn[task.part][task.place] = found
            self._unfinished.remove(task)
        else:
            self._drawn[task.part] = found if self._finish is None else list(found)
            if self._finish is not None:
                graphs = [_Task(task.part, place) for place in range(len(found))]
                self._unfinished.update(graphs)
                # Ahead of further parts, so that few graphs wait to be finished.
                self._todo.extendleft(reversed(graphs))


def _ended_early() -> LayerdagError:
    return LayerdagError(
        "A process that draws samples ended early: it was killed, perhaps for lack of memory, "
        "or failed as said above. Ask for fewer with 'processes'. A script that asks for "
        "several must do so under 'if __name__ == \"__main__\":'."
    )


def _work(connection: Connection) -> None:
    # The process that reads the results is the one to interrupt; it ends this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with suppress(EOFError, ConnectionError):
        draw, finish, shared, threads = pickle.loads(connection.recv_bytes())
        torch.set_num_threads(threads)
        while True:
            part, place, *graphs = _loads(connection.recv_bytes(), shared)
            found: Any
            try:
                found = draw(part) if place is None else finish(part, place, *graphs)
            except LayerdagError as error:
                found = error
            connection.send_bytes(_dumps(found, shared))


_SHARED = "shared"


@final
class _Pickler(pickle.Pickler):
    def __init__(self, into: io.BytesIO, shared: object) -> None:
        super().__init__(into)
        self._shared = shared

    def persistent_id(self, given: Any) -> str | None:
        """Return the name of what is left out."""
        return _SHARED if given is self._shared and given is not None else None


@final
class _Unpickler(pickle.Unpickler):
    def __init__(self, sent: bytes, shared: object) -> None:
        super().__init__(io.BytesIO(sent))
        self._shared = shared

    def persistent_load(self, name: Any) -> object:
        """Return this process's own."""
        return self._shared


def _dumps(value: Any, shared: object) -> bytes:
    into = io.BytesIO()
    _Pickler(into, shared).dump(value)
    return into.getvalue()


def _loads(sent: bytes, shared: object) -> Any:
    return _Unpickler(sent, shared).load()
