"""What a folder of samples holds: the file of a run in parts, the index of a part, the manifest.

Samples lie in parts (tar or Parquet files of many samples, each with an index, beside ``RUN``), or
as a file or folder each, which ``MANIFEST`` lists. All these files are untrusted. The index of a
part is written after the part, so that it counts only when both are whole.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import islice
from pathlib import Path
from typing import Any

from layerdag.codec.recognition import RUN
from layerdag.errors import DataError
from layerdag.graph.formats import program_json
from layerdag.runtime.files import write_text
from layerdag.runtime.json_shape import (
    found_value,
    from_json,
    parse_json,
    plain_reason,
    require_known,
    require_shape,
)
from layerdag.runtime.reading import read_parsed

MANIFEST = "manifest.json"
NAME = re.compile(r"sample-\d{5,9}")
ENDINGS = {"graphml": ".graphml", "json": ".json", "program": program_json.SUFFIX}
"""How the file of a sample of one file ends, by its format."""


def require_sample_name(name: str, source: str) -> None:
    """Raise DataError unless a name is that of a sample in a part."""
    if not NAME.fullmatch(name):
        raise DataError(f"{source}: {name!r:.100} is no name of a sample.")


def sample_name(index: int) -> str:
    """Return the name of sample ``index`` of a run."""
    return f"sample-{index:05d}"


PART_FORMATS = ("tar", "parquet")
PART_FORMAT = "layerdag-part-1"
_PART = "part-"
_INDEX = re.compile(rf"{_PART}(\d{{6,18}})\.json")


@dataclass(frozen=True)
class _Missing:
    name: str
    seed: int
    reason: str


@dataclass(frozen=True)
class _Sample:
    name: str
    seed: int
    nodes: int
    truncated: bool
    conditions: Mapping[str, float | str | bool]
    ranks: int | None = None


def _read(cls: type[Any], path: Path, wanted: str) -> Any:
    content = parse_json(read_parsed(path))
    found = from_json(cls, content)
    if content.pop("format", None) != wanted:
        raise ValueError(f"its format is not {wanted}")
    require_known(content, [one.name for one in fields(cls)])
    return found


def part_name(part: int) -> str:
    """Return the name of a part without its ending."""
    return f"{_PART}{part:06d}"


@dataclass(frozen=True)
class PartIndex:
    """What a part holds.

    ``file`` lies beside the index. ``samples`` has an entry for each sample: name, seed,
    conditions, nodes, edges, truncated, and for jobs in a tar ranks and repairs; ``missing`` has
    name, seed and reason of those that could not be made.
    """

    part: int
    file: str
    num_bytes: int
    sha256: str
    samples: Sequence[Mapping[str, Any]]
    missing: Sequence[Mapping[str, Any]] = ()

    @property
    def seeds(self) -> list[int]:
        """The seed of each sample, of those that are missing, too, in order."""
        return sorted(entry["seed"] for entry in (*self.samples, *self.missing))

    def write(self, folder: Path) -> None:
        """Write the index beside the file."""
        facts = {"format": PART_FORMAT, **vars(self)}
        if not self.missing:
            del facts["missing"]
        content = json.dumps(facts, separators=(",", ":"))
        write_text(folder / f"{part_name(self.part)}.json", content + "\n")

    @classmethod
    def read(cls, folder: Path, part: int) -> "PartIndex":
        """Read the index of a part, which is not trusted.

        Raises:
            DataError: If it is missing or damaged.
        """
        path = folder / f"{part_name(part)}.json"
        try:
            index: PartIndex = _read(cls, path, PART_FORMAT)
            for entry in index.samples:
                from_json(_Sample, entry, "samples")
            for entry in index.missing:
                from_json(_Missing, entry, "missing")
            names = [f"{part_name(part)}.{ending}" for ending in PART_FORMATS]
            if index.part != part or index.file not in names:
                raise ValueError(f"it is the index of {found_value(index.file)}")
        except (ValueError, RecursionError) as error:
            raise DataError(
                f"{path}: is no index of a part ({plain_reason(error)}); repeat 'layerdag sample' "
                "with the settings of the run, which writes the part again."
            ) from None
        return index


RUN_FORMAT = "layerdag-samples-1"
_MOST_ABSENT, _SHOWN_ABSENT = 1_000, 3


@dataclass(frozen=True)
class SampleRun:
    """A run of samples that is written in parts.

    Sample i has the seed ``seed + i`` and lies in part ``i // part_size``, whatever process writes
    it. ``request`` is all else that determines the samples, as plain JSON.
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
        found = self._index_or_doubt(folder, part)
        return found if isinstance(found, PartIndex) else None

    def _index_or_doubt(self, folder: Path, part: int) -> PartIndex | str:
        file, name = self.file_of(part), f"{part_name(part)}.json"
        if not (folder / name).exists():
            return f"{name} is missing" if (folder / file).exists() else "not there yet"
        try:
            index = PartIndex.read(folder, part)
            size = (folder / index.file).stat().st_size
        except DataError:
            return f"{name} is damaged"
        except OSError:
            return "missing beside its index"
        if size != index.num_bytes:
            return f"{size:,} bytes, {index.num_bytes:,} by its index"
        seeds = [self.seed + i for i in self.samples_of(part)]
        return index if index.file == file and index.seeds == seeds else f"{name} is of another run"

    def absent(self, folder: Path, most: int) -> list[str]:
        """Return at most so many parts whose samples are not there, each with the reason."""
        doubts = ((part, self._index_or_doubt(folder, part)) for part in range(self.num_parts))
        found = (f"{self.file_of(p)} ({why})" for p, why in doubts if isinstance(why, str))
        return list(islice(found, most))

    def unread(self, folder: Path) -> str:
        """Return a sentence on the parts whose samples are not there, "" if all are."""
        found = self.absent(folder, _MOST_ABSENT)
        if not found:
            return ""
        some = "at least " if len(found) == _MOST_ABSENT else ""
        return (
            f"{folder}: {some}{len(found):,} of {self.num_parts:,} parts are not read: "
            f"{', '.join(found[:_SHOWN_ABSENT])}"
        )

    def parts_at(self, folder: Path) -> Iterator[PartIndex]:
        """Yield the index of each part that is there with all its samples, in order."""
        for part in self._listed(folder):
            index = self.index_of(folder, part)
            if index is not None:
                yield index

    def count_parts(self, folder: Path) -> int:
        """Return how many parts are there, without a look at what their indices say."""
        return len(self._listed(folder))

    def _listed(self, folder: Path) -> list[int]:
        found = (_INDEX.fullmatch(path.name) for path in folder.glob(f"{_PART}*.json"))
        return sorted(part for name in found if name and (part := int(name[1])) < self.num_parts)

    def write(self, folder: Path) -> None:
        """Write the file into ``folder``."""
        content = {"format": RUN_FORMAT, **vars(self), "request": dict(self.request)}
        write_text(folder / RUN, json.dumps(content, indent=1) + "\n")

    @classmethod
    def read(cls, folder: str | Path) -> "SampleRun":
        """Read the file in ``folder``, which is not trusted.

        Raises:
            DataError: If it is missing or damaged.
        """
        path = Path(folder) / RUN
        try:
            run: SampleRun = _read(cls, path, RUN_FORMAT)
            if run.num < 1 or run.part_size < 1:
                raise ValueError("'num' and 'part_size' must be whole numbers from 1 on")
            if run.file_format not in PART_FORMATS:
                raise ValueError(f"'file_format' must be {' or '.join(PART_FORMATS)}")
        except (ValueError, RecursionError) as error:
            raise DataError(
                f"{path}: does not describe samples ({plain_reason(error)}); sample again."
            ) from None
        return run


