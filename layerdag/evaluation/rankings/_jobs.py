"""Jobs of several ranks, with what is known of them before they run."""

from collections.abc import Mapping
from dataclasses import dataclass

from layerdag.codec import AttributedGraph, fitting_ranks, unfold_sampled
from layerdag.graph import Condition
from layerdag.traces import NodeType, Workload


@dataclass(frozen=True, eq=False)
class RankedJob:
    """A job that is simulated.

    Attributes:
        workload: Its traces.
        plan: How it is split over ranks, such as "fsdp2 x 4".
        kind: What else is known of it, such as family and phase.
        nodes: Nodes of its graph.
        graph: Its graph, which bad generators spoil; None of workloads that were never one.
    """

    workload: Workload
    plan: str
    kind: tuple[str, ...]
    nodes: int
    graph: AttributedGraph | None = None

    @property
    def communicates(self) -> bool:
        """Whether any of its ranks sends, receives or takes part in a collective."""
        return any((trace.type_N >= NodeType.COMM_SEND).any() for trace in self.workload.traces)


def ranked_job(
    graph: AttributedGraph, conditions: Mapping[str, Condition] | None = None
) -> RankedJob | None:
    """Return a job with its traces; None if it has one rank.

    Args:
        graph: Of the job.
        conditions: "world_size", "strategy", "family", "phase"; those of the graph by default.

    Raises:
        DataError: If it is not the graph of a job.
    """
    known = graph.conditions if conditions is None else conditions
    ranks = fitting_ranks(graph, int(float(known.get("world_size", 1))))
    if ranks < 2:
        return None
    plan = f"{known.get('strategy', 'any plan')} x {ranks}"
    kind = tuple(str(known.get(name, "")) for name in ("family", "phase"))
    return RankedJob(unfold_sampled(graph, ranks).workload, plan, kind, graph.num_nodes, graph)
