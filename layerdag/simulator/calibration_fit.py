"""Fit a machine to measured steps.

A step on one rank takes the sum over its operators of call + operations x rate + bytes x rate. The
rates of an operator are common ones times factors, and factors are drawn towards 1 by a penalty on
their logarithms, so that what few runs say little about stays at the common rate.
"""

import math
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from layerdag.errors import ConfigError
from layerdag.hardware.devices import Device
from layerdag.runtime.json_shape import number_in
from layerdag.runtime.rng import numpy_generator
from layerdag.runtime.tables import read_table
from layerdag.simulator.calibration import (
    CalibratedMachine,
    DeviceCosts,
    FittedCosts,
    FittedLink,
    FittedOperatorCosts,
    PredictionSpread,
    compute_rows,
    counts_of,
)
from layerdag.simulator.run import simulate
from layerdag.traces.chakra.corpus import INDEX, read_index, read_runs
from layerdag.traces.chakra.workload import read_workload
from layerdag.traces.trace import Workload


@dataclass(frozen=True, eq=False)
class MeasuredRun:
    """A measured step.

    ``seconds`` are the wall time without a profiler: of several repeats the least, which other work
    on the machine disturbs least.
    """

    workload: Workload
    seconds: float
    name: str = ""

    def __post_init__(self) -> None:
        if not 0 < self.seconds < math.inf:
            raise ConfigError(
                f"run '{self.name}' took {self.seconds} s; a measured time must be positive."
            )

    @property
    def num_ranks(self) -> int:
        """Number of ranks."""
        return self.workload.num_ranks


def read_runs_of(
    path: str | Path, *, families: Collection[str] = (), ranks: Collection[int] = ()
) -> list[MeasuredRun]:
    """Read measured steps.

    Args:
        path: A corpus folder (with ``index.jsonl``), or a CSV with the columns ``workload``
            (prefix or folder of its traces, relative to the CSV) and ``seconds``; rows with the
            same workload are repeats, of which the least counts.
        families: Only runs of these model families of a corpus; empty for all.
        ranks: Only runs on so many ranks; empty for any number.

    Raises:
        ConfigError: If the file cannot be read or holds no run that was asked for; names the line.
        TraceError: If a trace cannot be read.
    """
    path = Path(path)
    if path.is_dir():
        found = _of_corpus(path, families, ranks)
    elif families:
        raise ConfigError(f"{path}: families are those of a corpus folder; a table has none.")
    else:
        found = [run for run in _of_table(path) if not ranks or run.num_ranks in ranks]
    if not found:
        raise ConfigError(f"{path}: holds no run of those that were asked for.")
    return found


def _of_corpus(
    folder: Path, families: Collection[str], ranks: Collection[int]
) -> list[MeasuredRun]:
    if not (folder / INDEX).is_file():
        raise ConfigError(
            f"{folder}: has no {INDEX}; give the folder of a corpus, or a CSV with the columns "
            "workload and seconds."
        )
    records = [
        record
        for record in read_index(folder)
        if (not families or record.family in families) and (not ranks or record.world_size in ranks)
    ]
    return [
        MeasuredRun(run.workload(), run.record.step_time_s_min, run.record.run)
        for run in read_runs(folder, records)
    ]


def _of_table(path: Path) -> list[MeasuredRun]:
    table = read_table(path, ("workload", "seconds"), error=ConfigError)
    if len(table.names) > 2:
        raise ConfigError(
            f"{path}: needs the columns workload and seconds, and no other; found "
            f"{', '.join(table.names)}."
        )
    least: dict[str, float] = {}
    for line, row in table.rows():
        seconds = number_in(row["seconds"])
        if seconds is None or not 0 < seconds < math.inf:
            raise ConfigError(
                f"{path}: line {line} states no number of seconds ('{row['seconds']:.40}')."
            )
        least[row["workload"]] = min(seconds, least.get(row["workload"], math.inf))
    return [
        MeasuredRun(read_workload(path.parent / prefix), seconds, prefix)
        for prefix, seconds in least.items()
    ]


MIN_RUNS = 10
_MIN_USES = 3
"""Runs that must have an operator before it gets rates of its own."""
_PENALTY = 0.3
"""Weight of a factor's logarithm: of 0.1, 0.3, 1 and 3 the largest that loses nothing on left-out
runs of one rank of the embedded corpus (docs/dev/decisions.md, "Prediction")."""
_ROBUST = 0.2
_START = (2000.0, 1e-3, 1e-2)
_MIN_NS = 1e-9


