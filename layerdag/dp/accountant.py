"""How much noise a promise needs: the accountant of the library ``dp-accounting``.

The mechanism is the Gaussian one on a Poisson sample of the units, composed over all steps. Its
privacy loss is added up as a distribution ("connect the dots", arXiv 2207.04380), which errs on the
safe side.
"""

import importlib
import math
from functools import cache
from typing import Any

from layerdag.errors import ConfigError

_TOLERANCE = 1e-3
"""Of the multiplier."""

_GRID = 1e-3
"""Distance of the points at which the privacy loss is tabulated; it errs on the safe side."""

_ENOUGH = 1.001
"""Factor by which a multiplier grows until its own epsilon is no more than what is asked for."""


@cache
def noise_multiplier(epsilon: float, delta: float, steps: int, rate: float) -> float:
    """Return the standard deviation of the noise over the clipping norm; 0 for infinity.

    ``rate`` is the probability with which a unit takes part in a step.

    Raises:
        ConfigError: If ``dp-accounting`` is not installed.
    """
    if math.isinf(epsilon):
        return 0.0
    library = _library()
    found = float(
        library.calibrate_dp_mechanism(
            lambda: _accountant(library),
            lambda noise: _event(library, float(noise), steps, rate),
            epsilon,
            delta,
            tol=_TOLERANCE,
        )
    )
    while epsilon_of(found, delta, steps, rate) > epsilon:
        found *= _ENOUGH
    return found


def epsilon_of(multiplier: float, delta: float, steps: int, rate: float) -> float:
    """Return the epsilon that a noise multiplier gives; infinity without noise.

    Raises:
        ConfigError: If ``dp-accounting`` is not installed.
    """
    if multiplier == 0:
        return math.inf
    library = _library()
    accountant = _accountant(library)
    accountant.compose(_event(library, multiplier, steps, rate))
    return float(accountant.get_epsilon(delta))


def accountant_name() -> str:
    """Return the accountant with the version of its library."""
    from importlib.metadata import version

    return f"privacy loss distribution, dp-accounting {version('dp-accounting')}"


def require_accountant() -> None:
    """Raise ConfigError if ``dp-accounting`` is not installed."""
    _library()


def _library() -> Any:
    try:
        importlib.import_module("dp_accounting.pld")
        return importlib.import_module("dp_accounting")
    except ImportError as error:
        raise ConfigError(
            f"privacy.epsilon needs an accountant ({error}); install it with: "
            "pip install 'layerdag[privacy]'."
        ) from error


def _accountant(library: Any) -> Any:
    """Return an empty account of neighbors where one unit is replaced by an empty one."""
    return library.pld.PLDAccountant(
        neighboring_relation=library.NeighboringRelation.REPLACE_SPECIAL,
        value_discretization_interval=_GRID,
    )


def _event(library: Any, multiplier: float, steps: int, rate: float) -> Any:
    step = library.PoissonSampledDpEvent(rate, library.GaussianDpEvent(multiplier))
    return library.SelfComposedDpEvent(step, steps)
