"""A copy of this process, which has imported PyTorch: a new process takes seconds for that."""

import gc
import os
import sys
import traceback
import warnings
from collections.abc import Callable

IMPORT_HOOK = "jaxtyping._import_hook"
"""Makes checks of shapes, which know the classes of the first import."""


def exit_code_without_package(act: Callable[[], object]) -> int:
    """Return 0 if ``act`` ends in a copy of this process that has yet to import the package."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads, which wait for pytest
        child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    try:
        gc.disable()  # objects stay where they are, shared with this process
        sys.meta_path[:] = [x for x in sys.meta_path if type(x).__module__ != IMPORT_HOOK]
        for name in [name for name in sys.modules if name.partition(".")[0] == "layerdag"]:
            del sys.modules[name]
        act()
        os._exit(0)
    except BaseException:
        traceback.print_exc()
    os._exit(1)
