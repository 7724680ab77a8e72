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
    if isinstance(private, str | Path):
        private = read_folder(Path(private)).private
    words = frozenset(private)
    files = sum(path.is_file() for path in Path(folder).rglob("*"))
    return WordSearch(files, len(words), tuple(foreign_words(folder, words)))
