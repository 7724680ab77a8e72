"""Several PyTorch traces as the ranks of one job."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from layerdag.errors import UsageError
from layerdag.traces.kineto import read_timings
from layerdag.traces.pytorch_import import ImportResult, import_host
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
    """Import the host traces of all ranks, with the profiles of the same steps if there are any.

    Args:
        hosts: Host trace of each rank, in order of rank.
        devices: Kineto profile of each rank, or none.

    Raises:
        UsageError: If there are profiles, but not one for each host trace.
        TraceError: If a file cannot be imported.
    """
    if devices and len(devices) != len(hosts):
        raise UsageError(
            f"There are {len(hosts)} host traces but {len(devices)} profiles; give one for each "
            "rank, in the same order."
        )
    if devices:
        results = tuple(
            import_host(host, read_timings(device))
            for host, device in zip(hosts, devices, strict=True)
        )
    else:
        results = tuple(import_host(host) for host in hosts)
    groups = {name: ranks for result in results for name, ranks in result.groups.items()}
    traces = tuple(result.trace for result in results)
    return ImportedJob(Workload(traces, groups, str(Path(hosts[0]).parent)), results)
