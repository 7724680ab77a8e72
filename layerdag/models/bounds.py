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


def require_valid(
    model: str, group: str, settings: Any, **bounds: tuple[int | float, int | float]
) -> None:
    """Refuse settings out of bounds, and words that are not among the choices of a ``Literal``.

    Bounds are included. What may be None has no bounds then. ``group`` is the place of the settings
    in the tree, such as "encoder", or "".

    Raises:
        ConfigError: Names the model, the first such setting, and what it may be; NaN is out.
    """
    for name, hint in typing.get_type_hints(type(settings)).items():
        literals = [
            part for part in (hint, *typing.get_args(hint)) if typing.get_origin(part) is _LITERAL
        ]
        choices = [choice for literal in literals for choice in typing.get_args(literal)]
        value = getattr(settings, name)
        if value is None and type(None) in typing.get_args(hint):
            continue
        wanted = " or ".join(map(repr, choices)) if choices and value not in choices else ""
        low, high = bounds.get(name, (0, 0))
        if name in bounds and not low <= value <= high:
            wanted = f"from {low:g} to {high:g}"
        if wanted:
            where = f"{group}.{name}" if group else name
            raise ConfigError(f"model '{model}': '{where}' must be {wanted}, found {value!r:.40}.")


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
