"""Attributes of nodes as columns: categories where there is text, numbers where all are numbers."""

import math
from collections.abc import Mapping, Sequence

import numpy as np


def columns_of(
    rows: Sequence[Mapping[str, str]], kinds: Mapping[str, bool] | None = None
) -> tuple[dict[str, list[str]], dict[str, np.ndarray]]:
    """Return the attributes of all nodes as categories and numbers; there is at least one category.

    Args:
        rows: Attributes of each node as text; what a node lacks is "" or NaN.
        kinds: Whether an attribute may be numeric, where that is known.
    """
    categories: dict[str, list[str]] = {}
    numbers: dict[str, np.ndarray] = {}
    for name in dict.fromkeys(name for row in rows for name in row):
        present = [row[name] for row in rows if name in row]
        if (kinds or {}).get(name, True) and all(map(is_number, present)):
            numbers[name] = np.array([float(row.get(name, "nan")) for row in rows])
        else:
            categories[name] = [row.get(name, "") for row in rows]
    if not categories:
        categories["kind"] = ["node"] * len(rows)
    return categories, numbers


def is_number(text: str) -> bool:
    """Return whether a text is a finite number."""
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
