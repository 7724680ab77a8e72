"""One network for several targets."""

import numpy as np
import pytest

from layerdag.errors import UsageError
from layerdag.graph import GraphSizes
from layerdag.surrogates import Labeled
from layerdag.surrogates.families import (
    MessagePassingSurrogate,
    NetworkSettings,
    TransformerSettings,
    TransformerSurrogate,
)
from layerdag.surrogates.families.networks import fit_one, fit_several

BRIEF = NetworkSettings(width=8, rounds=1, epochs=2)
SMALL = NetworkSettings(width=16, rounds=1, epochs=20, batch_size=8, learning_rate=1e-2)


def gain(known: Labeled) -> np.ndarray:
    """Return a second target, in another unit and with negative numbers."""
    return 1000.0 * (known.target_B - 40.0)


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (MessagePassingSurrogate, BRIEF),
        (TransformerSurrogate, TransformerSettings(width=8, rounds=1, heads=2, epochs=2)),
    ],
)
def test_a_network_shared_by_one_target_is_the_network_of_that_target(
    kind, settings: NetworkSettings, real: Labeled, sizes: GraphSizes
) -> None:
    alone = fit_one(kind, real.dags, real.target_B, sizes, settings, 3)
    (shared,) = fit_several(kind, real.dags, {"cost": real.target_B}, sizes, settings, 3)
    assert shared.config() == alone.config()
    assert {n: a.tolist() for n, a in shared.arrays().items()} == {
        n: a.tolist() for n, a in alone.arrays().items()
    }


def test_each_output_learns_its_target_though_half_of_the_graphs_lack_one(
    real: Labeled, test_set: Labeled, sizes: GraphSizes
) -> None:
    gain_B = gain(real)
    gain_B[::2] = np.nan
    targets = {"cost": real.target_B, "gain": gain_B}
    cost, gain_of = fit_several(MessagePassingSurrogate, real.dags, targets, sizes, SMALL, 0)
    assert cost.shares_arrays(gain_of)
    assert (cost.outputs, cost.output, gain_of.output) == (("cost", "gain"), 0, 1)
    assert (cost.scale.log, gain_of.scale.log) == (True, False)
    assert np.corrcoef(cost.predict(test_set.dags), test_set.target_B)[0, 1] > 0.5
    assert np.corrcoef(gain_of.predict(test_set.dags), gain(test_set))[0, 1] > 0.5
    assert cost.predict([]).shape == gain_of.predict([]).shape == (0,)


def test_a_target_of_one_graph_teaches_no_scale(real: Labeled, sizes: GraphSizes) -> None:
    rare_B = np.full(len(real.dags), np.nan)
    rare_B[0] = 1.0
    targets = {"cost": real.target_B, "rare": rare_B}
    with pytest.raises(UsageError, match="at least two graphs"):
        fit_several(MessagePassingSurrogate, real.dags, targets, sizes, BRIEF, 0)
