"""Several PyTorch traces as the ranks of one job."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from layerdag.errors import UsageError
from layerdag.traces.pytorch import import_pytorch
from layerdag.traces.pytorch_import import ImportResult
from layerdag.traces.trace import Workload


@dataclass(frozen=True)
class ImportedJob:
    """A job imported from PyTorch traces.

    Attributes:
        workload: One trace a rank.
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
    groups = {name: ranks for result in results for name, ranks in result.groups.items()}
    traces = tuple(result.trace for result in results)
    return ImportedJob(Workload(traces, groups, str(Path((*hosts, *devices)[0]).parent)), results)
