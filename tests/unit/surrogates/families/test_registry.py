"""Models from the parts of a file that nobody vouches for."""

import copy
import math
from typing import Any

import numpy as np
import pytest

from layerdag.dag.dag import GraphSizes
from layerdag.errors import UsageError
from layerdag.surrogates.data import Labeled
from layerdag.surrogates.families.additive import AdditiveSettings
from layerdag.surrogates.families.base import SurrogateModel
from layerdag.surrogates.families.dag_transformer import TransformerSettings
from layerdag.surrogates.families.networks import (
    MessagePassingSurrogate,
    NetworkSettings,
    fit_several,
)
from layerdag.surrogates.families.registry import (
    draw_settings,
    fit_with,
    rebuild,
    rebuild_output,
    space_of,
)
from layerdag.surrogates.families.trees import BoostingSettings, fit_boosting, fit_stacked

REFUSED = (KeyError, TypeError, ValueError, IndexError, RuntimeError, AttributeError, OverflowError)


def few_trees(dags, target_B, sizes, seed) -> SurrogateModel:
    return fit_boosting(dags, target_B, sizes, seed=seed, settings=BoostingSettings(trees=5))


@pytest.fixture
def trees(real: Labeled, sizes: GraphSizes) -> SurrogateModel:
    return few_trees(real.dags, real.target_B, sizes, 0)


@pytest.fixture
def ensemble(real: Labeled, sizes: GraphSizes) -> SurrogateModel:
    return fit_stacked(real.dags, real.target_B, sizes, {"trees": few_trees}, folds=2)


