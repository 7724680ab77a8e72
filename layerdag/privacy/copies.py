"""Copies and near copies of real graphs, novelty, and distance to the closest record (DCR).

Always three sets: training, held-out, generated. A copy test alone proves nothing (Yao et al.,
ESORICS 2025); it is the first of several attacks. Hashes are Weisfeiler-Lehman hashes of the
attributed directed graph: graphs with equal hashes count as copies, which errs on the
side of reporting a copy. Measured times differ from run to run of the same program, so columns of
them do not count. How near is too near is read off real graphs that were not trained on.

Distances are Weisfeiler-Lehman ones: the features of a graph count the colors of its nodes after 0
to ``ROUNDS`` rounds of refinement (Shervashidze et al., JMLR 12, 2011) and are normalized to length
1 in each round, so that all rounds weigh the same. Letters: K graphs of a stream, B graphs of a
set.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from enum import Enum
from hashlib import blake2b
from itertools import islice

import numpy as np
from scipy.sparse import csr_array, hstack

from layerdag.dag.dag import COPY_ROUNDS, DAG, color_rounds, graph_hashes
from layerdag.privacy.membership import require_graphs
from layerdag.runtime.rng import numpy_generator, scrambled
from layerdag.statistics import (
    NORMAL_95,
    Interval,
    SampleSizeRequirement,
    Verdict,
    half_width_for_verdict,
    round_up,
)

ROUNDS = 3


@dataclass(frozen=True, eq=False)
class KernelIndex:
    """The features of a set of graphs.

    Attributes:
        colors: Of each round, the colors that occur, ascending.
        features: Of the B graphs, the rounds side by side.
    """

    colors: tuple[np.ndarray, ...]
    features: csr_array

    @classmethod
    def from_dags(cls, dags: Sequence[DAG]) -> "KernelIndex":
        """Look at a set of graphs."""
        rounds = list(color_rounds(dags, ROUNDS))
        colors = tuple(np.unique(color_N) for color_N in rounds)
        return cls(colors, _features(dags, rounds, colors))

    def distances(self, dags: Sequence[DAG]) -> np.ndarray:
        """Return the distances of some graphs to those of the set, (K, B), in [0, sqrt(2)]."""
        features = _features(dags, list(color_rounds(dags, ROUNDS)), self.colors)
        cosine = (features @ self.features.T).toarray()
        return np.sqrt(np.maximum(2 - 2 * cosine, 0))


def kernel_distances(left: Sequence[DAG], right: Sequence[DAG]) -> np.ndarray:
    """Return Weisfeiler-Lehman kernel distances, shape (left, right), values in [0, sqrt(2)]."""
    return KernelIndex.from_dags(right).distances(left)


def _features(
    dags: Sequence[DAG], rounds: Sequence[np.ndarray], colors: Sequence[np.ndarray]
) -> csr_array:
    """Return normalized counts of known colors in all rounds; others count for the length."""
    graph_N = np.repeat(np.arange(len(dags)), [dag.num_nodes for dag in dags])
    blocks = []
    for color_N, known in zip(rounds, colors, strict=True):
        own, code_N = np.unique(color_N, return_inverse=True)
        counts = csr_array((np.ones(code_N.size), (graph_N, code_N)), shape=(len(dags), own.size))
        length_B = np.sqrt((counts**2).sum(axis=1)) * math.sqrt(ROUNDS + 1)
        scale = csr_array(
            (1 / np.maximum(length_B, 1e-12), np.arange(len(dags)), np.arange(len(dags) + 1))
        )
        blocks.append(_in_columns(scale @ counts, own, known))
    return csr_array(hstack(blocks))


def _in_columns(counts: csr_array, own: np.ndarray, known: np.ndarray) -> csr_array:
    if own.size == known.size and np.array_equal(own, known):
        return counts
    place = np.searchsorted(known, own)
    is_known = np.isin(own, known)
    table = csr_array(
        (np.ones(int(is_known.sum())), (np.flatnonzero(is_known), place[is_known])),
        shape=(own.size, known.size),
    )
    found = csr_array(counts @ table)
    found.sort_indices()
    return found


NEAR_QUANTILE = 0.05
"""Share of held-out graphs that lie nearer to a training graph than a sample may."""
MIN_CALIBRATED = 20
"""Held-out graphs from which on the quantile is taken; of fewer, the smallest distance."""
CHUNK = 256


class CopyComparison(Enum):
    """How a sample compares with the real graphs."""

    NEW = "new"
    COPY = "copy of a real graph"
    NEAR = "near copy of a real graph"


class CopyTest:
    """Finds copies and near copies of real graphs; columns that were measured do not count.

    Without held-out graphs nothing is a near copy.

    Attributes:
        hashes: Hashes of the real graphs; to be kept private, like the graphs themselves.
        threshold: Weisfeiler-Lehman distance below which a sample is a near copy.
        copied_real: Fraction of the held-out graphs that are copies of training graphs; None
            without any.

    Raises:
        UsageError: If there is no training graph.
    """

    def __init__(
        self, train: Sequence[DAG], held_out: Sequence[DAG], measured: Sequence[int] = ()
    ) -> None:
        require_graphs("Copies", train=train)
        real = [dag.without_columns(measured) for dag in (*train, *held_out)]
        hashes = list(graph_hashes(real, COPY_ROUNDS))
        known, others = set(hashes[: len(train)]), hashes[len(train) :]
        self.hashes = frozenset(hashes)
        self.copied_real = sum(word in known for word in others) / len(others) if others else None
        self._measured, self._index = measured, KernelIndex.from_dags(real)
        self.threshold = _threshold(self._index, real, hashes, len(train))

    def resemblances(self, dags: Iterable[DAG]) -> list[CopyComparison]:
        """Return how each graph of a stream compares with the real ones; memory is bounded."""
        found: list[CopyComparison] = []
        stream = iter(dags)
        while part := [dag.without_columns(self._measured) for dag in islice(stream, CHUNK)]:
            nearest_K = self._index.distances(part).min(axis=1)
            for word, nearest in zip(graph_hashes(part, COPY_ROUNDS), nearest_K, strict=True):
                near = CopyComparison.NEAR if nearest < self.threshold else CopyComparison.NEW
                found.append(CopyComparison.COPY if word in self.hashes else near)
        return found


@dataclass(frozen=True)
class CopyCounts:
    """How many samples repeat a real graph whatever its durations, or lie too near to one.

    Attributes:
        copied: Fraction of the samples with operators, edges and sizes of a real graph.
        near: Fraction nearer to a real graph than real graphs are to each other.
        copied_real: Fraction of the held-out graphs that have those of a training graph; None
            without any.
        near_quantile: Fraction of the held-out graphs that lie as near, by definition.
    """

    copied: float
    near: float
    copied_real: float | None
    near_quantile: float = NEAR_QUANTILE


def copy_counts(test: CopyTest, found: Sequence[CopyComparison]) -> CopyCounts:
    """Return how many of the samples that were compared are copies or near copies.

    Raises:
        UsageError: If there is no sample.
    """
    require_graphs("Copies", train=test.hashes, generated=found)
    return CopyCounts(
        copied=found.count(CopyComparison.COPY) / len(found),
        near=found.count(CopyComparison.NEAR) / len(found),
        copied_real=test.copied_real,
    )


def tuple_keys(operators: Sequence[str], columns: Sequence[np.ndarray]) -> np.ndarray:
    """Return a 64-bit key of each node's (operator, numbers), 0 where no number is stated.

    The columns of numbers are float64 (N,), NaN for absent. Numbers are compared as traces hold
    them: whole, 0 as good as absent.
    """
    if not len(operators) or not columns:
        return np.zeros(len(operators), dtype=np.uint64)
    values_NC = np.nan_to_num(np.stack(columns, axis=1), posinf=0.0, neginf=0.0)
    whole_NC = np.rint(np.clip(values_NC, -9e18, 9e18)).astype(np.int64)
    key_N = _word_codes(operators)
    for column_N in whole_NC.T:
        key_N = scrambled(key_N ^ scrambled(column_N + 1))
    stated_N = (whole_NC != 0).any(axis=1)
    return np.where(stated_N, key_N.view(np.uint64), np.uint64(0))


def call_keys(calls: Sequence[str], sizes: Sequence[str]) -> np.ndarray:
    """Return a 64-bit key of the call of each node of a program, with the sizes in it."""
    words = [f"{call}\n{size}" for call, size in zip(calls, sizes, strict=True)]
    return _word_codes(words).view(np.uint64)


def _word_codes(words: Sequence[str]) -> np.ndarray:
    distinct, position_N = np.unique(np.asarray(words), return_inverse=True)
    digests = [blake2b(word.encode(), digest_size=8).digest() for word in distinct.tolist()]
    code_U = np.array([int.from_bytes(d, "little") >> 1 for d in digests], dtype=np.int64)
    return code_U[position_N]


def keys_of_one_run(keys: Sequence[np.ndarray], run_of: Sequence[object]) -> np.ndarray:
    """Return the sorted keys (0 left out) that occur in the graphs of a single run.

    ``keys`` are ``tuple_keys`` of each graph; copies of a run share ``run_of``.
    """
    number = {run: i for i, run in enumerate(dict.fromkeys(run_of))}
    pairs = [
        np.stack([found, np.full(found.size, number[run], dtype=np.uint64)])
        for graph, run in zip(keys, run_of, strict=True)
        if (found := np.unique(graph)).size
    ]
    if not pairs:
        return np.zeros(0, dtype=np.uint64)
    distinct_2P = np.unique(np.concatenate(pairs, axis=1), axis=1)
    key_K, count_K = np.unique(distinct_2P[0], return_counts=True)
    return key_K[(count_K == 1) & (key_K != 0)]


def _threshold(
    index: KernelIndex, real: Sequence[DAG], hashes: Sequence[str], trained: int
) -> float:
    """Return the distance to other real graphs that few held-out graphs go below.

    The training graphs come first. Graphs with equal hashes are repetitions of one and do not
    count.
    """
    word_G = np.array(hashes)
    nearest: list[float] = []
    for start in range(trained, len(real), CHUNK):
        part = slice(start, start + CHUNK)
        distance_KG = index.distances(real[part])
        distance_KG[word_G[part, None] == word_G] = np.inf
        nearest += distance_KG.min(axis=1).tolist()
    nearest_H = np.array(nearest)[np.isfinite(nearest)]
    if not nearest_H.size:
        return 0.0
    few = nearest_H.size < MIN_CALIBRATED
    return float(nearest_H.min() if few else np.quantile(nearest_H, NEAR_QUANTILE))


RELABELINGS = 500


@dataclass(frozen=True)
class Novelty:
    """Shares among the generated graphs.

    Attributes:
        unique: Distinct hashes / graphs.
        novel: Share whose hash no training graph has.
        vun: Share of graphs that are valid, novel and the first with their hash.
        copied: Share that repeats a training graph (1 - novel).
        copied_real: Share of real held-out graphs that repeat a training graph, the scale of it;
            None without held-out graphs.
    """

    graphs: int
    valid: float
    unique: float
    novel: float
    vun: float
    copied: float
    copied_real: float | None

    @property
    def vun_interval(self) -> Interval:
        """Wilson's 95 % interval of ``vun``, over samples."""
        return Interval.wilson(self.vun, self.graphs)


