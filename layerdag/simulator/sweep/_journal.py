"""Finished rows of long work, one JSON object per line, so that it goes on where it stopped."""

import json
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

from layerdag.errors import UsageError

R = TypeVar("R")


class Journal(Generic[R]):
    """A file of rows; each is written as soon as it is known.

    Args:
        path: The file; made with its folder when the first row comes.
        kind: Frozen dataclass of a row. Its first field tells a journal from another file, its
            field ``key`` is a hash of all that determines the row.
    """

    def __init__(self, path: str | Path, kind: type[R]) -> None:
        self._path, self._kind = Path(path), cast(type[Any], kind)
        self._begun = False

    def read(self) -> dict[str, R]:
        """Return finished rows by their key; a last line that was cut off is ignored.

        Raises:
            UsageError: If the file holds something else.
        """
        if not self._path.is_file():
            return {}
        text = self._path.read_text(encoding="utf-8", errors="replace")
        # How each line begins, and so the first one, even if it was cut off.
        first_words = f'{{"{fields(self._kind)[0].name}":'
        if not first_words.startswith(text.strip()[: len(first_words)]):
            raise UsageError(
                f"{self._path}: the journal of finished simulations belongs there, but it holds "
                "something else, which is never changed; name other results."
            )
        rows: dict[str, Any] = {}
        for line in text.splitlines():
            try:
                row = self._kind(**json.loads(line))
            except (ValueError, TypeError):
                continue
            rows[row.key] = row
        return rows

    def append(self, row: R) -> None:
        """Write one row at the end of the file."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8") as file:
            if not self._begun and file.tell():
                file.write("\n")  # the last line may have been cut off
            self._begun = True
            file.write(json.dumps(asdict(cast(Any, row))) + "\n")
