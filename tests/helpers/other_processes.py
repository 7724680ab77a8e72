"""What tests let other processes do: functions of a module that these can import."""

import os
import signal
import time
from pathlib import Path

import torch

from layerdag.errors import UsageError


def whose(part: int) -> int:
    """Return the process."""
    return os.getpid()


def killed_at_one(part: int) -> int:
    """Return the part; die of 1."""
    if part == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return part


def first_waits_for_last(part: tuple[Path, int, int]) -> tuple[int, bool, int, int]:
    """Return the part, whether the last one has been drawn, the process and its threads.

    Args:
        part: A file that the last part writes, the part, and the number of parts; the one after
            the last is refused.
    """
    mark, number, count = part
    if number == count:
        raise UsageError("a seventh part is refused.")
    if number == count - 1:
        mark.touch()
    end = time.monotonic() + 180
    while not number and not mark.exists() and time.monotonic() < end:
        time.sleep(0.02)
    return number, mark.exists(), os.getpid(), torch.get_num_threads()


def numbers_below(part: int) -> list[int]:
    """Return the whole numbers below a part."""
    return list(range(part))


def with_what_is_shared(shared: object, part: int) -> list[tuple[object, int]]:
    """Return what is shared, beside the part."""
    return [(shared, part)]


def slow_at_first(part: int, at: int, number: int) -> tuple[int, int, int, int]:
    """Return what is known of a number of a part, and the process; the first takes a second."""
    time.sleep(0 if at else 1)
    return part, at, number, os.getpid()


def refused_at_three(part: int, at: int, number: int) -> int:
    """Return the number; refuse 3."""
    if number == 3:
        raise UsageError("three is refused.")
    return number


def numbers_or_death(part: int) -> list[int]:
    """Return the whole numbers below a part after a second; die at once of 0."""
    if not part:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(1)
    return numbers_below(part)


def unchanged(part: int, at: int, number: int) -> int:
    """Return the number."""
    return number
