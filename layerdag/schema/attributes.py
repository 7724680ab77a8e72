"""Attributes of nodes: categories with their words, numbers with their bins.

A model sees the bin of a number as a category; the position says where in the bin the value lies,
through the quantiles of the training values that fell into it. So a decoded number has the training
distribution inside every bin. The outermost bins are halved again and again, because the few
largest values decide sums and tails. A value that many nodes share (a kernel size, a power of two)
gets a bin of its own and comes back exactly. Values beyond what ``SHARED_BY`` training graphs reach
are moved there, so that no extreme is that of a single graph.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from layerdag.codec.vocabulary import OTHER
from layerdag.dag.program_numbers import SHARED_BY
from layerdag.errors import VocabularyError
from layerdag.graph.attributed_graph import AttributedGraph
from layerdag.runtime.settings import did_you_mean

MAX_WORD = 4096
"""Characters of a word of a vocabulary that comes from outside."""
_UNWRITABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff]")


@dataclass(frozen=True)
class CategoryAttribute:
    """A categorical node attribute; a word's code is its position in ``values``.

    If ``<other>`` is among them, unknown words map there.
    """

    name: str
    values: tuple[str, ...]

    def check(self) -> None:
        """Raise ValueError unless the words can be those of a vocabulary."""
        require_words(self.values)

    @property
    def num_codes(self) -> int:
        """Number of codes."""
        return len(self.values)

    def encode(self, categories: Sequence[str]) -> np.ndarray:
        """Return the code of each word, int64 (N,).

        Raises VocabularyError if a word is unknown and the vocabulary has no ``<other>``.
        """
        code_of = {category: code for code, category in enumerate(self.values)}
        fallback = code_of.get(OTHER)
        codes = [code_of.get(category, fallback) for category in categories]
        if None in codes:
            node = codes.index(None)
            raise VocabularyError(
                f"Node {node} has {self.name} '{categories[node]}', which no training graph has."
                f"{did_you_mean(categories[node], self.values)} "
                "Fit the schema on data that contains it."
            )
        return np.array(codes, dtype=np.int64)

    def decode(self, code_N: np.ndarray) -> list[str]:
        """Return the word of each code.

        Raises VocabularyError if a code is not one of ``num_codes``.
        """
        _require_codes(self.name, self.num_codes, code_N)
        return [self.values[code] for code in code_N.tolist()]


def fit_category(name: str, graphs: Sequence[AttributedGraph]) -> CategoryAttribute:
    """Return the attribute with every word of the training graphs and of fixed vocabularies."""
    categories = {category for graph in graphs for category in graph.categories[name]}
    categories.update(category for graph in graphs for category in graph.vocabularies.get(name, ()))
    open_ended = any(name in graph.open_vocabularies for graph in graphs)
    closed = sorted(categories - {OTHER})
    return CategoryAttribute(
        name, (*closed, OTHER) if open_ended or OTHER in categories else tuple(closed)
    )


def require_words(values: Sequence[str]) -> None:
    """Raise ValueError unless these are distinct words that can be written to a file."""
    if len(set(values)) != len(values):
        raise ValueError("a word occurs twice")
    if max(map(len, values), default=0) > MAX_WORD or any(map(_UNWRITABLE.search, values)):
        raise ValueError(f"a word is longer than {MAX_WORD} or cannot be written to a file")


def _require_codes(name: str, num_codes: int, code_N: np.ndarray) -> None:
    if code_N.size and not 0 <= code_N.min() <= code_N.max() < num_codes:
        raise VocabularyError(
            f"Attribute '{name}' has codes 0 to {num_codes - 1}, found {int(code_N.min())} to "
            f"{int(code_N.max())}; decode with the schema of the model."
        )


# Few enough that single training values cannot be read off a bin of MIN_COUNT values or more.
QUANTILES = 5
MIN_COUNT = 16
# A value held by at least this share of the nodes that have one gets a bin of its own.
SHARED_VALUE = 0.02
SIGNIFICANT_DIGITS = 3
# Magnitudes whose ratios are still numbers.
_LEAST, _MOST = 1e-100, 1e100


@dataclass(frozen=True)
class NumericAttribute:
    """A numeric attribute: code 0 is "absent", code k >= 1 the k-th bin.

    The unit is "ns", "bytes", "flops" or "1". ``bins`` are the quantiles of each bin, ascending and
    without overlap.
    """

    name: str
    unit: str
    bins: tuple[tuple[float, ...], ...]

    @classmethod
    def fit(
        cls,
        name: str,
        unit: str,
        values: np.ndarray,
        num_bins: int = 16,
        graph_of: np.ndarray | None = None,
    ) -> "NumericAttribute":
        """Learn the bins from training values; NaN is absent, and so is an infinite value.

        ``num_bins`` is for values that are not shared by many nodes; ``graph_of`` is the number of
        the graph of each value, by default each is of a graph of its own.
        """
        present = np.asarray(values, dtype=np.float64).ravel()
        finite = np.isfinite(present)
        graph = np.arange(present.size) if graph_of is None else np.asarray(graph_of).ravel()
        present, graph = present[finite], graph[finite]
        if present.size == 0:
            return cls(name, unit, ())
        if graph_of is not None:
            present = np.clip(present, *shared_range(present, graph))
        shared = _shared_values(present, graph)
        rest = present[~np.isin(present, shared)]
        bins = [(float(value),) * QUANTILES for value in shared]
        for part, low, high in _between(rest, shared):
            count = max(1, round(num_bins * part.size / rest.size))
            bins.extend(_quantile_bins(part, count, low, high))
        return cls(name, unit, tuple(sorted(bins)))

    def check(self) -> None:
        """Raise ValueError unless the bins hold quantiles that ascend."""
        flat = [quantile for row in self.bins for quantile in row]
        if any(len(row) != QUANTILES for row in self.bins) or not np.isfinite(flat).all():
            raise ValueError(f"a bin must hold {QUANTILES} finite numbers")
        if any(quantile and not _LEAST <= abs(quantile) <= _MOST for quantile in flat):
            raise ValueError(f"bins must be 0 or from {_LEAST:g} to {_MOST:g}")
        if flat != sorted(flat):
            raise ValueError("bins must be in ascending order and not overlap")

    @property
    def num_codes(self) -> int:
        """Number of codes, "absent" included."""
        return len(self.bins) + 1

    def encode(self, values_N: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return (codes int64, positions float32 in [0, 1)) of values.

        A value that is not finite is absent, code 0. A value outside the training
        range falls into the nearest bin, at its end.
        """
        value_N = np.asarray(values_N, dtype=np.float64)
        absent_N = ~np.isfinite(value_N)
        if not self.bins or absent_N.all():
            return np.zeros(value_N.shape, np.int64), np.zeros(value_N.shape, np.float32)
        table_KQ = np.array(self.bins)
        middle_K1 = (table_KQ[:-1, -1] + table_KQ[1:, 0]) / 2
        known_N = np.where(absent_N, table_KQ[0, 0], value_N)
        code_N = np.searchsorted(middle_K1, known_N, side="right").astype(np.int64)
        low_N, high_N = table_KQ[code_N, 0], table_KQ[code_N, -1]
        clipped_N = np.clip(value_N, low_N, high_N)
        position_N = _position(clipped_N, table_KQ[code_N])
        code_N = np.where(absent_N, 0, code_N + 1)
        return code_N, np.where(absent_N, 0, position_N).astype(np.float32)

    def decode(self, code_N: np.ndarray, position_N: np.ndarray) -> np.ndarray:
        """Return values for codes and positions; NaN for code 0.

        Raises VocabularyError if a code is not one of ``num_codes``.
        """
        code_N = np.asarray(code_N)
        _require_codes(self.name, self.num_codes, code_N)
        if not self.bins:
            return np.full(code_N.shape, np.nan)
        table_KQ = np.array(self.bins)
        row_NQ = table_KQ[np.maximum(code_N - 1, 0)]
        scaled_N = np.asarray(position_N, dtype=np.float64) * (QUANTILES - 1)
        left_N = np.minimum(scaled_N.astype(np.int64), QUANTILES - 2)
        low_N = np.take_along_axis(row_NQ, left_N[:, None], 1)[:, 0]
        high_N = np.take_along_axis(row_NQ, left_N[:, None] + 1, 1)[:, 0]
        value_N = _blend(low_N, high_N, scaled_N - left_N)
        return np.where(code_N == 0, np.nan, value_N)


