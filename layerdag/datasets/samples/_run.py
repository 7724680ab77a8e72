"""What all parts of a run have in common: the file ``samples.json`` of its folder."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from layerdag._runtime import read_parsed, write_text
from layerdag.datasets.samples._part import PART_FORMATS, PartIndex, part_name
from layerdag.errors import DataError

RUN = "samples.json"
FORMAT = "layerdag-samples-1"


@dataclass(frozen=True)
class SampleRun:
    """A run of samples that is written in parts.

    Sample i lies in part ``i // part_size`` whatever process writes it, so that the parts do not
    depend on how a run is shared out.

    Attributes:
        num: Number of samples, at least 1.
        part_size: Samples of a part; the last one may have fewer. At least 1.
        file_format: One of ``PART_FORMATS``.
        seed: Of sample 0; sample i has ``seed + i``.
        request: All else that determines the samples, as plain JSON.
    """

    num: int
    part_size: int
    file_format: str
    seed: int
    request: Mapping[str, Any]

    @property
    def num_parts(self) -> int:
        """Number of parts."""
        return -(-self.num // self.part_size)

    def samples_of(self, part: int) -> range:
        """Return the numbers of the samples of a part."""
        first = part * self.part_size
        return range(first, min(first + self.part_size, self.num))

    def file_of(self, part: int) -> str:
        """Return the name of the file of a part."""
        return f"{part_name(part)}.{self.file_format}"

    def index_of(self, folder: Path, part: int) -> PartIndex | None:
        """Return the index of a part that is there with all its samples, else None."""
        try:
            index = PartIndex.read(folder, part)
            whole = (folder / index.file).stat().st_size == index.num_bytes
        except (DataError, OSError):
            return None
        seeds = [self.seed + i for i in self.samples_of(part)]
        fits = index.file == self.file_of(part) and index.seeds == seeds
        return index if whole and fits else None

    def parts_at(self, folder: Path) -> Iterator[PartIndex]:
        """Yield the index of each part that is there with all its samples, in order."""
        for part in range(self.num_parts):
            index = self.index_of(folder, part)
            if index is not None:
                yield index

    def count_parts(self, folder: Path) -> int:
        """Return how many parts are there, without a look at what their indices say."""
        return sum((folder / f"{part_name(part)}.json").is_file() for part in range(self.num_parts))

    def write(self, folder: Path) -> None:
        """Write the file into ``folder``."""
        content = {"format": FORMAT, **vars(self), "request": dict(self.request)}
        write_text(folder / RUN, json.dumps(content, indent=1) + "\n")

    @classmethod
    def read(cls, folder: str | Path) -> "SampleRun":
        """Read the file in ``folder``, which is not trusted.

        Raises:
            DataError: If it is missing or damaged.
        """
        path = Path(folder) / RUN
        try:
            content = json.loads(read_parsed(path))
            if content.pop("format") != FORMAT:
                raise ValueError(f"its format is not {FORMAT}")
            run = cls(**content)
            sizes = (run.num, run.part_size)
            if not all(type(size) is int and size >= 1 for size in sizes):
                raise ValueError("'num' and 'part_size' must be whole numbers from 1 on")
            if type(run.seed) is not int or not isinstance(run.request, dict):
                raise ValueError("'seed' must be a whole number and 'request' an object")
            if run.file_format not in PART_FORMATS:
                raise ValueError(f"'file_format' must be {' or '.join(PART_FORMATS)}")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise DataError(
                f"{path}: does not describe samples ({error!r:.200}); sample again."
            ) from None
        return run


def is_run(folder: str | Path) -> bool:
    """Return whether a folder holds samples in parts, or is to hold them."""
    return (Path(folder) / RUN).is_file()
