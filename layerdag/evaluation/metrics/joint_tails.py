"""Are the operators with the largest numbers the same ones, as in real graphs?

An operator with many FLOPs moves many bytes and takes long; a generator may get the distribution of
each number right, and what goes together wrong. A number of a node is in the tail if it is larger
than nine tenths of such numbers of its set. The figure is the fraction of nodes with both numbers
in their tails, of those with one of them there: an estimate of what extreme-value statistics calls
tail dependence. It is about order alone; that tails have the right numbers is seen by
``attribute:...``.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import final

import numpy as np

from layerdag.dag.graph_set import GraphSet
from layerdag.errors import DataError
from layerdag.evaluation.metrics.base import (
    AttributeMetrics,
    AttributeView,
    Comparison,
    Draws,
    Goal,
    Metric,
    SimilarityRow,
)

NUMBERS = ("flops", "bytes", "duration")
TAIL = 0.9
_ABSENT = 0


@final
@dataclass(frozen=True)
class JointTail(Metric):
    """Fraction of nodes with two large numbers, of those with one; pooled over a set.

    Nodes that lack one of the numbers are left out.
    """

    columns: tuple[int, int] = field(kw_only=True)

    def compute(self, comparison: Comparison) -> SimilarityRow:
        """Return the fraction of generated and of real test graphs."""
        _, test_RB, generated_RB = comparison.weights
        return SimilarityRow.of_draws(
            self,
            self._fractions(comparison.generated, generated_RB, "generated"),
            self._fractions(comparison.test, test_RB, "test"),
        )

    def _fractions(self, graphs: GraphSet, weights_RB: np.ndarray, name: str) -> Draws:
        values = [_values(graphs, column) for column in self.columns]
        known_N = np.isfinite(values[0] + values[1])
        if not known_N.any():
            raise DataError(f"The {name} graphs have no node with both numbers.")
        large = [
            value_N[known_N] > np.quantile(value_N[known_N], TAIL, method="inverted_cdf")
            for value_N in values
        ]
        both_B, either_B = (
            np.bincount(graphs.graph_N[known_N], weights=is_N, minlength=graphs.num_graphs)
            for is_N in (large[0] & large[1], large[0] | large[1])
        )
        if not either_B.any():
            raise DataError(f"No node of the {name} graphs has a larger number than the others.")
        with np.errstate(invalid="ignore", divide="ignore"):
            return (weights_RB @ both_B) / (weights_RB @ either_B), {}


def _values(graphs: GraphSet, column: int) -> np.ndarray:
    """Return bin and position of a number, which are ordered as it is; NaN where it is absent."""
    code_N = graphs.x_NA[:, column]
    return np.where(code_N == _ABSENT, np.nan, code_N + graphs.u_NA[:, column])


@final
@dataclass(frozen=True)
class JointTails(AttributeMetrics):
    """The joint tails of FLOPs, bytes and durations, one for each pair of those that are known."""

    name: str = "joint_tails"
    description: str = "nodes of which two numbers are among the largest tenth, of those with one"
    goal: Goal = Goal.MATCH_REAL
    upper: float = 1.0

    def of(self, attributes: Sequence[AttributeView]) -> tuple[Metric, ...]:
        """Return one metric for each pair."""
        place = {view.name: index for index, view in enumerate(attributes) if view.ordered}
        return tuple(
            JointTail(
                f"{self.name}:{first} x {second}",
                f"nodes with {first} and {second} among the largest tenth, of those with one",
                self.goal,
                upper=1.0,
                columns=(place[first], place[second]),
            )
            for first, second in combinations([name for name in NUMBERS if name in place], 2)
        )
