"""Times of collectives on real machines: piecewise lines over the size, in log space.

The numbers of ``fitted_collectives.json`` were fitted by ``python benchmarks/collectives.py`` to
measured times; sources and licences stand in the file. ASTRA-sim's semantics know none of this.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources

import numpy as np

from layerdag.errors import ConfigError
from layerdag.runtime.settings import did_you_mean
from layerdag.simulator.data_sheets import SHORT_NAMES
from layerdag.traces.trace import CollectiveType

OPERATIONS = {
    int(CollectiveType.ALL_REDUCE): "all_reduce",
    int(CollectiveType.ALL_GATHER): "all_gather",
    int(CollectiveType.REDUCE_SCATTER): "reduce_scatter",
    int(CollectiveType.ALL_TO_ALL): "all_to_all",
}
"""Name of each collective that was measured."""
NODE = 8
"""Devices of a node; collectives among more were not measured."""
MOST_KNOTS = 12
_TOLERANCE = 0.02
_MOST_SIZES = 48
_LOG2 = float(np.log(2.0))


@dataclass(frozen=True)
class CollectiveCurve:
    """Time over size: straight between knots in log space, constant below, at most linear above.

    Attributes:
        knots: (log2 of bytes, log of microseconds), ascending.
    """

    knots: tuple[tuple[float, float], ...]

    @classmethod
    def fit(cls, bytes_S: np.ndarray, us_S: np.ndarray) -> "CollectiveCurve":
        """Fit to measured times: knots are added where the curve is farthest off.

        Args:
            bytes_S: Whole buffer of a rank, shape (S,).
            us_S: Microseconds.

        Raises:
            ConfigError: If a number is not positive, or there is none.
        """
        if not len(bytes_S) or not ((bytes_S > 0) & (us_S > 0)).all():
            raise ConfigError("collectives need at least one time, and positive sizes and times.")
        sizes = np.unique(bytes_S)
        x = np.log2(sizes.astype(np.float64))
        y = np.array([np.median(np.log(us_S[bytes_S == size])) for size in sizes.tolist()])
        if len(x) > _MOST_SIZES:
            # Of many sizes neighbors stand for each other, so that no outlier becomes a knot.
            parts = np.array_split(np.arange(len(x)), _MOST_SIZES)
            x, y = (np.array([np.median(column[part]) for part in parts]) for column in (x, y))
        chosen = sorted({0, len(x) - 1})
        while len(chosen) < min(MOST_KNOTS, len(x)):
            off = np.abs(np.interp(x, x[chosen], y[chosen]) - y)
            worst = int(np.argmax(off))
            if off[worst] < _TOLERANCE:
                break
            chosen = sorted({*chosen, worst})
        return cls(tuple((round(float(x[at]), 3), round(float(y[at]), 3)) for at in chosen))

    def microseconds(self, bytes_S: np.ndarray) -> np.ndarray:
        """Return the time of collectives of these sizes, shape (S,)."""
        x, y = np.array(self.knots).T
        at = np.log2(np.maximum(bytes_S, 1).astype(np.float64))
        slope = float(np.clip((y[-1] - y[-2]) / (x[-1] - x[-2]), 0, _LOG2)) if len(x) > 1 else 0.0
        return np.exp(np.interp(at, x, y) + slope * np.maximum(at - x[-1], 0))


@cache
def _shipped() -> Mapping[str, Mapping[str, Mapping[str, CollectiveCurve]]]:
    """Return the curves by device, operation and number of ranks."""
    file = resources.files("layerdag.simulator").joinpath("fitted_collectives.json")
    devices = json.loads(file.read_text("utf-8"))["devices"]
    return {
        device: {
            operation: {
                ranks: CollectiveCurve(tuple((x, y) for x, y in knots))
                for ranks, knots in curves.items()
            }
            for operation, curves in operations.items()
        }
        for device, operations in devices.items()
    }


def fitted_devices() -> tuple[str, ...]:
    """Return the devices whose collectives are fitted."""
    return tuple(_shipped())


def fitted_name(sheet: str) -> str:
    """Return the name here of a device by that of its data sheet.

    Raises:
        ConfigError: If its collectives are not fitted.
    """
    names = {sheet, *(short for short, name in SHORT_NAMES.items() if name == sheet)}
    found = [name for name in _shipped() if name in names]
    if not found:
        raise ConfigError(
            f"no measured collectives of '{sheet}', whose ranks would exchange; known are "
            f"{', '.join(_shipped())}."
        )
    return found[0]


def collective_us(device: str, operation: str, num_bytes: Sequence[int], ranks: int) -> np.ndarray:
    """Return the microseconds of collectives among the devices of one node.

    Args:
        device: One of ``fitted_devices()``.
        operation: all_reduce, all_gather, reduce_scatter or all_to_all; of an all-gather the bytes
            are those of the result.
        num_bytes: Whole buffer of a rank, shape (S,).
        ranks: At least 2; between measured numbers the time is interpolated, beyond the largest it
            is that of the largest.

    Raises:
        ConfigError: If device or operation are not known, or there are fewer than 2 ranks.
    """
    devices = _shipped()
    if device not in devices:
        raise ConfigError(
            f"no measured collectives of '{device}'.{did_you_mean(device, devices)} Known are "
            f"{', '.join(devices)}."
        )
    curves = devices[device].get(operation)
    if curves is None or ranks < 2:
        raise ConfigError(
            f"no measured collective '{operation}' among {ranks} of {device}; known are "
            f"{', '.join(devices[device])}, among 2 ranks and more."
        )
    known = sorted(curves, key=int)
    sizes = np.asarray(num_bytes)
    times = np.log(np.stack([curves[name].microseconds(sizes) for name in known]))
    at = np.interp(np.log2(ranks), np.log2([int(name) for name in known]), np.arange(len(known)))
    low = int(at)
    high = min(low + 1, len(known) - 1)
    return np.exp(times[low] + (at - low) * (times[high] - times[low]))


def shares_node(ranks: np.ndarray) -> bool:
    """Return whether several ranks lie in one node of eight, counted from rank 0."""
    return len(ranks) > 1 and int(ranks.min()) // NODE == int(ranks.max()) // NODE


def collective_ns(device: str, kind: int, size_C: np.ndarray, ranks: int) -> np.ndarray:
    """Return the nanoseconds of collectives as nodes state them, int64 (C,).

    Args:
        device: One of ``fitted_devices()``.
        kind: A key of ``OPERATIONS``.
        size_C: ``comm_size``: of an all-gather the shard of a rank, else its whole buffer.
        ranks: Members of the group.

    Raises:
        ConfigError: If the device is not known.
    """
    whole = size_C * (ranks if kind == CollectiveType.ALL_GATHER else 1)
    times_us = collective_us(device, OPERATIONS[kind], whole.tolist(), ranks)
    return np.maximum(np.rint(times_us * 1000), 1).astype(np.int64)
