"""The one reader of samples on disk: in parts, as files, or as a folder each."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from layerdag.codec.recognition import RUN
from layerdag.errors import DataError
from layerdag.runtime.reading import path_within, read_whole
from layerdag.samples.manifest import (
    MANIFEST,
    PartIndex,
    SampleRun,
    is_manifest_folder,
    is_run,
    manifest_of,
    part_name,
)
from layerdag.samples.stored import StoredSample
from layerdag.samples.table import read_parquet
from layerdag.samples.tar import read_tar


def iter_samples(location: str | Path) -> Iterator[StoredSample]:
    """Yield the samples that ``layerdag sample`` wrote, in order, holding one at a time.

    They are a folder of samples in parts (``format=tar`` or ``parquet``), one part, or a folder
    with a folder or file for each sample. Of a run that is not finished the parts that are there
    are read. Raises DataError if nothing is there, or a file is damaged or was changed, and
    UsageError if it is Parquet and pyarrow is not installed.
    """
    location = Path(location)
    if location.is_file():
        yield from part_samples(location)
    elif is_run(location):
        found = False
        for index in SampleRun.read(location).parts_at(location):
            found = True
            yield from _checked(location, index)
        if not found:
            raise DataError(f"{location}: holds no whole part yet; repeat 'layerdag sample'.")
    elif is_manifest_folder(location):
        for entry in _entries(location):
            at = path_within(location, entry.get("file", entry["name"]))
            paths = sorted(p for p in at.iterdir() if p.is_file()) if at.is_dir() else [at]
            files = {path.name: read_whole(path) for path in paths}
            source = f"{location}:{entry['name']}"
            yield StoredSample.from_files(json.dumps(entry).encode(), source, files)
    else:
        raise DataError(
            f"{location}: holds neither {RUN} nor {MANIFEST}; give a folder that "
            "'layerdag sample' wrote, or one of its parts."
        )


def part_samples(path: str | Path) -> Iterator[StoredSample]:
    """Yield the samples of one part, a tar or a Parquet file, with or without an index beside it.

    Raises DataError if the file is damaged or no part and UsageError if it is Parquet and pyarrow
    is not installed.
    """
    yield from (read_parquet if Path(path).suffix == ".parquet" else read_tar)(path)


def _checked(folder: Path, index: PartIndex) -> Iterator[StoredSample]:
    path = folder / index.file
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != index.sha256:
        raise DataError(
            f"{path}: has another checksum than {part_name(index.part)}.json says; copy both "
            "again, or remove them and repeat 'layerdag sample'."
        )
    yield from part_samples(path)


def _entries(folder: Path) -> list[dict[str, Any]]:
    shape = {"samples": [{"name": str, "conditions": dict, "file?": str}]}
    return list(manifest_of(folder, shape)["samples"])


def count_samples(location: str | Path) -> int:
    """Return how many samples ``iter_samples`` yields. Raises as it does."""
    location = Path(location)
    if location.is_file():
        return sum(1 for _ in iter_samples(location))
    if is_run(location):
        return sum(len(part.samples) for part in SampleRun.read(location).parts_at(location))
    return len(_entries(location))
