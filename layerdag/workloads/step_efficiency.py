"""Fitted shares of devices and software, and their calibration to measured steps.

A share is the product of what all devices have in common, a factor of the device, a factor of the
software, and a factor that calibration finds for both together. Each factor is drawn towards 1 by
its spread, so that a few rows move only what they show (maximum a posteriori, log-normal priors).
"""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from layerdag.errors import ConfigError, UsageError
from layerdag.hardware.devices import DATA_SHEETS, DataSheet
from layerdag.runtime.files import write_text
from layerdag.runtime.json_shape import found_value, parse_json, require_known, require_shape
from layerdag.runtime.reading import read_whole
from layerdag.workloads.measured_steps import MeasuredStep
from layerdag.workloads.transformer.step_time import (
    StepDemand,
    StepEfficiency,
    stacked,
    step_demand,
    step_time,
    taken,
)


@dataclass(frozen=True)
class _Spread:
    """Prior of a share: a usual value, and standard deviations of its logarithm."""

    value: float
    common: float  # of what all devices have in common, around ``value``
    device: float = 0.0  # of a device around that
    software: float = 0.0  # of a software around that
    calibrated: float = 0.0  # of a machine around device and software


_SPREADS = {
    "bf16": _Spread(0.80, 0.10, 0.08, 0.0, 0.04),
    "fp8": _Spread(0.65, 0.15, 0.08, 0.08, 0.04),
    "mxfp8": _Spread(0.60, 0.15, 0.08, 0.08, 0.04),
    "fp4": _Spread(0.45, 0.20, 0.10, 0.10, 0.05),
    "tile": _Spread(110.0, 0.50),
    "memory": _Spread(0.55, 0.30, 0.10, 0.25, 0.08),
    "attention": _Spread(0.35, 0.30, 0.25, 0.25, 0.08),
    "experts": _Spread(0.50, 0.40, 0.0, 0.40, 0.15),
    "casts": _Spread(1.0, 0.50, 0.0, 0.40, 0.10),
    "link": _Spread(0.60, 0.20),
    "network": _Spread(0.60, 0.20, 0.15, 0.0, 0.15),
    "growth": _Spread(0.08, 0.50),
    "eager": _Spread(1.5, 0.30),
    "launch": _Spread(2e-4, 1.0, 0.0, 0.7, 0.2),
    "launch_experts": _Spread(1e-3, 1.0, 0.2, 0.5, 0.2),
    "launch_scaled": _Spread(1.5, 0.4),
    "data_exposed": _Spread(0.20, 0.50, 0.0, 0.40, 0.15),
    "tensor_exposed": _Spread(0.60, 0.40, 0.0, 0.40, 0.15),
    "asynchronous": _Spread(0.60, 0.30),
    "expert_exposed": _Spread(0.80, 0.40, 0.0, 0.40, 0.15),
    "passing_exposed": _Spread(0.50, 0.50),
    "fixed": _Spread(2e-2, 0.5, 0.0, 1.0, 0.3),
}
assert list(_SPREADS) == [f.name for f in fields(StepEfficiency)]
_NAMES = tuple(_SPREADS)
_ERROR = 0.05
"""Spread of measured around predicted times of a right model: other releases, clocks, networks."""

_KEY = "layerdag_shares"
VERSION = 1
MAX_SHARES_BYTES = 4 << 20


@dataclass(frozen=True)
class FittedEfficiency:
    """StepEfficiency by device and software.

    Factors of devices, of software, and of what calibration found for both ("device|software") are
    by their names; 1 where a share is not named.
    """

    common: Mapping[str, float]
    devices: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    software: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    machines: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def of(self, sheet: DataSheet, software: str = "") -> StepEfficiency:
        """Return the shares of a device under some software, each what it is fitted to be.

        A device that nothing was fitted to gets the mean of its generation, then that of all.
        """
        factors = [
            self._of_device(sheet),
            self.software.get(software, {}),
            self.machines.get(f"{sheet.name}|{software}", {}),
        ]
        return StepEfficiency(
            **{
                name: self.common[name] * math.prod(each.get(name, 1.0) for each in factors)
                for name in _NAMES
            }
        )

    def knows(self, sheet: DataSheet) -> bool:
        """Return whether steps of this device were fitted, not only of its kin."""
        return sheet.name in self.devices

    def kin(self, sheet: DataSheet) -> tuple[str, ...]:
        """Return the fitted devices whose shares a device gets: itself, or its generation."""
        if self.knows(sheet):
            return (sheet.name,)
        generation = sheet.generation.removesuffix("-ultra")
        return tuple(
            name
            for name in self.devices
            if DATA_SHEETS[name].generation.removesuffix("-ultra") == generation
        )

    def _of_device(self, sheet: DataSheet) -> Mapping[str, float]:
        kin = self.kin(sheet)
        # The nearest kin: of the same variant of a generation where there is one.
        near = [name for name in kin if DATA_SHEETS[name].generation == sheet.generation] or kin
        return {
            name: math.exp(
                sum(math.log(self.devices[one].get(name, 1.0)) for one in near) / len(near)
            )
            for name in (_NAMES if near else ())
        }


