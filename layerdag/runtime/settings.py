"""Settings from outside: YAML of bounded size, and dataclasses from nested mappings.

A few lines of YAML can stand for more than memory holds, since anchors multiply. One function fills
dataclasses from YAML, from a checkpoint's JSON and from keywords, so that they all refuse unknown
names and values of another type.
"""

import inspect
import re
import types
import typing
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar

import yaml

from layerdag.errors import ConfigError, UsageError


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


def attribute_docs(kind: type) -> dict[str, str]:
    """Return the description of each attribute in the docstring of a dataclass, on one line."""
    text = inspect.getdoc(kind) or ""
    part = re.search(r"^Attributes:\n((?:    .*\n?|\n)+)", text, re.MULTILINE)
    found = re.findall(r"^    (\w+): (.*(?:\n     +.*)*)", part[1] if part else "", re.MULTILINE)
    return {name: " ".join(told.split()) for name, told in found}


T = TypeVar("T")

_WORDS = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    Path: "a path",
    type(None): "null",
}

MAX_CONFIG_BYTES = 16 << 20
"""No configuration file is read beyond this size."""

MAX_YAML_CHARACTERS = 500_000
"""No YAML document is read beyond this length: its parser takes ten seconds for a million."""

MAX_VALUES = 100_000
"""No configuration file holds more values; a reference to an anchor counts with all it holds."""


def load_yaml(text: str) -> Any:
    """Return the content of a YAML document; only plain values are made.

    Raises:
        yaml.YAMLError: If it is not YAML, is too long, stands for more than ``MAX_VALUES`` values,
            contains itself, has a key twice, nests too deeply, or has a value that does not fit
            its type.
    """
    return _loaded(text, yaml.SafeLoader)


def load_yaml_texts(text: str) -> Any:
    """Return the content of a YAML document with every scalar as text. Raises as ``load_yaml``."""
    return _loaded(text, yaml.BaseLoader)  # makes nothing but texts, lists and mappings


def _loaded(text: str, loader: type[yaml.SafeLoader] | type[yaml.BaseLoader]) -> Any:
    if len(text) > MAX_YAML_CHARACTERS:
        raise yaml.YAMLError(
            f"it has {len(text):,} characters; at most {MAX_YAML_CHARACTERS:,} are read"
        )
    try:
        root: yaml.Node | None = yaml.compose(text, Loader=loader)
        if root is not None:
            if _values(root, {}) > MAX_VALUES:
                raise yaml.YAMLError(
                    f"it stands for more than {MAX_VALUES:,} values; write no anchors that repeat "
                    "each other"
                )
            _refuse_keys_twice(root)
        return yaml.load(text, Loader=loader)
    except RecursionError:
        raise yaml.YAMLError("values are nested too deeply") from None
    except (ValueError, AttributeError) as error:
        raise yaml.YAMLError(f"a value is not of the type that it is written as: {error}") from None


