"""Synthetic DAGs with a hard rule: preferential attachment to a balanced choice of predecessors.

Every node has a binary attribute. A node has no predecessor, or its predecessors are balanced
between the two values: with ``n`` of the rarer and ``m`` of the commoner value,

    m <= (1 + rho) * n,

so rho = 0 asks for equal numbers and a larger rho for less. Layer by layer, each new node draws
how many predecessors of each value it gets, then chooses them among the earlier nodes with
probability proportional to (1 + out-degree) times a latent weight of each node; at least one comes
from the layer before.

The exact generator of the LayerDAG paper (arXiv 2411.02322, section 5.1) is not public. This one
keeps its idea, but validity figures on it are not comparable one to one with the paper's.
"""

import numpy as np
import torch

from layerdag.dag.dag import DAG
from layerdag.datasets.dataset import GraphDataset
from layerdag.datasets.settings import LatentPreferentialConfig
from layerdag.errors import UsageError
from layerdag.graph.attributed_graph import SPLITS, AttributedGraph, Split, size_conditions
from layerdag.runtime.rng import numpy_generator

VALUES = ("0", "1")
MIN_LAYERS, MAX_LAYERS = 3, 8
MAX_WIDTH = 6
"""Nodes of a layer at most."""
MAX_IN_DEGREE = 6


def load_latent_preferential(config: LatentPreferentialConfig) -> GraphDataset:
    """Generate a data set; graph i of a split depends on the seed, the split and i alone.

    Raises UsageError if rho is negative.
    """
    if config.rho < 0:
        raise UsageError(f"Latent-preferential graphs need rho >= 0, found {config.rho}.")
    counts = dict(zip(SPLITS, (config.num_train, config.num_val, config.num_test), strict=True))
    parts: dict[Split, list[AttributedGraph]] = {
        split: [
            latent_preferential_graph(
                numpy_generator(config.seed, "latent_preferential", split, i),
                config.rho,
                f"{split}/{i}",
            )
            for i in range(count)
        ]
        for split, count in counts.items()
    }
    return GraphDataset.build("latent_preferential", "flow", parts)


def is_valid(dag: DAG, rho: float) -> bool:
    """Return whether every node keeps the rule; the first attribute has the codes 0 and 1."""
    source_E, target_E = dag.edge_index_2E
    value_E = dag.x_NA[source_E, 0]
    count_N2 = torch.zeros(dag.num_nodes, 2, dtype=torch.int64)
    count_N2.index_put_((target_E, value_E), torch.ones_like(target_E), accumulate=True)
    low_N, high_N = count_N2.amin(1), count_N2.amax(1)
    return bool((high_N <= (1 + rho) * low_N + 1e-9).all())


def latent_preferential_graph(rng: np.random.Generator, rho: float, name: str) -> AttributedGraph:
    """Draw one graph."""
    num_layers = int(rng.integers(MIN_LAYERS, MAX_LAYERS + 1))
    width_L = rng.integers(1, MAX_WIDTH + 1, num_layers)
    width_L[0] = max(2, width_L[0])
    layer_N = np.repeat(np.arange(num_layers), width_L)
    value_N = rng.integers(0, 2, layer_N.size)
    value_N[:2] = rng.permutation(2)  # later nodes need both values among the earlier ones
    weight_N = rng.gamma(2.0, size=layer_N.size)
    degree_N = np.zeros(layer_N.size)
    edges = []
    for layer in range(1, num_layers):
        new = np.flatnonzero(layer_N == layer)
        old = int(new[0])
        log_odds_O = np.log(weight_N[:old] * (1 + degree_N[:old]))
        in_last_O = layer_N[:old] == layer - 1
        edges_2E = _predecessors(rng, rho, value_N[:old], log_odds_O, in_last_O, len(new))
        degree_N[:old] += np.bincount(edges_2E[0], minlength=old)
        edges.append(edges_2E + np.array([[0], [old]]))
    edges_2E = np.concatenate([np.zeros((2, 0), np.int64), *edges], axis=1)
    return AttributedGraph(
        name=name,
        categories={"value": [VALUES[value] for value in value_N.tolist()]},
        numbers={},
        edge_index_2E=edges_2E,
        edge_type_E=np.zeros(edges_2E.shape[1], dtype=np.int64),
        conditions=size_conditions(layer_N),
        vocabularies={"value": VALUES},
    )


def _predecessors(
    rng: np.random.Generator,
    rho: float,
    value_O: np.ndarray,
    log_odds_O: np.ndarray,
    in_last_O: np.ndarray,
    num_new: int,
) -> np.ndarray:
    noise_WO = rng.gumbel(size=(num_new, value_O.size)) + log_odds_O
    rows_W = np.arange(num_new)
    # The best of the layer before comes first among its value, whatever else is drawn.
    parent_W = np.where(in_last_O, noise_WO, -np.inf).argmax(axis=1)
    noise_WO[rows_W, parent_W] = np.inf
    have_2 = np.bincount(value_O, minlength=2)
    want_W2 = _counts(rng, rho, have_2, num_new)
    chosen_WO = np.zeros(noise_WO.shape, dtype=bool)
    for value in (0, 1):
        position_O = np.flatnonzero(value_O == value)
        order_WK = np.argsort(-noise_WO[:, position_O], axis=1)
        rank_WK = np.argsort(order_WK, axis=1)
        chosen_WO[:, position_O] = rank_WK < want_W2[:, value, None]
    new_E, old_E = np.nonzero(chosen_WO)
    return np.stack([old_E, new_E])


def _counts(
    rng: np.random.Generator,
    rho: float,
    have_2: np.ndarray,
    num_new: int,
) -> np.ndarray:
    most = min(MAX_IN_DEGREE // 2, int(have_2.min()))
    rare_W = rng.integers(1, most + 1, num_new)
    common = rng.integers(0, 2, num_new)
    extra_W = np.floor(rho * rare_W + 1e-9).astype(np.int64)
    supply_W = np.minimum(have_2[common], MAX_IN_DEGREE - rare_W)
    limit_W = np.maximum(np.minimum(rare_W + extra_W, supply_W), rare_W)
    common_W = rng.integers(rare_W, limit_W + 1)
    want_W2 = np.empty((num_new, 2), dtype=np.int64)
    rows_W = np.arange(num_new)
    want_W2[rows_W, common] = common_W
    want_W2[rows_W, 1 - common] = rare_W
    return want_W2
