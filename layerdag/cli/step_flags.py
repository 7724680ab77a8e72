"""Flags of the settings that a source of steps takes: one for each field of `Plan` and `Step`."""

import argparse
from collections.abc import Callable
from typing import Any

from layerdag.plan import CHOICES, Plan, Source, Step
from layerdag.runtime.settings import attribute_docs

_TYPES: dict[str, Callable[[str], Any]] = {
    "clip": float,
    "cuts": lambda text: tuple(text.split(",")),
}


def add_step_flags(parser: argparse.ArgumentParser, source: Source) -> None:
    """Declare a flag for each setting of a source, under the same name in every verb."""
    told = {**attribute_docs(Plan), **attribute_docs(Step)}
    for name in source.settings:
        usual = getattr(Step if hasattr(Step, name) else Plan, name)
        words = source.choices.get(name, CHOICES.get(name, ()))
        text = told[name].replace("``", "").removeprefix("Whether ").rstrip(".").replace("%", "%%")
        text = text[0].lower() + text[1:]
        missing = [word for word in words if word not in text]
        text += f" ({', '.join(words)})" if missing else ""
        flag, kind = f"--{name.replace('_', '-')}", _TYPES.get(name, type(usual))
        if isinstance(usual, bool):
            parser.add_argument(flag, action="store_true", default=None, help=text)
        else:
            parser.add_argument(flag, type=kind, metavar="N" if kind in (int, float) else "WORD",
                                help=text)  # fmt: skip


def step_settings(args: argparse.Namespace, source: Source) -> dict[str, Any]:
    """Return the settings of a source that were given."""
    given = {name: getattr(args, name) for name in source.settings}
    return {name: value for name, value in given.items() if value is not None}
