"""Work in a second process while this one goes on with something else."""

import pickle
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import TypeVar

import torch

Found = TypeVar("Found")


def begin_beside(work: Callable[[], Found]) -> Callable[[], Found]:
    """Begin work in a process of its own, and return what waits for its result.

    The process has as many threads as this one, so that the result is the same. If it ends without
    a result, whether killed or by an error, the work is done here, where the error is raised.

    Args:
        work: A function of a module, or a ``functools.partial`` of one, that pickles.
    """
    # Not forked: threads of the libraries would not survive that.
    context = get_context("spawn")
    here, there = context.Pipe(duplex=False)
    # As bytes: tensors would be handed over by file descriptors, more than a process may have.
    sent = pickle.dumps((work, torch.get_num_threads()))
    context.Process(target=_answer, args=(there, sent), daemon=True).start()
    there.close()

    def found() -> Found:
        try:
            result: Found = pickle.loads(here.recv_bytes())
        except EOFError:
            return work()
        return result

    return found


def _answer(there: Connection, sent: bytes) -> None:
    """Do in this process what another one sent, and send the result back."""
    work, threads = pickle.loads(sent)
    torch.set_num_threads(threads)
    there.send_bytes(pickle.dumps(work()))
