"""What a verb sets before it imports anything large: threads, how they wait, no garbage search."""

import atexit
import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

# Turns of a waiting thread before it sleeps (docs/dev/fast-model-figures.md, "Threads"): training
# is as fast as with OpenMP's own 300,000 on a quiet machine, and not ruined by other work.
_TURNS = "10000"
_WAITING = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")


def with_brief_spinning() -> None:
    """Let the threads of GNU OpenMP spin for some microseconds when they wait, then sleep.

    To be called before the first import of torch, which reads the setting: a process that has torch
    already is left to `layerdag._runtime.wait_briefly`. What the user has set in the environment
    stands.
    """
    if "torch" not in sys.modules and not any(name in os.environ for name in _WAITING):
        os.environ["GOMP_SPINCOUNT"] = _TURNS


def without_blas_threads() -> None:
    """Keep numpy from starting a pool of threads when it is imported, which costs 0.05 s.

    To be called before the first import of numpy, by verbs that multiply no matrices. A number that
    the user has set in the environment stands, and a numpy that is already there is left alone.
    """
    if "numpy" not in sys.modules:
        for name in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
            os.environ.setdefault(name, "1")


@contextmanager
def without_garbage_search() -> Iterator[None]:
    """Switch the search for unreachable cycles off inside, and when the process ends.

    For a verb that makes none and ends soon: the modules and arrays that it loads are searched
    several times otherwise, for a fifth of the time of a short run. At the end the operating system
    takes the memory back anyway.
    """
    atexit.register(gc.freeze)
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
