"""From measured steps to a machine: costs of operators or of a device, then the link."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from scipy.optimize import least_squares

from layerdag._runtime import numpy_generator
from layerdag.errors import ConfigError
from layerdag.simulator.calibration._calibration import CalibratedMachine, Link, Spread
from layerdag.simulator.calibration._costs import Costs, DeviceCosts
from layerdag.simulator.calibration._operator_fit import FEWEST_RUNS, fit_operators
from layerdag.simulator.calibration._runs import MeasuredRun
from layerdag.simulator.compute import Device

FOLDS = 5
_ROBUST = 0.2
"""Residuals of logarithms beyond this count linearly: a run that was disturbed moves little."""
_START = Link(latency_ns=50e3, bytes_per_s=1e9)
_BOUNDS = (np.log([1.0, 1e3]), np.log([1e9, 1e13]))
"""Least and largest latency in ns and bandwidth in bytes per second."""


def calibrate(
    runs: Sequence[MeasuredRun],
    *,
    device: Device | None = None,
    link: Link | None = None,
    cores: int | None = None,
) -> CalibratedMachine:
    """Fit a machine to measured steps.

    Without ``device``, rates of each operator are fitted to the runs of one rank, which then tell
    what a rank computes; with it, the share of its data-sheet rates that all runs reached. Without
    ``link``, latency and bandwidth are fitted to the runs of several ranks, by simulation. All
    errors are those of logarithms, and the largest count less.

    Args:
        runs: Measured steps, on one machine.
        device: The device that each rank has for itself; None for a processor.
        link: What connects ranks, where it is known.
        cores: Cores of the host that all ranks share; None where ranks do not.

    Raises:
        ConfigError: If there are too few runs, or a device but neither link nor run of one rank.
        SimulationError: If a run cannot be simulated; names its trace and node.
    """
    if not runs:
        raise ConfigError("there is no measured run to calibrate with.")
    several = [run for run in runs if run.num_ranks > 1]
    single = [run for run in runs if run.num_ranks == 1]
    if device is not None:
        if link is None and not single:
            raise ConfigError(
                "all runs have several ranks and the link is not known, so that device and link "
                "cannot be told apart; state latency and bandwidth, or add a run of one rank."
            )
        chosen = runs if link else single
        costs: Costs = _fit_device(device, chosen, link, cores)
    else:
        chosen, costs = single, fit_operators(single)
    machine = CalibratedMachine(costs, link, cores)
    if link is None and several:
        machine = fit_link(machine, several)

    def again(kept: Sequence[MeasuredRun]) -> Costs:
        return _fit_device(device, kept, link, cores) if device else fit_operators(kept)

    return _with_spreads(machine, chosen, several, again)


def _fit_device(
    device: Device, runs: Sequence[MeasuredRun], link: Link | None, cores: int | None
) -> DeviceCosts:
    """Return the efficiency with which simulated and measured steps agree best."""

    def misses(log_efficiency: np.ndarray) -> np.ndarray:
        costs = DeviceCosts(device, float(np.exp(log_efficiency[0])))
        return _misses(CalibratedMachine(costs, link, cores), runs)

    found = least_squares(
        misses, [np.log(0.5)], bounds=(np.log(1e-6), 0.0), diff_step=[0.01],
        loss="soft_l1", f_scale=_ROBUST,
    )  # fmt: skip
    return DeviceCosts(device, float(np.exp(found.x[0])))


def fit_link(machine: CalibratedMachine, runs: Sequence[MeasuredRun]) -> CalibratedMachine:
    """Return the machine with the link with which its steps agree best with the measured ones.

    Args:
        machine: What ranks compute; its link, if it has one, is not used.
        runs: Measured steps of several ranks.

    Raises:
        SimulationError: If a run cannot be simulated; names its trace and node.
    """

    def linked(logs: np.ndarray) -> CalibratedMachine:
        latency, rate = np.exp(logs)
        return replace(machine, link=Link(float(latency), float(rate)))

    def misses(logs: np.ndarray) -> np.ndarray:
        return _misses(linked(logs), runs)

    start = np.log([_START.latency_ns, _START.bytes_per_s])
    found = least_squares(
        misses, start, bounds=_BOUNDS,
        diff_step=[0.005], loss="soft_l1", f_scale=_ROBUST, max_nfev=30,
    )  # fmt: skip
    return linked(found.x)


def _misses(machine: CalibratedMachine, runs: Sequence[MeasuredRun]) -> np.ndarray:
    """Return the logarithm of predicted over measured time of each run."""
    ratios = [machine.predict(run.workload).seconds / run.seconds for run in runs]
    return np.log(np.array(ratios, dtype=np.float64))


def _with_spreads(
    machine: CalibratedMachine,
    chosen: Sequence[MeasuredRun],
    several: Sequence[MeasuredRun],
    again: Callable[[Sequence[MeasuredRun]], Costs],
) -> CalibratedMachine:
    """Return the machine with how far predictions are off where a run's own time was not used.

    Runs that costs were fitted to are left out in folds. Two numbers of the link, fitted to all
    runs of several ranks, are left as they are.
    """
    if len(chosen) * (FOLDS - 1) // FOLDS < FEWEST_RUNS:
        return machine
    order = numpy_generator(0, "calibration-folds").permutation(len(chosen))
    runs, misses = [], []
    for fold in range(FOLDS):
        out = set(order[fold::FOLDS].tolist())
        kept = [run for row, run in enumerate(chosen) if row not in out]
        left = [run for row, run in enumerate(chosen) if row in out]
        runs += left
        misses.append(_misses(replace(machine, costs=again(kept)), left))
    fitted = {id(run) for run in chosen}
    others = [run for run in several if id(run) not in fitted]
    runs += others
    miss_S = np.concatenate([*misses, _misses(machine, others)])
    ranks_S = np.array([run.num_ranks for run in runs])
    return replace(
        machine,
        alone=_spread(miss_S[ranks_S == 1], 1),
        together=_spread(miss_S[ranks_S > 1], int(ranks_S.max())),
    )


def _spread(miss_S: np.ndarray, most_ranks: int) -> Spread | None:
    """Return the quantiles of measured over predicted times; None of too few runs."""
    if len(miss_S) < FEWEST_RUNS:
        return None
    low, middle, high = np.exp(np.quantile(-miss_S, (0.1, 0.5, 0.9))).tolist()
    error = float(np.median(np.abs(np.expm1(miss_S))))
    return Spread(len(miss_S), low, middle, high, most_ranks, error)
