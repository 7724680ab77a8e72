"""Does a generator copy its training graphs? Valid, unique, novel; exact and near copies.

Always three sets: training, held-out of the same size, generated. A copy test alone proves nothing
(Yao et al., ESORICS 2025); it is the first of several attacks. Hashes are Weisfeiler-Lehman hashes
of the attributed directed graph: graphs that they cannot tell apart count as copies, which errs on
the side of reporting a copy.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy.sparse import csr_array, hstack

from layerdag.errors import UsageError
from layerdag.graph.dag import DAG
from layerdag.graph.hashing import graph_hash, node_colours
from layerdag.rng import numpy_generator
from layerdag.validator.graph_set import GraphSet
from layerdag.validator.metrics import NORMAL_95, Interval

ROUNDS = 3


@dataclass(frozen=True)
class Novelty:
    """Shares among the generated graphs.

    Attributes:
        graphs: Number of generated graphs.
        valid: Share that is valid.
        unique: Distinct hashes / graphs.
        novel: Share whose hash no training graph has.
        vun: Share of graphs that are valid, novel and the first with their hash.
        copied: Share that repeats a training graph (1 - novel).
        copied_real: Share of real held-out graphs that repeat a training graph, the scale of it.
    """

    graphs: int
    valid: float
    unique: float
    novel: float
    vun: float
    copied: float
    copied_real: float


@dataclass(frozen=True)
class Nearness:
    """Whether generated graphs lie nearer to the training set than to held-out graphs.

    Attributes:
        share: Share of generated graphs nearer to training than to held-out; ties count half.
            0.5 is ideal, 1 is a generator that stays beside its training graphs.
        interval: 95 % Wilson interval of ``share``.
        median_to_train: Median Weisfeiler-Lehman distance to the nearest training graph.
        median_to_held_out: The same to the nearest held-out graph.
        compared: Number of training and of held-out graphs compared with, equal.
    """

    share: float
    interval: Interval
    median_to_train: float
    median_to_held_out: float
    compared: int


def novelty(
    train: Sequence[DAG],
    held_out: Sequence[DAG],
    generated: Sequence[DAG],
    valid_B: np.ndarray | None = None,
) -> Novelty:
    """Return the shares of valid, unique and novel graphs.

    Args:
        train: Training graphs.
        held_out: Real graphs that the generator never saw.
        generated: Samples.
        valid_B: Validity of each sample (``StructureReport.valid_B``); all valid by default.

    Raises:
        UsageError: If a set is empty.
    """
    _require(train, held_out, generated)
    known = {graph_hash(dag) for dag in train}
    hashes = [graph_hash(dag) for dag in generated]
    valid = np.ones(len(hashes), dtype=bool) if valid_B is None else valid_B
    novel = np.array([word not in known for word in hashes])
    first = np.zeros(len(hashes), dtype=bool)
    first[np.unique(hashes, return_index=True)[1]] = True
    return Novelty(
        graphs=len(hashes),
        valid=float(valid.mean()),
        unique=float(first.mean()),
        novel=float(novel.mean()),
        vun=float((valid & novel & first).mean()),
        copied=float(1 - novel.mean()),
        copied_real=float(np.mean([graph_hash(dag) in known for dag in held_out])),
    )


def nearness(
    train: Sequence[DAG], held_out: Sequence[DAG], generated: Sequence[DAG], seed: int = 0
) -> Nearness:
    """Return how often a generated graph is nearer to training than to held-out graphs.

    The larger of the two real sets is cut at random to the size of the smaller one, since the
    nearest of more graphs is nearer.

    Raises:
        UsageError: If a set is empty.
    """
    _require(train, held_out, generated)
    size = min(len(train), len(held_out))
    rng = numpy_generator(seed, "nearness")
    train = [train[i] for i in rng.permutation(len(train))[:size]]
    held_out = [held_out[i] for i in rng.permutation(len(held_out))[:size]]
    distance = kernel_distances(generated, [*train, *held_out])
    to_train, to_held_out = distance[:, :size].min(axis=1), distance[:, size:].min(axis=1)
    tied = np.isclose(to_train, to_held_out, atol=1e-9)
    share = float(np.where(tied, 0.5, to_train < to_held_out).mean())
    return Nearness(
        share=share,
        interval=wilson_interval(share, len(generated)),
        median_to_train=float(np.median(to_train)),
        median_to_held_out=float(np.median(to_held_out)),
        compared=size,
    )


def kernel_distances(left: Sequence[DAG], right: Sequence[DAG]) -> np.ndarray:
    """Return Weisfeiler-Lehman kernel distances, shape (left, right), values in [0, sqrt(2)].

    The features of a graph count the colours of its nodes after 0 to 3 rounds of refinement
    (Shervashidze et al., JMLR 12, 2011) and are normalised to length 1 in each round, so that all
    rounds weigh the same.
    """
    features = _colour_counts([*left, *right])
    cosine = (features[: len(left)] @ features[len(left) :].T).toarray()
    return np.sqrt(np.maximum(2 - 2 * cosine, 0))


def wilson_interval(share: float, count: int) -> Interval:
    """Return the 95 % Wilson score interval of a share of ``count`` trials."""
    z2 = NORMAL_95**2
    centre = (share + z2 / (2 * count)) / (1 + z2 / count)
    half = NORMAL_95 * math.sqrt(share * (1 - share) / count + z2 / (4 * count**2))
    half /= 1 + z2 / count
    return Interval(centre - half, centre + half)


def _colour_counts(dags: Sequence[DAG]) -> csr_array:
    """Return normalised colour counts of all rounds, shape (B, colours)."""
    graphs = GraphSet.of(dags)
    union = DAG.build(
        torch.from_numpy(graphs.x_NA),
        torch.from_numpy(graphs.edge_index_2E),
        edge_type_E=torch.from_numpy(graphs.edge_type_E),
    )
    blocks = []
    for rounds in range(ROUNDS + 1):
        names, colour_N = np.unique(node_colours(union, rounds), return_inverse=True)
        ones_N = np.ones(colour_N.size)
        counts = csr_array(
            (ones_N, (graphs.graph_N, colour_N)), shape=(graphs.num_graphs, names.size)
        )
        length_B = np.sqrt((counts**2).sum(axis=1)) * math.sqrt(ROUNDS + 1)
        scale = csr_array(
            (1 / np.maximum(length_B, 1e-12), np.arange(len(dags)), np.arange(len(dags) + 1))
        )
        blocks.append(scale @ counts)
    return csr_array(hstack(blocks))


def _require(*sets: Sequence[DAG]) -> None:
    """Raise UsageError if a set is empty."""
    if not all(sets):
        raise UsageError(
            "Training, held-out and generated graphs are all needed; one set is empty."
        )