def shared_range(
    value: np.ndarray, graph: np.ndarray, needed: int = SHARED_BY
) -> tuple[float, float]:
    """Return the smallest and largest value that ``needed`` graphs reach, or all if fewer."""
    order = np.argsort(graph, kind="stable")
    starts = np.unique(graph[order], return_index=True)[1]
    low_G = np.sort(np.minimum.reduceat(value[order], starts))
    high_G = np.sort(np.maximum.reduceat(value[order], starts))
    index = min(needed, low_G.size) - 1
    return float(low_G[index]), float(high_G[-1 - index])


def _shared_values(value: np.ndarray, graph: np.ndarray) -> np.ndarray:
    distinct, code, counts = np.unique(value, return_inverse=True, return_counts=True)
    pairs = np.unique(np.stack([code.ravel(), graph]), axis=1)
    graphs = np.bincount(pairs[0], minlength=distinct.size)
    many = counts >= max(MIN_COUNT / 2, SHARED_VALUE * value.size)
    return distinct[many & (graphs >= min(SHARED_BY, len(np.unique(graph))))]


def _between(values: np.ndarray, cuts: np.ndarray) -> list[tuple[np.ndarray, float, float]]:
    """Split values at the shared ones, so that no bin spans a bin of its own.

    Returns (values, shared value below, shared value above) of each part, in ascending order.
    """
    index = np.searchsorted(cuts, values)
    walls = np.concatenate(([-np.inf], cuts, [np.inf]))
    return [
        (values[index == k], float(walls[k]), float(walls[k + 1]))
        for k in range(len(cuts) + 1)
        if (index == k).any()
    ]


