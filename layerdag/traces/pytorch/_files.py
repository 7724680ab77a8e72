"""A folder or prefix of PyTorch traces as one job: which file is which rank's."""

import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from layerdag.errors import TraceError
from layerdag.traces import Format, pytorch_format

_TOLD = re.compile(r"(?:rank|worker)[._-]?(\d{1,9})(?!\d)", re.IGNORECASE)
_NUMBER = re.compile(r"(?<![0-9])(\d{1,9})(?![0-9])")
_ENDING = re.compile(r"(\.(json|pt|trace|et|gz|xz))+$")
_JSON = re.compile(r".*\.json(\.gz|\.xz)?")


@dataclass(frozen=True)
class RankFiles:
    """The files of a job, in order of rank.

    Attributes:
        hosts: Host trace of each rank, or none.
        devices: Kineto profile of each rank, or none.
    """

    hosts: tuple[Path, ...]
    devices: tuple[Path, ...]


def find_rank_files(location: str | Path) -> RankFiles | None:
    """Return the PyTorch traces of a folder, or of those files whose names begin with a prefix.

    The rank of a file is the number behind "rank" or "worker" in its name, else the last number.

    Returns:
        None if there is no such file.

    Raises:
        TraceError: If two files are of one rank, a name shows no rank, or ranks are missing.
    """
    location = Path(location)
    folder, prefix = (location, "") if location.is_dir() else (location.parent, location.name)
    if location.is_file() or not folder.is_dir():
        return None
    found: dict[Format, dict[int, Path]] = {Format.PYTORCH_HOST: {}, Format.KINETO: {}}
    for path in sorted(folder.iterdir()):
        if not (path.name.startswith(prefix) and _JSON.fullmatch(path.name) and path.is_file()):
            continue
        kind = pytorch_format(path)
        if kind is not None:
            _add(found[kind], path)
    hosts, devices = found[Format.PYTORCH_HOST], found[Format.KINETO]
    if not hosts and not devices:
        return None
    count = 1 + max((*hosts, *devices))
    return RankFiles(
        _in_order(hosts, count, "host traces", location),
        _in_order(devices, count, "profiles", location),
    )


def _add(of_rank: dict[int, Path], path: Path) -> None:
    """Enter a file under its rank."""
    rank = _rank(path)
    if rank in of_rank:
        raise TraceError(
            f"{path}: is the second file of rank {rank} beside {of_rank[rank].name}; give the "
            "files of one job and step, or add their common prefix to the path."
        )
    of_rank[rank] = path


def _rank(path: Path) -> int:
    """Return the rank in a file name."""
    stem = _ENDING.sub("", path.name)
    numbers = _TOLD.findall(stem) or _NUMBER.findall(stem)
    if not numbers:
        raise TraceError(
            f"{path}: its name shows no rank; name the files PREFIX.<rank>.json, or give them to "
            "'layerdag convert' one by one in order of rank."
        )
    return int(numbers[-1])


def _in_order(
    of_rank: Mapping[int, Path], count: int, what: str, location: Path
) -> tuple[Path, ...]:
    """Return the files of ranks 0 to count - 1, or none, or name the missing ones."""
    if not of_rank:
        return ()
    absent = (rank for rank in range(count) if rank not in of_rank)
    missing = list(itertools.islice(absent, 11))
    if missing:
        shown = ", ".join(map(str, missing[:10])) + (", ..." if len(missing) > 10 else "")
        raise TraceError(
            f"{location}: has {len(of_rank)} {what} of a job with ranks up to {count - 1}, but "
            f"lacks rank {shown}; add the missing files, or give 'layerdag convert' those of one "
            "rank with --only-rank or --replicate."
        )
    return tuple(of_rank[rank] for rank in range(count))
