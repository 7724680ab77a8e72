"""Costs that add up: what they learn, how they go on beyond, and what they refuse."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch

from layerdag.dag.dag import DAG, GraphSizes
from layerdag.errors import DataError
from layerdag.surrogates.families.additive import AdditiveSettings, fit_additive
from layerdag.surrogates.families.registry import rebuild

SIZES = GraphSizes(attributes=(3, 6, 5))
FEW = AdditiveSettings(trees=3)


def graphs(count: int, nodes: tuple[int, int], seed: int = 0) -> list[DAG]:
    """Return chains of nodes with a kind and two sizes."""
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(count):
        size = int(rng.integers(*nodes))
        x_NA = np.stack([rng.integers(0, k, size) for k in SIZES.attributes], axis=1)
        u_NA = np.where(np.arange(3) > 0, rng.random((size, 3)), 0)
        steps = torch.arange(size - 1)
        made.append(
            DAG.build(
                torch.from_numpy(x_NA),
                torch.stack([steps, steps + 1]),
                u_NA=torch.from_numpy(u_NA).float(),
            )
        )
    return made


def products(dags: Sequence[DAG]) -> np.ndarray:
    """Return sums of products of sizes; the power of the second hangs on the kind."""
    found = []
    for dag in dags:
        place_NA = (dag.x_NA + dag.u_NA).double().numpy()
        power_N = 0.3 * dag.x_NA[:, 0].numpy()
        found.append(np.exp(place_NA[:, 1] + power_N * place_NA[:, 2]).sum())
    return np.array(found)


def test_sums_of_products_are_learned_and_hold_for_larger_graphs():
    small, large = graphs(150, (5, 30)), graphs(40, (60, 90), seed=1)
    model = fit_additive(small, products(small), SIZES, settings=FEW)
    error_B = np.abs(model.predict(large) / products(large) - 1)
    assert np.median(error_B) < 0.05
    assert np.median(products(large)) > 1.2 * products(small).max()


def test_targets_of_both_signs_are_sums_of_terms_themselves():
    dags, others = graphs(150, (5, 30)), graphs(40, (5, 30), seed=1)

    def differences(dags: Sequence[DAG]) -> np.ndarray:
        return np.array([float((dag.x_NA[:, 0] - 1).sum()) for dag in dags])

    model = fit_additive(dags, differences(dags), SIZES, settings=FEW)
    assert not model.scale.log
    np.testing.assert_allclose(model.predict(others), differences(others), atol=0.5)


def test_a_graph_is_predicted_alike_alone_and_among_others(real, sizes):
    model = fit_additive(real.dags, real.target_B, sizes, settings=FEW)
    alone = [float(model.predict([dag])[0]) for dag in real.dags[:5]]
    np.testing.assert_allclose(model.predict(real.dags[:5]), alone)
    assert model.predict([]).shape == (0,)


def test_trees_learn_what_costs_leave(real, test_set, sizes):
    model = fit_additive(real.dags, real.target_B, sizes)
    assert np.corrcoef(model.predict(test_set.dags), test_set.target_B)[0, 1] > 0.7


def test_unknown_codes_are_refused_and_unseen_ones_are_not():
    dags = graphs(30, (5, 10))
    model = fit_additive(dags, products(dags), SIZES, settings=FEW)
    unknown = dags[0].with_columns(dags[0].x_NA + 10)
    with pytest.raises(DataError, match="does not know"):
        model.predict([unknown])
    one_kind = [dag.with_columns(dag.x_NA * torch.tensor([0, 1, 1])) for dag in dags]
    narrow = fit_additive(one_kind, products(one_kind), SIZES, settings=FEW)
    assert np.isfinite(narrow.predict(dags)).all()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("key", np.array([3, 2])),
        ("key", np.array([1])),
        ("key", np.array([1.5, 2.5])),
        ("weight", np.array([np.nan, 1.0])),
    ],
)
def test_damaged_terms_are_refused(name, value):
    dags = graphs(30, (5, 10))
    model = fit_additive(dags, products(dags), SIZES, settings=FEW)
    arrays = {**model.arrays(), "key": np.array([1, 2]), "weight": np.array([1.0, 2.0])}
    assert np.isfinite(rebuild("additive", dict(model.config()), arrays).predict(dags)).all()
    with pytest.raises(ValueError, match=r"terms|weight"):
        rebuild("additive", dict(model.config()), {**arrays, name: value})
