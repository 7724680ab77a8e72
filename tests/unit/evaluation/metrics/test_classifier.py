import numpy as np
import pytest

from layerdag.errors import DataError
from layerdag.evaluation.metrics import classifier_bound


def _normal(rng: np.random.Generator, shift: float, count: int = 200) -> dict[str, np.ndarray]:
    told = rng.normal(0, 1, (count, 3))
    told[:, 0] += shift
    return {"noise": rng.normal(0, 1, (count, 3)), "shifted": told}


def test_alike_sets_have_bound_zero(rng: np.random.Generator) -> None:
    bound = classifier_bound(_normal(rng, 0.0), _normal(rng, 0.0), seed=0, replicates=20)
    assert bound.draws_R[0] < 0.15
    assert bound.draws_R.shape == (21,)


def test_the_bound_stays_below_the_jensen_shannon_distance(rng: np.random.Generator) -> None:
    # Two unit normals 2 apart: the Jensen-Shannon distance (base 2) by quadrature.
    x = np.linspace(-8, 10, 20_001)
    p, q = (np.exp(-((x - m) ** 2) / 2) / np.sqrt(2 * np.pi) for m in (0, 2))
    mean = (p + q) / 2
    divergence = np.sum(p * np.log2(p / mean) + q * np.log2(q / mean)) / 2 * (x[1] - x[0])
    bound = classifier_bound(_normal(rng, 0.0, 800), _normal(rng, 2.0, 800), seed=0, replicates=50)
    value, error = bound.draws_R[0], bound.draws_R[1:].std()
    assert value == pytest.approx(np.sqrt(divergence), abs=0.1)
    assert value < np.sqrt(divergence) + 3 * error
    # The descriptor that tells them apart was chosen.
    assert bound.by_descriptor["shifted"] == value
    assert bound.by_descriptor["noise"] < 0.2


def test_too_few_graphs_are_refused(rng: np.random.Generator) -> None:
    with pytest.raises(DataError, match="at least 8 graphs"):
        classifier_bound(_normal(rng, 0.0, 5), _normal(rng, 0.0), seed=0, replicates=1)
