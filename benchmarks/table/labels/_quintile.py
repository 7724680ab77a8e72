"""A data set cut by its labels, and a line that gives graphs labels.

Shape letters: B graphs, F features.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from layerdag._runtime import numpy_generator
from layerdag.datasets import GraphDataset
from layerdag.datasets.schema import LABEL
from layerdag.graph import DAG

from ._parts import generators_data, labels_of


@dataclass(frozen=True)
class Quintile:
    """A data set cut by its labels.

    Attributes:
        data: Training and validation graphs, all below the quintile; its scale of labels, too.
        asked: Real graphs of the quintile whose labels are asked for.
        test: The other real graphs of the quintile.
    """

    data: GraphDataset
    asked: tuple[DAG, ...]
    test: tuple[DAG, ...]


def cut(data: GraphDataset, seed: int = 0) -> Quintile:
    """Cut a data set; of the graphs below the quintile a tenth validates."""
    dags = [dag for part in data.graphs.values() for dag in part if LABEL in dag.conditions]
    label_B = labels_of(dags)
    rng = numpy_generator(seed, "quintile")
    order_B = rng.permutation(len(dags))
    is_top_B = label_B > np.quantile(label_B, 0.8)
    below = [dags[i] for i in order_B if not is_top_B[i]]
    top = [dags[i] for i in order_B if is_top_B[i]]
    held_out = max(len(below) // 10, 1)
    kept = generators_data(data, below[held_out:], below[:held_out])
    return Quintile(kept, tuple(top[: len(top) // 2]), tuple(top[len(top) // 2 :]))


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
