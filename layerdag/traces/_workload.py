"""Workloads on disk: ``PREFIX.<rank>.et`` (or ``.et.gz``) with communicator groups beside them."""

import itertools
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from layerdag._runtime import read_whole, require_parsable, track, write_files
from layerdag.errors import TraceError, UsageError
from layerdag.traces._interning import RankDecoder
from layerdag.traces._trace import LazyTraces, Workload
from layerdag.traces.analysis import WORLD_NAMES
from layerdag.traces.astra import decode_groups, encode_groups, read_groups, write_groups
from layerdag.traces.chakra import encode_trace, normalize

File = TypeVar("File", Path, str)

_RANK_FILE = re.compile(r"(?P<prefix>.*?)\.?(?P<rank>\d{1,9})\.et(?:\.gz|\.xz)?")


@dataclass(frozen=True)
class RankFile:
    """What the file name of one rank's trace says: ``PREFIX.<rank>.et``, packed or not.

    Attributes:
        prefix: Common to all ranks of the job.
        rank: The rank.
    """

    prefix: str
    rank: int

    @classmethod
    def of(cls, name: str) -> "RankFile | None":
        """Return what a file name says, None if it is not of this form."""
        match = _RANK_FILE.fullmatch(name)
        return cls(match["prefix"], int(match["rank"])) if match else None


def rank_file(prefix: str | Path, rank: int) -> Path:
    """Return the path of one rank's trace, plain."""
    return Path(f"{prefix}.{rank}.et")


def read_workload(location: str | Path, groups_file: str | Path | None = None) -> Workload:
    """Read the Chakra traces of all ranks of one job.

    Ranks whose files have the same content share one ``Trace`` object; other ranks share the
    columns that are equal, which makes the arrays read-only.

    Args:
        location: The common prefix of ``PREFIX.<rank>.et``, a folder that holds one such set, or a
            single trace file (a workload of one rank).
        groups_file: JSON ``{"<group>": [rank, ...]}``. By default ``PREFIX.comm_group.json`` or
            ``comm_group.json`` in the same folder, where one of them exists.

    Raises:
        TraceError: If nothing is found, ranks are missing, a folder holds several sets, a trace
            cannot be read, or a group names a rank that does not exist.
    """
    location = Path(location)
    files = rank_files(location)
    decoder = RankDecoder()
    traces = [decoder.decode(read_whole(path, error=TraceError), str(path)) for path in files]
    groups_path = Path(groups_file) if groups_file else _default_groups(files[0])
    groups = read_groups(groups_path, len(files)) if groups_path else {}
    return Workload(tuple(traces), groups, str(location))


def rank_files(location: str | Path) -> list[Path]:
    """Return the trace file of each rank, in order of rank; see ``read_workload``.

    Raises:
        TraceError: If none is found, some are missing, or there are several sets.
    """
    location = Path(location)
    if location.is_file():
        return [location]
    folder, prefix = (location, None) if location.is_dir() else (location.parent, location.name)
    if not folder.is_dir():
        raise TraceError(f"{location}: there is no folder {folder}; check the path.")
    sets = _sets(folder.iterdir())
    if prefix is not None:
        sets = {prefix: sets[prefix]} if prefix in sets else {}
    if not sets:
        raise TraceError(_nothing_at(location, prefix, folder))
    if len(sets) > 1:
        names = ", ".join(sorted(sets)[:5])
        raise TraceError(
            f"{location}: holds {len(sets)} workloads ({names}); add the prefix to the path."
        )
    return _in_order(next(iter(sets.values())), location)


def _nothing_at(location: Path, prefix: str | None, folder: Path) -> str:
    """Return the sentence for a place that holds no traces."""
    if prefix is None:
        return f"{location}: this folder holds no file PREFIX.<rank>.et; check the path."
    if location.exists():
        return f"{location}: is neither a file nor a folder; name a trace."
    return (
        f"{location}: there is no such file or folder, and no {prefix}.<rank>.et in {folder}; "
        "check the path."
    )


def holds_rank_files(location: str | Path) -> bool:
    """Return whether a folder, or a prefix in its folder, has files ``PREFIX.<rank>.et``."""
    location = Path(location)
    if location.is_dir():
        return bool(_sets(location.iterdir()))
    return location.parent.is_dir() and location.name in _sets(location.parent.iterdir())


def _sets(paths: Iterable[Path]) -> dict[str, dict[int, Path]]:
    """Sort files into prefix -> rank -> path; a plain file wins over its archive."""
    sets: dict[str, dict[int, Path]] = defaultdict(dict)
    for path in sorted(paths):
        found = RankFile.of(path.name)
        if found:
            sets[found.prefix].setdefault(found.rank, path)
    return sets


def _in_order(by_rank: Mapping[int, File], location: str | Path) -> list[File]:
    """Return the files of ranks 0 to N-1, or name the missing ones."""
    if len(by_rank) <= max(by_rank):
        absent = (rank for rank in range(max(by_rank)) if rank not in by_rank)
        missing = list(itertools.islice(absent, 11))
        shown = ", ".join(map(str, missing[:10])) + (", ..." if len(missing) > 10 else "")
        raise TraceError(
            f"{location}: has {len(by_rank)} trace files up to rank {max(by_rank)}, but lacks "
            f"rank {shown}; add the missing files."
        )
    return [by_rank[rank] for rank in range(len(by_rank))]