def _quantile_bins(
    values: np.ndarray, num_bins: int, low: float, high: float
) -> list[tuple[float, ...]]:
    """Cut values into bins of equal counts; return the quantiles of each, rounded inside a span.

    Values lie strictly between ``low`` and ``high``, the shared values around them.
    """
    ordered = np.sort(values)
    num_bins = max(1, min(num_bins, ordered.size // MIN_COUNT))
    aims = np.quantile(ordered, np.linspace(0, 1, num_bins + 1)[1:-1])
    edges = np.unique(np.searchsorted(ordered, aims))
    edges = edges[edges > 0]
    if np.isinf(low):
        edges = np.concatenate((_halvings(int(edges.min(initial=ordered.size)))[::-1], edges))
    if np.isinf(high):
        last = ordered.size - edges.max(initial=0)
        edges = np.concatenate((edges, ordered.size - _halvings(int(last))))
    bins: list[tuple[float, ...]] = []
    for part in np.split(ordered, np.unique(edges)):
        quantiles = np.quantile(part, np.linspace(0, 1, QUANTILES)).tolist()
        row = tuple(_rounded(quantile, low, high) for quantile in quantiles)
        floor = bins[-1][-1] if bins else -np.inf
        if row[0] > floor:
            bins.append(row)
        elif row[-1] > floor:
            bins.append(tuple(max(quantile, floor) for quantile in row))
    return bins


def _halvings(size: int) -> np.ndarray:
    """Return size / 2, size / 4, ... as long as at least ``MIN_COUNT`` values lie outside."""
    cuts = size >> np.arange(1, 64)
    return cuts[cuts >= MIN_COUNT]


def _rounded(value: float, low: float, high: float) -> float:
    for digits in range(SIGNIFICANT_DIGITS, 17):
        found = float(f"{value:.{digits}g}")
        if low < found < high:
            return found
    return value


def _blend(low_N: np.ndarray, high_N: np.ndarray, fraction_N: np.ndarray) -> np.ndarray:
    """Return the value a share of the way from low to high: geometric where both are positive."""
    positive_N = low_N > 0
    ratio_N = np.divide(high_N, low_N, out=np.ones_like(low_N), where=positive_N)
    linear_N = low_N + fraction_N * (high_N - low_N)
    return np.where(positive_N, low_N * ratio_N**fraction_N, linear_N)


def _fraction_between(low_N: np.ndarray, high_N: np.ndarray, value_N: np.ndarray) -> np.ndarray:
    """Return the share that ``_blend`` turns back into the value; 0.5 where low equals high."""
    positive_N, wide_N = low_N > 0, high_N > low_N
    half_N = np.full_like(low_N, 0.5)
    geometric = positive_N & wide_N
    up_N = np.divide(value_N, low_N, out=np.ones_like(low_N), where=geometric)
    span_N = np.divide(high_N, low_N, out=np.full_like(low_N, 2.0), where=geometric)
    linear_N = np.divide(value_N - low_N, high_N - low_N, out=half_N, where=wide_N)
    return np.where(geometric, np.log(up_N) / np.log(span_N), linear_N)


def _position(value_N: np.ndarray, row_NQ: np.ndarray) -> np.ndarray:
    """Return where each value lies among its bin's quantiles, in [0, 1)."""
    left_N = np.clip((row_NQ <= value_N[:, None]).sum(1) - 1, 0, QUANTILES - 2)
    low_N = np.take_along_axis(row_NQ, left_N[:, None], 1)[:, 0]
    high_N = np.take_along_axis(row_NQ, left_N[:, None] + 1, 1)[:, 0]
    position_N = (left_N + _fraction_between(low_N, high_N, value_N)) / (QUANTILES - 1)
    return np.clip(position_N, 0, np.nextafter(np.float32(1), np.float32(0)))
