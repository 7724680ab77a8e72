"""The traces of all ranks of a job: the program of a stage with groups and peers filled in."""

import numpy as np

from layerdag.traces import Trace
from layerdag.workloads.ranks import RankTraces
from layerdag.workloads.symbolic._grid import PEERS, ROLES, Grid
from layerdag.workloads.symbolic._plan import Plan


def stage_traces(plan: Plan, stages: tuple[Trace, ...]) -> RankTraces:
    """Return the traces of all ranks; those of a stage share all columns but groups and peers.

    Args:
        plan: The degrees of parallelism.
        stages: The program of each stage, groups and peers by role (``Tape``).
    """
    grid = Grid(plan)
    used = {text for trace in stages for text in trace.strings}
    return RankTraces(
        stages,
        np.arange(plan.ranks) // (plan.ranks // plan.pipeline),
        {role: grid.groups(role) for role in ROLES if role in used},
        [grid.peer_R(peer) for peer in PEERS],
    )
