"""Settings of families: what is drawn can be fitted, and what does not exist is refused."""

import numpy as np
import pytest

from layerdag.errors import UsageError
from layerdag.graph import GraphSizes
from layerdag.surrogates import Labeled
from layerdag.surrogates.families import (
    AdditiveSettings,
    BoostingSettings,
    NetworkSettings,
    TransformerSettings,
    draw_settings,
    fit_with,
    space_of,
)

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
