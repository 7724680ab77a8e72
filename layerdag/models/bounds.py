"""Bounds of a model's settings and sizes, so that an untrusted file cannot exhaust the memory.

They lie far above the sizes of useful models and are checked before anything is built.
"""

import typing
from typing import Any

from layerdag.dag.dag import GraphSizes
from layerdag.errors import ConfigError

_LITERAL: Any = typing.Literal

MAX_WIDTH = 8192

MAX_DEPTH = 256

MAX_STEPS = 10_000

MAX_CODES = 100_000
"""Codes of one attribute or condition, and edge types."""

MAX_COLUMNS = 1_000
"""Attributes of a node, conditions of a graph."""


def require_between(model: str, low: int | float, high: int | float, **values: int | float) -> None:
    """Refuse settings that are not between ``low`` and ``high``, both included.

    Raises:
        ConfigError: Names the model and the first setting out of bounds; NaN is.
    """
    for name, value in values.items():
        if not low <= value <= high:
            raise ConfigError(
                f"model '{model}': '{name}' must be from {low:g} to {high:g}, found {value!r:.40}."
            )


def require_choices(model: str, group: str, settings: Any) -> None:
    """Refuse words that are not among the choices a setting is annotated with (``Literal``).

    ``group`` is the place of the settings in the tree, such as "encoder".

    Raises:
        ConfigError: Names the model, the setting and its choices.
    """
    for name, hint in typing.get_type_hints(type(settings)).items():
        literals = [
            part for part in (hint, *typing.get_args(hint)) if typing.get_origin(part) is _LITERAL
        ]
        choices = [choice for literal in literals for choice in typing.get_args(literal)]
        value = getattr(settings, name)
        optional = type(None) in typing.get_args(hint)
        if choices and value not in choices and not (optional and value is None):
            where = f"{group}.{name}" if group else name
            raise ConfigError(
                f"model '{model}': '{where}' must be {' or '.join(map(repr, choices))}, found "
                f"{value!r:.40}."
            )


def require_few(sizes: GraphSizes) -> None:
    """Refuse sizes that no data set has.

    Raises:
        ConfigError: If there are more than ``MAX_COLUMNS`` attributes or conditions, or more than
            ``MAX_CODES`` codes of one; names the number.
    """
    columns = len(sizes.attributes), sizes.numeric_conditions, len(sizes.category_conditions)
    codes = *sizes.attributes, *sizes.category_conditions, sizes.edge_types
    if not sizes.attributes or min(codes) < 1 or min(columns) < 0:
        raise ConfigError("A model needs at least one attribute, and positive numbers of codes.")
    if max(columns) > MAX_COLUMNS:
        raise ConfigError(
            f"A model of {max(columns)} columns is refused; {MAX_COLUMNS} is the most."
        )
    if max(codes) > MAX_CODES:
        raise ConfigError(f"A column of {max(codes)} codes is refused; {MAX_CODES} is the most.")
