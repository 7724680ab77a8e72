"""Models from the parts of a file that nobody vouches for."""

import copy
from typing import Any

import numpy as np
import pytest

from layerdag.dag.dag import GraphSizes
from layerdag.errors import UsageError
from layerdag.surrogates.families.base import SurrogateModel
from layerdag.surrogates.families.networks import NetworkSettings, fit_several
from layerdag.surrogates.families.registry import fit_with, rebuild, rebuild_output
from layerdag.surrogates.families.trees import BoostingSettings, fit_boosting
from layerdag.surrogates.targets import Labeled

REFUSED = (KeyError, TypeError, ValueError, IndexError, RuntimeError, AttributeError, OverflowError)


def few_trees(dags, target_B, sizes, seed) -> SurrogateModel:
    return fit_boosting(dags, target_B, sizes, seed=seed, settings=BoostingSettings(trees=5))


@pytest.fixture
def trees(real: Labeled, sizes: GraphSizes) -> SurrogateModel:
    return few_trees(real.dags, real.target_B, sizes, 0)


def parts(model: SurrogateModel) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return copies of what a file would hold."""
    arrays = {name: array.copy() for name, array in model.arrays().items()}
    return copy.deepcopy(dict(model.config())), arrays


@pytest.fixture
def network(real: Labeled, sizes: GraphSizes) -> SurrogateModel:
    brief = NetworkSettings(width=8, rounds=1, epochs=1)
    targets = {"cost": real.target_B[:6], "half": real.target_B[:6] / 2}
    return fit_several(real.dags[:6], targets, sizes, brief, 0)[1]


def test_outputs_of_a_network_come_back_one_from_the_other(network, real):
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
def test_outputs_that_a_network_does_not_have_are_refused(network, trees, changes):
    config, arrays = parts(network)
    with pytest.raises(REFUSED):
        rebuild("message_passing", {**config, **changes}, arrays)
    with pytest.raises(REFUSED):
        rebuild_output(network, {**config, **changes})
    with pytest.raises(ValueError, match="not those of the network"):
        rebuild_output(trees, config)


def test_settings_reach_the_fit(real, sizes):
    small = fit_with("boosting", {"trees": 3, "depth": 1})(real.dags, real.target_B, sizes, 0)
    assert small.arrays()["feature"].shape == (3, 3)


def test_settings_reach_networks(real, sizes):
    settings = {"width": 8, "rounds": 1, "ranking_weight": 0.3, "batch_size": 32}
    fit = fit_with("message_passing", settings)
    model = fit(real.dags[:20], real.target_B[:20], sizes, 0)
    assert model.config()["settings"]["width"] == 8
    assert np.isfinite(model.predict(real.dags[:3])).all()


def test_what_does_not_exist_is_refused():
    with pytest.raises(UsageError, match=r"'stacked' has no settings; leave out depth"):
        fit_with("stacked", {"depth": 3})
    with pytest.raises(UsageError, match=r"'boosting' has no setting 'tree'\. Did you mean"):
        fit_with("boosting", {"tree": 3})