@cache
def shipped_efficiency() -> FittedEfficiency:
    """Return the shares that the package ships, fitted to the public rows that it ships."""
    text = resources.files("layerdag.workloads").joinpath("step_efficiency.json").read_text("utf-8")
    return _from_document(json.loads(text))


def read_efficiency(path: str | Path) -> FittedEfficiency:
    """Read what ``write_efficiency`` wrote; ``ConfigError`` if it is no such file."""
    try:
        document = parse_json(read_whole(Path(path), MAX_SHARES_BYTES, ConfigError))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: is no JSON ({error!s:.100}).") from None
    try:
        return _from_document(document)
    except ConfigError as error:
        raise ConfigError(
            f"{path}: {error} Write shares with 'layerdag accuracy TABLE.csv --calibrate ROWS.csv "
            "--out FILE'."
        ) from None


_SHARES: Mapping[Any, Any] = {str: float}
_SHAPE: Mapping[str, Any] = {
    _KEY: int,
    "common": _SHARES,
    **{name: {str: _SHARES} for name in ("devices", "software", "machines")},
}


def _from_document(document: Any) -> FittedEfficiency:
    if not isinstance(document, dict) or document.get(_KEY) != VERSION:
        raise ConfigError(f"holds no fitted shares of this version ('{_KEY}': {VERSION}).")
    try:
        require_shape(document, _SHAPE)
        require_known(document, _SHAPE)
    except ValueError as error:
        raise ConfigError(f"{error}.") from None
    fitted = FittedEfficiency(**{name: document[name] for name in _SHAPE if name != _KEY})
    factors = (*fitted.devices.values(), *fitted.software.values(), *fitted.machines.values())
    for name, value in (pair for each in (fitted.common, *factors) for pair in each.items()):
        if name not in _SPREADS:
            raise ConfigError(f"there is no share '{name:.40}'.")
        if not 0 < value < math.inf:
            raise ConfigError(f"{name} is {found_value(value)}; it must be a positive number.")
    unknown = [name for name in fitted.devices if name not in DATA_SHEETS]
    if unknown:
        raise ConfigError(f"devices names '{unknown[0]:.40}', which has no data sheet.")
    absent = [name for name in _NAMES if name not in fitted.common]
    if absent:
        raise ConfigError(f"common lacks the share '{absent[0]}'.")
    return fitted


def write_efficiency(shares: FittedEfficiency, path: str | Path) -> None:
    """Write shares; the same shares give the same bytes."""
    document = {_KEY: VERSION, **_rounded(asdict(shares))}
    write_text(path, json.dumps(document, indent=1, sort_keys=True) + "\n")


def _rounded(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _rounded(each) for key, each in value.items()}
    return float(f"{value:.4g}")


@dataclass(frozen=True)
class StackedSteps:
    """Measured steps, with their demands, devices and times as arrays."""

    steps: tuple[MeasuredStep, ...]
    demand: StepDemand
    sheet: DataSheet
    seconds: np.ndarray

    @classmethod
    def of(cls, steps: Iterable[MeasuredStep]) -> "StackedSteps":
        """Return the arrays of some steps."""
        kept = tuple(steps)
        demands = [
            step_demand(s.job, s.node, eager=s.eager, asynchronous=s.asynchronous) for s in kept
        ]
        seconds = np.array([step.step_s for step in kept])
        return cls(kept, stacked(demands), stacked([s.sheet for s in kept]), seconds)

    def take(self, rows: Sequence[int] | np.ndarray) -> "StackedSteps":
        """Return some of the steps."""
        index = np.asarray(rows, dtype=np.int64)
        return StackedSteps(
            tuple(self.steps[row] for row in index.tolist()),
            taken(self.demand, index),
            taken(self.sheet, index),
            self.seconds[index],
        )

    def predicted(self, shares: FittedEfficiency) -> np.ndarray:
        """Return the predicted time of each step in s."""
        each = [shares.of(step.sheet, step.software) for step in self.steps]
        table = {name: np.array([getattr(one, name) for one in each]) for name in _NAMES}
        return np.asarray(step_time(self.demand, self.sheet, StepEfficiency(**table)).total)


def calibrated(shares: FittedEfficiency, rows: StackedSteps) -> FittedEfficiency:
    """Return shares that also follow some rows of one's own machines.

    Rows of one device and software move the factors of that machine alone, and each factor no
    further than its spread and the rows allow.
    """
    groups: dict[str, list[int]] = {}
    for number, step in enumerate(rows.steps):
        groups.setdefault(f"{step.sheet.name}|{step.software}", []).append(number)
    fitted = {name: _fit_machine(shares, rows.take(numbers)) for name, numbers in groups.items()}
    return replace(shares, machines={**shares.machines, **fitted})


