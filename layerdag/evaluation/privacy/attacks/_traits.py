"""What can be told of a graph: its conditions, and how deep, wide and large it is."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from layerdag._runtime import derive_seed
from layerdag.codec import SIZE_CONDITIONS
from layerdag.evaluation.privacy.attacks._descriptors import widths_of
from layerdag.evaluation.privacy.attacks._pool import Pool
from layerdag.graph import DAG

MOST_VALUES, GRAPHS_PER_VALUE = 64, 4
LEAST_KNOWN = 0.9
"""Fraction of the real graphs that must state a condition."""
TREES = 100


@dataclass(frozen=True, eq=False)
class Trait:
    """One property of every graph of a pool, as codes.

    Attributes:
        name: Of the condition, or "depth", "width", "size".
        code_P: int64 code of each graph; that of samples as read from them, -1 for unknown.
        stated_P: int64 code that each graph states of itself, -1 for none; of samples what was
            asked for, of real graphs the same as ``code_P``.
    """

    name: str
    code_P: np.ndarray
    stated_P: np.ndarray


def traits_of(pool: Pool, seed: int) -> tuple[Trait, ...]:
    """Return what can be told of the graphs of a pool.

    Conditions of samples, the family of a model or its parallelism, are read by trees that learned
    them from all real graphs, training or held-out; the number of layers (depth), the widest layer
    (width) and the largest numbers (size) can be seen.

    Args:
        pool: The graphs.
        seed: Of the trees.
    """
    found = [
        _read(pool, name, stated_P, seed)
        for name in _categories(pool)
        if (stated_P := _stated(pool.dags, name, pool.num_real)) is not None
    ]
    unknown_P = np.full(len(pool.dags), -1)
    seen = {"depth": pool.graphs.layers_B, "width": widths_of(pool.graphs)}
    if pool.numeric:
        seen["size"] = _largest(pool)
    return (*found, *(Trait(name, code_P, unknown_P) for name, code_P in seen.items()))


def _categories(pool: Pool) -> list[str]:
    """Return the names of conditions that are words, or whole numbers of few values."""
    real = pool.dags[: pool.num_real]
    names = dict.fromkeys(name for dag in real for name in dag.conditions)
    kept = []
    for name in names:
        values = [dag.conditions[name] for dag in real if name in dag.conditions]
        whole = all(isinstance(value, str) or float(value).is_integer() for value in values)
        most = min(MOST_VALUES, len(values) // GRAPHS_PER_VALUE)
        if whole and len(values) >= LEAST_KNOWN * len(real) and 1 < len(set(values)) <= most:
            kept.append(name)
    return [name for name in kept if name not in SIZE_CONDITIONS]


def _stated(dags: Sequence[DAG], name: str, real: int) -> np.ndarray | None:
    """Return the code of a condition of each graph, -1 where it is not among those of real ones."""
    values = [str(dag.conditions[name]) if name in dag.conditions else None for dag in dags]
    known = sorted({value for value in values[:real] if value is not None})
    code = {value: i for i, value in enumerate(known)}
    return np.array([-1 if value is None else code.get(value, -1) for value in values])


def _read(pool: Pool, name: str, stated_P: np.ndarray, seed: int) -> Trait:
    """Return a condition with the codes that trees read from the samples."""
    x_PF = pool.descriptors
    known_G = np.flatnonzero(stated_P[: pool.num_real] >= 0)
    model = _trees(seed, name).fit(x_PF[known_G], stated_P[known_G])
    code_P = stated_P.copy()
    code_P[pool.num_real :] = model.predict(x_PF[pool.num_real :])
    return Trait(name, code_P, stated_P)


def _trees(seed: int, name: str) -> Any:
    """Return fresh randomized trees."""
    from sklearn.ensemble import ExtraTreesClassifier

    state = derive_seed(seed, "traits", name) % 2**32
    return ExtraTreesClassifier(TREES, min_samples_leaf=2, random_state=state)


def _largest(pool: Pool) -> np.ndarray:
    """Return one code for the largest codes of all numeric columns of each graph."""
    graphs = pool.graphs
    largest_PC = np.zeros((graphs.num_graphs, len(pool.numeric)), dtype=np.int64)
    for index, column in enumerate(pool.numeric):
        np.maximum.at(largest_PC[:, index], graphs.graph_N, graphs.x_NA[:, column])
    _, code_P = np.unique(largest_PC, axis=0, return_inverse=True)
    return code_P.ravel()
