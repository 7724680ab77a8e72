"""The graph of a point: its whole job, layers rolled up, with the simulated time of a step."""

from dataclasses import replace

from layerdag.codec import (
    COLLECTIVE_NAMES,
    SEND,
    AttributedGraph,
    RankClassTrace,
    job_graph,
)
from layerdag.codec.blocks import REPEATS, rolled
from layerdag.datasets.schema import LABEL
from layerdag.simulator import simulate
from layerdag.workloads.corpus._points import CorpusPoint
from layerdag.workloads.corpus._space import Machine

_MEASURED = ("duration",)


def point_graph(point: CorpusPoint, name: str = "point") -> AttributedGraph:
    """Return the graph of a point's job with repeated layers held once.

    Operators are those of ``layerdag workload`` without layer and micro-batch; communication is
    called as importers call it. Times are left out: nothing was measured.
    """
    job = point.job
    workload = job.workload()
    per_stage = job.plan.ranks // job.plan.pipeline
    classes = [
        RankClassTrace(workload.traces[first], tuple(range(first, first + per_stage)))
        for first in range(0, job.plan.ranks, per_stage)
    ]
    graph = job_graph(name, classes, workload.groups, point.conditions)
    named = zip(*(graph.categories[key] for key in ("op", "type", "collective")), strict=True)
    operators = [
        COLLECTIVE_NAMES[collective] if kind == "COMM_COLL" else SEND if kind == "MESSAGE" else op
        for op, kind, collective in named
    ]
    return rolled(
        replace(
            graph,
            categories={**graph.categories, "op": operators},
            numbers={k: v for k, v in graph.numbers.items() if k not in _MEASURED},
            units={k: v for k, v in graph.units.items() if k not in _MEASURED},
        ),
        smallest=1,
    )


def has_its_layers(graph: AttributedGraph, point: CorpusPoint) -> bool:
    """Return whether the blocks of a graph are the layers of a stage."""
    return graph.conditions[REPEATS] == point.job.shape.layers / point.job.plan.pipeline


def labelled(graph: AttributedGraph, point: CorpusPoint, machine: Machine) -> AttributedGraph:
    """Return the graph with the time of a step in seconds on a cluster of such machines."""
    cluster = machine.cluster(point.job.plan.ranks)
    result = simulate(point.job.workload(), cluster.simulated, compute=cluster.compute(0))
    return replace(graph, conditions={**graph.conditions, LABEL: result.makespan_ns / 1e9})
