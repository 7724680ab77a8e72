"""Do the largest numbers of nodes go together as in real graphs?

An operator with many FLOPs moves many bytes and takes long; a generator may get each number right
and what goes together wrong. A number of a node is in its tail if it is larger than 95 % of the
training graphs' numbers of that attribute. Each node has a pattern: which of its numbers are in
their tails. The figure is the total variation of the frequencies of patterns, so that it sees tails
that are too heavy, too light, or of other nodes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import final

import numpy as np

from layerdag.errors import DataError
from layerdag.evaluation import GraphSet
from layerdag.evaluation.metrics import (
    AttributeMetrics,
    AttributeView,
    Comparison,
    Draws,
    Goal,
    Items,
    Metric,
    SimilarityRow,
)
from layerdag.evaluation.metrics.local._frequencies import FrequencyDistances, frequency_distances

NUMBERS = ("flops", "bytes", "duration")
TAIL = 0.95
_ABSENT = 0


@final
@dataclass(frozen=True)
class JointTails(Metric):
    """Total variation of the frequencies of patterns, pooled over the nodes of a set.

    Nodes without any of the numbers are left out.

    Attributes:
        columns: Place of each number among the attributes, whose codes are ordered bins.
    """

    columns: tuple[int, ...] = field(kw_only=True)

    def compute(self, comparison: Comparison) -> SimilarityRow:
        """Return the distance of generated and of training graphs from the test graphs.

        Raises:
            DataError: If a set has no node with one of the numbers.
        """
        least = [_tail_begins(comparison.train, column) for column in self.columns]
        items = [self._patterns(graphs, least) for graphs in comparison.sets]
        generated, reference = frequency_distances(items, comparison)
        return SimilarityRow.of_draws(self, _draws(generated), _draws(reference))

    def _patterns(self, graphs: GraphSet, least: Sequence[float]) -> Items:
        """Return the pattern of each node that has a number, a bit for each number."""
        pattern_N = np.zeros(graphs.num_nodes, dtype=np.int64)
        known_N = np.zeros(graphs.num_nodes, dtype=bool)
        for bit, (column, begin) in enumerate(zip(self.columns, least, strict=True)):
            value_N = _values(graphs, column)
            pattern_N |= (value_N > begin).astype(np.int64) << bit
            known_N |= np.isfinite(value_N)
        return Items("", pattern_N[known_N], graphs.graph_N[known_N])


def _values(graphs: GraphSet, column: int) -> np.ndarray:
    """Return bin and position of a number, which are ordered as it is; NaN where it is absent."""
    code_N = graphs.x_NA[:, column]
    return np.where(code_N == _ABSENT, np.nan, code_N + graphs.u_NA[:, column])


def _tail_begins(train: GraphSet, column: int) -> float:
    """Return the value that only the largest twentieth of the training numbers exceeds."""
    value_N = _values(train, column)
    known = value_N[np.isfinite(value_N)]
    if not known.size:
        raise DataError("The training graphs have no numbers of an attribute that is compared.")
    return float(np.quantile(known, TAIL, method="inverted_cdf"))


def _draws(found: FrequencyDistances) -> Draws:
    return found.total_variation_R, {}


@final
@dataclass(frozen=True)
class NodeTails(AttributeMetrics):
    """The joint tails of FLOPs, bytes and durations, for graphs with at least two of these."""

    name: str = "joint_tails"
    description: str = "which of a node's FLOPs, bytes and duration are among the largest twentieth"
    goal: Goal = Goal.MINIMIZE
    upper: float = 1.0

    def of(self, attributes: Sequence[AttributeView]) -> tuple[Metric, ...]:
        """Return the metric; none where fewer than two of the numbers are known."""
        place = {view.name: index for index, view in enumerate(attributes) if view.ordered}
        columns = tuple(place[name] for name in NUMBERS if name in place)
        if len(columns) < 2:
            return ()
        return (JointTails(self.name, self.description, self.goal, upper=1.0, columns=columns),)
