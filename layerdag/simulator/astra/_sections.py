"""Values of ASTRA-sim's configuration files, by its own readers' rules; complaints name the key.

Numbers of ``network.yml`` are read as yaml-cpp reads them: from the text of the scalar, quoted or
not, so that a bandwidth of ``010`` is ten, ``1e3`` a number and ``0x10`` none. Flags of JSON are
numbers: ``false`` is not 0 there, so it switches a feature on.
"""

import re
from collections.abc import Mapping
from typing import Any

from layerdag._runtime import did_you_mean
from layerdag.errors import ConfigError

_DOUBLE = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?[ \t]*", re.ASCII)
_INTEGER = re.compile(r"([+-]?)(0[xX][0-9a-fA-F]+|\d+)[ \t]*", re.ASCII)


class Section:
    """The keys of one file with their values."""

    def __init__(self, values: Any, known: frozenset[str]) -> None:
        if not isinstance(values, dict):
            raise ConfigError("holds no mapping of keys to values; write one.")
        self._values: Mapping[str, Any] = values
        for key in values:
            if key not in known:
                raise ConfigError(
                    f"unknown key '{key}'.{did_you_mean(key, known)} Known are "
                    f"{', '.join(sorted(known))}."
                )

    def has(self, key: str) -> bool:
        """Return whether ``key`` is given."""
        return key in self._values

    def required(self, key: str, why: str) -> Any:
        """Return a value that must be given."""
        if key not in self._values:
            raise ConfigError(f"key '{key}' is missing; {why}.")
        return self._values[key]

    def number(self, key: str, default: int | float | None = None) -> float:
        """Return a number of a JSON file."""
        value = self._values.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ConfigError(f"'{key}' is {_shown(value)}; write a number.")
        try:
            return float(value)
        except OverflowError:
            raise ConfigError(f"'{key}' is too large for a number.") from None

    def optional_number(self, key: str) -> float | None:
        """Return a number of a JSON file, None where it is not given."""
        return self.number(key) if self.has(key) else None

    def integer(self, key: str, default: int | None = None) -> int:
        """Return a whole number of a JSON file."""
        value = self.number(key, default)
        if not value.is_integer():  # refuses NaN and infinity too
            raise ConfigError(f"'{key}' is {value!r}; write a whole number.")
        return int(value)

    def optional_integer(self, key: str) -> int | None:
        """Return a whole number of a JSON file, None where it is not given."""
        return self.integer(key) if self.has(key) else None

    def flag(self, key: str) -> bool:
        """Return a flag, 0 or 1; the reference takes any JSON boolean, also false, for 1."""
        value = self._values.get(key, 0)
        if isinstance(value, bool):
            raise ConfigError(
                f"'{key}' is {_shown(value)}, which ASTRA-sim takes for 1; write 0 or 1."
            )
        if value not in (0, 1):
            raise ConfigError(f"'{key}' is {_shown(value)}; write 0 or 1.")
        return bool(value)

    def word(self, key: str, default: str | None, known: tuple[str, ...]) -> str:
        """Return one of a few words."""
        value = self._values.get(key, default)
        if value not in known:
            raise ConfigError(f"'{key}' is {_shown(value)}; write one of {', '.join(known)}.")
        return str(value)

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a list of words."""
        value = self._values.get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise ConfigError(f"'{key}' is {_shown(value)}; write a list of names.")
        return tuple(value)

    def column(self, key: str) -> list[str]:
        """Return a list of ``network.yml``, one text for each dimension."""
        value = self.required(key, "give one entry for each dimension, e.g. [ 8 ]")
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise ConfigError(f"'{key}' is no list with one entry for each dimension; write one.")
        return value


def yaml_number(key: str, text: str) -> float:
    """Return a number as yaml-cpp converts the scalar to a double."""
    if not _DOUBLE.fullmatch(text):
        raise ConfigError(f"{key} holds '{text}', which is no decimal number; write one like 50.0.")
    return float(text)


def yaml_integer(key: str, text: str) -> int:
    """Return an integer as yaml-cpp converts the scalar: 0x10 is 16, and 010 is 8."""
    match = _INTEGER.fullmatch(text)
    digits = match[2] if match else ""
    octal = len(digits) > 1 and digits[0] == "0" and digits[1] not in "xX"
    if not match or (octal and not set(digits) <= set("01234567")):
        raise ConfigError(f"{key} holds '{text}', which is no whole number; write one like 8.")
    value = int(digits, 8 if octal else 0)
    return -value if match[1] == "-" else value


def _shown(value: object) -> str:
    """Return a JSON value as it stands in the file."""
    spelling = {True: "true", False: "false", None: "null"}
    return spelling[value] if value is None or isinstance(value, bool) else repr(value)