def fit_operators(runs: Sequence[MeasuredRun]) -> FittedOperatorCosts:
    """Return the rates with which sums of operators agree best with measured steps of one rank.

    Raises:
        ConfigError: If there are fewer than ten.
    """
    if len(runs) < MIN_RUNS:
        raise ConfigError(
            f"measured runs of one rank: {len(runs)}; rates of operators need at least "
            f"{MIN_RUNS}. Measure more, or name the device whose rates are to be scaled."
        )
    uses: Counter[str] = Counter()
    for run in runs:
        trace = run.workload.traces[0]
        every = trace.names()
        uses.update({every[row] for row in compute_rows(trace).tolist()})
    names = sorted(name for name, count in uses.items() if count >= _MIN_USES)
    counts_SK3 = np.stack([_counts(run, names) for run in runs])
    log_ns_S = np.log([run.seconds * 1e9 for run in runs])
    common = _fit(counts_SK3.sum(axis=1), log_ns_S, np.array(_START), 0.0)
    start = np.tile(common, len(names) + 1)
    rates_K3 = _fit(counts_SK3.reshape(len(runs), -1), log_ns_S, start, _PENALTY).reshape(-1, 3)
    rows = [(float(a), float(b), float(c)) for a, b, c in rates_K3]
    return FittedOperatorCosts(dict(zip(names, rows[:-1], strict=True)), rows[-1])


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
    from scipy.optimize import least_squares

    start_C = np.maximum(start_C, _MIN_NS)

    def misses(log_factor_C: np.ndarray) -> np.ndarray:
        total_S = counts_SC @ (start_C * np.exp(log_factor_C)) + _MIN_NS
        return np.concatenate([np.log(total_S) - log_ns_S, penalty * log_factor_C])

    def slopes(log_factor_C: np.ndarray) -> np.ndarray:
        part_SC = counts_SC * (start_C * np.exp(log_factor_C))
        share_SC = part_SC / (part_SC.sum(axis=1, keepdims=True) + _MIN_NS)
        return np.concatenate([share_SC, penalty * np.eye(len(start_C))])

    found = least_squares(
        misses, np.zeros(len(start_C)), jac=slopes, bounds=(-20.0, 20.0),
        loss="soft_l1", f_scale=_ROBUST,
    )  # fmt: skip
    return start_C * np.exp(found.x)


FOLDS = 5
_FIT_START = FittedLink(latency_ns=50e3, bytes_per_s=1e9)
_BOUNDS = (np.log([1.0, 1e3]), np.log([1e9, 1e13]))
"""Least and largest latency in ns and bandwidth in bytes per second."""


def calibrate(
    runs: Sequence[MeasuredRun],
    *,
    device: Device | None = None,
    link: FittedLink | None = None,
    cores: int | None = None,
) -> CalibratedMachine:
    """Fit a machine to measured steps.

    Without ``device``, rates of each operator are fitted to the runs of one rank, which then define
    what a rank computes; with it, the share of its data-sheet rates that all runs reached. Without
    ``link``, latency and bandwidth are fitted to the runs of several ranks, by simulation. All
    errors are those of logarithms, and the largest count less.

    Args:
        runs: Measured on one machine.
        device: The device that each rank has for itself; None for a processor.
        link: Between ranks, where it is known.
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
        costs: FittedCosts = _fit_device(device, chosen, link, cores)
    else:
        chosen, costs = single, fit_operators(single)
    machine = CalibratedMachine(costs, link, cores)
    if link is None and several:
        machine = fit_link(machine, several)

    def again(kept: Sequence[MeasuredRun]) -> FittedCosts:
        return _fit_device(device, kept, link, cores) if device else fit_operators(kept)

    return _with_spreads(machine, chosen, several, again)


def _fit_device(
    device: Device, runs: Sequence[MeasuredRun], link: FittedLink | None, cores: int | None
) -> DeviceCosts:
    from scipy.optimize import least_squares

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

    Raises:
        SimulationError: If a run cannot be simulated; names its trace and node.
    """
    from scipy.optimize import least_squares

    def linked(logs: np.ndarray) -> CalibratedMachine:
        latency, rate = np.exp(logs)
        return replace(machine, link=FittedLink(float(latency), float(rate)))

    def misses(logs: np.ndarray) -> np.ndarray:
        return _misses(linked(logs), runs)

    start = np.log([_FIT_START.latency_ns, _FIT_START.bytes_per_s])
    found = least_squares(
        misses, start, bounds=_BOUNDS,
        diff_step=[0.005], loss="soft_l1", f_scale=_ROBUST, max_nfev=30,
    )  # fmt: skip
    return linked(found.x)


def _misses(machine: CalibratedMachine, runs: Sequence[MeasuredRun]) -> np.ndarray:
    ratios = [simulate(run.workload, machine).makespan_s / run.seconds for run in runs]
    return np.log(np.array(ratios, dtype=np.float64))


def _with_spreads(
    machine: CalibratedMachine,
    chosen: Sequence[MeasuredRun],
    several: Sequence[MeasuredRun],
    again: Callable[[Sequence[MeasuredRun]], FittedCosts],
) -> CalibratedMachine:
    """Return the machine with how far predictions are off where a run's own time was not used.

    Runs that costs were fitted to are left out in folds. Two numbers of the link, fitted to all
    runs of several ranks, are left as they are.
    """
    if len(chosen) * (FOLDS - 1) // FOLDS < MIN_RUNS:
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


def _spread(miss_S: np.ndarray, most_ranks: int) -> PredictionSpread | None:
    """Return the quantiles of measured over predicted times; None of too few runs."""
    if len(miss_S) < MIN_RUNS:
        return None
    low, middle, high = np.exp(np.quantile(-miss_S, (0.1, 0.5, 0.9))).tolist()
    error = float(np.median(np.abs(np.expm1(miss_S))))
    return PredictionSpread(len(miss_S), low, middle, high, most_ranks, error)
