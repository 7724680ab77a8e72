"""The compiled C library, and how OpenMP threads wait."""

import ctypes
import functools
import importlib.util
import os
import threading
from functools import cache

from threadpoolctl import threadpool_info

from layerdag.errors import LayerdagError


@functools.cache
def library() -> ctypes.CDLL:
    """Return the compiled kernels as a ctypes library.

    Raises:
        LayerdagError: If the package was copied instead of installed, so that nothing was compiled.
    """
    spec = importlib.util.find_spec("layerdag._native")
    if spec is None or spec.origin is None:
        raise LayerdagError(
            "The compiled kernels of layerdag are missing; install the package with "
            "'pip install .' (a C compiler is needed)."
        )
    return ctypes.CDLL(spec.origin)


_KEPT_PRODUCTS = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "DNNL_PRIMITIVE_CACHE_CAPACITY")


def keep_compiled_products() -> None:
    """Let oneDNN keep what it compiles for 8,192 shapes of products, not 1,024, in this process.

    A training run in bfloat16 meets some thousands on a processor; compiling one takes about a
    millisecond. oneDNN reads the number at its first product; what the user has set stands.
    """
    if not any(name in os.environ for name in _KEPT_PRODUCTS):
        os.environ[_KEPT_PRODUCTS[0]] = "8192"


_WISHES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
_THREAD = threading.local()


def set_openmp_passive() -> None:
    """Make the threads of OpenMP sleep soon when they wait, in this process, from now on.

    Torch's operations on small graphs are short, and OpenMP lets threads spin for milliseconds at
    the end of each. Beside other work on the same processors, a training step of two threads takes
    many times as long as that of one (docs/dev/decisions.md, "Threads"). Training,
    sampling and fitting therefore call this first. Neither the number of threads nor a result
    changes. What the user has set in the environment stands: OMP_WAIT_POLICY, GOMP_SPINCOUNT or
    KMP_BLOCKTIME.

    OpenMP reads these variables when it is loaded, with torch, so that it is too late to set them
    here. LLVM's and Intel's libraries have a function for it. GNU's has none, but spins a hundred
    turns instead of 300,000 while it manages more threads than there are processors
    (``gomp_throttled_spin_count_var``): a team of threads that sleep for good makes it so.
    """
    if any(name in os.environ for name in _WISHES) or getattr(_THREAD, "done", False):
        return
    _THREAD.done = True
    for library in threadpool_info():
        if library["user_api"] != "openmp":
            continue
        if library["prefix"] == "libgomp":
            _crowd(library["filepath"])
        else:
            _sleep_at_once(library["filepath"])


@cache
def _crowd(path: str) -> None:
    library = ctypes.CDLL(path)
    parallel = library.GOMP_parallel
    parallel.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint)
    team = library.omp_get_num_procs() + 1
    # Each thread of the team calls free(NULL), which does nothing.
    nothing = ctypes.cast(ctypes.CDLL(None).free, ctypes.c_void_p)
    ready = threading.Event()

    def lead() -> None:
        try:
            parallel(nothing, None, team, 0)
        finally:
            ready.set()
        # The team is given up with the thread that leads it.
        threading.Event().wait()

    threading.Thread(target=lead, name="layerdag-waiting", daemon=True).start()
    ready.wait()


def _sleep_at_once(path: str) -> None:
    """Let threads that the calling one waits for sleep at once; LLVM's and Intel's OpenMP."""
    library = ctypes.CDLL(path)
    if hasattr(library, "kmp_set_blocktime"):
        library.kmp_set_blocktime(0)
