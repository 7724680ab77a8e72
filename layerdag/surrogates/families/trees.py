"""Boosted trees on graph statistics, and a stacked ensemble.

Gradient boosting (Friedman, Annals of Statistics 29(5), 2001) is fitted by scikit-learn, then kept
as plain arrays: prediction and files need no pickle and no particular version of scikit-learn.

A stacked ensemble has several families, each fitted several times, weighed by held-out graphs
(Wolpert, "Stacked generalization", Neural Networks 5(2), 1992; weights are not negative, as in
Breiman, "Stacked regressions", Machine Learning 24, 1996). Every family is fitted once for each
fold, without it, and predicts the graphs of that fold. On these predictions, which no fit saw, the
weights are chosen, and boosted trees learn how far off the ensemble is on which graphs: intervals
are wider where it usually errs (Lei et al., JASA 2018, section 5.2). The ensemble is the mean of
all fits; none is fitted again on everything.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from layerdag.dag.dag import DAG, GraphSizes, graph_hash
from layerdag.errors import UsageError
from layerdag.runtime.rng import derive_seed, numpy_generator
from layerdag.surrogates.families.base import SurrogateModel, TargetScale, graph_features


@dataclass(frozen=True)
class BoostingSettings:
    """How to grow the trees.

    Attributes:
        learning_rate: Weight of each.
        subsample: Fraction of graphs that each tree sees.
        feature_fraction: Fraction of features that each split considers.
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
) -> BoostedTrees:
    """Fit boosted trees; about 2 s for 500 graphs.

    Raises:
        UsageError: If there are fewer than two graphs, or a target is not finite.
        DataError: If a code lies outside ``sizes``.
    """
    from sklearn.ensemble import GradientBoostingRegressor

    settings = settings or BoostingSettings()
    scale = TargetScale.fit(np.asarray(target_B, dtype=float))
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


FitMember = Callable[[Sequence[DAG], np.ndarray, GraphSizes, int], SurrogateModel]

_DIFFICULTY = BoostingSettings(trees=100, depth=2)
# Errors are learned in the logarithm; a lucky hit must not count as endless certainty.
_MIN_ERROR = 0.02


@dataclass(frozen=True, eq=False)
class StackedEnsemble(SurrogateModel):
    """M fitted members with their weights.

    Attributes:
        scale: Scale of the target, in which predictions are averaged.
        weight_M: float64 weights, not negative, with the sum 1.
        difficulty: Expected error of each graph, standardized.
    """

    scale: TargetScale
    members: tuple[SurrogateModel, ...]
    weight_M: np.ndarray
    difficulty: BoostedTrees

    @property
    def family(self) -> str:
        """The name "stacked"."""
        return "stacked"

    def predict(self, dags: Sequence[DAG]) -> np.ndarray:
        """Return one prediction a graph, float64 (B,)."""
        standard_MB = np.stack([self.scale.standardize(one.predict(dags)) for one in self.members])
        return self.scale.restore(self.weight_M @ standard_MB)

    def spread(self, dags: Sequence[DAG]) -> np.ndarray:
        """Return the error that was usual on graphs like these, float64 (B,)."""
        return self.difficulty.predict(dags)

    def config(self) -> Mapping[str, object]:
        """Return the families and configurations of the members, and the weights."""
        return {
            "scale": asdict(self.scale),
            "weights": self.weight_M.tolist(),
            "members": [{"family": one.family, "config": one.config()} for one in self.members],
            "difficulty": self.difficulty.config(),
        }

    def arrays(self) -> Mapping[str, np.ndarray]:
        """Return the arrays of all members, with their number before the name."""
        named = {str(index): one for index, one in enumerate(self.members)}
        return {
            f"{prefix}.{name}": array
            for prefix, one in (named | {"difficulty": self.difficulty}).items()
            for name, array in one.arrays().items()
        }


def fit_stacked(
    dags: Sequence[DAG],
    target_B: np.ndarray,
    sizes: GraphSizes,
    families: Mapping[str, FitMember],
    *,
    seed: int = 0,
    folds: int = 3,
) -> StackedEnsemble:
    """Fit every family once for each fold.

    Raises:
        UsageError: If there are fewer than four different graphs for each fold, or a target is not
            finite.
        DataError: If a code lies outside ``sizes``.
    """
    target_B = np.asarray(target_B, dtype=float)
    scale = TargetScale.fit(target_B)
    fold_B = _folds(dags, folds, seed)
    held_out_BF = np.zeros((len(dags), len(families)))
    members: list[SurrogateModel] = []
    for column, (name, fit) in enumerate(families.items()):
        for fold in range(folds):
            kept, left_out = np.flatnonzero(fold_B != fold), np.flatnonzero(fold_B == fold)
            own_seed = derive_seed(seed, "member", name, fold) % 2**31
            member = fit([dags[i] for i in kept.tolist()], target_B[kept], sizes, own_seed)
            predicted = member.predict([dags[i] for i in left_out.tolist()])
            held_out_BF[left_out, column] = scale.standardize(predicted)
            members.append(member)
    standard_B = scale.standardize(target_B)
    weight_F = _weights(held_out_BF, standard_B)
    error_B = np.abs(held_out_BF @ weight_F - standard_B) + _MIN_ERROR
    difficulty = fit_boosting(dags, error_B, sizes, seed=seed, settings=_DIFFICULTY)
    return StackedEnsemble(scale, tuple(members), np.repeat(weight_F / folds, folds), difficulty)


def _folds(dags: Sequence[DAG], folds: int, seed: int) -> np.ndarray:
    """Return the fold of each graph, int64 (B,); equal graphs share one."""
    groups = np.unique([graph_hash(dag) for dag in dags], return_inverse=True)[1]
    distinct = int(groups.max()) + 1 if len(dags) else 0
    if folds < 2 or distinct < 4 * folds:
        raise UsageError(
            f"A stacked ensemble of {folds} folds needs at least two folds and four different "
            f"graphs for each, found {distinct}; fit the family 'boosting' instead."
        )
    order = numpy_generator(seed, "folds").permutation(distinct)
    return (order % folds)[groups]


def _weights(held_out_BF: np.ndarray, standard_B: np.ndarray) -> np.ndarray:
    """Return weights of the families with the sum 1, by least squares without negative ones."""
    from scipy.optimize import nnls

    weight_F = nnls(held_out_BF, standard_B)[0]
    if weight_F.sum() <= 0:
        return np.full(weight_F.size, 1 / weight_F.size)
    return weight_F / weight_F.sum()
