"""How many nodes are asked for, and how far a sample is from them."""

import math
from collections.abc import Mapping

from layerdag.codec import NUM_NODES
from layerdag.graph import DAG, Condition

TOLERANCE = 0.1
"""Fraction of the nodes asked for that a sample may have more or fewer."""


def asked_nodes(row: Mapping[str, Condition], max_nodes: int) -> float | None:
    """Return the number of nodes that is asked for, from 1 to the limit; None where it is open.

    Args:
        row: Conditions in their own units.
        max_nodes: Limit of a graph.
    """
    value = row.get(NUM_NODES)
    if not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return min(max(float(value), 1.0), float(max_nodes))


def size_miss(dag: DAG, row: Mapping[str, Condition], max_nodes: int) -> float:
    """Return |log(found / asked)| of the nodes; 0 within ``TOLERANCE``, or if none are asked for.

    Args:
        dag: A finished graph.
        row: Conditions in their own units.
        max_nodes: Limit of a graph.
    """
    asked = asked_nodes(row, max_nodes)
    if asked is None or abs(dag.num_nodes - asked) <= TOLERANCE * asked:
        return 0.0
    return abs(math.log(dag.num_nodes / asked))
