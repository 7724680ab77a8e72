"""Verbs without linear algebra start no threads for it."""

import os
import sys


def without_blas_threads() -> None:
    """Keep numpy from starting a pool of threads when it is imported, which costs 0.05 s.

    To be called before the first import of numpy, by verbs that multiply no matrices. A number that
    the user has set in the environment stands, and a numpy that is already there is left alone.
    """
    if "numpy" not in sys.modules:
        for name in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
            os.environ.setdefault(name, "1")