@dataclass(frozen=True)
class DistanceToClosestRecord:
    """Whether generated graphs lie nearer to the training set than to held-out graphs (DCR).

    Attributes:
        dcr_share: Share of generated graphs nearer to training than to held-out; ties count half.
            0.5 is ideal, 1 is a generator that stays beside its training graphs.
        interval: 95 % interval of ``dcr_share``: Wilson's, which is about the samples, or the
            spread where chance calls a real graph a training graph, whichever is wider.
        median_to_train: Median Weisfeiler-Lehman distance to the nearest training graph.
        median_to_held_out: The same to the nearest held-out graph.
        compared: Number of training and of held-out graphs compared with, equal.
        need: How many graphs a verdict would take; None where there is one.
    """

    dcr_share: float
    interval: Interval
    median_to_train: float
    median_to_held_out: float
    compared: int
    samples: int
    verdict: Verdict
    need: SampleSizeRequirement | None

    def to_dict(self) -> dict[str, object]:
        """Return the fields as reports save them."""
        found = {each.name: getattr(self, each.name) for each in fields(self)}
        return {"share": found.pop("dcr_share"), **found}

    def in_words(self) -> str:
        """Return the verdict as a clause."""
        return {
            Verdict.LEAKS: "nearer to training graphs",
            Verdict.CHANCE: "as near to held-out graphs",
            Verdict.TOO_FEW: f"{self.verdict.value} ({self.need.in_words() if self.need else ''})",
            Verdict.REVERSED: "nearer to held-out graphs: the two parts are not alike",
        }[self.verdict]


