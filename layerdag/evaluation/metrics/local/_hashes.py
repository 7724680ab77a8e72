"""64-bit hashes of operators and of what stands around them."""

import numpy as np

from layerdag._runtime import GOLDEN_GAMMA, scrambled
from layerdag.evaluation import GraphSet

MIX = np.uint64(GOLDEN_GAMMA % 2**64)


def mixed(word: np.ndarray) -> np.ndarray:
    """Scramble unsigned 64-bit words."""
    return scrambled(word.view(np.int64)).view(np.uint64)


def operator_hashes(graphs: GraphSet) -> np.ndarray:
    """Return a word for each node that tells apart first attributes, the operators of traces."""
    return mixed(graphs.x_NA[:, 0].astype(np.uint64) + np.uint64(1))


def distinct_pairs(node: np.ndarray, word: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return each pair of a node and a 64-bit word once, by ascending node."""
    order = np.lexsort((word, node))
    node, word = node[order], word[order]
    first = np.ones(node.size, dtype=bool)
    first[1:] = (node[1:] != node[:-1]) | (word[1:] != word[:-1])
    return node[first], word[first]
