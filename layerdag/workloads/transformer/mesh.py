"""The ranks of a plan: which are in a group, and who is a neighbor."""

import numpy as np

from layerdag.codec.placement import RankTraces
from layerdag.plan import Plan
from layerdag.traces.trace import Trace

ROLES = ("tensor", "context", "data", "expert", "expert_data", "embedding")
"""Communicator groups that a rank can be in. "data" are the ranks that hold the same dense weights
(of all contexts), "expert_data" those that hold the same experts, "embedding" the first and the
last stage."""

PEERS = ("previous", "next")
"""Neighbors in the pipeline, in a ring: after the last stage comes the first."""


def rank_groups(plan: Plan, role: str) -> np.ndarray:
    """Return the groups of a role, int64 (G, members); each rank is in one of them at most."""
    rank_PXT = np.arange(plan.ranks).reshape(plan.pipeline, plan.replicas, plan.tensor)
    if role == "tensor":
        return rank_PXT.reshape(-1, plan.tensor)
    if role == "context":
        rank_PDCT = rank_PXT.reshape(plan.pipeline, plan.data, plan.context, plan.tensor)
        return np.moveaxis(rank_PDCT, 2, 3).reshape(-1, plan.context)
    if role == "data":
        return np.moveaxis(rank_PXT, 1, 2).reshape(-1, plan.replicas)
    if role == "embedding":
        ends = rank_PXT[[0, -1]].reshape(2, -1)
        return ends.T if plan.pipeline > 1 else ends[:1].T
    rank_PKET = rank_PXT.reshape(plan.pipeline, -1, plan.expert, plan.expert_sharers)
    axis, size = (2, plan.expert) if role == "expert" else (1, plan.expert_replicas)
    return np.moveaxis(rank_PKET, axis, 3).reshape(-1, size)


def peer_R(plan: Plan, peer: str) -> np.ndarray:
    """Return the neighbor of every rank in the pipeline, int64 (R,)."""
    step = plan.ranks // plan.pipeline
    return (np.arange(plan.ranks) + (step if peer == "next" else -step)) % plan.ranks


def stage_traces(plan: Plan, stages: tuple[Trace, ...]) -> RankTraces:
    """Return the traces of all ranks from those of the stages, of ``TraceBuilder``.

    Ranks of a stage share all columns but groups and peers.
    """
    used = {text for trace in stages for text in trace.strings}
    return RankTraces(
        stages,
        np.arange(plan.ranks) // (plan.ranks // plan.pipeline),
        {role: rank_groups(plan, role) for role in ROLES if role in used},
        [peer_R(plan, peer) for peer in PEERS],
    )
