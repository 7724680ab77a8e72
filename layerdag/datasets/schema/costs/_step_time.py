"""How long the nodes of a job take together, given the step time that was measured for it.

A profiled step is slower than one that is not, and ranks work at the same time; so durations do
not sum to the step time. How their sum goes with it, and with the number of nodes, is fitted
to the training jobs.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from layerdag.codec import AttributedGraph
from layerdag.codec.blocks import copies_of
from layerdag.graph import Condition

OUTSIDE = 0.02
"""Share of training jobs below, and above, the range of usual sums."""
_LARGEST = 1e3


@dataclass(frozen=True)
class StepTime:
    """The logarithm of the sum of durations in ns: linear in those of label and number of nodes.

    Attributes:
        intercept: At a label of 1 (second) and one node.
        per_label: Slope by the logarithm of the label.
        per_node: Slope by the logarithm of the number of nodes.
        low: Difference to the line below which one training job in fifty lies.
        high: That above which one in fifty lies.
    """

    intercept: float
    per_label: float
    per_node: float
    low: float
    high: float

    def factor(self, duration_N: np.ndarray, label: Condition | None) -> float:
        """Return what durations are multiplied by to have a usual sum; 1 where it is one."""
        total = float(np.nansum(duration_N))
        if not isinstance(label, int | float) or not label > 0 or not total > 0:
            return 1.0
        beyond = math.log(total) - self._line(float(label), len(duration_N))
        return math.exp(min(max(beyond, self.low), self.high) - beyond)

    def _line(self, label: float, nodes: int) -> float:
        """Return the expected logarithm."""
        return self.intercept + self.per_label * math.log(label) + self.per_node * math.log(nodes)

    def to_dict(self) -> dict[str, float]:
        """Return the figures as JSON-serializable data."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "StepTime":
        """Rebuild from ``to_dict``. Raises KeyError, TypeError or ValueError if malformed."""
        names = ("intercept", "per_label", "per_node", "low", "high")
        found = cls(*(float(data[name]) for name in names))
        if not all(abs(value) < _LARGEST for value in asdict(found).values()):
            raise ValueError(f"logarithms below {_LARGEST:g} are needed")
        if found.low > found.high:
            raise ValueError("the range of usual sums is empty")
        return found


def fit_step_time(graphs: Sequence[AttributedGraph], label: str, needed: int) -> StepTime | None:
    """Return how sums of durations go with labels; None where too few graphs tell.

    Args:
        graphs: Training graphs.
        label: Name of the condition.
        needed: Graphs that must lie outside the range of usual sums, on each side.
    """
    rows = [
        (math.log(float(y)), math.log(int(copies_of(graph).sum())), math.log(total))
        for graph in graphs
        if isinstance(y := graph.conditions.get(label), int | float)
        and y > 0
        and "duration" in graph.numbers
        and (total := float(np.nansum(graph.numbers["duration"] * copies_of(graph)))) > 0
    ]
    if len(rows) * OUTSIDE < needed:
        return None
    row_GX = np.array(rows)
    line_GX = np.column_stack([np.ones(len(rows)), row_GX[:, :2]])
    slopes = np.linalg.lstsq(line_GX, row_GX[:, 2], rcond=1e-6)[0]
    beyond_G = row_GX[:, 2] - line_GX @ slopes
    figures = [*slopes, *np.quantile(beyond_G, [OUTSIDE, 1 - OUTSIDE])]
    return StepTime(*(round(float(value), 2) for value in figures))
