"""Names that users type: the one that was meant, and old ones that are still accepted."""

import functools
import sys
import types
import typing
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, ParamSpec, TypeVar

from layerdag.errors import ConfigError

T = TypeVar("T")
P = ParamSpec("P")
R = TypeVar("R")


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """Return " Did you mean 'x'?", x the known name spelled most like ``name``; "" if none is.

    It begins with a space, so that it can follow the sentence that says what is wrong.
    """
    near = nearest(name, known)
    return "" if near is None else f" Did you mean '{near}'?"


def nearest(name: object, known: Iterable[str]) -> str | None:
    """Return the known name spelled most like ``name``, None if none is alike."""
    import difflib  # needed for complaints only

    return next(iter(difflib.get_close_matches(str(name), list(known), n=1, cutoff=0.5)), None)


class RenamedWarning(DeprecationWarning):
    """An old name was used; the text is one sentence with the new one."""


def tell_renamed(old: str, new: str) -> None:
    """Warn whoever called the package that ``old`` is now called ``new``."""
    tell_all_renamed([(old, new)])


def tell_all_renamed(renamed: Sequence[tuple[str, str]]) -> None:
    """Warn whoever called the package of old names, each with the new one, in one sentence."""
    if not renamed:
        return
    olds, news = (_listed([pair[side] for pair in renamed]) for side in (0, 1))
    are, still = ("is", "name still works") if len(renamed) == 1 else ("are", "names still work")
    warnings.warn(
        f"{olds} {are} now called {news}; the old {still} but will be removed.",
        RenamedWarning,
        stacklevel=_frames_of_the_package(),
    )


def tell_loose(cls: str, names: Iterable[str], config: str) -> None:
    """Warn whoever called the package that settings given one by one belong into a tree."""
    warnings.warn(
        f"{cls} takes its settings as one tree: write config={config}(...) for "
        f"{_listed(list(names))}; one by one still works but will be removed.",
        RenamedWarning,
        stacklevel=_frames_of_the_package(),
    )


def _listed(names: list[str]) -> str:
    """Return names in quotes, the last one after "and"."""
    quoted = [f"'{name}'" for name in names]
    return " and ".join([", ".join(quoted[:-1]), quoted[-1]] if quoted[1:] else quoted)


def _frames_of_the_package() -> int:
    """Return the stacklevel at which a warning of ``tell_renamed`` points at the user's line."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("layerdag."):
        frame, level = frame.f_back, level + 1
    return level


def with_new_names(
    given: Mapping[str, Any],
    names: Mapping[str, str],
    prefix: str = "",
    usual: Mapping[str, Any] = types.MappingProxyType({}),
) -> dict[str, Any]:
    """Return a mapping with the new names in place of the old ones.

    A new name with dots lies in a group: "encoder.block" is the entry "block" of the group
    "encoder". An old name wins over a new one that is None or has its usual value, which is how
    files of defaults leave it open, and over what a dataclass holds.

    Args:
        given: Values by name; a group is a mapping or a dataclass.
        names: New name by old one.
        prefix: Stands before both in the warning ("model.").
        usual: Usual values by new name, groups inside as mappings or dataclasses.

    Raises:
        ConfigError: If a value is given under both names.
    """
    found = {name: value for name, value in given.items() if name not in names}
    old_names = [name for name in given if name in names]
    tell_all_renamed([(f"{prefix}{old}", f"{prefix}{names[old]}") for old in old_names])
    for old in old_names:
        group, _, leaf = names[old].rpartition(".")
        inner = _entries(found.get(group, {})) if group else found
        default = _entries(_entries(usual).get(group)) if group else _entries(usual)
        is_tree = group and is_dataclass(found.get(group))
        if not is_tree and inner.get(leaf) not in (None, default.get(leaf)):
            raise ConfigError(
                f"'{prefix}{old}' is now called '{prefix}{names[old]}', and both are given; give "
                "the second alone."
            )
        inner[leaf] = given[old]
        if group:
            found[group] = inner
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


def _entries(group: object) -> dict[str, Any]:
    """Return the entries of a group of settings."""
    if is_dataclass(group):
        return {field.name: getattr(group, field.name) for field in fields(group)}
    return dict(group) if isinstance(group, Mapping) else {}


def takes_old_names(**names: str) -> Callable[[type[T]], type[T]]:
    """Let a dataclass be made with old keywords, and be asked for old attributes, too.

    The new name by the old one has dots if it lies in a group.
    """

    def decorate(cls: type[T]) -> type[T]:
        plain = cls.__init__

        @functools.wraps(plain)
        def construct(self: T, *args: Any, **named: Any) -> None:
            if names.keys() & named.keys():
                hints = typing.get_type_hints(cls)
                renewed = with_new_names(named, names, usual=defaults_of(cls))
                named = {name: _as_group(value, hints[name]) for name, value in renewed.items()}
            plain(self, *args, **named)

        type.__setattr__(cls, "__init__", construct)
        for old, new in names.items():
            if not hasattr(cls, old):
                setattr(cls, old, property(functools.partial(_renamed_value, old=old, new=new)))
        return cls

    return decorate


def _renamed_value(owner: object, old: str, new: str) -> Any:
    """Return the attribute ``new`` (with dots) of an object that was asked for the old one."""
    tell_renamed(old, new)
    return functools.reduce(getattr, new.split("."), owner)


def _as_group(value: Any, hint: Any) -> Any:
    """Return a mapping as the dataclass a field is annotated with; other values as they are."""
    is_group = isinstance(hint, type) and is_dataclass(hint) and isinstance(value, Mapping)
    return hint(**value) if is_group else value


def takes_old_keywords(**names: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let a function be called with old keywords, too; new name by old one."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def call(*args: P.args, **named: P.kwargs) -> R:
            return function(*args, **with_new_names(named, names))

        return call

    return decorate


def defaults_of(cls: type[Any]) -> dict[str, Any]:
    """Return the default of every field that has one."""
    found = {}
    for field in fields(cls):
        if field.default_factory is not MISSING:
            found[field.name] = field.default_factory()
        elif field.default is not MISSING:
            found[field.name] = field.default
    return found
