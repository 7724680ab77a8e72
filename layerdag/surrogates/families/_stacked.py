"""A stacked ensemble: several families, each fitted several times, weighed by held-out graphs.

Wolpert, "Stacked generalization", Neural Networks 5(2), 1992; weights are not negative, as in
Breiman, "Stacked regressions", Machine Learning 24, 1996. Every family is fitted once for each
fold, without it, and predicts the graphs of that fold. On these predictions, which no fit saw, the
weights are chosen, and boosted trees learn how far off the ensemble is on which graphs: intervals
are wider where it usually errs (Lei et al., JASA 2018, section 5.2). The ensemble is the mean of
all fits; none is fitted again on everything.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np
from scipy.optimize import nnls

from layerdag._runtime import derive_seed, numpy_generator
from layerdag.errors import UsageError
from layerdag.graph import DAG, GraphSizes, graph_hash
from layerdag.surrogates.families._base import SurrogateModel, TargetScale
from layerdag.surrogates.families._boosting import BoostedTrees, BoostingSettings, fit_boosting

FitMember = Callable[[Sequence[DAG], np.ndarray, GraphSizes, int], SurrogateModel]

_DIFFICULTY = BoostingSettings(trees=100, depth=2)
# Errors are learned in the logarithm; a lucky hit must not count as endless certainty.
_LEAST_ERROR = 0.02


@dataclass(frozen=True, eq=False)
class StackedEnsemble(SurrogateModel):
    """M fitted members with their weights.

    Attributes:
        scale: Scale of the target, in which predictions are averaged.
        members: The members.
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

    Args:
        dags: The graphs.
        target_B: Their targets.
        sizes: Codes that the graphs may have.
        families: Fitting function by name.
        seed: Of folds and fits.
        folds: Number of folds, at least two.

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
    error_B = np.abs(held_out_BF @ weight_F - standard_B) + _LEAST_ERROR
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
    weight_F = nnls(held_out_BF, standard_B)[0]
    if weight_F.sum() <= 0:
        return np.full(weight_F.size, 1 / weight_F.size)
    return weight_F / weight_F.sum()