def _fit_machine(shares: FittedEfficiency, rows: StackedSteps) -> dict[str, float]:
    step = rows.steps[0]
    start = shares.of(step.sheet, step.software)
    spread = np.array([each.calibrated for each in _SPREADS.values()])
    free = np.flatnonzero(spread)
    base = np.array([getattr(start, name) for name in _NAMES])
    measured = np.log(rows.seconds)

    def residuals(x: np.ndarray) -> np.ndarray:
        values = np.broadcast_to(base, (*x.shape[:-1], len(base))).copy()
        values[..., free] *= np.exp(x * spread[free])
        shares_of_rows = StepEfficiency(*np.moveaxis(values, -1, 0)[..., None])
        made = step_time(rows.demand, rows.sheet, shares_of_rows).total
        return np.concatenate([_robust((np.log(made) - measured) / _ERROR), x], axis=-1)

    before = shares.machines.get(f"{step.sheet.name}|{step.software}", {})
    found = _least_squares(residuals, np.zeros(len(free)))
    return {
        _NAMES[at]: before.get(_NAMES[at], 1.0) * math.exp(x * spread[at])
        for at, x in zip(free.tolist(), found.tolist(), strict=True)
    }


def _robust(residual: np.ndarray) -> np.ndarray:
    pulled = np.sqrt(8 * (np.sqrt(1 + (residual / 2) ** 2) - 1))
    return np.sign(residual) * pulled


def _least_squares(residuals: Callable[[np.ndarray], np.ndarray], start: np.ndarray) -> np.ndarray:
    """Return where the sum of squared residuals, of points along the last dimension, is least."""
    from scipy.optimize import least_squares

    def slopes(x: np.ndarray) -> np.ndarray:
        """Return forward differences with SciPy's steps, all points at once."""
        step = np.finfo(np.float64).eps ** 0.5 * np.where(x < 0, -1, 1) * np.maximum(1, abs(x))
        points = x + np.diag(step)
        moved = points.diagonal() - x  # as far as a number of double precision can move
        slope: np.ndarray = (residuals(points) - residuals(x)) / moved[:, None]
        return slope.T

    return np.asarray(least_squares(residuals, start, jac=slopes, max_nfev=100).x)


def fit_shares(rows: StackedSteps) -> FittedEfficiency:
    """Return the shares of all devices and software of a table, fitted together.

    Raises:
        UsageError: If there are fewer rows than shares.
    """
    if len(rows.steps) < len(_NAMES):
        raise UsageError(
            f"{len(rows.steps)} rows are too few to fit {len(_NAMES)} shares; calibrate the "
            "shipped ones instead."
        )
    devices = sorted({step.sheet.name for step in rows.steps})
    software = sorted({step.software for step in rows.steps if step.software})
    levels = [("device", devices), ("software", software)]
    common = np.array([each.common for each in _SPREADS.values()])
    start = np.log([each.value for each in _SPREADS.values()])
    spreads = {
        level: np.array([getattr(each, level) for each in _SPREADS.values()]) for level, _ in levels
    }
    free = {level: np.flatnonzero(spreads[level]) for level, _ in levels}
    member = {
        "device": np.array([devices.index(step.sheet.name) for step in rows.steps]),
        "software": np.array(
            [software.index(s.software) if s.software else -1 for s in rows.steps]
        ),
    }
    groups = [(step.source, step.sheet.name) for step in rows.steps]
    sizes = np.array([groups.count(group) for group in groups])
    weight = (10 / np.maximum(sizes, 10)) ** 0.25
    measured = np.log(rows.seconds)

    def parts(x: np.ndarray) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        at = len(_NAMES)
        base, found = start + common * x[..., :at], {}
        for level, names in levels:
            size, points = len(names) * len(free[level]), x.shape[:-1]
            # The last row is of no software.
            table = np.zeros((*points, len(names) + 1, len(_NAMES)))
            chosen = x[..., at : at + size].reshape(*points, len(names), -1)
            table[..., :-1, free[level]] = chosen * spreads[level][free[level]]
            found[level], at = table, at + size
        return base, found

    def residuals(x: np.ndarray) -> np.ndarray:
        base, found = parts(x)
        logs = base[..., None, :] + sum(found[level][..., member[level], :] for level, _ in levels)
        shares_of_rows = StepEfficiency(*np.moveaxis(np.exp(logs), -1, 0))
        made = step_time(rows.demand, rows.sheet, shares_of_rows).total
        return np.concatenate([_robust((np.log(made) - measured) / _ERROR) * weight, x], axis=-1)

    size = len(_NAMES) + sum(len(names) * len(free[level]) for level, names in levels)
    base, found = parts(_least_squares(residuals, np.zeros(size)))

    def factors(level: str, names: list[str]) -> dict[str, dict[str, float]]:
        return {
            name: {_NAMES[k]: math.exp(found[level][row, k]) for k in free[level].tolist()}
            for row, name in enumerate(names)
        }

    return FittedEfficiency(
        common=dict(zip(_NAMES, np.exp(base).tolist(), strict=True)),
        devices=factors("device", devices),
        software=factors("software", software),
    )
