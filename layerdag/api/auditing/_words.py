"""Which words of the private graphs does a folder of samples hold, in any file of it?"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from layerdag.api.publication.reading import read_folder
from layerdag.evaluation.privacy import ForeignWord, foreign_words


@dataclass(frozen=True)
class WordSearch:
    """What was looked for, where, and what was found.

    Attributes:
        files: Number of files that were read.
        words: Number of private words that were looked for.
        found: Each word that a file holds and must not.
    """

    files: int
    words: int
    found: tuple[ForeignWord, ...]


def search_words(folder: str | Path, private: Iterable[str] | str | Path) -> WordSearch:
    """Search every file of a folder for private words.

    Args:
        folder: To be shared, with its sub-folders.
        private: The words, or the folder of the private graphs that hold them.

    Raises:
        DataError: If a folder cannot be read.
    """
    words = private_words_of(private) if isinstance(private, str | Path) else frozenset(private)
    files = sum(path.is_file() for path in Path(folder).rglob("*"))
    return WordSearch(files, len(words), tuple(foreign_words(folder, words)))


def private_words_of(folder: str | Path) -> frozenset[str]:
    """Return the words that the graphs in a folder hold and that may not be shared.

    Raises:
        DataError: If it holds no traces and no flow graphs, like data sets of other projects.
    """
    return read_folder(Path(folder)).private
