import numpy as np
import pytest

from layerdag.errors import DataError
from layerdag.evaluation.metrics import manifold_scores


def test_one_distribution_scores_high_everywhere(rng: np.random.Generator) -> None:
    found = manifold_scores(rng.normal(size=(300, 2)), rng.normal(size=(300, 2)))
    assert min(found.values()) > 0.8


def test_outliers_lower_precision_and_collapse_lowers_recall(rng: np.random.Generator) -> None:
    real = rng.normal(size=(200, 2))
    half_outside = np.concatenate([rng.normal(size=(100, 2)), rng.normal(50, 1, size=(100, 2))])
    outside = manifold_scores(real, half_outside)
    assert outside["precision"] == pytest.approx(0.5, abs=0.05)
    collapsed = manifold_scores(real, real[:1] + rng.normal(0, 1e-3, size=(200, 2)))
    assert collapsed["precision"] > 0.9
    assert collapsed["recall"] < 0.1
    assert collapsed["coverage"] < 0.2


def test_too_few_graphs_are_refused(rng: np.random.Generator) -> None:
    with pytest.raises(DataError, match="more graphs than 5"):
        manifold_scores(rng.normal(size=(5, 2)), rng.normal(size=(9, 2)))
