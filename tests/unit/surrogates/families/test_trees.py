from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from layerdag.dag.dag import DAG, GraphSizes
from layerdag.errors import UsageError
from layerdag.surrogates.families.base import SurrogateModel, TargetScale, graph_features
from layerdag.surrogates.families.trees import (
    BoostedTrees,
    BoostingSettings,
    StackedEnsemble,
    fit_boosting,
    fit_stacked,
)

SMALL = BoostingSettings(trees=40, depth=3)


def test_trees_as_arrays_predict_what_scikit_learn_predicts(real, test_set, sizes):
    from sklearn.ensemble import GradientBoostingRegressor

    from layerdag.runtime.rng import derive_seed

    ours = fit_boosting(real.dags, real.target_B, sizes, settings=SMALL, seed=3)
    theirs = GradientBoostingRegressor(
        n_estimators=40,
        max_depth=3,
        learning_rate=SMALL.learning_rate,
        subsample=SMALL.subsample,
        max_features=SMALL.feature_fraction,
        random_state=derive_seed(3, "boosting") % 2**32,
    ).fit(graph_features(real.dags, sizes), ours.scale.standardize(real.target_B))
    expected_B = ours.scale.restore(theirs.predict(graph_features(test_set.dags, sizes)))
    np.testing.assert_allclose(ours.predict(test_set.dags), expected_B)


def test_trees_learn_a_sum_over_nodes(real, test_set, sizes):
    model = fit_boosting(real.dags, real.target_B, sizes)
    assert np.corrcoef(model.predict(test_set.dags), test_set.target_B)[0, 1] > 0.7


def test_trees_by_hand():
    """Two trees on the number of nodes: a stump, and one leaf for everything."""
    edges = torch.zeros((2, 0), dtype=torch.int64)
    dags = [DAG.build(torch.zeros((n, 1), dtype=torch.int64), edges) for n in (1, 5)]
    model = BoostedTrees(
        sizes=GraphSizes(attributes=(1,)),
        scale=TargetScale(False, 10.0, 2.0),
        start=0.5,
        depth=1,
        feature_TM=np.zeros((2, 3), dtype=np.int64),
        threshold_TM=np.array([[np.log1p(3), 0, 0], [0.0, 0, 0]]),
        left_TM=np.array([[1, 1, 2], [0, 1, 2]]),
        right_TM=np.array([[2, 1, 2], [0, 1, 2]]),
        value_TM=np.array([[9.0, -1.0, 1.0], [0.25, 9.0, 9.0]]),
    )
    # Standardized 0.5 - 1 + 0.25 and 0.5 + 1 + 0.25, times 2, plus 10.
    np.testing.assert_allclose(model.predict(dags), [9.5, 13.5])


def test_the_seed_decides_the_fit(real, sizes):
    few = BoostingSettings(trees=5, depth=2)

    def predicted(seed: int) -> list[float]:
        fitted = fit_boosting(real.dags, real.target_B, sizes, seed=seed, settings=few)
        return fitted.predict(real.dags).tolist()

    assert predicted(1) == predicted(1)
    assert predicted(1) != predicted(2)


FEW = BoostingSettings(trees=30, depth=2)


@dataclass(frozen=True)
class Constant(SurrogateModel):
    """Predicts one number for everything."""

    value: float

    @property
    def family(self) -> str:
        return "constant"

    def predict(self, dags: Sequence[DAG]) -> np.ndarray:
        return np.full(len(dags), self.value)

    def config(self) -> dict[str, object]:
        return {}

    def arrays(self) -> dict[str, np.ndarray]:
        return {}


def trees(
    dags: Sequence[DAG], target_B: np.ndarray, sizes: GraphSizes, seed: int
) -> SurrogateModel:
    return fit_boosting(dags, target_B, sizes, seed=seed, settings=FEW)


def mean(dags: Sequence[DAG], target_B: np.ndarray, sizes: GraphSizes, seed: int) -> SurrogateModel:
    return Constant(float(target_B.mean()))


@pytest.fixture
def fitted(real, sizes) -> StackedEnsemble:
    return fit_stacked(real.dags, real.target_B, sizes, {"trees": trees, "mean": mean})


def test_every_family_is_fitted_once_for_each_fold_and_weights_add_up(fitted):
    assert [one.family for one in fitted.members] == ["boosting"] * 3 + ["constant"] * 3
    assert fitted.weight_M.sum() == pytest.approx(1.0)
    assert (fitted.weight_M >= 0).all()
    assert len(set(fitted.weight_M[:3])) == 1


def test_a_family_that_knows_nothing_weighs_less(fitted, test_set):
    assert fitted.weight_M[0] > 3 * fitted.weight_M[-1]
    assert np.corrcoef(fitted.predict(test_set.dags), test_set.target_B)[0, 1] > 0.7


def test_families_that_all_know_nothing_weigh_the_same(real, sizes):
    def low(
        dags: Sequence[DAG], target_B: np.ndarray, sizes: GraphSizes, seed: int
    ) -> SurrogateModel:
        return Constant(float(np.exp(np.log(target_B).mean())))

    found = fit_stacked(real.dags, real.target_B, sizes, {"a": low, "b": low})
    assert found.weight_M.sum() == pytest.approx(1.0)


def test_the_spread_is_wider_where_errors_were_large(real, sizes):
    large_B = np.array([dag.num_nodes for dag in real.dags]) > 12
    assert 10 < large_B.sum() < 50
    noise_B = np.random.default_rng(1).normal(size=len(real.dags))
    noisy_B = np.exp(2 * noise_B * large_B)
    fitted = fit_stacked(real.dags, 10 * noisy_B, sizes, {"mean": mean})
    spread_B = fitted.spread(real.dags)
    assert (spread_B > 0).all()
    assert np.median(spread_B[large_B]) > 1.4 * np.median(spread_B[~large_B])


def test_equal_graphs_are_never_in_two_folds(real, sizes):
    seen: list[set[int]] = []

    def spy(
        dags: Sequence[DAG], target_B: np.ndarray, sizes: GraphSizes, seed: int
    ) -> SurrogateModel:
        seen.append({id(dag.x_NA) for dag in dags})
        return mean(dags, target_B, sizes, seed)

    twice = [*real.dags[:20], *real.dags[:20]]
    fit_stacked(twice, np.tile(real.target_B[:20], 2), sizes, {"spy": spy})
    left_out = [{id(dag.x_NA) for dag in twice} - one for one in seen]
    assert sum(map(len, left_out)) == 20
    assert len(set.union(*left_out)) == 20


def test_a_fit_repeats_with_its_seed(real, sizes):
    first, second, other = (
        fit_stacked(real.dags, real.target_B, sizes, {"trees": trees}, seed=seed)
        for seed in (1, 1, 2)
    )
    assert first.predict(real.dags).tolist() == second.predict(real.dags).tolist()
    assert first.predict(real.dags).tolist() != other.predict(real.dags).tolist()


@pytest.mark.parametrize(("count", "folds"), [(11, 3), (60, 1), (60, 40)])
def test_too_few_graphs_for_the_folds_are_refused(real, sizes, count, folds):
    with pytest.raises(UsageError, match="four different graphs for each"):
        fit_stacked(real.dags[:count], real.target_B[:count], sizes, {"mean": mean}, folds=folds)
