"""What a command says when it cannot go on: one sentence and an exit code, never a bare traceback.

``LAYERDAG_TRACEBACK=1`` in the environment shows the traceback above the sentence.
"""

import os
import sys
import traceback

from layerdag.errors import LayerdagError, UsageError

INVALID, MISUSED, FAULTY = 1, 2, 70
"""Exit codes: the data or the machine will not do, the command is wrong, layerdag is wrong."""

TRACEBACK = "LAYERDAG_TRACEBACK"
# The machine, or data that no check foresaw; anything else is a fault of the program.
_FORESEEN = (OSError, MemoryError, OverflowError, RuntimeError)
_LONGEST = 2000


def complain(error: Exception) -> int:
    """Print what is wrong as one line on standard error and return the exit code."""
    known = isinstance(error, (LayerdagError, *_FORESEEN))
    if not known or os.environ.get(TRACEBACK, "0") not in ("", "0"):
        traceback.print_exception(error)
    text = " ".join(_sentence(error).split())
    if len(text) > _LONGEST:
        text = text[:_LONGEST] + " ..."
    print(f"layerdag: error: {text}", file=sys.stderr)
    if isinstance(error, UsageError):
        return MISUSED
    return INVALID if known else FAULTY


def _sentence(error: Exception) -> str:
    """Return what is wrong and what to do about it."""
    if isinstance(error, LayerdagError):
        return str(error)
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror or error}. Check the path, its permissions and free space."
    if isinstance(error, MemoryError) or "out of memory" in str(error).lower():
        return (
            f"There is not enough memory ({_reason(error)}); give a smaller input, fewer or "
            "smaller graphs at a time, or more memory."
        )
    if isinstance(error, OverflowError):
        return f"A number is too large to be worked with ({_reason(error)}); check the input."
    if isinstance(error, RecursionError):
        return "Values are nested too deeply; check the input."
    if isinstance(error, RuntimeError):
        return (
            f"{_reason(error)}. If the input is sound, this is a fault of layerdag: run it again "
            f"with {TRACEBACK}=1 and report the lines and the command."
        )
    return (
        f"{_reason(error)}. This is a fault of layerdag, not of your input: please report the "
        "lines above and the command."
    )


def _reason(error: Exception) -> str:
    """Return the kind of an error with the first line of its text."""
    first = (str(error).strip().splitlines() or [""])[0].rstrip(".")
    return f"{type(error).__name__}: {first}" if first else type(error).__name__
