"""The one reader of CSV tables, which people and spreadsheets write.

A table is text in UTF-8 or UTF-16, with or without a byte order mark, plain or packed with gzip or
xz. Blanks around cells and lines without any word mean nothing.
"""

import csv
import io
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from layerdag.errors import DataError, LayerdagError
from layerdag.runtime.json_shape import number_in
from layerdag.runtime.reading import Unpacked, open_unpacked, read_parsed
from layerdag.runtime.settings import did_you_mean

_LONGEST_CELL = 1 << 20


@dataclass(frozen=True)
class Table:
    """A table whose first line names the columns.

    Attributes:
        names: Of the columns.
        lines: Number of the line of each row in the file.
        cells: Of each row.
    """

    names: tuple[str, ...]
    lines: tuple[int, ...]
    cells: tuple[tuple[str, ...], ...]

    @property
    def columns(self) -> dict[str, list[str]]:
        """The cells of each column."""
        return {name: [row[at] for row in self.cells] for at, name in enumerate(self.names)}

    def rows(self) -> Iterator[tuple[int, dict[str, str]]]:
        """Yield the number of each row's line, and its cells by column."""
        for line, cells in zip(self.lines, self.cells, strict=True):
            yield line, dict(zip(self.names, cells, strict=True))


def read_table(
    path: str | Path, needed: Sequence[str] = (), *, error: type[LayerdagError] = DataError
) -> Table:
    """Read a table whose first line names the columns.

    Args:
        path: The file.
        needed: Columns that it must have; whoever calls says what becomes of others.
        error: What is raised.

    Raises:
        LayerdagError: If it is no table, lacks a column or has one twice, or if a line has not as
            many cells as the first.
    """
    lines = _cells(io.BytesIO(read_parsed(path, error)), path, error)
    _, names = next(lines, (0, []))
    for name in needed:
        if name not in names:
            raise error(
                f"{path}: the first line must name the columns, among them '{name}'."
                f"{did_you_mean(name, names)} Found are {', '.join(names) or 'none'}."
            )
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise error(f"{path}: the column '{twice:.40}' stands twice; keep one of them.")
    rows = list(lines)
    for line, cells in rows:
        if len(cells) != len(names):
            raise error(f"{path}: line {line} has not as many cells as the first line.")
    return Table(tuple(names), tuple(line for line, _ in rows), tuple(tuple(c) for _, c in rows))


def numbers(
    path: str | Path, name: str, column: Sequence[str], error: type[LayerdagError] = DataError
) -> np.ndarray:
    """Return a column as finite numbers, float64.

    Raises:
        LayerdagError: If a cell is none; names the row.
    """
    found = [number_in(text) for text in column]
    for at, number in enumerate(found):
        if number is None or not math.isfinite(number):
            raise error(
                f"{path}: row {at + 1}: {name} is '{column[at]:.40}', which is no number; "
                "correct it."
            )
    return np.array(found, dtype=np.float64)


def iter_lines(
    path: str | Path, error: type[LayerdagError] = DataError
) -> Iterator[tuple[int, list[str]]]:
    """Yield number and cells of each line of a table without names, holding one at a time.

    Raises:
        LayerdagError: If it is no table.
    """
    with open_unpacked(path, error) as stream:
        yield from _cells(_Stream(stream), path, error)


class _Stream(io.RawIOBase):
    """An unpacked file as Python's readers of text take it."""

    def __init__(self, stream: Unpacked) -> None:
        self._stream = stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        found = self._stream.read(len(buffer))
        buffer[: len(found)] = found
        return len(found)


def _cells(
    raw: io.RawIOBase | io.BytesIO, path: str | Path, error: type[LayerdagError]
) -> Iterator[tuple[int, list[str]]]:
    """Yield the number of each line that holds a word, and its cells without blanks around them."""
    data = io.BufferedReader(raw)
    text = io.TextIOWrapper(data, encoding=_encoding(data.peek(4)[:4]), newline="")
    reader = csv.reader(_short(text, path, error))
    try:
        for found in reader:
            cells = [cell.strip() for cell in found]
            if any(cells):
                yield reader.line_num, cells
    except UnicodeError as wrong:
        raise error(f"{path}: is no text in UTF-8 or UTF-16 ({wrong}); save it in UTF-8.") from None
    except csv.Error as wrong:
        raise error(
            f"{path}: line {reader.line_num}: is no CSV ({wrong}); check the file."
        ) from None


def _short(text: io.TextIOWrapper, path: str | Path, error: type[LayerdagError]) -> Iterator[str]:
    while line := text.readline(_LONGEST_CELL + 1):
        if len(line) > _LONGEST_CELL:
            raise error(f"{path}: has a line of more than {_LONGEST_CELL} letters; no table.")
        yield line


def _encoding(start: bytes) -> str:
    if start[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "utf-16"
    if start[:1] and start[1:2] == b"\x00":
        return "utf-16-le"
    return "utf-16-be" if start[:1] == b"\x00" and start[1:2] else "utf-8-sig"
