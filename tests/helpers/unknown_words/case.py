"""One unknown word in one kind of file."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from layerdag.runtime.notes import Note, NoteKind


@dataclass(frozen=True)
class UnknownWord:
    """An input with a word that its reader cannot know.

    Attributes:
        reader: File of the reader below ``layerdag/``, such as "graph/formats/dot.py".
        kind: What the word stands for.
        word: The word.
        read: Writes the input into a folder, reads it, and returns the notes; or raises an error of
            layerdag whose sentence holds the word.
    """

    reader: str
    kind: NoteKind
    word: str
    read: Callable[[Path], Sequence[Note]]

    def __str__(self) -> str:
        """Return the name of the test."""
        return f"{self.reader}-{self.kind}-{self.word}"