def _default_groups(first: Path) -> Path | None:
    """Return the group file beside the trace of rank 0, if there is one."""
    found = RankFile.of(first.name)
    names = ([f"{found.prefix}.comm_group.json"] if found else []) + ["comm_group.json"]
    return next((first.with_name(n) for n in names if first.with_name(n).is_file()), None)


def standing_files(prefix: str | Path) -> list[Path]:
    """Return the files of a workload that lie at a prefix already, in order of name."""
    prefix = Path(prefix)
    if not prefix.parent.is_dir():
        return []
    groups = f"{prefix.name}.comm_group.json"
    named = ((path, RankFile.of(path.name)) for path in prefix.parent.iterdir())
    ranks = [path for path, found in named if found and found.prefix == prefix.name]
    return sorted([*ranks, *(p for p in (prefix.with_name(groups),) if p.exists())])


def require_free_prefix(prefix: str | Path, *, overwrite: bool) -> None:
    """Raise UsageError if a workload lies at a prefix and may not be replaced."""
    standing = standing_files(prefix)
    if standing and not overwrite:
        more = f" and {len(standing) - 1} more" if len(standing) > 1 else ""
        raise UsageError(
            f"{prefix}: a workload lies there already ({standing[0].name}{more}); name another "
            "prefix, or allow that it is replaced (--overwrite; overwrite=True in Python)."
        )


def write_workload(workload: Workload, prefix: str | Path, *, overwrite: bool = False) -> None:
    """Write ``PREFIX.<rank>.et`` of every rank, and ``PREFIX.comm_group.json`` if there are groups.

    The files are plain and meet what both Chakra feeders and ASTRA-sim ask for, see
    ``normalize``. No file is put in its place before all are written, so that a faulty trace
    leaves nothing behind. Rank 0 comes last: of a workload that was cut off on the way, rank 0 is
    missing, which readers refuse.

    Args:
        workload: What to write.
        prefix: Path without rank and ending.
        overwrite: Whether a workload of that prefix may be replaced, ranks that the new one lacks
            included.

    Raises:
        UsageError: If a workload of that prefix is there and may not be replaced.
        TraceError: If a trace cannot be brought into that form, naming the node, or if a group "0"
            is not that of all ranks.
    """
    prefix = Path(prefix)
    require_free_prefix(prefix, overwrite=overwrite)
    _require_whole_world(workload)
    files = track(_files(workload), "writing ranks", total=workload.num_ranks)
    wanted = {rank_file(prefix, rank) for rank in range(workload.num_ranks)}
    older = [path for path in standing_files(prefix) if path not in wanted]
    write_files(prefix, ((rank_file(prefix, rank), data) for rank, data in files), older)
    if workload.groups:
        write_groups(workload.groups, prefix.with_name(f"{prefix.name}.comm_group.json"))


def encode_workload(workload: Workload, name: str) -> list[tuple[str, bytes]]:
    """Return name and content of each file that ``write_workload`` writes for the prefix ``name``.

    Groups come first, then the ranks in their order; ranks with one trace share their bytes.

    Raises:
        TraceError: As ``write_workload``.
    """
    _require_whole_world(workload)
    groups = encode_groups(workload.groups)
    first = [(f"{name}.comm_group.json", groups)] if groups else []
    ranks = sorted(_files(workload), key=lambda file: file[0])
    return [*first, *((rank_file(name, rank).name, data) for rank, data in ranks)]


def decode_workload(files: Mapping[str, bytes], source: str) -> Workload:
    """Return the workload whose files, by their names, have these contents.

    Args:
        files: Those of one job, as ``encode_workload`` makes them; others are left out.
        source: Where they are from, for messages.

    Raises:
        TraceError: If ranks are missing, or a file cannot be read.
    """
    found = {file.rank: name for name in files if (file := RankFile.of(name))}
    if not found:
        raise TraceError(f"{source}: holds no trace PREFIX.<rank>.et; check the file.")
    decoder = RankDecoder()
    names = _in_order(found, source)
    traces = tuple(decoder.decode(files[name], f"{source}:{name}") for name in names)
    groups = next((name for name in sorted(files) if name.endswith("comm_group.json")), None)
    if groups is None:
        return Workload(traces, {}, source)
    at = f"{source}:{groups}"
    require_parsable(files[groups], at, TraceError)
    return Workload(traces, decode_groups(files[groups], at, len(traces)), source)


def _require_whole_world(workload: Workload) -> None:
    """Raise TraceError if a group that stands for all ranks is described otherwise."""
    for name in WORLD_NAMES:
        if set(workload.groups.get(name, range(workload.num_ranks))) != set(
            range(workload.num_ranks)
        ):
            raise TraceError(
                f"{workload.source}: group '{name}' stands for all ranks, but is described as "
                f"{list(workload.groups[name])[:8]}; give that group a number above 0."
            )


def _files(workload: Workload) -> Iterable[tuple[int, bytes]]:
    """Return the bytes of each rank's file, the last rank first."""
    if isinstance(workload.traces, LazyTraces):
        return workload.traces.files()
    encoded: dict[int, bytes] = {}
    for trace in workload.traces:
        if id(trace) not in encoded:
            encoded[id(trace)] = encode_trace(normalize(trace))
    ranks = reversed(range(workload.num_ranks))
    return [(rank, encoded[id(workload.traces[rank])]) for rank in ranks]
