"""The rank files of a PyTorch job; a job from one rank alone."""

import contextlib
import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

import numpy as np

from layerdag.errors import TraceError, UsageError
from layerdag.runtime.notes import Note, NoteCollector, NoteKind
from layerdag.runtime.reading import open_unpacked, read_whole
from layerdag.traces.analysis import WORLD_NAMES, group_names
from layerdag.traces.builder import with_texts, with_words
from layerdag.traces.pytorch.host_dataflow import number_groups
from layerdag.traces.pytorch.importer import ImportResult, import_pytorch
from layerdag.traces.pytorch.kineto import read_distributed, stated_rank
from layerdag.traces.trace import MESSAGES, NodeType, Trace, Wire, Workload, communicates, listed


class PyTorchFile(Enum):
    """What PyTorch writes."""

    HOST = "PyTorch execution trace"
    KINETO = "Kineto profile"


_START = 1 << 20
"""Bytes in which the keys of a PyTorch file must stand."""


def pytorch_kind(data: bytes) -> PyTorchFile | None:
    """Return which of PyTorch's files a JSON object is by its keys, None for any other."""
    if b'"workload_graph"' in data:
        return None
    if b'"traceEvents"' in data:
        return PyTorchFile.KINETO
    return PyTorchFile.HOST if b'"schema"' in data and b'"nodes"' in data else None


def pytorch_format(path: str | Path) -> PyTorchFile | None:
    """Return the kind of a file that PyTorch wrote, None for any other; only its start is read.

    Raises:
        TraceError: If the file is missing or a damaged archive.
    """
    with open_unpacked(path, TraceError) as stream:
        start = stream.read_full(_START)
    is_object = start[:4096].removeprefix(b"\xef\xbb\xbf").lstrip()[:1] == b"{"
    return pytorch_kind(start) if is_object else None


# A rank is named as one, or stands between dots; another number may be that of a run.
_TOLD = re.compile(r"(?:rank|worker)[._-]?(\d{1,9})(?!\d)", re.IGNORECASE)
_NUMBER = re.compile(r"(?<![0-9])(\d{1,9})(?![0-9])")
_ENDING = re.compile(r"(\.(json|pt|trace|et|gz|xz))+$")
_JSON = re.compile(r".*\.json(\.gz|\.xz)?")
# ``torch.profiler.tensorboard_trace_handler`` writes host_pid.nanoseconds.pt.trace.json.
_PROCESS = re.compile(r".+_\d+\.\d{10,}\.pt\.trace\.json(\.gz|\.xz)?")
_RANK_WORD = re.compile(r"(rank|worker)[._-]?\d|(?<![a-z])r\d|\.\d+$", re.IGNORECASE)
_DISTRIBUTED = re.compile(rb'c10d::|record_param_comms|process_group:|"distributedInfo"|gloo:')


def has_rank_in_name(stem: str) -> bool:
    """Return whether a file name without its endings says that its number is a rank."""
    return _RANK_WORD.search(stem) is not None


def are_distributed(paths: Sequence[Path]) -> bool:
    """Return whether files of PyTorch are of ranks that communicate, as the first sound one is."""
    for path in paths:
        with contextlib.suppress(TraceError):  # reported when it is imported
            return _DISTRIBUTED.search(read_whole(path, error=TraceError)) is not None
    return True


@dataclass(frozen=True)
class RankFiles:
    """The files of a job, one of each kind per rank in order of rank, or none of a kind.

    Notes are on names that contradict what files state.
    """

    hosts: tuple[Path, ...]
    devices: tuple[Path, ...]
    notes: tuple[Note, ...] = ()


def find_rank_files(location: str | Path) -> RankFiles | None:
    """Return the PyTorch traces of a folder, or of those files whose names begin with a prefix.

    The rank of a profile is what it states (``distributedInfo``). Otherwise the rank of a file is
    the number behind "rank" or "worker" in its name, else the last number; a lone file is one rank.

    Returns:
        None if there is no such file.

    Raises:
        TraceError: If two files are of one rank, a name shows no rank, or ranks are missing.
    """
    location = Path(location)
    folder, prefix = (location, "") if location.is_dir() else (location.parent, location.name)
    if location.is_file() or not folder.is_dir():
        return None
    found: dict[PyTorchFile, list[Path]] = {kind: [] for kind in PyTorchFile}
    for path in sorted(folder.iterdir()):
        if not (path.name.startswith(prefix) and _JSON.fullmatch(path.name) and path.is_file()):
            continue
        kind = pytorch_format(path)
        if kind is not None:
            found[kind].append(path)
    if not any(found.values()):
        return None
    notes = NoteCollector(str(location))
    hosts = _by_rank(found[PyTorchFile.HOST], {}, notes)
    profiles = found[PyTorchFile.KINETO]
    stated = {path: stated_rank(read_distributed(path)) for path in profiles}
    devices = _by_rank(profiles, {p: rank for p, rank in stated.items() if rank is not None}, notes)
    count = 1 + max((*hosts, *devices))
    every = [*hosts.values(), *devices.values()]
    told = any(has_rank_in_name(_ENDING.sub("", path.name)) for path in every)
    if count > 1 and not told and not are_distributed(every):
        raise TraceError(
            f"{location}: holds {count} traces with numbers in their names that do not "
            "communicate, of several jobs rather than of ranks; name one of them. If they are "
            "ranks of one job, call them PREFIX.<rank>.json."
        )
    return RankFiles(
        _in_order(hosts, count, "host traces", location),
        _in_order(devices, count, "profiles", location),
        notes.notes,
    )


