"""A data set cut by its labels, and a line that gives graphs labels.

Shape letters: B graphs, F features.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from layerdag.dag.dag import DAG
from layerdag.datasets.dataset import GraphDataset
from layerdag.graph.attributed_graph import LABEL
from layerdag.runtime.rng import numpy_generator

from ._parts import generators_data, labels_of

BOUNDS = {"top": (0.8, 1.0), "fourth": (0.6, 0.8)}
"""Which labels are held out, as fractions of the graphs in order of their labels."""


@dataclass(frozen=True)
class Quintile:
    """A data set of which a fifth is held out by its labels.

    Attributes:
        data: Training and validation graphs, all outside the quintile; its scale of labels, too.
        halves: The real graphs of the quintile: the labels of one half are asked for, and the other
            half tests.
    """

    data: GraphDataset
    halves: tuple[tuple[DAG, ...], tuple[DAG, ...]]

    @property
    def held_out(self) -> tuple[DAG, ...]:
        """All real graphs of the quintile."""
        return self.halves[0] + self.halves[1]


def cut(data: GraphDataset, seed: int = 0, which: str = "top") -> Quintile:
    """Hold out a fifth of the graphs by their labels; of the others a tenth validates.

    Args:
        data: Labeled graphs.
        seed: Of the order of graphs, which decides on halves and validation.
        which: One of ``BOUNDS``.
    """
    dags = [dag for part in data.graphs.values() for dag in part if LABEL in dag.conditions]
    label_B = labels_of(dags)
    rng = numpy_generator(seed, "quintile")
    order_B = rng.permutation(len(dags))
    low, high = np.quantile(label_B, BOUNDS[which])
    is_inside_B = (label_B > low) & (label_B <= high)
    outside = [dags[i] for i in order_B if not is_inside_B[i]]
    inside = [dags[i] for i in order_B if is_inside_B[i]]
    validating = max(len(outside) // 10, 1)
    kept = generators_data(data, outside[validating:], outside[:validating])
    half = len(inside) // 2
    return Quintile(kept, (tuple(inside[:half]), tuple(inside[half:])))


class LinearTeacher:
    """The logarithm of a label from the logarithms of what a graph has: sizes, kinds, degrees.

    Linear in logarithms, as times are in operations, so that it goes on beyond its training graphs.

    Args:
        dags: Graphs with labels.
        kinds: Number of kinds.
        ridge: Penalty on each standardized weight, over the number of graphs.
    """

    def __init__(self, dags: Sequence[DAG], kinds: int, ridge: float = 0.03) -> None:
        self.kinds = kinds
        raw_BF = self._features(dags)
        self.center_F, self.scale_F = raw_BF.mean(0), raw_BF.std(0) + 1e-6
        feature_BF = (raw_BF - self.center_F) / self.scale_F
        log_B = np.log(labels_of(dags))
        self.mean = float(log_B.mean())
        square_FF = feature_BF.T @ feature_BF + ridge * len(dags) * np.eye(feature_BF.shape[1])
        self.weight_F = np.linalg.solve(square_FF, feature_BF.T @ (log_B - self.mean))

    def predict(self, dags: Sequence[DAG]) -> np.ndarray:
        """Return labels, float64 of shape (B,)."""
        feature_BF = (self._features(dags) - self.center_F) / self.scale_F
        found: np.ndarray = np.exp(np.clip(feature_BF @ self.weight_F + self.mean, -50, 50))
        return found

    def _features(self, dags: Sequence[DAG]) -> np.ndarray:
        rows = []
        for dag in dags:
            kinds = np.bincount(dag.x_NA[:, 0].numpy(), minlength=self.kinds)
            widths = np.bincount(dag.layer_N.numpy())
            sizes = [dag.num_nodes, dag.num_edges, dag.num_layers, widths.max()]
            rows.append(np.log1p(np.concatenate([sizes, kinds])))
        return np.stack(rows)
