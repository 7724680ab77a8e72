"""Rates of operators from the times of whole steps.

A step on one rank takes the sum over its operators of call + operations x rate + bytes x rate. The
rates of an operator are common ones times factors, and factors are drawn towards 1 by a penalty on
their logarithms, so that what few runs say little about stays at the common rate.
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np
from scipy.optimize import least_squares

from layerdag.errors import ConfigError
from layerdag.simulator.calibration._costs import OperatorCosts, compute_rows, counts_of
from layerdag.simulator.calibration._runs import MeasuredRun

FEWEST_RUNS = 10
_FEWEST_USES = 3
"""Runs that must have an operator before it gets rates of its own."""
_PENALTY = 0.3
"""Weight of a factor's logarithm: of 0.1, 0.3, 1 and 3 the largest that loses nothing on left-out
runs of one rank of the embedded corpus (docs/dev/experiments.md, "Prediction")."""
_ROBUST = 0.2
_START = (2000.0, 1e-3, 1e-2)
_LEAST_NS = 1e-9


def fit_operators(runs: Sequence[MeasuredRun]) -> OperatorCosts:
    """Return the rates with which sums of operators agree best with the measured steps.

    Args:
        runs: Measured steps of one rank.

    Raises:
        ConfigError: If there are fewer than ten.
    """
    if len(runs) < FEWEST_RUNS:
        raise ConfigError(
            f"measured runs of one rank: {len(runs)}; rates of operators need at least "
            f"{FEWEST_RUNS}. Measure more, or name the device whose rates are to be scaled."
        )
    names = _frequent(runs)
    counts_SK3 = np.stack([_counts(run, names) for run in runs])
    log_ns_S = np.log([run.seconds * 1e9 for run in runs])
    common = _fit(counts_SK3.sum(axis=1), log_ns_S, np.array(_START), 0.0)
    start = np.tile(common, len(names) + 1)
    rates_K3 = _fit(counts_SK3.reshape(len(runs), -1), log_ns_S, start, _PENALTY).reshape(-1, 3)
    rows = [(float(a), float(b), float(c)) for a, b, c in rates_K3]
    return OperatorCosts(dict(zip(names, rows[:-1], strict=True)), rows[-1])


def _frequent(runs: Sequence[MeasuredRun]) -> list[str]:
    """Return the operators that enough runs have, in alphabetical order."""
    uses: Counter[str] = Counter()
    for run in runs:
        trace = run.workload.traces[0]
        names = trace.names()
        uses.update({names[row] for row in compute_rows(trace).tolist()})
    return sorted(name for name, count in uses.items() if count >= _FEWEST_USES)


def _counts(run: MeasuredRun, names: Sequence[str]) -> np.ndarray:
    """Return calls, operations and bytes of each operator and of the others, (K + 1, 3)."""
    trace = run.workload.traces[0]
    rows = compute_rows(trace)
    code_of = {name: code for code, name in enumerate(names)}
    all_names = trace.names()
    codes = [code_of.get(all_names[row], len(names)) for row in rows.tolist()]
    total_K3 = np.zeros((len(names) + 1, 3))
    np.add.at(total_K3, codes, counts_of(trace, rows))
    return total_K3


def _fit(
    counts_SC: np.ndarray, log_ns_S: np.ndarray, start_C: np.ndarray, penalty: float
) -> np.ndarray:
    """Return rates (C,), ``start_C`` times fitted factors."""
    start_C = np.maximum(start_C, _LEAST_NS)

    def misses(log_factor_C: np.ndarray) -> np.ndarray:
        total_S = counts_SC @ (start_C * np.exp(log_factor_C)) + _LEAST_NS
        return np.concatenate([np.log(total_S) - log_ns_S, penalty * log_factor_C])

    def slopes(log_factor_C: np.ndarray) -> np.ndarray:
        part_SC = counts_SC * (start_C * np.exp(log_factor_C))
        share_SC = part_SC / (part_SC.sum(axis=1, keepdims=True) + _LEAST_NS)
        return np.concatenate([share_SC, penalty * np.eye(len(start_C))])

    found = least_squares(
        misses, np.zeros(len(start_C)), jac=slopes, bounds=(-20.0, 20.0),
        loss="soft_l1", f_scale=_ROBUST,
    )  # fmt: skip
    return start_C * np.exp(found.x)
