"""The simulator as a library: workload and cluster in, ticks out."""

import numpy as np

from layerdag.errors import SimulationError
from layerdag.simulator._cluster import Congestion
from layerdag.simulator._machine import Cluster, ClusterPreset
from layerdag.simulator._notes import notes_on, refuse_untimed
from layerdag.simulator._result import SimulationResult, gpu_compute_ns, unexposed_ns
from layerdag.simulator._variation import Variation, with_variation
from layerdag.simulator.compute import ComputeModel, ReferenceCompute, compute_model
from layerdag.simulator.engine import (
    Outcome,
    Program,
    _event_loop as kernel,
    describe,
    explain,
    lower,
)
from layerdag.traces import Workload


def simulate(
    workload: Workload,
    cluster: Cluster | ClusterPreset,
    *,
    compute: ComputeModel | str | None = None,
    variation: Variation | None = None,
) -> SimulationResult:
    """Run ``workload`` on a cluster and return the ticks of every node.

    Args:
        workload: Traces of all ranks with communicator groups.
        cluster: What to run on: ``Cluster(network, system)``, ``Cluster.from_files`` or
            ``Cluster.preset``, which gets as many ranks as the workload has.
        compute: Times of compute nodes: a model, or what ``layerdag simulate --compute`` takes,
            such as "measured", "h100" or "systolic:128x128". By default ASTRA-sim's own,
            "reference" (roofline or recorded durations), and on a preset what suits it.
        variation: Ranks that differ in speed, and noise; none by default.

    Returns:
        The complete outcome: every node of every rank has run.

    Raises:
        SimulationError: If a node cannot run, ranks wait for each other forever, or a message is
            never received; names rank, node and cause.
        ConfigError: If workload and cluster do not fit together, or there is no such compute model.
    """
    if isinstance(cluster, ClusterPreset):
        compute = compute or cluster.compute
        cluster = cluster.sized(workload.num_ranks)
    if not isinstance(compute, ComputeModel):
        compute = compute_model(compute or "reference", cluster.system)
    refuse_untimed(workload, compute)
    program = lower(workload, cluster, compute)
    if variation is not None:
        program = with_variation(program, variation)
    outcome = kernel.run(program)
    if (outcome.finish_ns < 0).any() or len(outcome.unmatched):
        raise SimulationError(explain(program, outcome))
    if isinstance(compute, ReferenceCompute):
        _refuse_instant_start(program, outcome)
    duration_ns = outcome.finish_ns - outcome.issue_ns
    return SimulationResult(
        program=program,
        issue_ns=outcome.issue_ns,
        finish_ns=outcome.finish_ns,
        rank_finish_ns=outcome.rank_finish_ns,
        exposed_comm_ns=outcome.rank_finish_ns - unexposed_ns(program, duration_ns),
        compute_ns=gpu_compute_ns(program, duration_ns),
        lane=outcome.lane,
        events=outcome.events,
        notes=notes_on(program, compute),
    )


def _refuse_instant_start(program: Program, outcome: Outcome) -> None:
    """Raise SimulationError where the reference aborts: an event in tick 0, before its clock runs.

    A node of 0 ns causes one, as do a collective without endpoint delay, and with congestion a
    message that takes its link for less than 1 ns.
    """
    at = outcome.instant
    if at < 0 or program.cluster.options.congestion is Congestion.AWARE_MULTI:
        return
    rank = int(np.searchsorted(program.out_ptr, at, side="right") - 1)
    raise SimulationError(
        f"{describe(program, rank, at - int(program.out_ptr[rank]))} takes 0 ns at tick 0, "
        "itself or for its endpoint delay or link, where the reference aborts; give it more work, "
        "let a compute node go before it, or choose another compute model."
    )
