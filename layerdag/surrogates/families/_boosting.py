"""Gradient boosting on graph statistics (Friedman, Annals of Statistics 29(5), 2001).

Fitted by scikit-learn, then kept as plain arrays: prediction and files need no pickle and no
particular version of scikit-learn.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from layerdag._runtime import derive_seed
from layerdag.graph import DAG, GraphSizes
from layerdag.surrogates.families._base import SurrogateModel, TargetScale
from layerdag.surrogates.families._features import graph_features


@dataclass(frozen=True)
class BoostingSettings:
    """How to grow the trees.

    Attributes:
        trees: Number of trees.
        depth: Depth of each.
        learning_rate: Weight of each.
        subsample: Fraction of graphs that each tree sees.
        feature_fraction: Fraction of features that each split looks at.
    """

    trees: int = 300
    depth: int = 4
    learning_rate: float = 0.05
    subsample: float = 0.8
    feature_fraction: float = 0.3


@dataclass(frozen=True, eq=False)
class BoostedTrees(SurrogateModel):
    """T trees of at most M nodes as arrays; a leaf is its own child on both sides.

    Attributes:
        sizes: Codes that the graphs may have.
        scale: Scale of the target.
        start: Prediction before the first tree, standardized.
        depth: Steps from a root to the deepest leaf.
        feature_TM: int64 column that a node splits on.
        threshold_TM: float64; a graph with feature <= threshold goes left.
        left_TM: int64 node numbers.
        right_TM: int64 node numbers.
        value_TM: float64, standardized; already multiplied by the learning rate.
    """

    sizes: GraphSizes
    scale: TargetScale
    start: float
    depth: int
    feature_TM: np.ndarray
    threshold_TM: np.ndarray
    left_TM: np.ndarray
    right_TM: np.ndarray
    value_TM: np.ndarray

    @property
    def family(self) -> str:
        """The name "boosting"."""
        return "boosting"

    def predict(self, dags: Sequence[DAG]) -> np.ndarray:
        """Return one prediction a graph; all trees and graphs descend one level at a time."""
        x_BF = graph_features(dags, self.sizes)
        tree_T1 = np.arange(self.left_TM.shape[0])[:, None]
        graph_B = np.arange(len(dags))[None, :]
        node_TB = np.zeros((tree_T1.size, len(dags)), dtype=np.int64)
        for _ in range(self.depth):
            value_TB = x_BF[graph_B, self.feature_TM[tree_T1, node_TB]]
            goes_left_TB = value_TB <= self.threshold_TM[tree_T1, node_TB]
            node_TB = np.where(
                goes_left_TB, self.left_TM[tree_T1, node_TB], self.right_TM[tree_T1, node_TB]
            )
        return self.scale.restore(self.start + self.value_TM[tree_T1, node_TB].sum(axis=0))

    def config(self) -> Mapping[str, object]:
        """Return the sizes, the scale and the start value."""
        return {
            "sizes": asdict(self.sizes),
            "scale": asdict(self.scale),
            "start": self.start,
            "depth": self.depth,
        }

    def arrays(self) -> Mapping[str, np.ndarray]:
        """Return the trees."""
        return {
            "feature": self.feature_TM,
            "threshold": self.threshold_TM,
            "left": self.left_TM,
            "right": self.right_TM,
            "value": self.value_TM,
        }


def fit_boosting(
    dags: Sequence[DAG],
    target_B: np.ndarray,
    sizes: GraphSizes,
    *,
    seed: int = 0,
    settings: BoostingSettings | None = None,
    log: bool | None = None,
) -> BoostedTrees:
    """Fit boosted trees; about 2 s for 500 graphs.

    Args:
        dags: The graphs.
        target_B: Their targets.
        sizes: Codes that the graphs may have.
        seed: Of the fit.
        settings: Of the trees.
        log: Whether the logarithm is learned; by default where all targets are positive.

    Raises:
        UsageError: If there are fewer than two graphs, or a target is not finite.
        DataError: If a code lies outside ``sizes``.
    """
    from sklearn.ensemble import GradientBoostingRegressor

    settings = settings or BoostingSettings()
    scale = TargetScale.fit(np.asarray(target_B, dtype=float), log)
    y_B = scale.standardize(np.asarray(target_B, dtype=float))
    model = GradientBoostingRegressor(
        n_estimators=settings.trees,
        max_depth=settings.depth,
        learning_rate=settings.learning_rate,
        subsample=settings.subsample,
        max_features=settings.feature_fraction,
        random_state=derive_seed(seed, "boosting") % 2**32,
    )
    model.fit(graph_features(dags, sizes), y_B)
    trees = [estimator.tree_ for estimator in model.estimators_[:, 0]]
    most = max(tree.node_count for tree in trees)
    own_M = np.arange(most)

    def stacked(name: str) -> np.ndarray:
        columns = [np.asarray(getattr(tree, name)).reshape(-1) for tree in trees]
        return np.stack([np.pad(column, (0, most - column.size)) for column in columns])

    left_TM, right_TM = stacked("children_left"), stacked("children_right")
    leaf_TM = left_TM < 0
    return BoostedTrees(
        sizes=sizes,
        scale=scale,
        start=float(y_B.mean()),
        depth=max(tree.max_depth for tree in trees),
        feature_TM=np.where(leaf_TM, 0, stacked("feature")),
        threshold_TM=stacked("threshold"),
        left_TM=np.where(leaf_TM, own_M, left_TM),
        right_TM=np.where(leaf_TM, own_M, right_TM),
        value_TM=stacked("value") * settings.learning_rate,
    )
