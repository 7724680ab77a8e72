"""Batches drawn by several processes, in order."""

import pickle
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import TypeVar

import torch

from layerdag.errors import LayerdagError

Part = TypeVar("Part")
Drawn = TypeVar("Drawn")


def drawn_in_order(
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
        yield from map(draw, parts)
        return
    workers: list[BaseProcess] = []
    drawing: dict[Connection, int] = {}
    finished: dict[int, Drawn | LayerdagError] = {}
    todo = iter(range(len(parts)))
    try:
        for index in (next(todo) for _ in range(processes)):
            worker, connection = _started(draw)
            workers.append(worker)
            _send(connection, parts[index])
            drawing[connection] = index
        for index in range(len(parts)):
            while index not in finished:
                ready = wait([*drawing])
                for connection in [one for one in drawing if one in ready]:
                    finished[drawing.pop(connection)] = _received(connection)
                    following = next(todo, None)
                    if following is not None:
                        _send(connection, parts[following])
                        drawing[connection] = following
            found = finished.pop(index)
            if isinstance(found, LayerdagError):
                raise found
            yield found
    finally:
        for worker in workers:
            worker.terminate()


def _started(draw: Callable[[Part], Drawn]) -> tuple[BaseProcess, Connection]:
    """Start a process that draws the parts it is sent; return it with the way to it."""
    # Not forked: threads of the libraries would not survive that.
    context = get_context("spawn")
    here, there = context.Pipe()
    sent = pickle.dumps((draw, torch.get_num_threads()))
    worker = context.Process(target=_draw_parts, args=(there, sent), daemon=True)
    worker.start()
    there.close()
    return worker, here


def _send(connection: Connection, what: object) -> None:
    """Send something as bytes; a process that has ended says so where its answer is received.

    Tensors would be handed over by file descriptors, more than a process may have.
    """
    with suppress(ConnectionError):
        connection.send_bytes(pickle.dumps(what))


def _received(connection: Connection) -> Drawn | LayerdagError:
    """Return what a process has drawn, or why there is nothing."""
    try:
        found: Drawn | LayerdagError = pickle.loads(connection.recv_bytes())
    except (EOFError, ConnectionResetError):
        return LayerdagError(
            "A process that draws samples ended early: it was killed, perhaps for lack of memory, "
            "or failed as said above. Ask for fewer with 'processes'. A script that asks for "
            "several must do so under 'if __name__ == \"__main__\":'."
        )
    return found


def _draw_parts(connection: Connection, sent: bytes) -> None:
    """Draw, in a process of its own, each part that comes, until nobody is there any more."""
    # The process that reads the results is the one to interrupt; it ends this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    draw, threads = pickle.loads(sent)
    torch.set_num_threads(threads)
    with suppress(EOFError, ConnectionResetError):
        while True:
            part = pickle.loads(connection.recv_bytes())
            try:
                _send(connection, draw(part))
            except LayerdagError as error:
                _send(connection, error)
