"""What a metric is, the sets of graphs that it compares, and histograms of their values.

A metric is a name, a goal, bounds, and a way to compute a row of results (SDMetrics' idea). One
that fails does not end a report: its failure is listed, never averaged away.

A histogram keeps its counts by graph, so that the bootstrap over graphs is a matrix product: a
resampled set is a row of weights, its pooled histogram is ``weights_RB @ counts_BK``. A graph has
few of all the values of a set, so that the counts are a sparse matrix.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Any, TypeVar, final

import numpy as np
from scipy import sparse

from layerdag.dag.graph_set import GraphSet
from layerdag.errors import DataError, UsageError
from layerdag.runtime.registry import Registry
from layerdag.runtime.rng import numpy_generator
from layerdag.schema.attributes import CategoryAttribute, NumericAttribute
from layerdag.schema.schema import GraphSchema
from layerdag.statistics import Interval, bootstrap_weights

PAIR_BITS = 31
"""Bits of the second of two codes in one number; the first is above."""
_MAX_TABLE = 1 << 22


@dataclass(frozen=True, eq=False)
class Histograms:
    """Counts of K values in each of B graphs.

    Attributes:
        support_K: The values, ascending and distinct; codes for unordered descriptors.
    """

    support_K: np.ndarray
    counts_BK: sparse.csr_array

    def pooled(self, weights_RB: np.ndarray | None = None) -> np.ndarray:
        """Return shares of each value over the whole set, shape (R, K); R = 1 without weights."""
        if weights_RB is None:
            weights_RB = np.ones((1, self.counts_BK.shape[0]))
        total_RK = weights_RB @ self.counts_BK
        return total_RK / np.maximum(total_RK.sum(axis=1, keepdims=True), 1e-300)

    def by_graph(self) -> np.ndarray:
        """Return the shares inside each graph, shape (B, K); a graph without items has zeros."""
        counts_BK = self.counts_BK.toarray()
        return counts_BK / np.maximum(counts_BK.sum(axis=1, keepdims=True), 1.0)


def aligned_histograms(
    values: list[np.ndarray], graphs: list[np.ndarray], sizes: list[int]
) -> list[Histograms]:
    """Return one Histograms for each set of graphs, all on the union of their values."""
    support_K, codes = _distinct(values)
    return [
        Histograms(support_K, _counts(code, graph, size, support_K.size))
        for code, graph, size in zip(codes, graphs, sizes, strict=True)
    ]


def _distinct(values: list[np.ndarray]) -> tuple[np.ndarray, list[np.ndarray]]:
    """Return the distinct values of all arrays, ascending, and the place of each item among them.

    Small whole numbers, and pairs of these, are found in a table, which is faster than sorting.
    """
    items = np.concatenate(values)
    cuts = np.cumsum([value.size for value in values])[:-1]
    if np.issubdtype(items.dtype, np.integer) and items.size and items.min() >= 0:
        first, second = items >> PAIR_BITS, items & ((1 << PAIR_BITS) - 1)
        width = 1 + int(second.max())
        if (1 + int(first.max())) * width <= _MAX_TABLE:
            key = first * width + second
            known = np.flatnonzero(np.bincount(key))
            place_of_key = np.zeros(known[-1] + 1, dtype=np.int64)
            place_of_key[known] = np.arange(known.size)
            support_K = (known // width << PAIR_BITS) | (known % width)
            return support_K, np.split(place_of_key[key], cuts)
    support_K, place = np.unique(items, return_inverse=True)
    return support_K, np.split(place, cuts)


def _counts(code: np.ndarray, graph: np.ndarray, graphs: int, kinds: int) -> sparse.csr_array:
    ones = np.ones(code.size)
    return sparse.coo_array((ones, (graph, code)), shape=(graphs, kinds)).tocsr()


def wasserstein_1(p_RK: np.ndarray, q_RK: np.ndarray, support_K: np.ndarray) -> np.ndarray:
    """Return the Wasserstein-1 distance of each row pair, in units of the support."""
    difference_RK = np.cumsum(p_RK - q_RK, axis=1)[:, :-1]
    gap_K = np.diff(support_K.astype(float))
    return np.abs(difference_RK) @ gap_K


def kolmogorov_smirnov(p_RK: np.ndarray, q_RK: np.ndarray, support_K: np.ndarray) -> np.ndarray:
    """Return the largest difference of the distribution functions of each row pair, in [0, 1]."""
    del support_K  # Only the order of the values matters.
    return np.abs(np.cumsum(p_RK - q_RK, axis=1)).max(axis=1, initial=0.0)


def total_variation(p_RK: np.ndarray, q_RK: np.ndarray, support_K: np.ndarray) -> np.ndarray:
    """Return half the L1 distance of each row pair, in [0, 1]; needs no order of the values."""
    del support_K  # The values are names only.
    return np.abs(p_RK - q_RK).sum(axis=1) / 2


SUBSETS = 50
"""Number of random training subsets behind ``SimilarityRow.matched``."""

T = TypeVar("T")
M = TypeVar("M", bound="Metric | AttributeMetrics")
Sets = tuple[GraphSet, GraphSet, GraphSet]
Weights = tuple[np.ndarray, np.ndarray, np.ndarray]
Jobs = tuple[Sequence[Any], Sequence[Any], Sequence[Any]]
"""Training, test and generated jobs of any kind."""


@dataclass(frozen=True)
class AttributeView:
    """How a node attribute enters the comparison.

    Attributes:
        ordered: True where codes are ordered bins of a number, so that distances between codes
            mean something; False for names such as operators.
        attribute: The words or numbers behind its codes; metrics that need these are left
            out without it.
    """

    name: str
    ordered: bool = False
    attribute: CategoryAttribute | NumericAttribute | None = None


@dataclass(frozen=True, eq=False)
class Comparison:
    """Real training, real test and generated graphs with all that a metric may need.

    Attributes:
        jobs: The jobs that the three sets are codes of, with their exact numbers, where these are
            at hand; possibly more or fewer than there are graphs.
    """

    train: GraphSet
    test: GraphSet
    generated: GraphSet
    attributes: tuple[AttributeView, ...] = ()
    seed: int = 0
    replicates: int = 200
    jobs: "Jobs | None" = None
    _computed: dict[Hashable, Any] = field(default_factory=dict, init=False, repr=False)

    @property
    def sets(self) -> Sets:
        """Training, test and generated graphs."""
        return self.train, self.test, self.generated

    def once(self, compute: Callable[["Comparison"], T]) -> T:
        """Return ``compute(self)``, computed by the first metric that asks for it."""
        if compute not in self._computed:
            self._computed[compute] = compute(self)
        found: T = self._computed[compute]
        return found

    @cached_property
    def weights(self) -> Weights:
        """Weights of the graphs of each set, shape (1 + R + S, B).

        The first row is all ones: the figure itself. R resamples follow, then S rows in which train
        is a random subset of as many graphs as were generated, and the others are all ones.
        """
        rows = []
        for label, graphs in enumerate(self.sets):
            size = graphs.num_graphs
            drawn_RB = bootstrap_weights(
                numpy_generator(self.seed, "bootstrap", label), self.replicates, size
            )
            rows.append([np.ones((1, size)), drawn_RB, np.ones((SUBSETS, size))])
        rng = numpy_generator(self.seed, "subsets")
        rank_SB = np.argsort(rng.random((SUBSETS, self.train.num_graphs)), axis=1)
        rows[0][2] = (rank_SB < self.generated.num_graphs).astype(float)
        # Column by column, as products with sparse counts read them.
        train, test, generated = (np.asfortranarray(np.concatenate(parts)) for parts in rows)
        return train, test, generated


class Goal(Enum):
    """Which values are better: lower, higher, or nearer to the value of real graphs."""

    MINIMIZE = "lower"
    MAXIMIZE = "higher"
    MATCH_REAL = "nearer to real"


@dataclass(frozen=True)
class Declaration(ABC):
    """What a figure is.

    Attributes:
        name: Unique among the figures beside it, in snake case.
        description: One line for people.
        unit: Unit of the value, "" for none.
    """

    name: str
    description: str
    goal: Goal
    lower: float = 0.0
    upper: float = math.inf
    unit: str = ""

    @property
    def bounds(self) -> tuple[float, float]:
        """Least and greatest possible value; the second may be infinite."""
        return self.lower, self.upper

    def to_dict(self) -> dict[str, Any]:
        """Return the declaration as plain data, as reports save it."""
        return {
            "name": self.name,
            "what": self.description,
            "goal": self.goal.value,
            "lower": self.lower,
            "upper": self.upper,
            "unit": self.unit,
        }


@dataclass(frozen=True)
class Metric(Declaration):
    """A figure of generated graphs beside that of real graphs: what it is, and how to compute it.

    A metric is a value: two of the same class with the same fields are equal. A subclass defines
    ``compute``; for a mean over graphs, or a distance between distributions, take ``GraphMean`` or
    ``DescriptorMetric`` instead. Its own fields are keyword-only, with ``kw_only=True``.
    """

    @abstractmethod
    def compute(self, comparison: Comparison) -> "SimilarityRow":
        """Return the value of the generated graphs, and that of real ones beside it.

        Raises:
            LayerdagError: If there is no value, with the reason in one sentence. The report lists
                it and goes on.
        """


@dataclass(frozen=True)
class AttributeMetrics(Declaration):
    """Metrics of which there is one for each node attribute, or that need several of them.

    The name is that of the family; goal and bounds hold for each of its metrics.
    """

    @abstractmethod
    def of(self, attributes: Sequence[AttributeView]) -> "tuple[Metric, ...]":
        """Return the metrics for graphs with these attributes."""


@dataclass(frozen=True)
class MetricResult:
    """One computed figure, or why there is none.

    Attributes:
        value: The figure; None where ``error`` says why there is none.
        interval: Bootstrap interval of the value over graphs.
        breakdown: Further figures by name, for drilling down.
        error: One sentence, "" where the metric was computed.
    """

    metric: Metric
    value: float | None
    interval: Interval | None = None
    breakdown: Mapping[str, float] = field(default_factory=dict)
    error: str = ""

    def __repr__(self) -> str:
        """Return the name and the figure."""
        value = "none" if self.value is None else f"{self.value:.4g}"
        return f"MetricResult({self.metric.name}: {value})"


Draws = tuple[np.ndarray, Mapping[str, float]]
"""A figure under each row of ``Comparison.weights``, and its breakdown."""


@dataclass(frozen=True)
class SimilarityRow:
    """One metric of generated graphs, and the same metric of real graphs.

    Attributes:
        generated: The figure of the generated graphs; a distance is that to the real test set.
        reference: The same figure of real graphs; a distance is that of the real training set to
            the real test set.
        ratio: generated / reference; None where either is missing, the reference is 0, or it would
            mean nothing.
        matched: The reference with only as many training graphs as were generated, mean over
            ``SUBSETS`` random subsets: fewer graphs are further for no other reason. None where the
            number of graphs does not matter.
    """

    generated: MetricResult
    reference: MetricResult
    ratio: float | None
    ratio_interval: Interval | None
    matched: float | None = None

    def __repr__(self) -> str:
        """Return the name and the figures of generated and real graphs."""
        shown = (
            "none" if one.value is None else f"{one.value:.4g}"
            for one in (self.generated, self.reference)
        )
        return f"SimilarityRow({self.metric.name}: {', real '.join(shown)})"

    @property
    def matched_ratio(self) -> float | None:
        """Generated / matched reference: 1 is as close as that many real graphs come."""
        if not self.matched or self.generated.value is None:
            return None
        return self.generated.value / self.matched

    @property
    def metric(self) -> Metric:
        """What was computed."""
        return self.generated.metric

    @property
    def is_distance(self) -> bool:
        """Whether the figure is a distance, of which the ratio says all."""
        return self.matched is not None

    @classmethod
    def failed(cls, metric: Metric, error: str) -> "SimilarityRow":
        """Return a row without figures, and why there are none."""
        missing = MetricResult(metric, None, error=error)
        return cls(missing, missing, None, None)

    @classmethod
    def of_values(cls, metric: Metric, generated: float, reference: float) -> "SimilarityRow":
        """Return a row of two plain numbers, without intervals and ratio."""
        found = MetricResult(metric, float(generated))
        return cls(found, MetricResult(metric, float(reference)), None, None)

    @classmethod
    def of_draws(cls, metric: Metric, generated: Draws, reference: Draws) -> "SimilarityRow":
        """Return a row of distances from their values under all weights of a comparison."""
        generated_R, reference_R = generated[0], reference[0]
        ratio, interval = _ratio(generated_R, reference_R)
        return cls(
            generated=_result(metric, *generated),
            reference=_result(metric, *reference),
            ratio=ratio,
            ratio_interval=interval,
            matched=float(reference_R[-SUBSETS:].mean()),
        )

    @classmethod
    def of_bootstraps(cls, metric: Metric, generated: Draws, reference: Draws) -> "SimilarityRow":
        """Return a row of figures, each followed by its bootstrap draws, without a ratio."""
        found = []
        for draws_R, breakdown in (generated, reference):
            value = float(draws_R[0])
            interval = Interval.around(value, draws_R[1:], metric.lower, metric.upper)
            found.append(MetricResult(metric, value, interval, breakdown))
        return cls(found[0], found[1], None, None)

    @classmethod
    def of_graph_means(
        cls, metric: Metric, comparison: Comparison, generated_B: np.ndarray, real_B: np.ndarray
    ) -> "SimilarityRow":
        """Return a row of means over graphs: of the generated ones, and of the real test set.

        Raises:
            DataError: If all numbers of a set are NaN.
        """
        _, test_RB, generated_RB = comparison.weights
        generated_R = _weighted_means(generated_B, generated_RB, "generated")
        reference_R = _weighted_means(real_B, test_RB, "test")
        ratio, interval = _ratio(generated_R, reference_R)
        found, real = _result(metric, generated_R, {}), _result(metric, reference_R, {})
        return cls(found, real, ratio, interval)


def _weighted_means(value_B: np.ndarray, weights_RB: np.ndarray, graphs: str) -> np.ndarray:
    has_value_B = ~np.isnan(value_B)
    if not has_value_B.any():
        raise DataError(f"No {graphs} graph has a value here (no nodes or edges).")
    weights_RB = weights_RB[:, has_value_B]
    with np.errstate(invalid="ignore", divide="ignore"):
        mean_R: np.ndarray = weights_RB @ value_B[has_value_B] / weights_RB.sum(axis=1)
    return mean_R


def _ratio(
    generated_R: np.ndarray, reference_R: np.ndarray
) -> tuple[float | None, Interval | None]:
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio_R = generated_R / reference_R
    ratio = float(ratio_R[0])
    interval = Interval.around_ratio(ratio, ratio_R[1:-SUBSETS])
    return ratio if math.isfinite(ratio) else None, interval


def _result(metric: Metric, draws_R: np.ndarray, breakdown: Mapping[str, float]) -> MetricResult:
    value = float(draws_R[0])
    interval = Interval.around(value, draws_R[1:-SUBSETS], metric.lower, metric.upper)
    return MetricResult(metric, value, interval, breakdown)


def metrics_for(
    metrics: Iterable[Metric | AttributeMetrics], attributes: Sequence[AttributeView]
) -> tuple[Metric, ...]:
    """Return the metrics for graphs with these attributes, in order.

    Raises:
        UsageError: If something is not a metric, or two metrics have one name.
    """
    found: list[Metric] = []
    for metric in metrics:
        if not isinstance(metric, Metric | AttributeMetrics):
            raise UsageError(
                f"{metric!r} is not a metric; pass instances of subclasses of "
                "layerdag.evaluation.metrics.base.Metric."
            )
        found += metric.of(attributes) if isinstance(metric, AttributeMetrics) else [metric]
    names = [metric.name for metric in found]
    for index, name in enumerate(names):
        if name in names[:index]:
            raise UsageError(f"Two metrics are called '{name}'; give one of them another name.")
    return tuple(found)


@dataclass(frozen=True)
class GraphMean(Metric):
    """The mean over graphs of a number that each graph has alone.

    Beside the mean of the generated graphs stands that of the real test set, both with bootstrap
    intervals over graphs. A subclass defines ``values``.
    """

    @abstractmethod
    def values(self, graphs: GraphSet) -> np.ndarray:
        """Return one number for each graph, shape (B,); NaN leaves the graph out."""

    @final
    def compute(self, comparison: Comparison) -> SimilarityRow:
        """Return the mean of the generated graphs beside that of the test set."""
        generated_B = np.asarray(self.values(comparison.generated), dtype=np.float64)
        real_B = np.asarray(self.values(comparison.test), dtype=np.float64)
        return SimilarityRow.of_graph_means(self, comparison, generated_B, real_B)


@dataclass(frozen=True)
class _FunctionMean(GraphMean):
    """A ``GraphMean`` of a function."""

    function: Callable[[GraphSet], np.ndarray] = field(kw_only=True, repr=False)

    def values(self, graphs: GraphSet) -> np.ndarray:
        """Return one number for each graph."""
        return self.function(graphs)


def _check_metric(name: str, value: Any) -> None:
    if not isinstance(value, Metric | AttributeMetrics):
        raise UsageError(
            f"The metric '{name}' must be an instance of layerdag.evaluation.metrics.Metric, found "
            f"{value!r:.80}."
        )


METRICS: Registry[Metric | AttributeMetrics] = Registry("metric", "layerdag.metrics", _check_metric)
"""Metrics that users added; reports compute them after the default ones."""


def register_metric(metric: M) -> M:
    """Add a metric to the default ones of ``ld.compare`` and ``layerdag compare``.

    Raises:
        UsageError: If it is not a metric.
    """
    METRICS.register(getattr(metric, "name", "?"), metric)
    return metric


def graph_metric(
    name: str,
    description: str,
    *,
    goal: Goal = Goal.MATCH_REAL,
    upper: float = math.inf,
    unit: str = "",
) -> Callable[[Callable[[GraphSet], np.ndarray]], GraphMean]:
    """Return a decorator that adds a function as a metric, the mean of a number of each graph.

    The function takes a ``GraphSet`` of B graphs and returns B numbers.
    """

    def registered(function: Callable[[GraphSet], np.ndarray]) -> GraphMean:
        metric = _FunctionMean(name, description, goal, upper=upper, unit=unit, function=function)
        return register_metric(metric)

    return registered


def fraction_by_graph(
    flag_I: np.ndarray, graph_I: np.ndarray, graphs: GraphSet, among_I: np.ndarray | None = None
) -> np.ndarray:
    """Return the fraction of the items of each graph that have a flag, (B,); NaN without items.

    Items are nodes, for example; ``among_I`` leaves some out.
    """
    if among_I is not None:
        flag_I, graph_I = flag_I[among_I], graph_I[among_I]
    count_B = np.bincount(graph_I, weights=flag_I, minlength=graphs.num_graphs)
    with np.errstate(invalid="ignore"):
        fraction_B: np.ndarray = count_B / np.bincount(graph_I, minlength=graphs.num_graphs)
    return fraction_B


def attribute_views(schema: GraphSchema) -> tuple[AttributeView, ...]:
    """Return how each node attribute enters a comparison."""
    return tuple(
        AttributeView(a.name, ordered=not isinstance(a, CategoryAttribute), attribute=a)
        for a in schema.attributes
    )
