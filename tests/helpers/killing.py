"""A process that is killed at each of its steps that change files, played in this one."""

import builtins
import io
import os
from collections.abc import Callable
from typing import Any

import pytest

from layerdag.runtime import files

_CALLS = ("replace", "rename", "unlink", "rmdir", "mkdir")


class Killed(BaseException):
    """The process ends here."""


def killed_at(step: int, act: Callable[[], object]) -> bool:
    """Return whether ``act`` was killed at a step; nothing that it does later changes a file."""
    left = step

    def dying(call: Callable[..., Any], *, writes: Callable[..., bool]) -> Callable[..., Any]:
        def done(*args: Any, **more: Any) -> Any:
            nonlocal left
            if not writes(*args, **more):
                return call(*args, **more)
            left -= 1
            if left == -1:
                raise Killed
            return call(*args, **more) if left >= 0 else None

        return done

    def always(*args: Any, **more: Any) -> bool:
        return True

    def opens_for_writing(file: Any, mode: str = "r", *args: Any, **more: Any) -> bool:
        return left >= 0 and mode[:1] in "wax"

    with pytest.MonkeyPatch.context() as patch:
        for name in _CALLS:
            patch.setattr(os, name, dying(getattr(os, name), writes=always))
        patch.setattr(files, "swap_names", dying(files.swap_names, writes=always))
        for module in (io, builtins):
            patch.setattr(module, "open", dying(open, writes=opens_for_writing))
        try:
            act()
        except Killed:
            return True
    return False


def states_when_killed(
    prepare: Callable[[], object], act: Callable[[], object], look: Callable[[], str]
) -> list[str]:
    """Return what stands there after a kill at each step, and at last without one.

    Args:
        prepare: Writes the older result.
        act: Replaces it.
        look: Names what a reader finds.
    """
    states: list[str] = []
    dies = True
    while dies:
        prepare()
        dies = killed_at(len(states), act)
        states.append(look())
    return states
