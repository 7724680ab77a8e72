import numpy as np
import torch

from layerdag.graph import DAG, GraphSizes
from layerdag.surrogates import Labeled
from layerdag.surrogates.families import (
    BoostedTrees,
    BoostingSettings,
    TargetScale,
    fit_boosting,
    graph_features,
)

SMALL = BoostingSettings(trees=40, depth=3)


def test_trees_as_arrays_predict_what_scikit_learn_predicts(
    real: Labeled, test_set: Labeled, sizes: GraphSizes
) -> None:
    from sklearn.ensemble import GradientBoostingRegressor

    from layerdag._runtime import derive_seed

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


def test_trees_learn_a_sum_over_nodes(real: Labeled, test_set: Labeled, sizes: GraphSizes) -> None:
    model = fit_boosting(real.dags, real.target_B, sizes)
    assert np.corrcoef(model.predict(test_set.dags), test_set.target_B)[0, 1] > 0.7


def test_trees_by_hand() -> None:
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


def test_the_seed_decides_the_fit(real: Labeled, sizes: GraphSizes) -> None:
    few = BoostingSettings(trees=5, depth=2)

    def predicted(seed: int) -> list[float]:
        fitted = fit_boosting(real.dags, real.target_B, sizes, seed=seed, settings=few)
        return fitted.predict(real.dags).tolist()

    assert predicted(1) == predicted(1)
    assert predicted(1) != predicted(2)
