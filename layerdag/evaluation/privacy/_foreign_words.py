"""Does a folder that is to be shared hold a word that came from private traces?

Private words of traces are those that anonymizing them takes out: names of nodes, groups, tensors,
files. They are looked for in every file, in traces as the strings they hold, in other files as
words of the text.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from layerdag._runtime import read_whole
from layerdag.codec import OTHER
from layerdag.errors import DataError
from layerdag.traces import Trace, Workload
from layerdag.traces.anonymize import scrub
from layerdag.traces.chakra import decode_trace

LEAST_LETTERS = 4
MOST_PARTS = 8
"""Parts of a path or name that are looked at together."""
OWN_NAMES = frozenset(
    ("sample", "samples", "manifest", "report", "release", "verdict", "croissant", "json", "html",
     "graphml", "trace", "traces", "rank", "data", "labels", "label")
)  # fmt: skip
"""Words in names of files that say nothing, private traces may use them or not."""
_TOKEN = re.compile(r"[\w./:+@~-]{4,}")
_SEPARATOR = re.compile(r"([./:+@~-])")
# A plain word cannot be told from prose; in traces it counts all the same.
_PLAIN = re.compile(r"[a-z]{1,11}|[A-Z]?[a-z]{1,10}|[\d.,:+-]+")
_TRACE = re.compile(r".*\.et(\.gz|\.xz)?")


@dataclass(frozen=True)
class ForeignWord:
    """A word that should not be where it is.

    Attributes:
        file: Path below the folder.
        word: The word.
    """

    file: str
    word: str

    def sentence(self) -> str:
        """Return the finding as a sentence."""
        return f"{self.file}: holds '{self.word}', a word of the private traces."


def private_words(workload: Workload) -> set[str]:
    """Return the strings of a workload that anonymizing it takes out.

    Raises:
        TraceError: If the dependencies of a trace are faulty.
    """
    clean, _ = scrub(workload)
    kept = _strings(clean.traces)
    return {word for word in _strings(workload.traces) - kept if len(word) >= LEAST_LETTERS}


def foreign_words(folder: str | Path, private: Iterable[str]) -> Iterator[ForeignWord]:
    """Yield each private word that a file of ``folder`` holds, once for each file.

    A trace may moreover hold no word that anonymizing it would take out, private or not.

    Args:
        folder: Searched with its sub-folders.
        private: The words.
    """
    folder = Path(folder)
    wanted = {word for word in private if len(word) >= LEAST_LETTERS}
    spaced = sorted(word for word in wanted if _is_phrase(word))
    in_prose = {word for word in wanted if not _PLAIN.fullmatch(word)}
    for path in sorted(folder.rglob("*")):
        if not path.is_file():
            continue
        name = path.relative_to(folder).as_posix()
        found = set(_tokens(name)) & (in_prose | (wanted - OWN_NAMES))
        in_trace = _in_trace(path, wanted) if _TRACE.fullmatch(path.name) else None
        if in_trace is not None:
            found |= in_trace
        else:
            content = read_whole(path, error=DataError) if path.stat().st_size else b""
            text = content.decode("utf-8", errors="replace")
            found |= set(_tokens(text)) & in_prose
            found |= {word for word in spaced if word in text}
        yield from (ForeignWord(name, word) for word in sorted(found))


def _is_phrase(word: str) -> bool:
    """Return whether a string is looked for as a whole: text with other signs, no list of sizes."""
    return not _TOKEN.fullmatch(word) and sum(letter.isalpha() for letter in word) >= 6


def _in_trace(path: Path, wanted: set[str]) -> set[str] | None:
    """Return the strings of a trace that are private, or that anonymizing takes out.

    None if it cannot be read as a trace.
    """
    try:
        trace = decode_trace(read_whole(path, error=DataError), str(path))
    except DataError:
        return None
    held = _strings([trace])
    return (held & wanted) | private_words(Workload((trace,)))


def _strings(traces: Iterable[Trace]) -> set[str]:
    """Return all words of traces."""
    found: set[str] = set()
    for trace in {id(trace): trace for trace in traces}.values():
        found.update(trace.strings)
        found.add(trace.version)
        for attribute in trace.metadata:
            found.add(attribute.name)
            if isinstance(attribute.value, str):
                found.add(attribute.value)
    return found - {"", OTHER}


def _tokens(text: str) -> Iterator[str]:
    """Yield the words of a text: whole, and every run of their parts between separators."""
    for token in {match[0] for match in _TOKEN.finditer(text)}:
        pieces = _SEPARATOR.split(token)  # parts at even places, separators at odd ones
        for begin in range(0, len(pieces), 2):
            last = min(begin + 2 * MOST_PARTS, len(pieces))
            for end in range(begin + 1, last + 1, 2):
                yield "".join(pieces[begin:end])
        yield token
