import importlib
import math

import numpy as np
import pytest

from layerdag.errors import ConfigError
from layerdag.training.private import epsilon_of, noise_multiplier


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


def test_no_noise_promises_nothing():
    assert noise_multiplier(math.inf, 1e-3, 40, 0.25) == 0.0
    assert epsilon_of(0.0, 1e-3, 40, 0.25) == math.inf


def test_more_steps_need_more_noise():
    assert noise_multiplier(3.0, 1e-3, 8, 0.25) > noise_multiplier(3.0, 1e-3, 4, 0.25)


def test_a_missing_accountant_names_the_extra(monkeypatch: pytest.MonkeyPatch):
    def missing(name: str) -> None:
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(ConfigError, match=r"pip install 'layerdag\[privacy\]'"):
        noise_multiplier(2.75, 1e-3, 4, 0.25)
