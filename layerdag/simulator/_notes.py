"""Notes on what is easily misread in the figures of a run, and runs whose figures mean nothing."""

from collections.abc import Iterator

import numpy as np

from layerdag.errors import SimulationError
from layerdag.simulator.compute import ComputeModel, ReferenceCompute
from layerdag.simulator.engine import Algorithm, CollectivePlan, PhaseType, Program
from layerdag.traces import NodeType, Trace, Workload

_EMPTY = (
    "a collective of 0 bytes runs with a byte for every rank in each chunk, as in the reference; "
    "drop the node if it moves nothing."
)
_FREE = (
    "system.json has no local-mem-bw, so reductions take 0 ns, as in the reference; add it to "
    "charge them."
)
_COSTS_UNUSED = (
    "no compute node states a duration, so each takes 1 ns, as in the reference; to use num_ops "
    "and tensor_size set roofline-enabled to 1, or choose a device with --compute."
)

_ALONE = "the job has one rank, which ASTRA-sim itself refuses: its network needs two or more."


def refuse_untimed(workload: Workload, compute: ComputeModel) -> None:
    """Raise SimulationError where no compute node has a time, so that each would take 1 ns.

    A trace that has costs instead of durations runs under ``ReferenceCompute``, as in the
    reference; ``notes_on`` adds a note.
    """
    if not _untimed(workload, compute):
        return
    costed = any(_has_costs(trace, row_M) for trace, row_M in _computing(workload))
    if costed and isinstance(compute, ReferenceCompute):
        return
    count = sum(row_M.size for _, row_M in _computing(workload))
    remedy = (
        "choose a device with --compute, such as h100, to make times of num_ops and tensor_size"
        if costed
        else "convert the host trace together with its profile, which has durations, or give the "
        "nodes num_ops and tensor_size and choose a device with --compute, such as h100"
    )
    raise SimulationError(
        f"{workload.source}: none of its {count:,} compute nodes states a duration that this "
        f"compute model reads, so each would take 1 ns; {remedy}."
    )


def notes_on(program: Program, compute: ComputeModel) -> tuple[str, ...]:
    """Return what a reader of the figures should know, one sentence each."""
    plans = program.plans
    notes = [_EMPTY] if any(plan.size == 0 for plan in plans) else []
    if program.workload.num_ranks == 1:
        notes.append(_ALONE)
    if not isinstance(compute, ReferenceCompute):
        return tuple(notes)
    if program.cluster.system.local_mem_bw_gb is None and any(map(_reduces, plans)):
        notes.append(_FREE)
    if _untimed(program.workload, compute):
        notes.append(_COSTS_UNUSED)
    return tuple(notes)


def _computing(workload: Workload) -> Iterator[tuple[Trace, np.ndarray]]:
    """Yield each trace that computes, with the rows of its compute nodes."""
    for trace in workload.traces:
        row_M = np.flatnonzero(trace.type_N == NodeType.COMP)
        if row_M.size:
            yield trace, row_M


def _untimed(workload: Workload, compute: ComputeModel) -> bool:
    """Return whether there are compute nodes, and none has a time; most traces end at the first."""
    computes = False
    for trace, row_M in _computing(workload):
        computes = True
        if compute.is_timed(trace, row_M):
            return False
    return computes


def _reduces(plan: CollectivePlan) -> bool:
    """Return whether ranks sum up what they receive."""
    reducing = (PhaseType.ALL_REDUCE, PhaseType.REDUCE_SCATTER)
    return any(
        phase.type in reducing and phase.algorithm is not Algorithm.IN_NETWORK
        for phase in plan.phases
    )


def _has_costs(trace: Trace, row_M: np.ndarray) -> bool:
    """Return whether some of the nodes state operations or bytes."""
    return any(
        bool((trace.integers(name)[0][row_M] > 0).any()) for name in ("num_ops", "tensor_size")
    )
