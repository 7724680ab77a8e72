"""The simulator as a library: workload and cluster in, ticks out."""

import numpy as np

from layerdag.errors import SimulationError
from layerdag.simulator import kernel
from layerdag.simulator.cluster import MemoryConfig, NetworkConfig, RunOptions, SystemConfig
from layerdag.simulator.compute import ComputeModel, ReferenceCompute
from layerdag.simulator.diagnosis import describe, explain
from layerdag.simulator.kernel import Outcome
from layerdag.simulator.nodes import NodeKind
from layerdag.simulator.program import Cluster, Program, lower
from layerdag.simulator.result import SimulationResult, gpu_compute_ns
from layerdag.simulator.variation import Variation, vary
from layerdag.traces.trace import Workload


def simulate(
    workload: Workload,
    system: SystemConfig,
    network: NetworkConfig,
    *,
    memory: MemoryConfig | None = None,
    options: RunOptions | None = None,
    compute: ComputeModel | None = None,
    variation: Variation | None = None,
) -> SimulationResult:
    """Run ``workload`` on a cluster and return the ticks of every node.

    Args:
        workload: Traces of all ranks with communicator groups.
        system: Algorithms, chunking, local rates.
        network: Dimensions; their sizes multiply to the number of ranks.
        memory: Remote memory; none by default.
        options: Congestion model, queues, rendezvous; ASTRA-sim's defaults by default.
        compute: Times of compute nodes; by default ASTRA-sim's (roofline or recorded durations).
        variation: Ranks that differ in speed, and noise; none by default.

    Returns:
        The complete outcome: every node of every rank has run.

    Raises:
        SimulationError: If a node cannot run, ranks wait for each other for ever, or a message is
            never received; names rank, node and cause.
        ConfigError: If workload and cluster do not fit together.
    """
    cluster = Cluster(network, system, memory or MemoryConfig(), options or RunOptions())
    return simulate_on(workload, cluster, compute or ReferenceCompute(system), variation)


def simulate_on(
    workload: Workload,
    cluster: Cluster,
    compute: ComputeModel,
    variation: Variation | None = None,
) -> SimulationResult:
    """Run ``workload`` on ``cluster``; see ``simulate``, which takes the parts one by one."""
    program = lower(workload, cluster, compute)
    if variation is not None:
        program = vary(program, variation)
    outcome = kernel.run(program)
    if (outcome.finish_ns < 0).any() or len(outcome.orphans):
        raise SimulationError(explain(program, outcome))
    if isinstance(compute, ReferenceCompute):
        _refuse_instant_start(program, outcome)
    compute_ns = gpu_compute_ns(program, outcome.finish_ns - outcome.issue_ns)
    return SimulationResult(
        program=program,
        issue_ns=outcome.issue_ns,
        finish_ns=outcome.finish_ns,
        rank_finish_ns=outcome.rank_finish_ns,
        exposed_comm_ns=outcome.rank_finish_ns - compute_ns,
        compute_ns=compute_ns,
        lane=outcome.lane,
        events=outcome.events,
    )


def _refuse_instant_start(program: Program, outcome: Outcome) -> None:
    """Raise SimulationError where a node takes 0 ns at tick 0: the reference aborts there."""
    kind = np.concatenate([program.classes[c].kind_N for c in program.class_of_rank])
    instant = (outcome.issue_ns == 0) & (outcome.finish_ns == 0) & (kind != NodeKind.SKIP)
    if instant.any():
        at = int(np.argmax(instant))
        rank = int(np.searchsorted(program.out_ptr, at, side="right") - 1)
        raise SimulationError(
            f"{describe(program, rank, at - int(program.out_ptr[rank]))} takes 0 ns at tick 0, "
            "where the reference aborts; give it more work, or choose another compute model."
        )
