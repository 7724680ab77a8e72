"""What a metric is given: three sets of graphs, their attributes, and resamples of them."""

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from layerdag._runtime import numpy_generator
from layerdag.datasets.schema import CategoryAttribute, NumericAttribute
from layerdag.evaluation import GraphSet
from layerdag.evaluation.metrics._histograms import bootstrap_weights

NORMAL_95 = 1.96

SUBSETS = 50
"""Number of random training subsets behind ``SimilarityRow.matched``."""

T = TypeVar("T")
Sets = tuple[GraphSet, GraphSet, GraphSet]
Weights = tuple[np.ndarray, np.ndarray, np.ndarray]


@dataclass(frozen=True)
class AttributeView:
    """How a node attribute enters the comparison.

    Attributes:
        name: Its name in the data set's schema.
        ordered: True where codes are ordered bins of a number, so that distances between codes
            mean something; False for names such as operators.
        attribute: The words or numbers that its codes stand for; metrics that need these are left
            out without it.
    """

    name: str
    ordered: bool = False
    attribute: CategoryAttribute | NumericAttribute | None = None


@dataclass(frozen=True)
class Interval:
    """A 95 % interval around a figure, from the spread of its bootstrap draws.

    The spread and not the quantiles of the draws: a resample repeats graphs, which lengthens every
    distance between sets, so that quantiles may lie wholly above the figure itself.
    """

    low: float
    high: float

    @classmethod
    def around(
        cls, value: float, draws_R: np.ndarray, lower: float = -math.inf, upper: float = math.inf
    ) -> "Interval | None":
        """Return value +- 1.96 standard errors, cut at the bounds; None without finite draws."""
        finite = draws_R[np.isfinite(draws_R)]
        if finite.size < 2 or not math.isfinite(value):
            return None
        half = NORMAL_95 * float(finite.std(ddof=1))
        return cls(max(value - half, lower), min(value + half, upper))

    @classmethod
    def around_ratio(cls, value: float, draws_R: np.ndarray) -> "Interval | None":
        """Return the interval of a positive ratio, symmetric in its logarithm."""
        finite = draws_R[np.isfinite(draws_R) & (draws_R > 0)]
        if not (value > 0 and math.isfinite(value)) or finite.size < 2:
            return None
        factor = math.exp(NORMAL_95 * float(np.log(finite).std(ddof=1)))
        return cls(value / factor, value * factor)


@dataclass(frozen=True, eq=False)
class Comparison:
    """Real training, real test and generated graphs with all that a metric may need.

    Attributes:
        train: Real graphs that the generator learned from.
        test: Real graphs that it never saw.
        generated: Its samples.
        attributes: Name and kind of each node attribute, in column order.
        seed: Seed of all that a metric draws.
        replicates: Number of bootstrap resamples.
    """

    train: GraphSet
    test: GraphSet
    generated: GraphSet
    attributes: tuple[AttributeView, ...] = ()
    seed: int = 0
    replicates: int = 200
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
