"""``ld.diff``: what differs between two traces, jobs or graphs."""

from collections.abc import Sequence
from pathlib import Path

from layerdag.api._read import read
from layerdag.codec import AttributedGraph
from layerdag.errors import UsageError
from layerdag.simulator import Cluster, ClusterPreset, simulate
from layerdag.traces import Workload
from layerdag.workloads.differences import Difference, diff as aligned_diff


def diff(
    a: Workload | AttributedGraph | str | Path,
    b: Workload | AttributedGraph | str | Path,
    *,
    ignore: Sequence[str] = (),
    cluster: Cluster | ClusterPreset | None = None,
) -> Difference:
    """Align two traces, jobs or graphs and return what differs.

    Nodes correspond if they have the same operator and stand at the same place among their like.
    Ids, tags, names of groups and numbers in names do not count. ``print(ld.diff(a, b))`` shows
    what ``layerdag diff`` shows.

    Args:
        a: A workload, a graph, or whatever ``layerdag.read`` reads.
        b: Another one of the same kind.
        ignore: What does not count: "operators", "structure", "time", "communication", "labels".
        cluster: Where both jobs are simulated to compare their makespans.

    Raises:
        UsageError: If one is a graph and the other traces, or a part is unknown.
        DataError: If one cannot be read or is faulty.
    """
    first, second = (read(x) if isinstance(x, str | Path) else x for x in (a, b))
    makespans = None
    if cluster is not None:
        if not (isinstance(first, Workload) and isinstance(second, Workload)):
            raise UsageError("Graphs cannot be simulated; leave the cluster out.")
        makespans = (
            simulate(first, cluster).makespan_ns,
            simulate(second, cluster).makespan_ns,
        )
    return aligned_diff(first, second, ignore=ignore, makespans_ns=makespans)
