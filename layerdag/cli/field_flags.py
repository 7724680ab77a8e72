"""Flags of dataclass fields, which have names, types, defaults and explanations already."""

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from layerdag.plan import CHOICES, Plan, Source, Step
from layerdag.runtime.settings import attribute_docs


def add_fields(
    parser: argparse.ArgumentParser,
    cls: type,
    names: Iterable[str],
    *,
    flags: Mapping[str, str] | None = None,
    types: Mapping[str, Callable[[str], Any]] | None = None,
    choices: Mapping[str, Sequence[str]] | None = None,
) -> None:
    """Declare a flag for each of some fields; without the flag the argument is None.

    Args:
        parser: Of the verb.
        cls: The dataclass, whose docstring explains the fields.
        names: The fields.
        flags: Flags that are not the name of the field.
        types: What reads the value, where the default does not say.
        choices: Words that a field takes.
    """
    docs = attribute_docs(cls)
    for name in names:
        usual = getattr(cls, name)
        kind = (types or {}).get(name, type(usual))
        words = (choices or {}).get(name, ())
        text = docs[name].replace("``", "").removeprefix("Whether ").rstrip(".").replace("%", "%%")
        text = text[0].lower() + text[1:]
        text += f" ({', '.join(words)})" if any(word not in text for word in words) else ""
        text += f" (default: {usual})" if usual and kind is not bool else ""
        flag = (flags or {}).get(name) or f"--{name.replace('_', '-')}"
        if kind is bool:
            parser.add_argument(flag, dest=name, action="store_true", default=None, help=text)
        else:
            metavar = "N" if kind in (int, float) else "WORD"
            parser.add_argument(flag, dest=name, type=kind, metavar=metavar, help=text)


def fields_given(args: argparse.Namespace, names: Iterable[str]) -> dict[str, Any]:
    """Return the fields that were given."""
    given = {name: getattr(args, name) for name in names}
    return {name: value for name, value in given.items() if value is not None}


def add_step_flags(parser: argparse.ArgumentParser, source: Source) -> None:
    """Declare the flags of `Plan` and `Step` that a source of steps takes."""
    types: dict[str, Callable[[str], Any]] = {
        "clip": float,
        "cuts": lambda text: tuple(text.split(",")),
    }
    for name in source.settings:
        cls = Step if hasattr(Step, name) else Plan
        add_fields(parser, cls, [name], types=types, choices={**CHOICES, **source.choices})
