"""Sizes that are asked for: how far a graph is off, and which graphs are drawn side by side."""

import math
from collections.abc import Mapping, Sequence

from layerdag.dag.dag import DAG
from layerdag.graph.attributed_graph import NUM_NODES, Condition
from layerdag.sampling.settings import GenerationSettings

TOLERANCE = 0.1
"""Fraction of the nodes asked for that a sample may have more or fewer."""


def requested_nodes(row: Mapping[str, Condition], max_nodes: int) -> float | None:
    """Return the number of nodes asked for, from 1 to the limit; None where it is open."""
    value = row.get(NUM_NODES)
    if not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return min(max(float(value), 1.0), float(max_nodes))


def size_error(dag: DAG, row: Mapping[str, Condition], max_nodes: int) -> float:
    """Return |log(found / asked)| of the nodes; 0 within ``TOLERANCE``, or if none are wanted."""
    asked = requested_nodes(row, max_nodes)
    if asked is None or abs(dag.num_nodes - asked) <= TOLERANCE * asked:
        return 0.0
    return abs(math.log(dag.num_nodes / asked))


MAX_POSITIONS = 100_000
"""Rows of the sampler times the nodes expected of each: what its caches hold, about a gigabyte."""

_USUAL_NODES = 256.0  # of a graph whose conditions do not tell


def batches_of_like_size(
    rows: Sequence[Mapping[str, Condition]], settings: GenerationSettings
) -> list[list[int]]:
    """Return the places of ``rows`` in batches, in order of the number of nodes asked for.

    The batch size of the settings, if there is one, is that of every batch; otherwise each is as
    large as ``MAX_POSITIONS`` allows.
    """
    usual = min(_USUAL_NODES, float(settings.max_nodes))
    sizes = [requested_nodes(row, settings.max_nodes) or usual for row in rows]
    rows_of_each = (settings.best_of or 1) * (1 if settings.guidance == 1 else 2)
    batches: list[list[int]] = []
    for index in sorted(range(len(rows)), key=lambda i: (sizes[i], i)):
        # Sizes ascend, so that this one is the largest of the batch.
        fits = MAX_POSITIONS // (rows_of_each * sizes[index])
        most = settings.batch_size or max(1, math.floor(fits))
        if batches and len(batches[-1]) < most:
            batches[-1].append(index)
        else:
            batches.append([index])
    return batches
