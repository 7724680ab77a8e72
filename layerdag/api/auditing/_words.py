"""Which words of the private graphs does a folder of samples hold, in any file of it?"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from layerdag.api.publication.reading import read_folder
from layerdag.datasets.samples import StoredSample, part_samples
from layerdag.errors import DataError, UsageError
from layerdag.evaluation.privacy import LEAST_LETTERS, ForeignWord, foreign_words

PARTS = (".tar", ".parquet")
"""Endings of parts of samples, whose graphs are looked into."""
_PACKED = re.compile(r".*\.(gz|xz|bz2|zst|zip|7z|tgz)")
_TRACE = re.compile(r".*\.et\.(gz|xz)")


@dataclass(frozen=True)
class WordSearch:
    """What was looked for, where, and what was found.

    Attributes:
        files: Number of files that were read.
        words: Number of private words that were looked for.
        found: Each word that a file holds and must not.
        unread: Packed files that nobody looked into, below the folder.
    """

    files: int
    words: int
    found: tuple[ForeignWord, ...]
    unread: tuple[str, ...] = ()


def search_words(folder: str | Path, private: Iterable[str] | str | Path) -> WordSearch:
    """Search every file of a folder for private words.

    Of parts of samples (tar, Parquet) the graphs are searched, too, for what is compressed cannot
    be read as text. Other packed files are listed as not read.

    Args:
        folder: To be shared, with its sub-folders.
        private: The words, or the folder of the private graphs that hold them.

    Raises:
        DataError: If a folder cannot be read.
    """
    folder = Path(folder)
    words = private_words_of(private) if isinstance(private, str | Path) else frozenset(private)
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    found = list(foreign_words(folder, words))
    unread = [path for path in paths if _is_packed(path.name)]
    for path in paths:
        if path.suffix in PARTS:
            try:
                found += _in_part(path, path.relative_to(folder).as_posix(), words)
            except (DataError, UsageError):  # no part, or pyarrow is missing
                unread.append(path)
    names = tuple(path.relative_to(folder).as_posix() for path in unread)
    return WordSearch(len(paths) - len(unread), len(words), tuple(dict.fromkeys(found)), names)


def private_words_of(folder: str | Path) -> frozenset[str]:
    """Return the words that the graphs in a folder hold and that may not be shared.

    Raises:
        DataError: If it holds no traces and no flow graphs, like data sets of other projects.
    """
    return read_folder(Path(folder)).private


def _is_packed(name: str) -> bool:
    """Return whether a file is compressed and no trace, which is unpacked to be searched."""
    return bool(_PACKED.fullmatch(name)) and not _TRACE.fullmatch(name)


def _in_part(path: Path, name: str, words: frozenset[str]) -> Iterator[ForeignWord]:
    """Yield the private words in the graphs of a part."""
    held = {word for sample in part_samples(path) for word in _words_of(sample)}
    for word in sorted(held & words):
        if len(word) >= LEAST_LETTERS:
            yield ForeignWord(name, word)


def _words_of(sample: StoredSample) -> Iterator[str]:
    """Yield the words of a sample: of its nodes, and of its conditions."""
    for column in sample.graph.categories.values():
        yield from column
    yield from (value for value in sample.conditions.values() if isinstance(value, str))