def _by_rank(
    paths: Sequence[Path], stated: Mapping[Path, int], notes: NoteCollector
) -> dict[int, Path]:
    named: dict[Path, int | None] = {}  # the rank in a file's name, None if it shows none
    for path in paths:
        stem = _ENDING.sub("", path.name)
        usual = [] if _PROCESS.fullmatch(path.name) else _NUMBER.findall(stem)
        numbers = _TOLD.findall(stem) or usual
        named[path] = int(numbers[-1]) if numbers else None
    # Bare numbers are ranks where they count the files; else they may be steps, dates, processes.
    counts = len(paths) > 1 and sorted(n for n in named.values() if n is not None) == list(
        range(len(paths))
    )
    of_rank: dict[int, Path] = {}
    for path in paths:
        rank, name = stated.get(path), named[path]
        if rank is None:
            rank = _rank_by_name(path, name, alone=len(paths) == 1)
        elif name not in (None, rank) and (counts or _TOLD.search(path.name)):
            effect = f"taken for rank {rank}, which the profile states (distributedInfo)"
            notes.add(NoteKind.RANK, path.name, effect)
        if rank in of_rank and path in stated:
            raise TraceError(
                f"{path}: states rank {rank} (distributedInfo), as does {of_rank[rank].name}; give "
                "the profiles of one job and step, or, if what they state is wrong, give them to "
                "'layerdag convert' one by one in order of rank."
            )
        if rank in of_rank:
            raise TraceError(
                f"{path}: is the second file of rank {rank} beside {of_rank[rank].name}; give the "
                "files of one job and step, or add their common prefix to the path."
            )
        of_rank[rank] = path
    return of_rank


def _rank_by_name(path: Path, named: int | None, *, alone: bool) -> int:
    if alone and not _TOLD.search(path.name):
        return 0
    if named is None:
        what = "shows no rank"
        if _PROCESS.fullmatch(path.name):
            what = (
                "tells host, process and time but no rank, and the profile does not state one "
                "(distributedInfo)"
            )
        raise TraceError(
            f"{path}: its name {what}; name the files PREFIX.<rank>.json, or give them to "
            "'layerdag convert' one by one in order of rank."
        )
    return named


def _in_order(
    of_rank: Mapping[int, Path], count: int, what: str, location: Path
) -> tuple[Path, ...]:
    """Return the files of ranks 0 to count - 1, or none, or name the missing ones."""
    if not of_rank:
        return ()
    absent = (rank for rank in range(count) if rank not in of_rank)
    missing = list(itertools.islice(absent, 11))
    if missing:
        raise TraceError(
            f"{location}: has {len(of_rank)} {what} of a job with ranks up to {count - 1}, but "
            f"lacks rank {listed(missing, 10)}; add the missing files, or give 'layerdag convert' "
            "those of one rank with --only-rank or --replicate."
        )
    return tuple(of_rank[rank] for rank in range(count))


@dataclass(frozen=True)
class ImportedJob:
    """A job imported from PyTorch traces, and what the import of each rank says about itself."""

    workload: Workload
    results: tuple[ImportResult, ...]


