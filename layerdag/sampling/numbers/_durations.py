"""Durations of a sampled job, given what its nodes cost and the step time that was asked for."""

from collections.abc import Sequence

import numpy as np

from layerdag.codec import AttributedGraph
from layerdag.codec.blocks import copies_of
from layerdag.datasets.schema import LABEL
from layerdag.datasets.schema.costs import (
    CostTable,
    Durations,
    cost_columns,
    costs_and_ranks,
    ranks_of,
)


def assigned_durations(
    times: CostTable, graph: AttributedGraph, kept: Sequence[int], rng: np.random.Generator
) -> np.ndarray:
    """Return durations of all nodes in ns, NaN where none was drawn.

    Each is drawn for the node's operator and costs, where training jobs tell, and else the one
    that the model drew. Where the sum is not one that jobs with this step time and number of
    nodes have, all are multiplied by the factor that makes it one.

    Args:
        times: How long nodes of training jobs take.
        graph: With the costs that its nodes were given.
        kept: Rows of the nodes that keep their durations.
        rng: Of this job.
    """
    drawn_N = graph.numbers["duration"]
    found_N = drawn_N if times.durations is None else _drawn(times.durations, graph, kept, rng)
    if times.time is None:
        return found_N
    whole_N = np.repeat(found_N, copies_of(graph))
    return found_N * times.time.factor(whole_N, graph.conditions.get(LABEL))


def _drawn(
    table: Durations, graph: AttributedGraph, kept: Sequence[int], rng: np.random.Generator
) -> np.ndarray:
    """Return durations drawn for operators and costs; a job that goes on keeps its speed."""
    operators, drawn_N = graph.categories["op"], graph.numbers["duration"]
    cost_N4 = costs_and_ranks(cost_columns(graph.numbers, graph.num_nodes), ranks_of(graph))
    usual_N = table.usual(operators, cost_N4)
    draw_N = rng.random(graph.num_nodes)
    label = graph.conditions.get(LABEL)
    speed = table.job_factor(usual_N + np.log(copies_of(graph)), label, float(rng.random()))
    given_N = np.log(drawn_N[kept]) - usual_N[kept]
    if np.isfinite(given_N).any():
        speed = float(np.median(given_N[np.isfinite(given_N)]))
    new_N = np.exp(usual_N + table.node_factors(operators, draw_N) + speed)
    return np.where(np.isfinite(usual_N) & np.isfinite(drawn_N), new_N, drawn_N)
