"""Which graphs are drawn side by side: those that are expected to end together."""

import math
from collections.abc import Mapping, Sequence

from layerdag.graph import Condition
from layerdag.sampling import GenerationSettings
from layerdag.sampling.drawing._sizes import asked_nodes

BATCH_SIZE = 32
"""Graphs side by side where nothing else is asked for and each is wanted as soon as possible."""

MOST_POSITIONS = 100_000
"""Rows of the sampler times the nodes expected of each: what its caches hold, about a gigabyte."""

# Of a graph whose conditions do not tell.
_USUAL_NODES = 256.0


def batches_of_like_size(
    rows: Sequence[Mapping[str, Condition]], settings: GenerationSettings
) -> list[list[int]]:
    """Return the places of ``rows`` in batches, in order of the number of nodes asked for.

    Args:
        rows: Conditions of each graph.
        settings: With what was left to the model. Its batch size, if it has one, is that of every
            batch; otherwise each is as large as ``MOST_POSITIONS`` allows.
    """
    usual = min(_USUAL_NODES, float(settings.max_nodes))
    sizes = [asked_nodes(row, settings.max_nodes) or usual for row in rows]
    rows_of_each = (settings.best_of or 1) * (1 if settings.guidance == 1 else 2)
    batches: list[list[int]] = []
    for index in sorted(range(len(rows)), key=lambda i: (sizes[i], i)):
        # Sizes ascend, so that this one is the largest of the batch.
        fits = MOST_POSITIONS // (rows_of_each * sizes[index])
        most = settings.batch_size or max(1, math.floor(fits))
        if batches and len(batches[-1]) < most:
            batches[-1].append(index)
        else:
            batches.append([index])
    return batches
