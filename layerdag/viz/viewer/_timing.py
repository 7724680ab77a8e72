"""When the nodes of a trace run: as a simulated cluster says, or as their durations allow."""

import numpy as np

from layerdag.errors import UsageError
from layerdag.simulator import Cluster, simulate
from layerdag.simulator.analysis import critical_path as simulated_path
from layerdag.traces import Trace, Workload, dependency_edges, trace_layers
from layerdag.traces.analysis import critical_path
from layerdag.viz import Timing


def recorded_timing(trace: Trace) -> Timing | None:
    """Return the earliest times that durations and dependencies allow; None without durations.

    Raises:
        TraceError: If the dependencies dangle, repeat an id, or form a cycle.
    """
    duration_N = np.maximum(trace.duration_us_N.astype(np.float64), 0.0)
    if not duration_N.any():
        return None
    edge_index_2E, _ = dependency_edges(trace)
    path = critical_path(trace_layers(trace, edge_index_2E), edge_index_2E, duration_N)
    critical_N = np.zeros(trace.num_nodes, dtype=bool)
    critical_N[path.row_P] = True
    source = "the trace's durations, each node as early as its dependencies allow"
    return Timing(source, path.finish_N - duration_N, path.finish_N, critical_N)


def simulated_timing(
    workload: Workload, preset: str, rank: int, compute: str | None = None
) -> Timing:
    """Return when the nodes of a rank run on a described cluster.

    Args:
        workload: The whole job.
        preset: Name of the cluster.
        rank: Which rank's nodes.
        compute: Times of compute nodes, as ``simulate`` takes them; what suits the preset by
            default.

    Raises:
        UsageError: If there is no such preset.
        SimulationError: If the job cannot run to its end.
    """
    if not 0 <= rank < workload.num_ranks:
        raise UsageError(
            f"--rank {rank}: {workload.source} has ranks 0 to {workload.num_ranks - 1}."
        )
    result = simulate(workload, Cluster.preset(preset), compute=compute)
    trace = workload.traces[rank]
    # Rows of a result are in ascending id, those of a trace in the order of its file.
    order_N = np.argsort(trace.id_N, kind="stable")
    start_N, end_N = np.empty(order_N.size), np.empty(order_N.size)
    start_N[order_N] = result.issue_ns[result.rows(rank)] / 1e3
    end_N[order_N] = result.finish_ns[result.rows(rank)] / 1e3
    critical_N = np.zeros(order_N.size, dtype=bool)
    critical_N[order_N[[node.row for node in simulated_path(result) if node.rank == rank]]] = True
    device = f", compute {compute}" if compute else ""
    return Timing(f"simulated, cluster “{preset}”{device}, rank {rank}", start_N, end_N, critical_N)
