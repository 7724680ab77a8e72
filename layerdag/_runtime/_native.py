"""Access to the compiled array kernels (sources in ``native/``)."""

import ctypes
import functools
import importlib.util

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
