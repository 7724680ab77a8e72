"""What tests let other processes do: functions of a module that these can import."""

import os
import signal
import time
from pathlib import Path

import torch

from layerdag.errors import UsageError


def whose(part: int) -> tuple[int, int, int]:
    """Return the part, the process, and its number of threads."""
    return part, os.getpid(), torch.get_num_threads()


def refused_at_two(part: int) -> int:
    """Return the part; refuse 2."""
    if part == 2:
        raise UsageError("two is refused.")
    return part


def killed_at_one(part: int) -> int:
    """Return the part; die of 1."""
    if part == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return part


def first_waits_for_last(part: tuple[Path, bool, bool]) -> bool:
    """Return whether the last part has been drawn; the first waits for that.

    Args:
        part: A file that the last part writes, whether this is the first, and the last.
    """
    mark, first, last = part
    if last:
        mark.touch()
    end = time.monotonic() + 60
    while first and not mark.exists() and time.monotonic() < end:
        time.sleep(0.02)
    return mark.exists()
