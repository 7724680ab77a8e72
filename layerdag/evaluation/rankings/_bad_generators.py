"""Generators that are wrong in one way each, made of real jobs: they must lose."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from layerdag.codec import AttributedGraph
from layerdag.errors import LayerdagError
from layerdag.evaluation.rankings._jobs import RankedJob, ranked_job

_TOO_LONG = 100.0
_LARGEST_MESSAGE = 2.0**30


def bad_generators(
    jobs: Sequence[RankedJob], rng: np.random.Generator
) -> dict[str, tuple[RankedJob, ...]]:
    """Return sets of jobs that each lack one thing.

    "numbers exchanged": every time, size and cost is that of some node of some job;
    "messages exchanged": the sizes of messages are; "edges rewired": dependencies are between nodes
    drawn at random, as many as before; "durations too long": a hundred times;
    "messages at random": from a byte to a gibibyte; "one job": the first one, again and again.
    Jobs that cannot be unfolded any more are left out.
    """
    graphs = [job.graph for job in jobs if job.graph is not None]
    if not graphs:
        return {}
    pools = _pools(graphs)
    sent = {"comm_bytes": pools["comm_bytes"]} if "comm_bytes" in pools else {}
    spoiled = {
        "numbers exchanged": [_exchanged(graph, pools, rng) for graph in graphs],
        "messages exchanged": [_exchanged(graph, sent, rng) for graph in graphs],
        "edges rewired": [_rewired(graph, rng) for graph in graphs],
        "durations too long": [_scaled(graph, "duration", _TOO_LONG) for graph in graphs],
        "messages at random": [_messages_at_random(graph, rng) for graph in graphs],
        "one job": [graphs[0]] * len(graphs),
    }
    made = {name: [_again(graph) for graph in mine] for name, mine in spoiled.items()}
    return {name: tuple(job for job in mine if job) for name, mine in made.items()}


def _again(graph: AttributedGraph) -> RankedJob | None:
    try:
        return ranked_job(graph)
    except LayerdagError:
        return None


def _positive(value_N: np.ndarray) -> np.ndarray:
    """Return which values are there and positive, NaN is absent."""
    found_N: np.ndarray = np.nan_to_num(value_N) > 0
    return found_N


def _pools(graphs: Sequence[AttributedGraph]) -> dict[str, np.ndarray]:
    """Return the positive values of every number of all nodes."""
    columns = {
        name: np.concatenate([graph.numbers[name] for graph in graphs])
        for name in graphs[0].numbers
    }
    return {name: column[_positive(column)] for name, column in columns.items()}


def _exchanged(
    graph: AttributedGraph, pools: Mapping[str, np.ndarray], rng: np.random.Generator
) -> AttributedGraph:
    """Return the graph with positive numbers drawn from pools."""
    numbers = dict(graph.numbers)
    for name, pool in pools.items():
        if pool.size:
            drawn_N = rng.choice(pool, graph.num_nodes)
            numbers[name] = np.where(_positive(numbers[name]), drawn_N, numbers[name])
    return replace(graph, numbers=numbers)


def _scaled(graph: AttributedGraph, name: str, factor: float) -> AttributedGraph:
    if name not in graph.numbers:
        return graph
    return replace(graph, numbers={**graph.numbers, name: factor * graph.numbers[name]})


def _messages_at_random(graph: AttributedGraph, rng: np.random.Generator) -> AttributedGraph:
    sizes_N = np.rint(_LARGEST_MESSAGE ** rng.random(graph.num_nodes))
    sent_N = graph.numbers.get("comm_bytes")
    if sent_N is None:
        return graph
    sizes_N = np.where(_positive(sent_N), sizes_N, sent_N)
    return replace(graph, numbers={**graph.numbers, "comm_bytes": sizes_N})


def _rewired(graph: AttributedGraph, rng: np.random.Generator) -> AttributedGraph:
    """Return the graph with as many edges, each from a node to a later one, drawn at random."""
    place_N = np.argsort(graph.layer_N, kind="stable")  # edges along it close no cycle
    count, size = graph.edge_index_2E.shape[1], graph.num_nodes
    pairs: set[tuple[int, int]] = set()
    while len(pairs) < count:
        drawn_D2 = np.sort(rng.integers(0, size, (2 * count, 2)), axis=1)
        fresh = (tuple(pair) for pair in drawn_D2.tolist() if pair[0] < pair[1])
        for pair in fresh:
            if len(pairs) < count:
                pairs.add(pair)
    found_2E = place_N[np.array(sorted(pairs), dtype=np.int64).T.reshape(2, -1)]
    return replace(graph, edge_index_2E=found_2E)
