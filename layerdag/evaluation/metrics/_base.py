"""What a metric is: a name, a goal, bounds, a way to compute it, and a row of results.

The contract follows SDMetrics' idea (metric -> result -> report): a failing metric does not end a
report, and its failure is listed, never averaged away.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np

from layerdag.errors import DataError, UsageError
from layerdag.evaluation.metrics._comparison import SUBSETS, AttributeView, Comparison, Interval


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
        goal: Which values are better.
        lower: Least possible value.
        upper: Greatest possible value, possibly infinite.
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
        metric: What was computed.
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


Draws = tuple[np.ndarray, Mapping[str, float]]
"""A figure under each row of ``Comparison.weights``, and its breakdown."""


@dataclass(frozen=True)
class SimilarityRow:
    """One metric of generated graphs, and the same of real graphs.

    Attributes:
        generated: The figure of the generated graphs; a distance is that to the real test set.
        reference: The same figure of real graphs; a distance is that of the real training set to
            the real test set.
        ratio: generated / reference; None where either is missing, the reference is 0, or it would
            mean nothing.
        ratio_interval: Bootstrap interval of the ratio.
        matched: The reference with only as many training graphs as were generated, mean over
            ``SUBSETS`` random subsets: fewer graphs are further for no other reason. None where the
            number of graphs does not matter.
    """

    generated: MetricResult
    reference: MetricResult
    ratio: float | None
    ratio_interval: Interval | None
    matched: float | None = None

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
    def of_graph_means(
        cls, metric: Metric, comparison: Comparison, generated_B: np.ndarray, real_B: np.ndarray
    ) -> "SimilarityRow":
        """Return a row of means over graphs: of the generated ones, and of the real test set.

        Args:
            metric: What the numbers are.
            comparison: The graphs, with the weights of their bootstrap.
            generated_B: A number for each generated graph; NaN leaves the graph out.
            real_B: A number for each test graph.

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
    """Return the mean over the graphs that have a value, for each row of weights."""
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
    """Return generated / reference, if that is a number, with its interval."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio_R = generated_R / reference_R
    ratio = float(ratio_R[0])
    interval = Interval.around_ratio(ratio, ratio_R[1:-SUBSETS])
    return ratio if math.isfinite(ratio) else None, interval


def _result(metric: Metric, draws_R: np.ndarray, breakdown: Mapping[str, float]) -> MetricResult:
    """Return the figure with its interval."""
    value = float(draws_R[0])
    interval = Interval.around(value, draws_R[1:-SUBSETS], metric.lower, metric.upper)
    return MetricResult(metric, value, interval, breakdown)


def metrics_for(
    metrics: Iterable[Metric | AttributeMetrics], attributes: Sequence[AttributeView]
) -> tuple[Metric, ...]:
    """Return the metrics for graphs with these attributes, in order.

    Raises:
        UsageError: If something is no metric, or two metrics have one name.
    """
    found: list[Metric] = []
    for metric in metrics:
        if not isinstance(metric, Metric | AttributeMetrics):
            raise UsageError(
                f"{metric!r} is not a metric; pass instances of subclasses of "
                "layerdag.evaluation.metrics.Metric."
            )
        found += metric.of(attributes) if isinstance(metric, AttributeMetrics) else [metric]
    names = [metric.name for metric in found]
    for index, name in enumerate(names):
        if name in names[:index]:
            raise UsageError(f"Two metrics are called '{name}'; give one of them another name.")
    return tuple(found)
