"""Tables of numbers from outside: CSV with a header, whose columns are all known."""

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from layerdag.errors import DataError
from layerdag.runtime.json_shape import number_in
from layerdag.runtime.reading import read_parsed
from layerdag.runtime.settings import did_you_mean


def read_table(path: str | Path) -> Mapping[str, list[str]]:
    """Return the columns of a CSV file with a header, as text.

    Raises:
        DataError: If it is no CSV or empty, names a column twice, or a row has another number of
            fields than the header.
    """
    text = read_parsed(path).decode("utf-8-sig", errors="replace")
    try:
        rows = [row for row in csv.reader(io.StringIO(text)) if row]
    except csv.Error as error:
        raise DataError(f"{path}: is no CSV ({error}); check the file.") from None
    if len(rows) < 2:
        raise DataError(f"{path}: has no rows; give a header and at least one row.")
    header = [name.strip() for name in rows[0]]
    twice = next((name for name in header if header.count(name) > 1), None)
    if twice is not None:
        raise DataError(f"{path}: has the column '{twice:.40}' twice; keep one of them.")
    for at, row in enumerate(rows):
        if len(row) != len(header):
            raise DataError(
                f"{path}: row {at} has {len(row)} fields, the header {len(header)}; correct it."
            )
    return dict(zip(header, map(list, zip(*rows[1:], strict=True)), strict=True))


def require_columns(path: str | Path, found: Mapping[str, object], known: Sequence[str],
                    optional: Sequence[str] = ()) -> None:  # fmt: skip
    """Refuse a table that lacks a column, or has one that is not known.

    Raises:
        DataError: Names the column.
    """
    for name in known:
        if name not in found:
            raise DataError(
                f"{path}: lacks the column '{name}'.{did_you_mean(name, found)} Found are "
                f"{', '.join(found)}."
            )
    for name in found:
        if name not in known and name not in optional:
            raise DataError(
                f"{path}: the column '{name}' is not known.{did_you_mean(name, known)} Known are "
                f"{', '.join([*known, *optional])}; leave it out."
            )


def numbers(path: str | Path, name: str, column: Sequence[str]) -> np.ndarray:
    """Return a column as numbers, float64.

    Raises:
        DataError: If one is none; names the row.
    """
    made = np.empty(len(column))
    for at, text in enumerate(column):
        number = number_in(text)
        made[at] = np.nan if number is None else number
        if not np.isfinite(made[at]):
            raise DataError(
                f"{path}: row {at + 1}: {name} is '{text:.40}', which is no number; correct it."
            )
    return made
