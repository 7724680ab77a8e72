"""One part of a run: a file with many samples, and its index beside it.

The index is written after the file, so that a part counts only when both are whole.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from layerdag._runtime import read_parsed, write_text
from layerdag.errors import DataError

PART_FORMATS = ("tar", "parquet")
FORMAT = "layerdag-part-1"


def part_name(part: int) -> str:
    """Return the name of a part without its ending."""
    return f"part-{part:06d}"


@dataclass(frozen=True)
class PartIndex:
    """What a part holds.

    Attributes:
        part: Number of the part.
        file: Name of its file, beside the index.
        num_bytes: Size of the file.
        sha256: Hash of the file.
        samples: One entry for each sample: name, seed, conditions, nodes, edges, truncated; of jobs
            in a tar also ranks and repairs.
    """

    part: int
    file: str
    num_bytes: int
    sha256: str
    samples: Sequence[Mapping[str, Any]]

    @property
    def seeds(self) -> list[int]:
        """The seed of each sample."""
        return [entry["seed"] for entry in self.samples]

    def write(self, folder: Path) -> None:
        """Write the index beside the file."""
        content = json.dumps({"format": FORMAT, **vars(self)}, separators=(",", ":"))
        write_text(folder / f"{part_name(self.part)}.json", content + "\n")

    @classmethod
    def read(cls, folder: Path, part: int) -> "PartIndex":
        """Read the index of a part, which is not trusted.

        Raises:
            DataError: If it is missing or damaged.
        """
        path = folder / f"{part_name(part)}.json"
        try:
            content = json.loads(read_parsed(path))
            if content.pop("format") != FORMAT:
                raise ValueError(f"its format is not {FORMAT}")
            index = cls(**content)
            names = [f"{part_name(part)}.{ending}" for ending in PART_FORMATS]
            if index.part != part or index.file not in names:
                raise ValueError(f"it is the index of {index.file!r:.40}")
            if type(index.num_bytes) is not int or not isinstance(index.sha256, str):
                raise ValueError("'num_bytes' must be a whole number and 'sha256' a text")
            for entry in index.samples:
                _check_entry(entry)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise DataError(
                f"{path}: is no index of a part ({error!r:.200}); repeat 'layerdag sample' with "
                "the settings of the run, which writes the part again."
            ) from None
        return index


def _check_entry(entry: Mapping[str, Any]) -> None:
    """Raise ValueError or KeyError if what is noted of a sample is not of its type."""
    for name, kind in (("name", str), ("seed", int), ("nodes", int), ("truncated", bool)):
        if type(entry[name]) is not kind:
            raise ValueError(f"'{name}' of a sample is {entry[name]!r:.40}")
    if not isinstance(entry.get("ranks"), int | None):
        raise ValueError(f"'ranks' of a sample is {entry['ranks']!r:.40}")
    for value in entry["conditions"].values():
        if not isinstance(value, int | float | str):
            raise ValueError(f"a condition of a sample is {value!r:.40}")
