"""Weisfeiler-Lehman colors of the nodes of a graph, without torch."""

import numpy as np

from layerdag._runtime import GOLDEN_GAMMA, scrambled

MIX = np.uint64(GOLDEN_GAMMA % 2**64)


def mix(value: np.ndarray) -> np.ndarray:
    """Scramble unsigned 64-bit words."""
    return scrambled(value.view(np.int64)).view(np.uint64)


def neighborhood_colors(label_N: np.ndarray, edge_index_2E: np.ndarray, radius: int) -> np.ndarray:
    """Return 64-bit Weisfeiler-Lehman colors of nodes by one label, shape (radius + 1, N).

    Row r says what the neighborhood of radius r looks like: the node's own label, and the multisets
    of the colors in row r - 1 of its parents and of its children. Edges have no types here.

    Args:
        label_N: int64 labels, not negative; row 0 tells them apart.
        edge_index_2E: int64 source and target.
        radius: Number of rounds.
    """
    color_N = mix(label_N.astype(np.uint64) + np.uint64(1))
    source_E, target_E = edge_index_2E
    rows = [color_N]
    for _ in range(radius):
        rows.append(refined(rows[-1], source_E, target_E, MIX))
    return np.stack(rows)


def refined(
    color_N: np.ndarray, source_E: np.ndarray, target_E: np.ndarray, salt_E: np.ndarray | np.uint64
) -> np.ndarray:
    """Return the colors of the next round; neighbors are summed, so that order does not matter."""
    from_parents_N = np.zeros_like(color_N)
    from_children_N = np.zeros_like(color_N)
    np.add.at(from_parents_N, target_E, mix(color_N[source_E] ^ salt_E))
    np.add.at(from_children_N, source_E, mix(color_N[target_E] + salt_E))
    return mix(color_N * MIX + mix(from_parents_N) + mix(from_children_N + MIX))
