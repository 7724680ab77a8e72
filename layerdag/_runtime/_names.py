"""Names that users type: the nearest known one, and old ones that are still accepted."""

import functools
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from layerdag.errors import ConfigError

T = TypeVar("T")
V = TypeVar("V")


def nearest(name: object, known: Iterable[str]) -> str:
    """Return the entry of ``known`` (at least one) that is spelled most like ``name``."""
    import difflib  # needed for complaints only

    return difflib.get_close_matches(str(name), list(known), n=1, cutoff=0.0)[0]


class RenamedWarning(DeprecationWarning):
    """An old name was used; the text is one sentence with the new one."""


def tell_renamed(old: str, new: str) -> None:
    """Warn whoever called the package that ``old`` is now called ``new``."""
    warnings.warn(
        f"'{old}' is now called '{new}'; the old name still works but will be removed.",
        RenamedWarning,
        stacklevel=_frames_of_the_package(),
    )


def _frames_of_the_package() -> int:
    """Return the stacklevel at which a warning of ``tell_renamed`` points at the user's line."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("layerdag."):
        frame, level = frame.f_back, level + 1
    return level


def with_new_names(
    given: Mapping[str, V], names: Mapping[str, str], prefix: str = ""
) -> dict[str, V]:
    """Return a mapping with the new names in place of the old ones.

    An old name wins over a new one that is None, which is how defaults in files leave it open.

    Args:
        given: Values by name.
        names: New name by old one.
        prefix: Stands before both in the warning ("model.").

    Raises:
        ConfigError: If a value is given under both names.
    """
    found = {name: value for name, value in given.items() if name not in names}
    for old in given.keys() & names.keys():
        new = names[old]
        tell_renamed(f"{prefix}{old}", f"{prefix}{new}")
        if found.get(new) is not None:
            raise ConfigError(
                f"'{prefix}{old}' is now called '{prefix}{new}', and both are given; give the "
                "second alone."
            )
        found[new] = given[old]
    return found


def old_property(old: str, new: str) -> Any:
    """Return a property that reads attribute ``new`` and warns that ``old`` is its old name.

    Args:
        old: The old name as users know it ("Attack.caught").
        new: Name of the attribute now.
    """

    def read(self: object) -> Any:
        tell_renamed(old, new)
        return getattr(self, new)

    return property(read, doc=f"Old name of ``{new}``.")


def with_old_names(
    getter: Callable[[str], Any], package: str, **names: str
) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a package that still resolves old names of its classes.

    Args:
        getter: Its ``__getattr__`` so far.
        package: Its name.
        **names: New name by old one.
    """

    def get(name: str) -> Any:
        if name not in names:
            return getter(name)
        tell_renamed(f"{package}.{name}", names[name])
        return getter(names[name])

    return get


def takes_old_names(**names: str) -> Callable[[type[T]], type[T]]:
    """Let the constructor of a class be called with old keywords, too.

    Args:
        **names: New name by old one.
    """

    def decorate(cls: type[T]) -> type[T]:
        plain = cls.__init__

        @functools.wraps(plain)
        def construct(self: T, *args: Any, **named: Any) -> None:
            plain(self, *args, **with_new_names(named, names))

        type.__setattr__(cls, "__init__", construct)
        return cls

    return decorate
