"""What a verb sets before it imports anything large: threads that wait well, no garbage search."""

import atexit
import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_SPINS = "1000"


def without_blas_threads() -> None:
    """Keep numpy from starting a pool of threads when it is imported, which costs 0.05 s.

    To be called before the first import of numpy, by verbs that multiply no matrices. A number that
    the user has set in the environment stands, and a numpy that is already there is left alone.
    """
    if "numpy" not in sys.modules:
        for name in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
            os.environ.setdefault(name, "1")


def without_long_spinning() -> None:
    """Keep torch's waiting threads from spinning for long, before torch is first imported.

    GNU OpenMP spins for milliseconds at the end of every small operation. Beside one other busy
    process on two cores, that makes a training step of two threads take seventeen times as long as
    that of one; with a thousand turns, a third longer, and on an idle machine a seventh longer than
    with long spinning (docs/fast-model-figures.md, "Threads"). What the user has set stands.
    """
    if "torch" not in sys.modules and "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", _SPINS)


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