def import_ranks(
    hosts: Sequence[str | Path],
    devices: Sequence[str | Path] = (),
    notes: Iterable[Note] = (),
    *,
    keep_arguments: bool = False,
) -> ImportedJob:
    """Import all ranks of a job from host traces, from profiles, or from both of the same steps.

    Profiles that state their ranks (``distributedInfo``) are put into that order.

    Args:
        hosts: Host trace of each rank, in order of rank, or none.
        devices: Kineto profile of each rank, in the same order, or none.
        notes: What was noted about the files before.
        keep_arguments: Whether traces keep the arguments of operators, and so their programs.

    Raises:
        UsageError: If nothing is given, or there are both but not one of each for every rank.
        TraceError: If a file cannot be imported.
    """
    if hosts and devices and len(devices) != len(hosts):
        raise UsageError(
            f"there are {len(hosts)} host traces but {len(devices)} profiles; give one for each "
            "rank, in the same order."
        )
    pairs = itertools.zip_longest(hosts, devices)
    found = [import_pytorch(h, d, keep_arguments=keep_arguments) for h, d in pairs]
    if not found:
        raise UsageError("nothing to import: give a host trace, a profile, or both.")
    source = str(Path((*hosts, *devices)[0]).parent)
    collector = NoteCollector(source)
    collector.extend(notes)
    results = tuple(_in_stated_order(found, collector))
    names = number_groups(result.groups for result in results)
    traces = tuple(
        with_group_names(result.trace, {own: names[ranks] for own, ranks in result.groups.items()})
        for result in results
    )
    groups = {name: ranks for ranks, name in names.items()}
    return ImportedJob(Workload(traces, groups, source, collector.notes), results)


def _in_stated_order(results: Sequence[ImportResult], notes: NoteCollector) -> list[ImportResult]:
    """Return the ranks in the order that their profiles state; without it, in the order given."""
    ranks = [result.rank for result in results]
    stated = [rank for rank in ranks if rank is not None]
    if len(results) == 1 or len(stated) < len(ranks):
        return list(results)
    shown = listed(stated, 16)
    if len(set(stated)) < len(stated):
        effect = "stated by the profiles (distributedInfo), some twice; taken in the order given"
        notes.add(NoteKind.RANK, shown, effect)
        return list(results)
    if stated != sorted(stated):
        effect = "stated by the profiles (distributedInfo) in the order given; put into their order"
        notes.add(NoteKind.RANK, shown, effect)
    order = sorted(range(len(results)), key=lambda at: stated[at])
    return [results[at] for at in order]


def ranks_wanted(job: ImportedJob) -> int:
    """Return the number of ranks that the groups of a job name, at least those given."""
    named = 1 + max((max(ranks) for ranks in job.workload.groups.values() if ranks), default=0)
    return max(named, job.workload.num_ranks)


def refuse_missing_ranks(job: ImportedJob) -> None:
    """Refuse a job whose groups name more ranks than there are traces.

    Raises:
        TraceError: If traces are missing; names them.
    """
    given, wanted = job.workload.num_ranks, ranks_wanted(job)
    if wanted == given:
        return
    if given == 1:
        raise TraceError(
            f"{job.workload.traces[0].source}: is one rank of a job of {wanted}; give the files of "
            "all, in order of rank, or 'layerdag convert' this one with --only-rank (its "
            "communication becomes work of equal time) or with --replicate (every rank runs it)."
        )
    missing = listed(range(given, wanted), 10)
    raise TraceError(
        f"{job.workload.source}: the traces are of a job of {wanted} ranks, but {given} were "
        f"given; add rank {missing}, in order of rank, or "
        "'layerdag convert' the files of one rank with --only-rank or --replicate."
    )


def with_group_names(trace: Trace, name_of: Mapping[str, str]) -> Trace:
    """Return a trace with other names of communicator groups."""
    if all(old == new for old, new in name_of.items()):
        return trace
    names, present_N = group_names(trace)
    text_of = {
        row: name_of.get(names[row], names[row]) for row in np.flatnonzero(present_N).tolist()
    }
    return with_texts(trace, "pg_name", text_of)


MAX_RANKS = 16_384
ELEMENT_BYTES = 4
_COMMUNICATION = ("comm_type", "comm_size", "comm_src", "comm_dst", "comm_tag", "pg_name")
_COSTS = ("num_ops", "tensor_size")


@dataclass(frozen=True)
class DroppedCommunication:
    """The communication of a rank of a job that became work of that rank alone."""

    collectives: int
    messages: int
    num_bytes: int
    num_ranks: int