def parts(model: SurrogateModel) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return copies of what a file would hold."""
    arrays = {name: array.copy() for name, array in model.arrays().items()}
    return copy.deepcopy(dict(model.config())), arrays


@pytest.mark.parametrize("kind", ["trees", "ensemble"])
def test_a_model_predicts_after_it_was_rebuilt_as_before(
    kind: str, real: Labeled, request: pytest.FixtureRequest
) -> None:
    model = request.getfixturevalue(kind)
    again = rebuild(model.family, *parts(model))
    np.testing.assert_array_equal(again.predict(real.dags), model.predict(real.dags))
    np.testing.assert_array_equal(again.spread(real.dags), model.spread(real.dags))


@pytest.mark.parametrize(
    ("name", "value"),
    [("left", 10**6), ("right", -1), ("feature", -1), ("left", None), ("value", "short")],
)
def test_trees_that_name_what_is_not_there_are_refused(
    trees: SurrogateModel, name: str, value: object
) -> None:
    config, arrays = parts(trees)
    if value is None:
        del arrays[name]
    elif value == "short":
        arrays[name] = arrays[name][:, :-1]
    else:
        arrays[name][0, 0] = value
    with pytest.raises(REFUSED):
        rebuild("boosting", config, arrays)


@pytest.mark.parametrize("attributes", [[], [0], [10**9], ["x"]])
def test_sizes_out_of_bounds_are_refused(trees: SurrogateModel, attributes: list[object]) -> None:
    config, arrays = parts(trees)
    config["sizes"] = {**config["sizes"], "attributes": attributes}
    with pytest.raises(REFUSED):
        rebuild("boosting", config, arrays)


@pytest.mark.parametrize(
    "settings", [{"width": 10**9, "rounds": 2}, {"width": 8, "rounds": 0}, {"width": "eval"}, {}]
)
@pytest.mark.parametrize("family", ["message_passing", "dag_transformer"])
def test_networks_that_no_fit_would_make_are_refused(
    family: str, settings: dict[str, object], trees: SurrogateModel
) -> None:
    config, _ = parts(trees)
    with pytest.raises(REFUSED):
        rebuild(family, {**config, "settings": settings}, {})


@pytest.fixture
def network(real: Labeled, sizes: GraphSizes) -> SurrogateModel:
    brief = NetworkSettings(width=8, rounds=1, epochs=1)
    targets = {"cost": real.target_B[:6], "half": real.target_B[:6] / 2}
    return fit_several(MessagePassingSurrogate, real.dags[:6], targets, sizes, brief, 0)[1]


def test_outputs_of_a_network_come_back_one_from_the_other(
    network: SurrogateModel, real: Labeled
) -> None:
    again = rebuild(network.family, *parts(network))
    assert again.predict(real.dags).tolist() == network.predict(real.dags).tolist()
    first = rebuild_output(again, {**parts(network)[0], "output": 0})
    assert first.shares_arrays(again)
    assert first.predict(real.dags).tolist() != network.predict(real.dags).tolist()


@pytest.mark.parametrize(
    "changes",
    [
        {"output": 2},
        {"output": -1},
        {"output": "x"},
        {"outputs": ["cost"]},
        {"outputs": ["cost", "cost"]},
        {"outputs": [f"target {i}" for i in range(2000)]},
        {"outputs": 7},
    ],
)
def test_outputs_that_a_network_does_not_have_are_refused(
    network: SurrogateModel, trees: SurrogateModel, changes: dict[str, object]
) -> None:
    config, arrays = parts(network)
    with pytest.raises(REFUSED):
        rebuild("message_passing", {**config, **changes}, arrays)
    with pytest.raises(REFUSED):
        rebuild_output(network, {**config, **changes})
    with pytest.raises(ValueError, match="not those of the network"):
        rebuild_output(trees, config)


@pytest.mark.parametrize("weights", [[], [1.0], [math.nan, 1.0], [1.0] * 200])
def test_an_ensemble_needs_a_finite_weight_for_each_member(
    ensemble: SurrogateModel, weights: list[float]
) -> None:
    config, arrays = parts(ensemble)
    with pytest.raises(REFUSED):
        rebuild("stacked", {**config, "weights": weights}, arrays)


def test_an_ensemble_of_ensembles_and_an_unknown_family_are_refused(
    ensemble: SurrogateModel,
) -> None:
    config, arrays = parts(ensemble)
    with pytest.raises(KeyError):
        rebuild("oracle", config, arrays)
    config["members"][0]["family"] = "stacked"
    with pytest.raises(ValueError, match="ensemble itself"):
        rebuild("stacked", config, arrays)


SETTINGS = {
    "additive": AdditiveSettings,
    "boosting": BoostingSettings,
    "message_passing": NetworkSettings,
    "dag_transformer": TransformerSettings,
}


@pytest.mark.parametrize("family", SETTINGS)
def test_every_draw_is_a_valid_choice_of_the_family(family: str) -> None:
    drawn = draw_settings(family, 20, seed=3)
    assert len({tuple(sorted(one.items())) for one in drawn}) == 20
    for one in drawn:
        assert set(one) == set(space_of(family))
        SETTINGS[family](**one)  # such as heads that divide the width
    assert drawn == draw_settings(family, 20, seed=3)
    assert drawn != draw_settings(family, 20, seed=4)
    assert draw_settings(family, 0, seed=3) == []


def test_settings_reach_the_fit(real: Labeled, sizes: GraphSizes) -> None:
    small = fit_with("boosting", {"trees": 3, "depth": 1})(real.dags, real.target_B, sizes, 0)
    assert small.arrays()["feature"].shape == (3, 3)


@pytest.mark.parametrize("family", ["message_passing", "dag_transformer"])
def test_settings_reach_networks(family: str, real: Labeled, sizes: GraphSizes) -> None:
    fit = fit_with(family, {"width": 8, "rounds": 1, "ranking_weight": 0.3, "batch_size": 32})
    model = fit(real.dags[:20], real.target_B[:20], sizes, 0)
    assert model.config()["settings"]["width"] == 8
    assert np.isfinite(model.predict(real.dags[:3])).all()


def test_what_does_not_exist_is_refused() -> None:
    with pytest.raises(UsageError, match=r"'stacked' has no settings that could be chosen"):
        draw_settings("stacked", 1, seed=0)
    with pytest.raises(UsageError, match=r"'boosting' has no setting 'tree'\. Did you mean"):
        fit_with("boosting", {"tree": 3})
