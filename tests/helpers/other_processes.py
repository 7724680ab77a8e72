"""What tests let other processes do: functions of a module that these can import."""

import os
import signal
import time

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


def slow_at_zero(part: int) -> tuple[int, int]:
    """Return the part and the process, after two seconds for 0."""
    time.sleep(2.0 * (part == 0))
    return part, os.getpid()
