import numpy as np

from layerdag.graph import GraphSizes
from layerdag.surrogates import Labeled
from layerdag.surrogates._boosting import BoostingSettings, fit_boosting
from layerdag.surrogates._features import graph_features

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
        max_features=SMALL.feature_share,
        random_state=derive_seed(3, "boosting") % 2**32,
    ).fit(graph_features(real.dags, sizes), ours.scale.standardize(real.target_B))
    expected_B = ours.scale.restore(theirs.predict(graph_features(test_set.dags, sizes)))
    np.testing.assert_allclose(ours.predict(test_set.dags), expected_B)


def test_trees_learn_a_sum_over_nodes(real: Labeled, test_set: Labeled, sizes: GraphSizes) -> None:
    model = fit_boosting(real.dags, real.target_B, sizes)
    assert np.corrcoef(model.predict(test_set.dags), test_set.target_B)[0, 1] > 0.7