def is_run(folder: str | Path) -> bool:
    """Return whether a folder holds samples in parts, or is to hold them."""
    return (Path(folder) / RUN).is_file()


def report_unread(samples: str | Path, warn: Callable[[str], object]) -> None:
    """Warn of parts of samples that are not there, or not as their indices say."""
    if is_run(samples):
        sentence = SampleRun.read(samples).unread(Path(samples))
        if sentence:
            warn(sentence)


def is_manifest_folder(folder: Path) -> bool:
    """Return whether a folder holds samples that a manifest lists."""
    return (folder / MANIFEST).is_file()


def read_manifest(folder: str | Path) -> dict[str, Any]:
    """Return the manifest of a folder that ``layerdag sample`` wrote.

    Of samples in parts it is what all have in common, without the key "samples". Raises DataError
    if it is missing or no manifest.
    """
    if is_run(folder):
        return dict(SampleRun.read(folder).request)
    return manifest_of(folder, dict)


def manifest_of(folder: str | Path, shape: Any) -> dict[str, Any]:
    """Return a manifest that has a shape, as ``require_shape`` takes it.

    Raises DataError if it is missing or has another shape.
    """
    path = Path(folder) / MANIFEST
    if not path.is_file():
        raise DataError(
            f"{path}: there is no such file; give a folder that 'layerdag sample' wrote."
        )
    try:
        content = parse_json(read_parsed(path))
        require_shape(content, shape)
    except (ValueError, RecursionError) as error:
        raise DataError(
            f"{path}: is no manifest of samples ({plain_reason(error)}); sample again, or get the "
            "folder from its source again."
        ) from None
    return dict(content)


def caution_about(path: Path) -> str:
    """Return what the samples in a folder, or one of its files, cannot guarantee, or ""."""
    for folder in (path, *path.parents[:2]):
        for file in (MANIFEST, RUN):
            try:
                facts = json.loads((folder / file).read_text(encoding="utf-8"))
                return str({**facts.get("request", {}), **facts}["caution"])
            except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
                continue
    return ""
