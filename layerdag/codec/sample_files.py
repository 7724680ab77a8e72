"""Samples on disk: folders, tar parts and their index.

One part of a run: a file with many samples, and its index beside it.

The index is written after the file, so that a part counts only when both are whole.

Parts as tar files that WebDataset and every tar read, written and read as a stream.

The files of a sample share a base name and follow each other, its entry ``NAME.meta.json`` first.
The bytes depend on the samples alone: owner, time and mode are the same in every file. A reader
takes plain files with such names only, so that no name leads anywhere, and holds one sample.
"""

import io
import json
import re
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

from layerdag.codec.folding import job_graph, rank_classes
from layerdag.codec.unfolding import unfold_sampled
from layerdag.errors import DataError, UsageError
from layerdag.graph.attributed_graph import AttributedGraph, Condition, decode_json
from layerdag.graph.formats import program_json
from layerdag.graph.formats.graphml import decode_graphml
from layerdag.runtime.files import write_text
from layerdag.runtime.json_shape import (
    found_value,
    parse_json,
    plain_reason,
    require_known,
    require_shape,
)
from layerdag.runtime.reading import (
    Unpacked,
    available_memory,
    open_unpacked,
    read_parsed,
    require_parsable,
)
from layerdag.traces.chakra.workload import decode_workload
from layerdag.traces.trace import Workload

PART_FORMATS = ("tar", "parquet")
PART_FORMAT = "layerdag-part-1"
_CONDITIONS = {str: (float, str, bool)}
_SAMPLE = {
    "name": str,
    "seed": int,
    "nodes": int,
    "truncated": bool,
    "ranks?": (int, None),
    "conditions": _CONDITIONS,
}
_INDEX_SHAPE = {
    "format": str,
    "part": int,
    "file": str,
    "num_bytes": int,
    "sha256": str,
    "samples": [_SAMPLE],
    "missing?": [{"name": str, "seed": int, "reason": str}],
}


_PART = "part-"
_INDEX = re.compile(rf"{_PART}(\d{{6,18}})\.json")


def part_name(part: int) -> str:
    """Return the name of a part without its ending."""
    return f"{_PART}{part:06d}"


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
        missing: Name, seed and reason of those that are not there: no program was found.
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
            content = parse_json(read_parsed(path))
            require_shape(content, _INDEX_SHAPE)
            if content.pop("format") != PART_FORMAT:
                raise ValueError(f"its format is not {PART_FORMAT}")
            require_known(content, [one.name for one in fields(cls)])
            index = cls(**content)
            names = [f"{part_name(part)}.{ending}" for ending in PART_FORMATS]
            if index.part != part or index.file not in names:
                raise ValueError(f"it is the index of {found_value(index.file)}")
        except (ValueError, RecursionError) as error:
            raise DataError(
                f"{path}: is no index of a part ({plain_reason(error)}); repeat 'layerdag sample' "
                "with the settings of the run, which writes the part again."
            ) from None
        return index


RUN = "samples.json"
RUN_FORMAT = "layerdag-samples-1"
_RUN_SHAPE = {
    "format": str,
    "num": int,
    "part_size": int,
    "seed": int,
    "file_format": str,
    "request": dict,
}
_MOST_ABSENT, _SHOWN_ABSENT = 1_000, 3


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
        """Return the first parts whose samples are not there, each file with the reason.

        Args:
            folder: Of the run.
            most: Number of files that are named at most.
        """
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
            content = parse_json(read_parsed(path))
            require_shape(content, _RUN_SHAPE)
            if content.pop("format") != RUN_FORMAT:
                raise ValueError(f"its format is not {RUN_FORMAT}")
            require_known(content, [one.name for one in fields(cls)])
            run = cls(**content)
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