def novelty(
    train: Sequence[DAG],
    held_out: Sequence[DAG],
    generated: Iterable[DAG],
    valid_B: np.ndarray | None = None,
) -> Novelty:
    """Return the shares of valid, unique and novel graphs; of a stream, hashes alone are held.

    Raises:
        UsageError: If there is no training or no generated graph.
    """
    return novelty_of_hashes(train, held_out, list(graph_hashes(generated)), valid_B)


def novelty_of_hashes(
    train: Sequence[DAG],
    held_out: Sequence[DAG],
    hashes: Sequence[str],
    valid_B: np.ndarray | None = None,
) -> Novelty:
    """Return the same from the hashes of the samples (``graph_hashes``).

    Raises:
        UsageError: If there is no training graph or no hash.
    """
    require_graphs("Copies", train=train, generated=hashes)
    known = set(graph_hashes(train))
    valid = np.ones(len(hashes), dtype=bool) if valid_B is None else valid_B
    novel = np.array([word not in known for word in hashes])
    real = [word in known for word in graph_hashes(held_out)]
    first = np.zeros(len(hashes), dtype=bool)
    first[np.unique(hashes, return_index=True)[1]] = True
    return Novelty(
        graphs=len(hashes),
        valid=float(valid.mean()),
        unique=float(first.mean()),
        novel=float(novel.mean()),
        vun=float((valid & novel & first).mean()),
        copied=float(1 - novel.mean()),
        copied_real=float(np.mean(real)) if real else None,
    )


