"""Does a generator copy its training graphs? Valid, unique, novel; exact and near copies.

Always three sets: training, held-out of the same size, generated. A copy test alone proves nothing
(Yao et al., ESORICS 2025); it is the first of several attacks. Hashes are Weisfeiler-Lehman hashes
of the attributed directed graph: graphs that they cannot tell apart count as copies, which errs on
the side of reporting a copy.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from layerdag._runtime import numpy_generator
from layerdag.evaluation.metrics import NORMAL_95, Interval
from layerdag.evaluation.privacy._kernel_index import kernel_distances
from layerdag.evaluation.privacy._verdict import (
    Need,
    Verdict,
    half_width_for_verdict,
    require_graphs,
    round_up,
)
from layerdag.graph import DAG, graph_hashes

RELABELINGS = 500


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
        return wilson_interval(self.vun, self.graphs)


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
        samples: Number of generated graphs.
        verdict: What the interval says.
        need: How many graphs a verdict would take; None where there is one.
    """

    dcr_share: float
    interval: Interval
    median_to_train: float
    median_to_held_out: float
    compared: int
    samples: int
    verdict: Verdict
    need: Need | None

    def to_dict(self) -> dict[str, object]:
        """Return the fields as reports save them."""
        return {
            "share": self.dcr_share,
            "interval": self.interval,
            "median_to_train": self.median_to_train,
            "median_to_held_out": self.median_to_held_out,
            "compared": self.compared,
            "samples": self.samples,
            "verdict": self.verdict,
            "need": self.need,
        }

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

    Args:
        train: Training graphs.
        held_out: Real graphs that the generator never saw; may be empty.
        generated: Samples.
        valid_B: Validity of each sample (``StructureReport.valid_B``); all valid by default.

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
    first = np.zeros(len(hashes), dtype=bool)
    first[np.unique(hashes, return_index=True)[1]] = True
    return Novelty(
        graphs=len(hashes),
        valid=float(valid.mean()),
        unique=float(first.mean()),
        novel=float(novel.mean()),
        vun=float((valid & novel & first).mean()),
        copied=float(1 - novel.mean()),
        copied_real=_fraction_known(known, held_out),
    )


def nearness(
    train: Sequence[DAG], held_out: Sequence[DAG], generated: Sequence[DAG], seed: int = 0
) -> DistanceToClosestRecord:
    """Return how often a generated graph is nearer to training than to held-out graphs.

    The larger of the two real sets is cut at random to the size of the smaller one, since the
    nearest of more graphs is nearer.

    Raises:
        UsageError: If a set is empty.
    """
    require_graphs("Distances", train=train, held_out=held_out, generated=generated)
    distance_KG = kernel_distances(generated, [*train, *held_out])
    return nearness_by_distance(distance_KG[:, : len(train)], distance_KG[:, len(train) :], seed)


def nearness_by_distance(
    to_train_KT: np.ndarray, to_held_KH: np.ndarray, seed: int
) -> DistanceToClosestRecord:
    """Return the same from the distances of K generated graphs to all real ones."""
    tally = NearnessTally(to_train_KT.shape[1], to_held_KH.shape[1], seed)
    tally.add(to_train_KT, to_held_KH)
    return tally.result()


class NearnessTally:
    """Counts samples nearer to training than to held-out graphs, some samples at a time.

    Two distances are held of each sample, whatever the number of real graphs.

    Args:
        trained: Number of training graphs.
        held_out: Number of held-out graphs.
        seed: Of the cut to equal numbers, and of what chance calls a training graph.
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
        near_KG = _nearest(np.concatenate([to_train_KS, to_held_KS], axis=1))
        self._nearer_R += _nearer_to_train(near_KG, self._is_train_GR)
        self._nearest.append(np.stack([to_train_KS.min(axis=1), to_held_KS.min(axis=1)]))

    def result(self) -> DistanceToClosestRecord:
        """Return what was counted."""
        nearest_2K = np.concatenate(self._nearest, axis=1)
        count = nearest_2K.shape[1]
        fraction, by_chance_R = float(self._nearer_R[0] / count), self._nearer_R[1:] / count
        spread = float(np.sqrt(np.mean((by_chance_R - 0.5) ** 2)))
        interval = _wider(wilson_interval(fraction, count), fraction, NORMAL_95 * spread)
        verdict = Verdict.of(interval)
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


def _nearest(distance_KG: np.ndarray) -> np.ndarray:
    """Return which real graphs are the nearest of each generated one, ties included, as floats."""
    least_K1 = distance_KG.min(axis=1, keepdims=True)
    return np.isclose(distance_KG, least_K1, atol=1e-9).astype(float)


def _nearer_to_train(near_KG: np.ndarray, is_train_GR: np.ndarray) -> np.ndarray:
    """Return how many generated graphs are nearer to training, for R ways to call graphs so.

    A generated graph whose nearest graphs are of both kinds counts half.
    """
    of_train_KR = near_KG @ is_train_GR > 0
    of_rest_KR = near_KG @ ~is_train_GR > 0
    count_R: np.ndarray = np.where(of_rest_KR, 0.5 * of_train_KR, of_train_KR).sum(axis=0)
    return count_R


def _wider(interval: Interval, value: float, half: float) -> Interval:
    """Return the interval that holds ``interval`` and value +- half, cut at 0 and 1."""
    return Interval(
        max(min(interval.low, value - half), 0.0), min(max(interval.high, value + half), 1.0)
    )


def _need(fraction: float, spread: float, samples: int, compared: int) -> Need:
    """Return which graphs are too few, and about how many are needed.

    Were all samples next to different real graphs, the spread would be 0.5 / sqrt(samples). What it
    is beyond that comes from real graphs that are the nearest of many samples, and more samples do
    not take it away.
    """
    crowding = max((4 * spread**2 * samples - 1) / max(samples - 1, 1), 0.0)
    allowed = (2 * half_width_for_verdict(fraction) / NORMAL_95) ** 2
    if crowding < allowed:
        return Need("samples", samples, round_up((1 - crowding) / (allowed - crowding)))
    left = max(allowed - 1 / samples, allowed / 2)
    return Need("held-out graphs", compared, round_up(compared * crowding / left))


def _fraction_known(known: set[str], dags: Sequence[DAG]) -> float | None:
    """Return the share of graphs whose hash is known; None for no graph."""
    return float(np.mean([word in known for word in graph_hashes(dags)])) if dags else None


def wilson_interval(fraction: float, count: int) -> Interval:
    """Return the 95 % Wilson score interval of a share of ``count`` trials."""
    z2 = NORMAL_95**2
    center = (fraction + z2 / (2 * count)) / (1 + z2 / count)
    half = NORMAL_95 * math.sqrt(fraction * (1 - fraction) / count + z2 / (4 * count**2))
    half /= 1 + z2 / count
    return Interval(center - half, center + half)
