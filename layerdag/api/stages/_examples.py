"""Single jobs that a report shows: samples beside their neighbors, and timelines of two jobs."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from layerdag.api.stages._graphs import kind_of, picture_of
from layerdag.api.stages._simulation import systems
from layerdag.datasets import GraphDataset
from layerdag.errors import LayerdagError
from layerdag.graph import DAG
from layerdag.report import Lane, Neighbors, Timeline, nearest_real
from layerdag.sampling import as_workload
from layerdag.simulator import (
    Cluster,
    NetworkConfig,
    SimulationResult,
    SystemConfig,
    UnsupportedCollectives,
    simulate,
)
from layerdag.simulator.compute import MeasuredCompute
from layerdag.traces import NodeType, Workload

SHOWN_RANKS = 4
LARGEST_TIMELINE = 2000


def can_be_drawn(data: GraphDataset) -> bool:
    """Return whether nodes have the operators and types that pictures are colored by."""
    return {"op", "type"} <= {attribute.name for attribute in data.schema.attributes}


def neighbors_of(data: GraphDataset, samples: Sequence[DAG]) -> tuple[Neighbors, ...]:
    """Return samples of several families, each beside the real job of its family nearest to it."""
    if not can_be_drawn(data):
        return ()
    real = [dag for dags in data.graphs.values() for dag in dags]
    found = nearest_real(real, samples, data.schema.measured_columns)
    return tuple(
        Neighbors(
            one.family,
            picture_of(data, samples[one.sample], "Sample"),
            picture_of(data, real[one.real], "Nearest real graph"),
            one.distance,
            one.usual,
            one.compared,
        )
        for one in found
    )


def timelines_of(
    data: GraphDataset, real: Sequence[DAG], samples: Sequence[DAG]
) -> tuple[Timeline, ...]:
    """Return what the ranks of a held-out job and of a sample most like it do, and when.

    Of the samples with several ranks that a held-out job of the same family, strategy and number of
    ranks can stand beside, the one of middling size is taken. They run on the first of ``systems``.

    Args:
        data: Data set with the schema.
        real: Held-out jobs; without any, the sample stands alone.
        samples: Samples.
    """
    if data.schema.kind != "trace" or not samples or not can_be_drawn(data):
        return ()
    comparable = [dag for dag in samples if any(_same_kind(dag, one) for one in real)]
    made = _several_ranks(comparable or samples)
    alike = [dag for dag in real if _same_kind(made, dag)]
    rows = nearest_real(alike, [made], data.schema.measured_columns, largest=LARGEST_TIMELINE)
    jobs = [*(("a real job", alike[one.real]) for one in rows), ("a sample", made)]
    try:
        return tuple(_timeline(data, dag, f"{title}{_of(dag)}") for title, dag in jobs)
    except LayerdagError:  # a job that the simulator does not take has no timeline
        return ()


def _several_ranks(samples: Sequence[DAG]) -> DAG:
    """Return a sample of middling size, with several ranks if there is one."""
    fits = [dag for dag in samples if dag.num_nodes <= LARGEST_TIMELINE]
    several = [dag for dag in fits if 1 < _ranks(dag) <= SHOWN_RANKS]
    ordered = sorted(several or fits or samples[:1], key=lambda dag: dag.num_nodes)
    return ordered[len(ordered) // 2]


def _same_kind(sample: DAG, real: DAG) -> bool:
    """Return whether two jobs are of the same family, strategy and number of ranks."""
    names = ("family", "strategy", "world_size")
    return [sample.conditions.get(name) for name in names] == [
        real.conditions.get(name) for name in names
    ]


def _ranks(dag: DAG) -> int:
    return int(float(dag.conditions.get("world_size", 1)))


def _of(dag: DAG) -> str:
    """Return family and strategy of a job, as far as they are known."""
    values = [
        str(dag.conditions[name]) for name in ("family", "strategy") if name in dag.conditions
    ]
    return f" ({', '.join(values)})" if values else ""


def _timeline(data: GraphDataset, dag: DAG, title: str) -> Timeline:
    """Simulate a job and note its pieces."""
    workload = as_workload(data.schema.decode(dag)).workload
    topology, bandwidth, latency = next(iter(systems().values()))
    network = NetworkConfig.single(topology, workload.num_ranks, bandwidth, latency)
    system = replace(
        SystemConfig.uniform("ring"), unsupported_collectives=UnsupportedCollectives.REPLAY
    )
    result = simulate(workload, Cluster(network, system), compute=MeasuredCompute())
    ranks = range(min(workload.num_ranks, SHOWN_RANKS))
    lanes = tuple(lane for rank in ranks for lane in _lanes(workload, result, rank))
    title = title[:1].upper() + title[1:]
    return Timeline(title, lanes, result.makespan_ns / 1e6, workload.num_ranks)


def _lanes(workload: Workload, result: SimulationResult, rank: int) -> Iterator[Lane]:
    """Yield a lane of computation, and one of communication if the rank communicates."""
    rows, trace = result.rows(rank), workload.traces[rank]
    start_N, end_N = result.issue_ns[rows] / 1e6, result.finish_ns[rows] / 1e6
    names = np.array(trace.names(), dtype=object)[np.argsort(trace.id_N, kind="stable")]
    computes_N = result.nodes(rank).type_N == NodeType.COMP
    for word, mine_N in (("computes", computes_N), ("communicates", ~computes_N)):
        if mine_N.any():
            type_name = "COMP" if word == "computes" else "COMM_COLL"
            kinds = tuple(kind_of(str(name), type_name) for name in names[mine_N])
            yield Lane(f"rank {rank} {word}", start_N[mine_N], end_N[mine_N], kinds)
