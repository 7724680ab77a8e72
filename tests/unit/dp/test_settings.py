import importlib
import math
from pathlib import Path

import numpy as np
import pytest

from layerdag.dp.accountant import epsilon_of, noise_multiplier
from layerdag.dp.settings import Privacy
from layerdag.dp.units import Units, read_owners
from layerdag.errors import ConfigError, DataError
from layerdag.runtime.settings import build_settings


def test_the_noise_keeps_the_promise_and_little_more_would_break_it():
    noise = noise_multiplier(3.0, 1e-3, 4, 0.25)
    assert epsilon_of(noise, 1e-3, 4, 0.25) <= 3.0
    assert epsilon_of(0.98 * noise, 1e-3, 4, 0.25) > 3.0


def test_one_full_step_is_the_analytic_gaussian_mechanism():
    """Balle and Wang, arXiv 1805.06530, equation 6: without samples and steps delta is known."""
    from scipy.stats import norm

    noise = noise_multiplier(1.0, 1e-2, 1, 1.0)
    a, b = 1 / (2 * noise), 1.0 * noise
    delta = norm.cdf(a - b) - np.exp(1.0) * norm.cdf(-a - b)
    assert delta == pytest.approx(1e-2, rel=0.01)
    assert delta <= 1e-2


def test_more_steps_need_more_noise_and_no_noise_promises_nothing():
    assert noise_multiplier(math.inf, 1e-3, 40, 0.25) == 0.0
    assert epsilon_of(0.0, 1e-3, 40, 0.25) == math.inf
    assert noise_multiplier(3.0, 1e-3, 8, 0.25) > noise_multiplier(3.0, 1e-3, 4, 0.25)


def test_a_missing_accountant_names_the_extra(monkeypatch):
    def missing(name: str) -> None:
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(ConfigError, match=r"pip install 'layerdag\[privacy\]'"):
        noise_multiplier(2.75, 1e-3, 4, 0.25)


def test_it_is_off_unless_epsilon_is_given():
    assert not Privacy().is_on
    assert Privacy(epsilon=3.0).is_on
    assert Privacy(epsilon=math.inf).is_on


@pytest.mark.parametrize(
    ("units", "delta"), [(700, 7e-4), (499, 1e-3), (5, 0.1), (1, 0.2), (10_000, 5e-5)]
)
def test_automatic_delta_is_at_most_half_of_one_over_the_units(units, delta):
    found = Privacy(epsilon=1.0).delta_for(units)
    assert found == pytest.approx(delta)
    assert found <= 1 / (2 * max(units, 2)) + 1e-12


def test_delta_may_be_given_as_a_number_or_as_the_word_auto():
    assert Privacy(delta=1e-3).delta_for(5) == 1e-3
    assert build_settings(Privacy, {"delta": "auto"}).delta == "auto"
    with pytest.raises(ConfigError, match=r"'delta' must be a number or 'auto'"):
        build_settings(Privacy, {"delta": "small"})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"epsilon": 0.0}, r"privacy\.epsilon must be above 0, found 0\.0"),
        ({"epsilon": math.nan}, r"privacy\.epsilon must be above 0, found nan"),
        ({"delta": 1.0}, r"privacy\.delta must be between 0 and 1, or auto"),
        ({"clip": math.inf}, r"privacy\.clip must be above 0"),
        ({"sampling_rate": 1.5}, r"privacy\.sampling_rate must be in \(0, 1\]"),
        ({"canaries": 3}, r"privacy\.canaries must be an even number"),
        ({"steps": 0}, r"privacy\.steps must be at least 1"),
        ({"unit": "owner"}, r"privacy\.owners must be a CSV file with privacy\.unit=owner"),
        ({"owners": Path("x.csv")}, r"nothing with privacy\.unit=run"),
    ],
)
def test_values_out_of_bounds_are_one_sentence(values, message):
    with pytest.raises(ConfigError, match=message):
        Privacy(**values)


def test_graphs_of_an_owner_are_one_unit(mine):
    graphs = mine.data.batch("train")
    owners = ["a", "b"] * (graphs.num_graphs // 2)
    units = Units.from_owners(graphs, owners)
    assert units.count == 2
    sizes = graphs.node_ptr.diff().numpy()
    assert units.nodes_U.tolist() == [sizes[::2].sum(), sizes[1::2].sum()]


def test_batches_hold_the_chosen_units_and_no_other(mine):
    units = Units.from_owners(mine.data.batch("train"), ["a", "b", "c"] * 4)
    seen = [unit for _, unit_G in units.batches(np.array([True, False, True])) for unit in unit_G]
    assert sorted(map(int, seen)) == [0] * 4 + [2] * 4
    assert list(units.batches(np.zeros(3, bool))) == []


def test_owners_come_from_a_table(tmp_path):
    file = tmp_path / "owners.csv"
    file.write_text("graph,owner,team\nx,ann,1\ny,bob,1\n")
    assert read_owners(file, ["y", "x"]) == ["bob", "ann"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("graph,owner\nx,ann\n", r"does not say who owns y \(1 graphs in all\)"),
        ("name,owner\nx,ann\n", r"among them 'graph'.* Found are name, owner"),
        ("graph,owner\nx,ann\nx,bob\n", r"graph .x. has two owners"),
        ("", r"the file is empty"),
    ],
)
def test_a_table_that_does_not_fit_is_refused(tmp_path, text, message):
    file = tmp_path / "owners.csv"
    file.write_text(text)
    with pytest.raises(DataError, match=message):
        read_owners(file, ["x", "y"])


def test_a_missing_table_is_refused(tmp_path):
    with pytest.raises(DataError, match="there is no such file"):
        read_owners(tmp_path / "none.csv", ["x"])
