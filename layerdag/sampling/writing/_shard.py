"""Which parts of a run a process writes."""

import os
import re
from dataclasses import dataclass

from layerdag.errors import UsageError

AUTO = "auto"
_WORD = re.compile(r"(\d{1,9})/(\d{1,9})")


@dataclass(frozen=True)
class Shard:
    """One share of the parts of a run: those whose number is ``index`` modulo ``count``.

    Attributes:
        index: Which share, from 0.
        count: Number of shares.

    Raises:
        UsageError: If the index is none of the count.
    """

    index: int = 0
    count: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.index < self.count:
            raise UsageError(
                f"shard={self.index}/{self.count}: shares of {self.count} are numbered from 0 to "
                f"{self.count - 1}."
            )

    @classmethod
    def of(cls, word: "str | Shard | None") -> "Shard":
        """Return the share that a word names: "0/4", or "auto" under torchrun; None is everything.

        Raises:
            UsageError: If it is no such word, or "auto" and RANK or WORLD_SIZE is not set.
        """
        if word is None or isinstance(word, Shard):
            return word or cls()
        if word == AUTO:
            word = f"{os.environ.get('RANK')}/{os.environ.get('WORLD_SIZE')}"
            if not _WORD.fullmatch(word):
                raise UsageError(
                    "shard=auto takes RANK and WORLD_SIZE, which torchrun sets, and they are not "
                    "there; start it with torchrun, or name the share: shard=0/4."
                )
        found = _WORD.fullmatch(word)
        if not found:
            raise UsageError(
                f"shard={word}: write i/n, such as 0/4 for the first of four, or auto."
            )
        return cls(int(found[1]), int(found[2]))

    def parts(self, num_parts: int) -> range:
        """Return the numbers of the parts of this share."""
        return range(self.index, num_parts, self.count)
