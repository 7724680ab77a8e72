"""Particles of a graph: why there are some, and which of them go on.

Sequential Monte Carlo: the graphs drawn for one that is kept are the particles of a filter. While
they are drawn, they are weighed by the neighbors of their nodes (``NeighborKinds``), and now and
then particles of little weight are replaced by copies of others, which then go on by random numbers
of their own (Doucet and Johansen, A tutorial on particle filtering and smoothing, 2009; for
language models Lew et al., Sequential Monte Carlo steering, arXiv 2306.03081). An error is so
corrected soon after it was made, where best-of-n can only throw the whole graph away.

A node's ancestry is its kind with the kinds of its parents and theirs: two rounds of
Weisfeiler-Lehman refinement along the edges' direction, as far as a graph is known while it is
drawn. Programs repeat (layers, micro-batches, one optimizer step per tensor): of the nodes of
training jobs half have an ancestry that an earlier node of their job has.

Both samplers weigh graphs by ``NeighborKinds.log_weight``, except that a node which lacks children
costs nothing, since later nodes may become its children, and look ancestries up by their hashes.

Shape letters: B graphs, G groups of rows, O options.
"""

import numpy as np
from jaxtyping import Float, Int

from layerdag.models.draws import slot_uniforms
from layerdag.models.fast.sampling_inputs import RandomSlot

OWN_COLOR = 0x9E3779B97F4A7C15 - 2**64
"""Odd factor that tells a node's own color from those of its parents."""


NATS_PER_FIRST = 1.0
"""What a candidate costs whose ancestry no earlier node of the graph has, when one is chosen. It is
part of no graph's weight: graphs that repeat one layer for ever would have the largest."""

INTERVAL = 8
"""Nodes between two resamplings. Copying a particle costs about as much as drawing a node."""


def surviving_particles(
    weight_GO: Float[np.ndarray, "G O"], uniform_G: Float[np.ndarray, " G"]
) -> Int[np.ndarray, "G O"]:
    """Return which of its particles each place of a graph goes on with: itself, or a heavier one.

    Systematic resampling: the number of copies of a particle differs from O times its share of the
    weight by less than 1, and is that in expectation. A particle with a copy stays in its place.
    The weights of a graph are not all 0.
    """
    count, uniform_G1 = weight_GO.shape[1], uniform_G[:, None]
    reach_GO = np.cumsum(weight_GO, axis=1) / weight_GO.sum(axis=1, keepdims=True) * count
    reach_GO[:, -1] = count
    copies_GO = np.diff(np.floor(reach_GO + uniform_G1), axis=1, prepend=np.floor(uniform_G1))
    # The first place without a copy goes on with the first copy that is one too many, and so on.
    spare_GO = np.cumsum(np.maximum(copies_GO - 1, 0), axis=1)
    lacking_GO = copies_GO == 0
    number_GO = np.cumsum(lacking_GO, axis=1) - 1
    source_GO = (spare_GO[:, None, :] <= number_GO[:, :, None]).sum(axis=2)
    return np.where(lacking_GO, source_GO, np.arange(count))


def resampled_rows(
    sample_B: Int[np.ndarray, " B"],
    log_weight_B: Float[np.ndarray, " B"],
    particles: int,
    first_seed_G: np.ndarray,
    position_B: Int[np.ndarray, " B"],
) -> Int[np.ndarray, " B"]:
    """Return the row that each row goes on with.

    Consecutive ``particles`` samples belong together; their newest nodes have the same position.
    """
    source_B = np.arange(sample_B.shape[0])
    order_B = np.argsort(sample_B // particles, kind="stable")
    graph_G, start_G, count_G = np.unique(
        sample_B[order_B] // particles, return_index=True, return_counts=True
    )
    for count in np.unique(count_G):  # of a graph, particles may have ended
        of_count = count_G == count
        row_GO = order_B[start_G[of_count, None] + np.arange(count)]
        log_weight_GO = log_weight_B[row_GO]
        most_G = log_weight_GO.max(axis=1)
        unequal_G = most_G > log_weight_GO.min(axis=1)
        row_GO, graph_g = row_GO[unequal_G], graph_G[of_count][unequal_G]
        weight_GO = np.exp(log_weight_GO[unequal_G] - most_G[unequal_G, None])
        slot = int(RandomSlot.RESAMPLING)
        uniform_G1 = slot_uniforms(
            first_seed_G[graph_g], position_B[row_GO[:, 0]], range(slot, slot + 1)
        )
        source_GO = surviving_particles(weight_GO, uniform_G1.numpy()[:, 0])
        source_B[row_GO] = np.take_along_axis(row_GO, source_GO, axis=1)
    return source_B
