"""What a reader did not understand, as data beside its result.

A reader never replaces an unknown word by a default in silence: it leaves the value out, or keeps
the word as it is, and adds a note. Results hand the notes out as ``.notes``, commands print one
line for each, ``--json`` holds them, and ``--strict`` makes them errors.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from layerdag.runtime.settings import shorten
from layerdag.runtime.terminal import one_line

MAX_WORDS = 1_000
"""Most notes of one reader; what comes after them is counted in one note of each kind."""

_LONGEST_WORD = 80


class NoteKind(StrEnum):
    """What was not understood."""

    ATTRIBUTE = "attribute"
    CATEGORY = "category"
    COLLECTIVE = "collective"
    DEVICE = "device"
    DTYPE = "dtype"
    EDGE = "edge"
    ENCODING = "encoding"
    GROUP = "group"
    KERNEL = "kernel"
    KEY = "key"
    LABEL = "label"
    NODE = "node"
    NUMBER = "number"
    OPERATOR = "operator"
    PEER = "peer"
    RANK = "rank"
    SIZE = "size"
    STATUS = "status"
    TIME = "time"
    UNIT = "unit"
    VERSION = "version"


@dataclass(frozen=True)
class Note:
    """One word or value that a reader did not understand.

    Attributes:
        kind: What the word stands for.
        word: The word as it was found, shortened.
        place: Where it was found first: file, then node, rank, line or key.
        effect: What was done about it, such as "not known; these tensors have no size".
        count: How often it was found.
    """

    kind: NoteKind
    word: str
    place: str
    effect: str
    count: int = 1

    def __str__(self) -> str:
        """Return one sentence without a full stop."""
        times = f" ({self.count:,} times)" if self.count > 1 else ""
        return one_line(f"{self.place}: {self.kind} '{self.word}'{times}: {self.effect}")

    def to_json(self) -> dict[str, str | int]:
        """Return plain JSON types."""
        return {
            "kind": str(self.kind),
            "word": self.word,
            "count": self.count,
            "place": self.place,
            "effect": self.effect,
        }


class NoteCollector:
    """Counts what one reader does not understand; equal words are one note.

    Args:
        source: File or folder that is read, which begins every place.
    """

    def __init__(self, source: str) -> None:
        self._source = source
        self._found: dict[tuple[NoteKind, str, str], Note] = {}

    def add(
        self, kind: NoteKind, word: object, effect: str, *, where: str = "", count: int = 1
    ) -> None:
        """Count a word that is not understood.

        Args:
            kind: What the word stands for.
            word: The word or value as it was found.
            effect: What is done about it, without a full stop; equal for all places of the word.
            where: Node, line or key inside the source; the first one is kept.
            count: How often it was found.
        """
        shown = shorten(str(word), _LONGEST_WORD)
        if len(self._found) >= MAX_WORDS and (kind, shown, effect) not in self._found:
            shown, effect = "...", "further words of this kind, as those above"
        key = (kind, shown, effect)
        if key in self._found:
            old = self._found[key]
            self._found[key] = replace(old, count=old.count + count)
        else:
            place = f"{self._source}, {where}" if where else self._source
            self._found[key] = Note(kind, shown, place, effect, count)

    def extend(self, notes: Iterable[Note]) -> None:
        """Take over the notes of another reader, with their places."""
        for note in notes:
            key = (note.kind, note.word, note.effect)
            old = self._found.get(key)
            self._found[key] = replace(old, count=old.count + note.count) if old else note

    @property
    def notes(self) -> tuple[Note, ...]:
        """What was found, in the order of its first places."""
        return tuple(self._found.values())


def merge_notes(notes: Iterable[Note]) -> tuple[Note, ...]:
    """Return notes of several results with equal words counted together."""
    collector = NoteCollector("")
    collector.extend(notes)
    return collector.notes