def nearness_by_distance(
    to_train_KT: np.ndarray, to_held_KH: np.ndarray, seed: int
) -> DistanceToClosestRecord:
    """Return how often a generated graph is nearer to training than to held-out graphs.

    Of K generated graphs the distances to all real ones are given. The larger of the two real sets
    is cut at random to the size of the smaller one, since the nearest of more graphs is nearer.
    """
    tally = CloserToTrainingTally(to_train_KT.shape[1], to_held_KH.shape[1], seed)
    tally.add(to_train_KT, to_held_KH)
    return tally.result()


class CloserToTrainingTally:
    """Counts samples nearer to training than to held-out graphs, some samples at a time.

    Two distances are held of each sample, whatever the number of real graphs.
    """

    def __init__(self, trained: int, held_out: int, seed: int) -> None:
        rng = numpy_generator(seed, "nearness")
        self._size = size = min(trained, held_out)
        self._train_S = rng.permutation(trained)[:size]
        self._held_S = rng.permutation(held_out)[:size]
        is_train_G1 = (np.arange(2 * size) < size)[:, None]
        by_chance_GR = rng.random((2 * size, RELABELINGS)) < 0.5
        self._is_train_GR = np.concatenate([is_train_G1, by_chance_GR], axis=1)
        self._nearer_R = np.zeros(1 + RELABELINGS)
        self._nearest: list[np.ndarray] = []

    def add(self, to_train_KT: np.ndarray, to_held_KH: np.ndarray) -> None:
        """Count samples by their distances to all training and to all held-out graphs."""
        to_train_KS, to_held_KS = to_train_KT[:, self._train_S], to_held_KH[:, self._held_S]
        distance_KG = np.concatenate([to_train_KS, to_held_KS], axis=1)
        least_K1 = distance_KG.min(axis=1, keepdims=True)
        near_KG = np.isclose(distance_KG, least_K1, atol=1e-9).astype(float)
        of_train_KR = near_KG @ self._is_train_GR > 0
        of_rest_KR = near_KG @ ~self._is_train_GR > 0
        # A sample whose nearest graphs are of both kinds counts half.
        self._nearer_R += np.where(of_rest_KR, 0.5 * of_train_KR, of_train_KR).sum(axis=0)
        self._nearest.append(np.stack([to_train_KS.min(axis=1), to_held_KS.min(axis=1)]))

    def result(self) -> DistanceToClosestRecord:
        """Return what was counted."""
        nearest_2K = np.concatenate(self._nearest, axis=1)
        count = nearest_2K.shape[1]
        fraction, by_chance_R = float(self._nearer_R[0] / count), self._nearer_R[1:] / count
        spread = float(np.sqrt(np.mean((by_chance_R - 0.5) ** 2)))
        wilson, half = Interval.wilson(fraction, count), NORMAL_95 * spread
        low, high = min(wilson.low, fraction - half), max(wilson.high, fraction + half)
        interval = Interval(max(low, 0.0), min(high, 1.0))
        verdict = Verdict.from_interval(interval)
        few = verdict is Verdict.TOO_FEW
        return DistanceToClosestRecord(
            dcr_share=fraction,
            interval=interval,
            median_to_train=float(np.median(nearest_2K[0])),
            median_to_held_out=float(np.median(nearest_2K[1])),
            compared=self._size,
            samples=count,
            verdict=verdict,
            need=_need(fraction, spread, count, self._size) if few else None,
        )


def _need(fraction: float, spread: float, samples: int, compared: int) -> SampleSizeRequirement:
    """Return which graphs are too few, and about how many are needed.

    Were all samples next to different real graphs, the spread would be 0.5 / sqrt(samples). What it
    is beyond that comes from real graphs that are the nearest of many samples, and more samples do
    not take it away.
    """
    crowding = max((4 * spread**2 * samples - 1) / max(samples - 1, 1), 0.0)
    allowed = (2 * half_width_for_verdict(fraction) / NORMAL_95) ** 2
    if crowding < allowed:
        return SampleSizeRequirement(
            "samples", samples, round_up((1 - crowding) / (allowed - crowding))
        )
    left = max(allowed - 1 / samples, allowed / 2)
    return SampleSizeRequirement("held-out graphs", compared, round_up(compared * crowding / left))
