"""Shapes of arguments and results are checked in the first calls of each function in a test.

A check costs more than most of the functions that it checks, and a sampler calls them ten thousand
times with the same shapes.
"""

import dataclasses
import functools
import inspect
from collections.abc import Callable

import jaxtyping

CHECKED = 20
"""So many calls of each function are checked in each test."""


class Calls:
    """How often the functions were called since the test began."""

    def __init__(self) -> None:
        self._test = 0

    def begin_test(self) -> None:
        """Count every function from zero again."""
        self._test += 1

    def limited(self, checked: Callable, plain: Callable) -> Callable:
        """Return a function that is ``checked`` in its first calls and ``plain`` later."""
        test, count = -1, 0

        @functools.wraps(checked)
        def call(*args: object, **kwargs: object) -> object:
            nonlocal test, count
            if test != self._test:
                test, count = self._test, 0
            count += 1
            return (checked if count <= CHECKED else plain)(*args, **kwargs)

        return call


CALLS = Calls()
_jaxtyped = jaxtyping.jaxtyped


def jaxtyped(checked: object, *, typechecker: object) -> object:
    """Take the place of ``jaxtyping.jaxtyped`` in the modules that its import hook rewrites."""
    if inspect.isclass(checked):
        return _jaxtyped_class(checked, typechecker)
    if not inspect.isfunction(checked):
        return _jaxtyped(checked, typechecker=typechecker)
    return CALLS.limited(_jaxtyped(checked, typechecker=typechecker), checked)


def _jaxtyped_class(checked: type, typechecker: object) -> type:
    plain = checked.__init__
    written_by_hand = getattr(plain, "__globals__", None) is globals()
    if not dataclasses.is_dataclass(checked) or written_by_hand:
        return checked
    _jaxtyped(checked, typechecker=typechecker)
    checked.__init__ = CALLS.limited(checked.__init__, plain)
    return checked


def install() -> None:
    """Let jaxtyping's import hook decorate with :func:`jaxtyped`."""
    jaxtyping.jaxtyped = lambda checked=None, *, typechecker=None: (
        functools.partial(jaxtyped, typechecker=typechecker)
        if checked is None
        else jaxtyped(checked, typechecker=typechecker)
    )
