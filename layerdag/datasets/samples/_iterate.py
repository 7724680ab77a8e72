"""Samples one after the other, whatever they were written as."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

from layerdag._runtime import inside, read_parsed, read_whole
from layerdag.datasets.samples._part import PartIndex, part_name
from layerdag.datasets.samples._run import RUN, SampleRun, is_run
from layerdag.datasets.samples._stored import StoredSample
from layerdag.datasets.samples._tar import read_tar
from layerdag.errors import DataError

_MANIFEST = "manifest.json"


def iter_samples(location: str | Path) -> Iterator[StoredSample]:
    """Yield the samples that ``layerdag sample`` wrote, in order, holding one at a time.

    Args:
        location: A folder of samples in parts (``format=tar`` or ``parquet``), one part, or a
            folder with a folder or file for each sample. Of a run that is not finished the parts
            that are there are read.

    Raises:
        DataError: If nothing is there, or a file is damaged or was changed.
        UsageError: If it is Parquet and pyarrow is not installed.
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
    elif (location / _MANIFEST).is_file():
        yield from _one_by_one(location)
    else:
        raise DataError(
            f"{location}: holds neither {RUN} nor {_MANIFEST}; give a folder that "
            "'layerdag sample' wrote, or one of its parts."
        )


def part_samples(path: str | Path) -> Iterator[StoredSample]:
    """Yield the samples of one part, a tar or a Parquet file, with or without an index beside it.

    Raises:
        DataError: If the file is damaged or no part.
        UsageError: If it is Parquet and pyarrow is not installed.
    """
    if Path(path).suffix != ".parquet":
        yield from read_tar(path)
        return
    from layerdag.datasets.samples._parquet import read_parquet  # loads torch

    yield from read_parquet(path)


def _checked(folder: Path, index: PartIndex) -> Iterator[StoredSample]:
    """Yield the samples of a part whose content is the one that was written."""
    path = folder / index.file
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != index.sha256:
        raise DataError(
            f"{path}: has another checksum than {part_name(index.part)}.json says; copy both "
            "again, or remove them and repeat 'layerdag sample'."
        )
    yield from part_samples(path)


def _one_by_one(folder: Path) -> Iterator[StoredSample]:
    """Yield the samples of a folder with a folder or file for each."""
    manifest = folder / _MANIFEST
    try:
        entries = json.loads(read_parsed(manifest))["samples"]
        names = [(str(e["name"]), e.get("file"), json.dumps(e).encode()) for e in entries]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(f"{manifest}: is no manifest of samples ({error!r:.200}).") from None
    for name, file, entry in names:
        at = inside(folder, file if isinstance(file, str) else name)
        paths = sorted(p for p in at.iterdir() if p.is_file()) if at.is_dir() else [at]
        files = {path.name: read_whole(path) for path in paths}
        yield StoredSample.of(entry, f"{folder}:{name}", files)