def caution_about(path: Path) -> str:
    """Return what the samples in a folder, or one of its files, cannot guarantee, or ""."""
    for folder in (path, *path.parents[:2]):
        for file in ("manifest.json", RUN):
            try:
                facts = json.loads((folder / file).read_text(encoding="utf-8"))
                return str({**facts.get("request", {}), **facts}["caution"])
            except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
                continue
    return ""


NAME = re.compile(r"sample-\d{5,9}")


@dataclass(frozen=True, eq=False)
class StoredSample:
    """A sample as it was read.

    Attributes:
        name: "sample-" and its number.
        seed: It was sampled with.
        conditions: Requested ones, by name; the label is predicted with ``labels=predicted``.
        entry: All that is noted of it: nodes, edges, whether it is truncated, ranks, repairs.
        source: File and name, for messages.
        files: Content of its files by name; empty in a table.
        row: The graph, from a table.
    """

    name: str
    seed: int
    conditions: Mapping[str, Condition]
    entry: Mapping[str, Any]
    source: str
    files: Mapping[str, bytes] = field(default_factory=dict)
    row: AttributedGraph | None = None

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise DataError(f"{self.source}: {self.name!r:.100} is no name of a sample.")

    @classmethod
    def from_files(cls, meta: bytes, source: str, files: Mapping[str, bytes]) -> "StoredSample":
        """Return a sample with its entry as JSON.

        Raises:
            DataError: If the entry is none.
        """
        require_parsable(meta, source)
        try:
            entry = parse_json(meta)
            require_shape(entry, {"name": str, "seed": int, "conditions": dict})
            conditions = {
                name: value if isinstance(value, str) else float(value)
                for name, value in entry["conditions"].items()
                if isinstance(value, int | float | str) and not isinstance(value, bool)
            }
            return cls(entry["name"], entry["seed"], conditions, entry, source, files)
        except (ValueError, OverflowError, RecursionError) as error:
            raise DataError(
                f"{source}: has no readable entry of a sample ({plain_reason(error)}); sample "
                "again, or get the file from its source again."
            ) from None

    @property
    def is_job(self) -> bool:
        """Whether it is a job, which has traces."""
        if self.row is not None:
            return self.entry.get("ranks") is not None
        return any(name.endswith(".et") for name in self.files)

    @cached_property
    def graph(self) -> AttributedGraph:
        """The graph in names and numbers.

        Raises:
            DataError: If a file is damaged, or the ranks of a job contradict each other.
        """
        if self.row is not None:
            return self.row
        if self.is_job:
            workload = self.workload()
            return job_graph(self.name, rank_classes(workload), workload.groups, {})
        for name, content in self.files.items():
            at = f"{self.source}/{name}"
            require_parsable(content, at)
            if name.endswith(".graphml"):
                return decode_graphml(content, at)
            if name.endswith(program_json.SUFFIX):
                return program_json.program_graph(parse_json(content), at)
            if name.endswith(".json"):
                return decode_json(content, at)
        raise DataError(f"{self.source}: holds no trace and no graph.")

    @property
    def program_graph(self) -> AttributedGraph | None:
        """The graph of the program behind a derived job; None for other samples.

        Raises:
            DataError: If its file is damaged.
        """
        file = f"{self.name}{program_json.SUFFIX}"
        if file not in self.files:
            return None
        at = f"{self.source}/{file}"
        require_parsable(self.files[file], at)
        return program_json.program_graph(parse_json(self.files[file]), at)

    def workload(self) -> Workload:
        """Return the traces of a job.

        Raises:
            DataError: If it is no job, or a file is damaged.
        """
        if not self.is_job:
            raise DataError(f"{self.source}: is a graph, not a job; take its 'graph'.")
        if self.row is None:
            return decode_workload(self.files, self.source)
        try:
            return unfold_sampled(self.row, int(self.entry["ranks"])).workload
        except UsageError as error:
            raise DataError(f"{self.source}: {error}") from None

    def __repr__(self) -> str:
        """Return name, seed and size."""
        return f"StoredSample({self.name!r}, seed={self.seed}, nodes={self.entry.get('nodes')})"


