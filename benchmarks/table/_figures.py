"""Figures of samples beside real graphs: valid, unique, novel; sizes and layers.

Shape letters: B graphs, K values, R resamples.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy.spatial.distance import cdist
from scipy.stats import wasserstein_distance

from layerdag.dag.dag import DAG, graph_hash

Sample = DAG | None
"""A sampled graph, None where what was drawn is no graph."""

Z_95 = 1.96


def wilson(successes: int, trials: int) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a share; (0, 1) without trials."""
    if trials == 0:
        return 0.0, 1.0
    share, square = successes / trials, Z_95**2
    center = (share + square / (2 * trials)) / (1 + square / trials)
    half = Z_95 * np.sqrt(share * (1 - share) / trials + square / (4 * trials**2))
    half = float(half / (1 + square / trials))
    return max(center - half, 0.0), min(center + half, 1.0)


def validity(
    train: Sequence[DAG], samples: Sequence[Sample], is_valid: Callable[[DAG], bool]
) -> dict[str, Any]:
    """Return the shares of samples that are valid, unique, novel and all three, with intervals.

    Graphs are equal if their Weisfeiler-Lehman hashes are, which errs on the side of a repetition.

    Args:
        train: Training graphs.
        samples: What was sampled; None is neither valid, unique nor novel.
        is_valid: The rule of the data set.
    """
    known = {graph_hash(dag) for dag in train}
    seen: set[str] = set()
    found = np.zeros((len(samples), 3), dtype=bool)
    for row, dag in zip(found, samples, strict=True):
        if dag is None or dag.num_nodes == 0:
            continue
        word = graph_hash(dag)
        row[:] = is_valid(dag), word not in seen, word not in known
        seen.add(word)
    counts = {name: int(column.sum()) for name, column in _columns(found)}
    shares = {name: round(count / len(samples), 4) for name, count in counts.items()}
    intervals = {
        name: [round(end, 4) for end in wilson(count, len(samples))]
        for name, count in counts.items()
    }
    return {"samples": len(samples), **shares, "intervals": intervals}


def _columns(found_B3: np.ndarray) -> list[tuple[str, np.ndarray]]:
    names = ("valid", "unique", "novel")
    return [*zip(names, found_B3.T, strict=True), ("vun", found_B3.all(1))]


def distances(real: Sequence[DAG], samples: Sequence[Sample]) -> dict[str, float]:
    """Return how far the shapes of samples are from those of real graphs.

    Wasserstein-1 distances of the numbers of layers, nodes and edges, and the square of the maximum
    mean discrepancy of layer sizes: a radial-basis kernel over each graph's histogram of them, its
    bandwidth the median distance between real graphs.

    Args:
        real: Held-out graphs.
        samples: What was sampled; those that are None are left out.
    """
    drawn = [dag for dag in samples if dag is not None and dag.num_nodes]
    if not drawn:
        return {"layers": float("nan"), "nodes": float("nan"), "edges": float("nan")}
    sizes = {
        "layers": lambda dag: dag.num_layers,
        "nodes": lambda dag: dag.num_nodes,
        "edges": lambda dag: dag.num_edges,
    }
    found = {
        name: float(wasserstein_distance(list(map(size, real)), list(map(size, drawn))))
        for name, size in sizes.items()
    }
    found["layer_size_mmd"] = layer_size_mmd(real, drawn)
    return {name: round(value, 4) for name, value in found.items()}


def layer_size_mmd(real: Sequence[DAG], samples: Sequence[DAG]) -> float:
    """Return the squared discrepancy (biased, never negative) of histograms of layer sizes."""
    widths = [np.bincount(dag.layer_N.numpy()) for dag in (*real, *samples)]
    most = max(int(width.max()) for width in widths) + 1
    shares_BK = np.stack([np.bincount(width, minlength=most) / width.size for width in widths])
    one_BK, other_BK = shares_BK[: len(real)], shares_BK[len(real) :]
    within = cdist(one_BK, one_BK)
    bandwidth = float(np.median(within[within > 0])) if (within > 0).any() else 1.0
    kernels = [
        np.exp(-(cdist(a, b) ** 2) / (2 * bandwidth**2)).mean()
        for a, b in ((one_BK, one_BK), (one_BK, other_BK), (other_BK, other_BK))
    ]
    return float(kernels[0] - 2 * kernels[1] + kernels[2])
