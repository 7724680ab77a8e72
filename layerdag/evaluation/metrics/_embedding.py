"""Embeddings of DAGs by an untrained graph network, which see structure and attributes at once.

After Thompson et al. (ICLR 2022): a graph isomorphism network with fixed random orthogonal weights,
3 rounds of width 35, summed over nodes after each round and concatenated. Parents and children are
summed apart, so that edge direction enters, and every attribute has its own random embedding. One
change to the paper: node sums are divided by the root of the node count, because traces differ in
size a hundredfold and plain sums would then see nothing but size.
"""

from typing import Any

import numpy as np

from layerdag._runtime import numpy_generator
from layerdag.evaluation import GraphSet
from layerdag.evaluation.metrics._comparison import Comparison

ROUNDS = 3
WIDTH = 35
_NODES_AT_ONCE = 1 << 13


def random_embeddings(
    sets: tuple[GraphSet, ...] | list[GraphSet], seed: int = 0
) -> list[np.ndarray]:
    """Return one embedding a graph for each set, shape (B, (ROUNDS + 1) * WIDTH + 2).

    All sets share the random weights and are standardized by the first two (the real ones). The
    last two columns are the logarithms of node and edge count.
    """
    codes = 1 + max(int(graphs.x_NA.max(initial=0)) for graphs in sets)
    rng = numpy_generator(seed, "embedding")
    tables = [rng.standard_normal((codes, WIDTH)) for _ in range(sets[0].num_attributes)]
    mixers = [[_orthogonal(rng) for _ in range(4)] for _ in range(ROUNDS)]
    raw = [
        np.concatenate([_embed(part, tables, mixers) for part in graphs.parts(_NODES_AT_ONCE)])
        for graphs in sets
    ]
    real = np.concatenate(raw[:2])
    scale = np.maximum(real.std(axis=0), 1e-6)
    return [(one - real.mean(axis=0)) / scale / np.sqrt(real.shape[1]) for one in raw]


def embeddings(comparison: Comparison) -> list[np.ndarray]:
    """Return the embeddings of training, test and generated graphs."""
    return random_embeddings(comparison.sets)


def _embed(
    graphs: GraphSet, tables: list[np.ndarray], mixers: list[list[np.ndarray]]
) -> np.ndarray:
    """Return the unstandardized embeddings of one set."""
    h_NF = np.zeros((graphs.num_nodes, WIDTH))
    for column, table in enumerate(tables):
        h_NF += table[graphs.x_NA[:, column]]
    h_NF /= np.sqrt(max(len(tables), 1))
    over_parents, over_children = _sums(graphs)
    readouts = [_pool(graphs, h_NF)]
    for own, parents, children, out in mixers:
        mixed_NF = h_NF @ own
        mixed_NF += over_parents @ (h_NF @ parents)
        mixed_NF += over_children @ (h_NF @ children)
        h_NF = np.maximum(np.maximum(mixed_NF, 0) @ out, 0)
        # Without training nothing keeps the scale: fix it by the root mean square of the node.
        h_NF /= np.sqrt(np.mean(h_NF**2, axis=1, keepdims=True) + 1e-6)
        readouts.append(_pool(graphs, h_NF))
    sizes = np.log1p(np.stack([graphs.nodes_B, graphs.edges_B], axis=1))
    return np.concatenate([*readouts, sizes], axis=1)


def _sums(graphs: GraphSet) -> tuple[Any, Any]:
    """Return matrices that sum, for each node, over its parents and over its children."""
    from scipy.sparse import csr_array

    source_E, target_E = graphs.edge_index_2E
    shape = (graphs.num_nodes, graphs.num_nodes)
    ones_E = np.ones(source_E.size)
    return (
        csr_array((ones_E, (target_E, source_E)), shape=shape),
        csr_array((ones_E, (source_E, target_E)), shape=shape),
    )


def _pool(graphs: GraphSet, h_NF: np.ndarray) -> np.ndarray:
    """Return the sum over the nodes of each graph, divided by the root of their number."""
    running = np.concatenate([np.zeros((1, WIDTH)), np.cumsum(h_NF, axis=0)])
    total_BF = np.diff(running[graphs.node_ptr], axis=0)
    return total_BF / np.sqrt(np.maximum(graphs.nodes_B, 1))[:, None]


def _orthogonal(rng: np.random.Generator) -> np.ndarray:
    """Return a random orthogonal matrix."""
    return np.linalg.qr(rng.standard_normal((WIDTH, WIDTH)))[0]