def _children(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [end for pair in node.value for end in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


def _refuse_keys_twice(root: yaml.Node) -> None:
    todo, seen = [root], {id(root)}
    while todo:
        node = todo.pop()
        if isinstance(node, yaml.MappingNode):
            keys = [str(key.value) for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
            twice = next((key for key, count in Counter(keys).items() if count > 1), None)
            if twice is not None:
                line = node.start_mark.line + 1
                raise yaml.YAMLError(f"key '{twice}' stands twice in the mapping of line {line}")
        todo += [child for child in _children(node) if id(child) not in seen]
        seen.update(map(id, _children(node)))


def _values(node: yaml.Node, known: dict[int, int]) -> int:
    """Return the number of values that a node stands for, too many if it contains itself."""
    if id(node) not in known:
        known[id(node)] = MAX_VALUES + 1
        known[id(node)] = 1 + sum(_values(child, known) for child in _children(node))
    return known[id(node)]


def flattened(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return every setting of nested groups by its name with dots."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        is_group = isinstance(value, Mapping)
        found |= flattened(value, f"{prefix}{name}.") if is_group else {f"{prefix}{name}": value}
    return found


def grouped(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings whose names have dots as nested groups: what ``flattened`` was given."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        *groups, leaf = name.split(".")
        inner = found
        for group in groups:
            inner = inner.setdefault(group, {})
        inner[leaf] = value
    return found


def build_settings(cls: type[T], values: object, where: str = "") -> T:
    """Return the dataclass ``cls`` filled from a nested mapping; what is left out has its default.

    Args:
        cls: Its fields are numbers, strings, booleans, paths, ``Literal`` choices, tuples or other
            dataclasses, or one of these or None.
        values: Entries by name; a group is a mapping. What is a ``cls`` already stays as it is.
        where: Place of the group, for messages ("training").

    Raises:
        ConfigError: If a name is unknown or missing, a value has another type, or the dataclass
            refuses it.
    """
    if isinstance(values, cls):
        return values
    prefix = f"{where}." if where else ""
    if not isinstance(values, Mapping):
        raise ConfigError(f"'{where}' must be a group of settings, found {values!r:.40}.")
    hints = typing.get_type_hints(cls)
    known = [field.name for field in fields(typing.cast(Any, cls))]
    for name in values:
        if name not in known:
            raise ConfigError(_unknown(str(name), cls, prefix))
    cast = {name: _cast(value, hints[name], f"{prefix}{name}") for name, value in values.items()}
    missing = [
        field.name
        for field in fields(typing.cast(Any, cls))
        if field.init and field.name not in cast
        if field.default is MISSING and field.default_factory is MISSING
    ]
    if missing:
        raise ConfigError(f"'{prefix}{missing[0]}' is missing; give it.")
    return cls(**cast)


def _unknown(name: str, cls: type[Any], prefix: str) -> str:
    known = list(_leaves(cls))
    by_leaf = {path.rpartition(".")[2]: path for path in reversed(known)} | {k: k for k in known}
    near = nearest(name, by_leaf)
    hint = f"Did you mean '{prefix}{by_leaf[near]}'?" if near else f"Known: {', '.join(known)}."
    return f"Unknown setting '{prefix}{name}'. {hint}"


def _leaves(cls: type[Any], prefix: str = "") -> Iterator[str]:
    hints = typing.get_type_hints(cls)
    for field in fields(cls):
        if is_dataclass(hints[field.name]):
            yield from _leaves(hints[field.name], f"{prefix}{field.name}.")
        else:
            yield f"{prefix}{field.name}"


def _cast(value: Any, hint: Any, where: str) -> Any:
    """Return ``value`` as the annotated type; refuse what is not of it."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        if value is None and type(None) in arguments:
            return None
        others = [choice for choice in arguments if choice is not type(None)]
        if len(others) == 1 and others[0] not in _WORDS:
            return _cast(value, others[0], where)
        for choice in others:
            try:
                return _cast(value, choice, where)
            except ConfigError:
                continue
        raise ConfigError(f"'{where}' must be {_in_words(hint)}, found {value!r:.40}.")
    if origin is tuple and isinstance(value, list | tuple):
        return tuple(_cast(item, arguments[0], where) for item in value)
    if origin is typing.Literal and value in arguments:
        return value
    if is_dataclass(hint):
        return build_settings(typing.cast(type[Any], hint), value, where)
    if hint is Path and isinstance(value, str | int) and not isinstance(value, bool):
        return Path(str(value))  # YAML reads a folder called 2026 as a number
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    plain = origin or hint
    fits = isinstance(plain, type) and isinstance(value, plain)
    if not fits or (isinstance(value, bool) and plain in (int, float)):
        raise ConfigError(f"'{where}' must be {_in_words(hint)}, found {value!r:.40}.")
    return value


def _in_words(hint: Any) -> str:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return " or ".join(_in_words(choice) for choice in arguments)
    if origin is typing.Literal:
        return " or ".join(map(repr, arguments))
    if origin is tuple:
        return f"a list, each entry {_in_words(arguments[0])}"
    return _WORDS.get(hint, f"of type {getattr(hint, '__name__', hint)}")


_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|min|h)?")
_SECONDS = {None: 1, "s": 1, "m": 60, "min": 60, "h": 3600}


def seconds_of(text: str, flag: str) -> float:
    """Return a length of time in seconds.

    Args:
        text: A number with or without a unit: 900, 15m, 1h.
        flag: That it was given for, for the message.

    Raises:
        UsageError: If it is none.
    """
    match = _DURATION.fullmatch(text.strip().lower())
    if match is None:
        raise UsageError(f"{flag} is '{text}'; write a time such as 900, 15m or 1h.")
    return float(match[1]) * _SECONDS[match[2]]


def shorten(text: str, width: int) -> str:
    """Return ``text``, or so many of its first characters with "..." that it has ``width``."""
    return text if len(text) <= width else f"{text[: max(width - 3, 0)]}..."


def guess_message(found: str, right: str) -> str:
    """Return the sentence for a name that other libraries have and layerdag does not."""
    return f"There is no {found} in layerdag; use {right}."