META = "meta.json"
MAX_SAMPLE_BYTES = 1 << 30
"""No sample is held beyond this size, nor beyond half of the memory that is left."""

_NAME = re.compile(
    r"(?P<sample>sample-\d{5,9})\.(meta\.json|\d{1,9}\.et|comm_group\.json|graphml|program\.json|json)"
)
_BLOCK = tarfile.BLOCKSIZE


class TarWriter:
    """Writes the samples of one part, each as it is made.

    Args:
        file: Where to; written from front to back.
    """

    def __init__(self, file: io.BufferedIOBase) -> None:
        self._file = file

    def add(self, entry: Mapping[str, Any], files: Sequence[tuple[str, bytes]]) -> None:
        """Write a sample: its entry, and its files by name."""
        meta = (json.dumps(entry) + "\n").encode()
        for name, content in [(f"{entry['name']}.{META}", meta), *files]:
            header = tarfile.TarInfo(name)
            header.size = len(content)
            self._file.write(header.tobuf(tarfile.USTAR_FORMAT))
            self._file.write(content)
            self._file.write(bytes(-len(content) % _BLOCK))

    def close(self) -> None:
        """Write the end of the archive."""
        self._file.write(bytes(2 * _BLOCK))


def read_tar(path: str | Path) -> Iterator[StoredSample]:
    """Yield the samples of a part, plain or packed with gzip or xz; the file is not trusted.

    Raises:
        DataError: If the file is damaged, cut off, or holds something else than samples.
    """
    with open_unpacked(path) as stream:
        name, size = "", 0
        files: dict[str, bytes] = {}
        for member, content in _members(stream, str(path)):
            sample = member.partition(".")[0]
            if sample != name:
                if files:
                    yield _stored(files, name, path)
                name, files, size = sample, {}, 0
            size += len(content)
            if size > _limit() or member in files:
                raise DataError(
                    f"{path}: the files of {name} are too large, or one stands twice; get the part "
                    "from its source again."
                )
            files[member] = content
        if files:
            yield _stored(files, name, path)


def _members(stream: Unpacked, path: str) -> Iterator[tuple[str, bytes]]:
    while header := stream.read_full(_BLOCK):
        if not header.strip(b"\x00"):
            return
        try:
            member = tarfile.TarInfo.frombuf(header, "utf-8", "strict")
        except (tarfile.HeaderError, UnicodeDecodeError) as error:
            raise DataError(f"{path}: is no tar of samples ({error}); check the file.") from None
        known = member.type == tarfile.REGTYPE and _NAME.fullmatch(member.name)
        if not known:
            raise DataError(
                f"{path}: holds {member.name!r:.100}, which is no file of a sample; parts hold "
                "plain files NAME.meta.json, NAME.<rank>.et, NAME.graphml and the like."
            )
        if not 0 <= member.size <= _limit():
            raise DataError(f"{path}: {member.name} claims {member.size:,} bytes, too many.")
        content = stream.read_full(member.size)
        padding = -member.size % _BLOCK
        if len(content) < member.size or len(stream.read_full(padding)) < padding:
            raise DataError(f"{path}: is cut off inside {member.name}; copy the file again.")
        yield member.name, content
    raise DataError(f"{path}: is cut off, its end is missing; copy the file again.")


def _limit() -> int:
    return min(MAX_SAMPLE_BYTES, available_memory() // 2)


def _stored(files: dict[str, bytes], name: str, path: str | Path) -> StoredSample:
    source = f"{path}:{name}"
    meta = files.pop(f"{name}.{META}", None)
    if meta is None:
        raise DataError(f"{source}: has no {META}; get the part from its source again.")
    sample = StoredSample.from_files(meta, source, files)
    if sample.name != name:
        raise DataError(f"{source}: its {META} is that of {sample.name}; check the file.")
    return sample
