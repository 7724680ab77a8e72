"""Warnings of old names as the command line prints them: one sentence each, once."""

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from layerdag._runtime import RenamedWarning


@contextmanager
def old_names_told() -> Iterator[None]:
    """Print each warning of an old name once, as a sentence on standard error."""
    shown = set[str]()
    with warnings.catch_warnings():
        warnings.simplefilter("always", RenamedWarning)
        plain = warnings.showwarning

        def show(
            message: Warning | str, category: type[Warning], filename: str, lineno: int,
            file: TextIO | None = None, line: str | None = None,
        ) -> None:  # fmt: skip
            if not issubclass(category, RenamedWarning):
                plain(message, category, filename, lineno, file, line)
            elif str(message) not in shown:
                shown.add(str(message))
                print(f"layerdag: warning: {message}", file=sys.stderr)

        warnings.showwarning = show
        yield
