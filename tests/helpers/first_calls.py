"""Shapes of arguments and results are checked in some calls of each function in a test.

A check costs more than most of the functions that it checks, and a sampler calls them ten thousand
times with the same shapes. Checked are the first calls and some later ones: 1, 2, 4, 8 and so on.
To write a check takes milliseconds: it is written when it is first needed, and once for all
functions that the same lines make inside of another function.
"""

import dataclasses
import functools
import inspect
import itertools
import random
import threading
import typing
from collections.abc import Callable, Iterator
from types import CodeType

import jaxtyping
from beartype._check.code import codemain


class Calls:
    """How often the functions were called since the test began."""

    def __init__(self) -> None:
        self._test = 0
        self._inner: dict[CodeType, Callable] = {}

    def begin_test(self) -> None:
        """Count every function from zero again."""
        self._test += 1

    def limited(self, check: Callable[[], Callable], plain: Callable) -> Callable:
        """Return a function that is ``check()`` in calls 1, 2, 4, ... and ``plain`` in others."""
        test, count, checked = -1, 0, None

        @functools.wraps(plain)
        def call(*args: object, **kwargs: object) -> object:
            nonlocal test, count, checked
            if test != self._test:
                test, count = self._test, 0
            count += 1
            if count & (count - 1) or jaxtyping.config.jaxtyping_disable:
                return plain(*args, **kwargs)
            if checked is None:
                checked = check()
            return checked(*args, **kwargs)

        return call

    def limited_inside(self, check: Callable[[Callable], Callable], plain: Callable) -> Callable:
        """Return such a function for one that is made at every call of the one around it.

        All functions that come from the same lines are counted together.
        """
        now = self._inner.get(plain.__code__)
        if now is None:
            now = self._inner[plain.__code__] = self._shared(check, plain)

        @functools.wraps(plain)
        def call(*args: object, **kwargs: object) -> object:
            return now(plain, args, kwargs)

        return call

    def _shared(self, check: Callable[[Callable], Callable], first: Callable) -> Callable:
        here = threading.local()

        @functools.wraps(first)
        def checked_one(*args: object, **kwargs: object) -> object:
            return here.function(*args, **kwargs)

        def plain(function: Callable, args: tuple, kwargs: dict) -> object:
            return function(*args, **kwargs)

        def with_check() -> Callable:
            checked = check(checked_one)

            def call(function: Callable, args: tuple, kwargs: dict) -> object:
                here.function = function
                return checked(*args, **kwargs)

            return call

        return self.limited(with_check, plain)


CALLS = Calls()
_jaxtyped = jaxtyping.jaxtyped


def jaxtyped(checked: object, *, typechecker: object) -> object:
    """Take the place of ``jaxtyping.jaxtyped`` in the modules that its import hook rewrites."""
    if inspect.isclass(checked):
        return _jaxtyped_class(checked, typechecker)
    if not inspect.isfunction(checked):
        return _jaxtyped(checked, typechecker=typechecker)
    if _is_inside(checked):
        check = functools.partial(_jaxtyped, typechecker=typechecker)
        return CALLS.limited_inside(check, checked)
    return CALLS.limited(functools.partial(_checked, checked, typechecker), checked)


_LETTERS_OF_A_CALL = _jaxtyped("context")
"""Within it a letter of a shape has one size."""


def _checked(plain: Callable, typechecker: Callable) -> Callable:
    """Return a function that checks its types, and shapes where it names any, for a TypeError.

    To check a call takes jaxtyping's decorator, which looks at arguments twice to explain more, 60
    microseconds, and beartype alone two. Names in quotes, sizes that follow from arguments, and
    generators are left to the former.
    """
    parts = [*itertools.chain.from_iterable(map(_parts, plain.__annotations__.values()))]
    shapes = [x for x in parts if inspect.isclass(x) and issubclass(x, jaxtyping.AbstractArray)]
    left = any(isinstance(part, str | typing.ForwardRef) for part in parts)
    left |= any("{" in shape.dim_str for shape in shapes)
    if left or inspect.isgeneratorfunction(plain):
        return _jaxtyped(plain, typechecker=typechecker)
    from beartype import BeartypeConf, beartype

    checked = beartype(conf=BeartypeConf(violation_type=jaxtyping.TypeCheckError))(plain)
    if not shapes:
        return checked

    @functools.wraps(plain)
    def call(*args: object, **kwargs: object) -> object:
        with _LETTERS_OF_A_CALL:
            return checked(*args, **kwargs)

    return call


def _parts(annotation: object) -> Iterator[object]:
    """Yield an annotation and what stands in its brackets, but for the values of a literal."""
    yield annotation
    if typing.get_origin(annotation) is not typing.Literal:
        inner = annotation if isinstance(annotation, list) else typing.get_args(annotation)
        yield from itertools.chain.from_iterable(map(_parts, inner))


def _is_inside(function: Callable) -> bool:
    return function.__qualname__.rpartition(".")[0].endswith("<locals>")


def _jaxtyped_class(checked: type, typechecker: object) -> type:
    plain = checked.__init__
    written_by_hand = getattr(plain, "__globals__", None) is globals()
    if not dataclasses.is_dataclass(checked) or written_by_hand:
        return checked
    check = functools.partial(_checked, plain, typechecker)
    checked.__init__ = CALLS.limited(check, plain)
    return checked


def install() -> None:
    """Let jaxtyping's import hook decorate with :func:`jaxtyped`.

    A check of a sequence looks at a random item, and Hypothesis forbids to draw numbers of all in
    strategies: beartype gets numbers of its own.
    """
    assert codemain.getrandbits
    codemain.getrandbits = random.Random(0).getrandbits
    jaxtyping.jaxtyped = lambda checked=None, *, typechecker=None: (
        functools.partial(jaxtyped, typechecker=typechecker)
        if checked is None
        else jaxtyped(checked, typechecker=typechecker)
    )
