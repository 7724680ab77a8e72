"""The shape that JSON from a file must have, checked before it is used; errors name the place.

A shape is written as the JSON is: a type for a value (``float`` takes whole numbers, too,
``object`` everything, and ``None`` is JSON's null), ``[shape]`` for a list, ``{"name": shape}``
for an object, ``{str: shape}`` for one whose members have names of their own, and a tuple for a
choice. A name that ends in "?" may be left out; members that a shape does not name are not looked
at.
"""

import contextlib
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

_SHOWN = 60
T = TypeVar("T")
_WORDS: Mapping[object, str] = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    dict: "an object",
    list: "a list",
    None: "null",
}


_IN_PYTHONS_WORDS = re.compile(
    r"$|could not convert |(not enough|too many) values |invalid literal |dictionary update "
)


def require_shape(value: object, shape: Any, where: str = "") -> None:
    """Raise ValueError, whose message names the place, if a value of JSON has another shape."""
    if isinstance(shape, tuple):
        outer = [type(one) if isinstance(one, list | dict) else one for one in shape]
        fitting = [one for one, kind in zip(shape, outer, strict=True) if _is(value, kind)]
        if not fitting:
            words = " or ".join(_WORDS[kind] for kind in outer)
            raise ValueError(f"{_named(where)} must be {words}, found {found_value(value)}")
        require_shape(value, fitting[0], where)
    elif isinstance(shape, list):
        _require_kind(value, list, where)
        assert isinstance(value, list)
        for at, entry in enumerate(value):
            require_shape(entry, shape[0], f"{where}[{at}]")
    elif isinstance(shape, dict):
        _require_kind(value, dict, where)
        assert isinstance(value, dict)
        prefix = f"{where}." if where else ""
        for name, inner in shape.items():
            if name is str:
                for own, entry in value.items():
                    require_shape(entry, inner, f"{prefix}{own}")
            elif (plain := name.removesuffix("?")) in value:
                require_shape(value[plain], inner, f"{prefix}{plain}")
            elif name == plain:
                raise ValueError(f"{_named(prefix + name)} is missing")
    else:
        _require_kind(value, shape, where)


def _require_kind(value: object, kind: Any, where: str) -> None:
    if not _is(value, kind):
        raise ValueError(f"{_named(where)} must be {_WORDS[kind]}, found {found_value(value)}")


def _is(value: object, kind: Any) -> bool:
    """Return whether a value is of a type; true and false are no numbers."""
    if kind is None:
        return value is None
    if kind is object:
        return True
    if kind is float:
        kind = int | float
    return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))


def _named(where: str) -> str:
    return f"'{where:.80}'" if where else "it"


def found_value(value: object) -> str:
    """Return a value as JSON writes it, a text in single quotes, shortened, for messages."""
    try:
        text = f"'{value}'" if isinstance(value, str) else json.dumps(value, default=repr)
    except RecursionError:
        return "deeply nested values"
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


_MISSING = re.compile(r"Object missing required field `(\w+)`")
_EXPECTED = re.compile(r"Expected `(.+)`, got `.+`")
_MSGSPEC_WORDS = {
    **{"str": _WORDS[str], "int": _WORDS[int], "float": _WORDS[float], "bool": _WORDS[bool]},
    **{"object": _WORDS[dict], "array": _WORDS[list], "null": _WORDS[None]},
}


def from_json(cls: type[T], value: object, where: str = "") -> T:
    """Return a dataclass filled from a value of JSON; what is left out has its default.

    Args:
        cls: Its annotations say what its entries must be.
        value: The object; members that are no fields are not looked at (``require_known``).
        where: Its place, for messages ("costs").

    Raises:
        ValueError: If an entry is missing or of another type, or the dataclass refuses it; names
            its place.
    """
    try:
        return msgspec.convert(value, cls)
    except msgspec.ValidationError as error:
        text, _, path = str(error).partition(" - at `$")
        path = path.rstrip("`")
        place = f"{where}{path}".lstrip(".")
        missing, expected = _MISSING.match(text), _EXPECTED.match(text)
        if missing:
            raise ValueError(f"{_named(f'{place}.{missing[1]}'.lstrip('.'))} is missing") from None
        if not expected:
            raise ValueError(f"{_named(place)}: {text}" if place else text) from None
        words = " or ".join(_MSGSPEC_WORDS.get(w, w) for w in expected[1].split(" | "))
        shown = "" if "..." in path else f", found {found_value(_at(value, path))}"
        raise ValueError(f"{_named(place)} must be {words}{shown}") from None


def _at(value: Any, path: str) -> object:
    """Return the value at a place such as ".b[0].y"."""
    for name, index in re.findall(r"\.([^.\[]+)|\[(\d+)\]", path):
        value = value[name] if name else value[int(index)]
    return value


def require_finite(value: object, where: str = "") -> None:
    """Raise ValueError if there is a number that is not finite, which JSON does not have."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{_named(where)} must be a finite number, found {value}")
    if isinstance(value, list):
        for at, entry in enumerate(value):
            require_finite(entry, f"{where}[{at}]")
    if isinstance(value, dict):
        for name, entry in value.items():
            require_finite(entry, f"{where}.{name}" if where else str(name))


def require_known(value: Mapping[str, Any], known: Iterable[str]) -> None:
    """Raise ValueError if an object has members of other names."""
    strange = sorted(value.keys() - set(known))
    if strange:
        raise ValueError(f"'{strange[0]:.80}' is no key that is known")


def unique_members(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    """Return an object of JSON, as ``object_pairs_hook``.

    Raises:
        ValueError: If a name stands twice in it.
    """
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        raise ValueError(f"'{twice}' stands twice; keep one of them")
    return found


def doubled_name(text: str) -> str:
    """Return a name that stands twice in an object of a JSON text, "" if there is none.

    For texts that may be no JSON, which then have none.
    """
    found: list[str] = []

    def look(pairs: Sequence[tuple[str, object]]) -> None:
        found.extend(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)

    with contextlib.suppress(ValueError, RecursionError):
        json.loads(text, object_pairs_hook=look, strict=False)
    return found[0] if found else ""


def parse_json(text: str | bytes) -> Any:
    """Return a document of JSON in which no name stands twice in an object.

    Raises:
        ValueError: If it is no JSON, or a name stands twice: readers differ in which they take.
    """
    return json.loads(text, object_pairs_hook=unique_members)


def plain_reason(error: Exception) -> str:
    """Return what is wrong with a document that led to an error, without Python's words for it.

    For readers of documents whose shape is too free to be described; it cannot name the place.
    """
    if isinstance(error, KeyError):
        return f"{str(error.args[0])!r:.80} is missing or not known"
    if isinstance(error, RecursionError):
        return "its values are nested too deeply"
    if isinstance(error, ValueError) and not _IN_PYTHONS_WORDS.match(str(error)):
        return f"{error!s:.200}"
    return "a value in it is of another type or length than it must be"


def number_in(text: str) -> float | None:
    """Return the number in a text, perhaps not a finite one; None for words.

    "1_000" and digits of other scripts, which Python takes for numbers, are words.
    """
    try:
        number = float(text)
    except ValueError:
        return None
    return number if text.isascii() and "_" not in text else None