def import_single_rank(job: ImportedJob) -> tuple[Workload, DroppedCommunication]:
    """Return the one rank of ``job`` as a job of its own: communication becomes work of equal time.

    Under a roofline, which does not ask for times, such work is a copy: it reads and writes the
    size of the communication, with one operation for each element of 4 bytes.

    Raises:
        TraceError: If there are several ranks, or a communication attribute has a wrong type.
    """
    trace = _only_trace(job)
    comm_N = communicates(trace.type_N)
    size_N = np.maximum(trace.integers("comm_size")[0], 0)
    lost = DroppedCommunication(
        collectives=int((trace.type_N == NodeType.COMM_COLL).sum()),
        messages=int((comm_N & (trace.type_N != NodeType.COMM_COLL)).sum()),
        num_bytes=int(size_N[comm_N].sum()),
        num_ranks=ranks_wanted(job),
    )
    table, node_A = trace.attributes, trace.attributes.node_A
    replaced = [at for at, word in enumerate(trace.strings) if word in (*_COMMUNICATION, *_COSTS)]
    keep_A = ~(comm_N[node_A] & np.isin(table.name_A, replaced))
    count_N = np.bincount(node_A[keep_A], minlength=trace.num_nodes)
    alone = replace(
        trace,
        type_N=np.where(comm_N, NodeType.COMP, trace.type_N).astype(trace.type_N.dtype),
        attributes=table.select(np.flatnonzero(keep_A), count_N),
    )
    size_of = {row: max(int(size_N[row]), 1) for row in np.flatnonzero(comm_N).tolist()}
    ops_of = {row: max(size // ELEMENT_BYTES, 1) for row, size in size_of.items()}
    moved_of = {row: 2 * size for row, size in size_of.items()}
    alone = with_words(alone, "num_ops", Wire.INT64, ops_of)
    alone = with_words(alone, "tensor_size", Wire.UINT64, moved_of)
    return Workload((alone,), {}, job.workload.source, job.workload.job_notes), lost


def replicate_rank(job: ImportedJob) -> Workload:
    """Return a job in which every rank runs the one trace of ``job``, with groups of its own.

    A group of k ranks that lie s apart is taken for one of a regular grid: the ranks are cut into
    blocks of k s, and those s apart in a block share a group, as tensor, data and expert parallel
    groups do.

    Raises:
        TraceError: If several ranks are given, the trace names no others or sends messages (its
            stage of a pipeline is not theirs), or a group does not lie on a regular grid.
    """
    trace, num_ranks = _only_trace(job), ranks_wanted(job)
    if num_ranks == 1:
        raise TraceError(
            f"{trace.source}: names no other ranks, so it cannot be replicated; leave "
            "--replicate out."
        )
    if num_ranks > MAX_RANKS:
        raise TraceError(
            f"{trace.source}: names {num_ranks:,} ranks; at most {MAX_RANKS:,} are written."
        )
    if np.isin(trace.type_N, MESSAGES).any():
        raise TraceError(
            f"{trace.source}: sends or receives messages, so other ranks run other programs; give "
            "their traces, or take this rank alone with --only-rank."
        )
    used = set(group_names(trace)[0]) - set(WORLD_NAMES)
    if not used:
        return Workload((trace,) * num_ranks, {}, job.workload.source, job.workload.job_notes)
    grids = {
        name: _Grid.from_ranks(job.workload.groups[name], num_ranks, trace.source)
        for name in sorted(used)
    }
    number: dict[tuple[int, ...], str] = {}
    written: dict[tuple[str, ...], Trace] = {}
    traces = []
    for rank in range(num_ranks):
        names = tuple(
            number.setdefault(grid.members(rank), str(len(number) + 1)) for grid in grids.values()
        )
        if names not in written:
            written[names] = with_group_names(trace, dict(zip(grids, names, strict=True)))
        traces.append(written[names])
    groups = {name: ranks for ranks, name in number.items()}
    return Workload(tuple(traces), groups, job.workload.source, job.workload.job_notes)


@dataclass(frozen=True)
class _Grid:
    size: int
    stride: int

    @classmethod
    def from_ranks(cls, ranks: tuple[int, ...], num_ranks: int, source: str) -> "_Grid":
        """Return the grid that a group is part of. Raises TraceError if there is none."""
        steps = np.diff(sorted(ranks))
        grid = cls(len(ranks), int(steps[0]) if steps.size else 1)
        whole = num_ranks % (grid.size * grid.stride) == 0
        if not whole or grid.members(min(ranks)) != tuple(sorted(ranks)):
            shown = listed(sorted(ranks), 8)
            raise TraceError(
                f"{source}: the group of ranks {shown} is not one of equal groups of all "
                f"{num_ranks} ranks, so the other groups are unknown; give their traces, or "
                "take this rank alone with --only-rank."
            )
        return grid

    def members(self, rank: int) -> tuple[int, ...]:
        block = self.size * self.stride
        first = rank // block * block + rank % self.stride
        return tuple(range(first, first + block, self.stride))


def _only_trace(job: ImportedJob) -> Trace:
    if job.workload.num_ranks != 1:
        raise TraceError(
            f"{job.workload.source}: {job.workload.num_ranks} ranks are given; --only-rank and "
            "--replicate take the files of one."
        )
    return job.workload.traces[0]
