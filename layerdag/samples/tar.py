"""Parts as tar files that WebDataset and every tar read, written and read as a stream.

The files of a sample share a base name and follow each other, its entry ``NAME.meta.json`` first.
The bytes depend on the samples alone: owner, time and mode are the same in every file. A reader
takes plain files with such names only, so that no name leads anywhere, and holds one sample.
"""

import io
import json
import re
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from layerdag.errors import DataError
from layerdag.runtime.reading import Unpacked, available_memory, open_unpacked
from layerdag.samples.manifest import require_sample_name
from layerdag.samples.stored import StoredSample

META = "meta.json"
MAX_SAMPLE_BYTES = 1 << 30
"""No sample is held beyond this size, nor beyond half of the memory that is left."""

_NAME = re.compile(
    r"(?P<sample>sample-\d{5,9})\.(meta\.json|\d{1,9}\.et|comm_group\.json|graphml|program\.json|json)"
)
_BLOCK = tarfile.BLOCKSIZE


class TarWriter:
    """Writes the samples of one part from front to back, each as it is made."""

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

    Raises DataError if the file is damaged, cut off, or holds something else than samples.
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
    require_sample_name(sample.name, source)
    if sample.name != name:
        raise DataError(f"{source}: its {META} is that of {sample.name}; check the file.")
    return sample
