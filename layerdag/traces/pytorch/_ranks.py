"""Several PyTorch traces as the ranks of one job."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from layerdag.errors import TraceError, UsageError
from layerdag.traces import Trace, Wire, Workload
from layerdag.traces.pytorch._importer import import_pytorch
from layerdag.traces.pytorch._process_groups import Ranks, number_groups
from layerdag.traces.pytorch.host import ImportResult


@dataclass(frozen=True)
class ImportedJob:
    """A job imported from PyTorch traces.

    Attributes:
        workload: One trace per rank.
        results: What each rank's import says about itself.
    """

    workload: Workload
    results: tuple[ImportResult, ...]


def import_ranks(hosts: Sequence[str | Path], devices: Sequence[str | Path] = ()) -> ImportedJob:
    """Import all ranks of a job from host traces, from profiles, or from both of the same steps.

    Args:
        hosts: Host trace of each rank, in order of rank, or none.
        devices: Kineto profile of each rank, in the same order, or none.

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
    results = tuple(import_pytorch(host, device) for host, device in pairs)
    if not results:
        raise UsageError("nothing to import: give a host trace, a profile, or both.")
    names = number_groups(result.groups for result in results)
    traces = tuple(_renamed(result, names) for result in results)
    groups = {name: ranks for ranks, name in names.items()}
    return ImportedJob(Workload(traces, groups, str(Path((*hosts, *devices)[0]).parent)), results)


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
    missing = ", ".join(map(str, range(given, min(wanted, given + 10))))
    raise TraceError(
        f"{job.workload.source}: the traces are of a job of {wanted} ranks, but {given} were "
        f"given; add rank {missing}{', ...' if wanted > given + 10 else ''}, in order of rank, or "
        "'layerdag convert' the files of one rank with --only-rank or --replicate."
    )


def _renamed(result: ImportResult, names: Mapping[Ranks, str]) -> Trace:
    """Return a rank's trace with the group names that hold for the whole job."""
    name_of = {old: names[ranks] for old, ranks in result.groups.items()}
    return with_group_names(result.trace, name_of)


def with_group_names(trace: Trace, name_of: Mapping[str, str]) -> Trace:
    """Return a trace with other names of communicator groups."""
    table = trace.attributes
    if all(old == new for old, new in name_of.items()) or "pg_name" not in trace.strings:
        return trace
    strings = (*trace.strings, *name_of.values())
    word_of = {trace.strings.index(old): len(trace.strings) + at
               for at, old in enumerate(name_of) if old in trace.strings}  # fmt: skip
    word_A = table.word_A.copy()
    is_name_A = (table.name_A == trace.strings.index("pg_name")) & (table.wire_A == Wire.STRING)
    for row in np.flatnonzero(is_name_A):
        word_A[row] = word_of.get(int(word_A[row]), int(word_A[row]))
    return replace(trace, strings=strings, attributes=replace(table, word_A=word_A))
