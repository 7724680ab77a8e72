"""Which samples repeat a real graph, or come nearer to one than real graphs do to each other.

Measured times differ from run to run of the same program, so that columns of them do not count: a
sample with the operators, the edges and the sizes of a training graph is a copy, whatever its
durations. How near is too near is read off real graphs that were not trained on.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from itertools import islice

import numpy as np

from layerdag._runtime import scrambled
from layerdag.evaluation.privacy._kernel_index import KernelIndex
from layerdag.evaluation.privacy._verdict import require_graphs
from layerdag.graph import DAG, graph_hashes

HASH_ROUNDS = 8
NEAR_QUANTILE = 0.05
"""Share of held-out graphs that lie nearer to a training graph than a sample may."""
LEAST_CALIBRATED = 20
"""Held-out graphs from which on the quantile is taken; of fewer, the smallest distance."""
CHUNK = 256


class Resemblance(Enum):
    """How a sample stands to the real graphs."""

    NEW = "new"
    COPY = "copy of a real graph"
    NEAR = "near copy of a real graph"


@dataclass(frozen=True, eq=False)
class CopyTest:
    """Tells copies and near copies of real graphs.

    Attributes:
        real: Training and held-out graphs, without measured columns.
        hashes: Hashes of these graphs; to be kept private, like the graphs themselves.
        measured: Columns of ``x_NA`` that do not count.
        threshold: Weisfeiler-Lehman distance below which a sample is a near copy.
    """

    real: tuple[DAG, ...]
    hashes: frozenset[str]
    measured: tuple[int, ...]
    threshold: float

    @classmethod
    def of(
        cls, train: Sequence[DAG], held_out: Sequence[DAG], measured: Sequence[int] = ()
    ) -> "CopyTest":
        """Calibrate on held-out graphs.

        Args:
            train: Graphs that a generator learned from.
            held_out: Real graphs that it never saw; without any, nothing is a near copy.
            measured: Columns that hold measurements, such as durations.

        Raises:
            UsageError: If there is no training graph.
        """
        require_graphs("Copies", train=train)
        known = [program_of(dag, measured) for dag in train]
        others = [program_of(dag, measured) for dag in held_out]
        hashes = list(graph_hashes((*known, *others), HASH_ROUNDS))
        return cls(
            real=(*known, *others),
            hashes=frozenset(hashes),
            measured=tuple(measured),
            threshold=_threshold((*known, *others), hashes, len(known)),
        )

    @cached_property
    def _index(self) -> KernelIndex:
        return KernelIndex.of(self.real)

    def resemblances(self, dags: Iterable[DAG]) -> list[Resemblance]:
        """Return how each graph of a stream stands to the real ones; memory is bounded."""
        found: list[Resemblance] = []
        stream = iter(dags)
        while part := [program_of(dag, self.measured) for dag in islice(stream, CHUNK)]:
            nearest_K = self._index.distances(part).min(axis=1)
            found += [
                self._resemblance(word, float(distance))
                for word, distance in zip(graph_hashes(part, HASH_ROUNDS), nearest_K, strict=True)
            ]
        return found

    def _resemblance(self, word: str, nearest: float) -> Resemblance:
        if word in self.hashes:
            return Resemblance.COPY
        return Resemblance.NEAR if nearest < self.threshold else Resemblance.NEW


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


def count_copies(
    train: Sequence[DAG],
    held_out: Sequence[DAG],
    generated: Iterable[DAG],
    measured: Sequence[int] = (),
) -> CopyCounts:
    """Return how many samples are copies or near copies of training or held-out graphs.

    Args:
        train: Graphs that a generator learned from.
        held_out: Real graphs that it never saw.
        generated: Samples; of a stream, no more than ``CHUNK`` graphs are held.
        measured: Columns that hold measurements, such as durations.

    Raises:
        UsageError: If there is no training graph or no sample.
    """
    test = CopyTest.of(train, held_out, measured)
    return copy_counts(test, len(train), test.resemblances(generated))


def copy_counts(test: CopyTest, trained: int, found: Sequence[Resemblance]) -> CopyCounts:
    """Return the same of samples that were looked at already.

    Args:
        test: What they were compared with.
        trained: How many of its real graphs are training graphs.
        found: How each sample stands to them.

    Raises:
        UsageError: If there is no training graph or no sample.
    """
    require_graphs("Copies", train=test.real[:trained], generated=found)
    known = set(graph_hashes(test.real[:trained], HASH_ROUNDS))
    others = [word in known for word in graph_hashes(test.real[trained:], HASH_ROUNDS)]
    return CopyCounts(
        copied=found.count(Resemblance.COPY) / len(found),
        near=found.count(Resemblance.NEAR) / len(found),
        copied_real=sum(others) / len(others) if others else None,
    )


def program_of(dag: DAG, measured: Sequence[int] = ()) -> DAG:
    """Return a graph without its measured columns: what was run, not how long it took."""
    x_NA = dag.x_NA.clone()
    x_NA[:, list(measured)] = 0
    return dag.with_columns(x_NA)


def tuple_keys(operators: Sequence[str], columns: Sequence[np.ndarray]) -> np.ndarray:
    """Return a 64-bit key of each node's (operator, numbers), 0 where no number is stated.

    Numbers are compared as traces hold them: whole, 0 as good as absent.

    Args:
        operators: Operator of each node.
        columns: float64 (N,) each, NaN for absent.
    """
    if not len(operators) or not columns:
        return np.zeros(len(operators), dtype=np.uint64)
    values_NC = np.nan_to_num(np.stack(columns, axis=1), posinf=0.0, neginf=0.0)
    whole_NC = np.rint(np.clip(values_NC, -9e18, 9e18)).astype(np.int64)
    distinct, position_N = np.unique(np.asarray(operators), return_inverse=True)
    code_U = np.array([_word_code(word) for word in distinct.tolist()], dtype=np.int64)
    key_N = code_U[position_N]
    for column_N in whole_NC.T:
        key_N = scrambled(key_N ^ scrambled(column_N + 1))
    stated_N = (whole_NC != 0).any(axis=1)
    return np.where(stated_N, key_N.view(np.uint64), np.uint64(0))


def _word_code(word: str) -> int:
    import hashlib

    return int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest(), "little") >> 1


def keys_of_one_run(keys: Sequence[np.ndarray], run_of: Sequence[object]) -> np.ndarray:
    """Return the sorted keys (0 left out) that occur in the graphs of a single run.

    Args:
        keys: ``tuple_keys`` of each graph.
        run_of: The run of each graph; copies of a run share it.
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


def _threshold(real: Sequence[DAG], hashes: Sequence[str], trained: int) -> float:
    """Return the distance to other real graphs that hardly any held-out graph goes below.

    Args:
        real: Training graphs, then held-out ones.
        hashes: Of them; graphs with equal ones are repetitions of one and do not count.
        trained: Number of training graphs.
    """
    held_out = range(trained, len(real))
    nearest_H = [nearest for nearest in _nearest(real, hashes, held_out) if np.isfinite(nearest)]
    if not nearest_H:
        return 0.0
    if len(nearest_H) < LEAST_CALIBRATED:
        return float(min(nearest_H))
    return float(np.quantile(nearest_H, NEAR_QUANTILE))


def _nearest(real: Sequence[DAG], hashes: Sequence[str], rows: range) -> Iterator[float]:
    """Yield the distance of each of ``rows`` to the nearest other graph; infinite for none."""
    word_G = np.array(hashes)
    index = KernelIndex.of(real)
    for start in range(rows.start, rows.stop, CHUNK):
        part = range(start, min(start + CHUNK, rows.stop))
        distance_KG = index.distances([real[i] for i in part])
        distance_KG[word_G[list(part)][:, None] == word_G] = np.inf
        yield from distance_KG.min(axis=1).tolist()
