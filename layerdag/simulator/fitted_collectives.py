"""Times of collectives on real machines: piecewise lines over the size, in log space.

Across nodes, whose network is no property of a device, the measured time inside of a node is
completed by what the network adds to the faster of a ring and a tree, with the numbers of steps and
the bandwidths of NCCL's tuning model (NVIDIA/nccl, src/graph/tuning.cc).

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
from layerdag.hardware.collectives import COLLECTIVES, CollectiveType
from layerdag.hardware.devices import data_sheet, find_data_sheet
from layerdag.runtime.settings import did_you_mean

OPERATIONS = {int(row.type): row.name for row in COLLECTIVES if row.measured}
"""Name of each collective that was measured."""
NODE = 8
"""Devices of a node."""
MAX_KNOTS = 12
_TOLERANCE = 0.02
_MAX_SIZES = 48
_LOG2 = float(np.log(2.0))
_TREE_SHARE = 0.92 * 0.85
"""Of the bandwidth of a ring that NCCL expects of a tree, whose branches share ports."""


@dataclass(frozen=True)
class NetworkLink:
    """What connects each device of a node to other nodes, in one direction."""

    bytes_per_us: float
    latency_us: float


@dataclass(frozen=True)
class CollectiveCurve:
    """Time over size: straight between knots in log space, constant below, at most linear above.

    ``knots`` are (log2 of bytes, log of microseconds), ascending.
    """

    knots: tuple[tuple[float, float], ...]

    @classmethod
    def fit(cls, bytes_S: np.ndarray, us_S: np.ndarray) -> "CollectiveCurve":
        """Fit to measured times of whole buffers: knots are added where the curve is farthest off.

        Raises:
            ConfigError: If a number is not positive, or there is none.
        """
        if not len(bytes_S) or not ((bytes_S > 0) & (us_S > 0)).all():
            raise ConfigError("collectives need at least one time, and positive sizes and times.")
        sizes = np.unique(bytes_S)
        x = np.log2(sizes.astype(np.float64))
        y = np.array([np.median(np.log(us_S[bytes_S == size])) for size in sizes.tolist()])
        if len(x) > _MAX_SIZES:
            # Of many sizes neighbors are pooled, so that no outlier becomes a knot.
            parts = np.array_split(np.arange(len(x)), _MAX_SIZES)
            x, y = (np.array([np.median(column[part]) for part in parts]) for column in (x, y))
        chosen = sorted({0, len(x) - 1})
        while len(chosen) < min(MAX_KNOTS, len(x)):
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


def device_of(compute: str) -> str:
    """Return the device of a compute model whose collectives are fitted, "" if there is none.

    Args:
        compute: As ``--compute`` takes it, such as "h100:efficiency=1" or "measured:h100,tf32=1".
    """
    word = compute.removeprefix("measured:").partition(",")[0].partition(":")[0]
    return word if word in _shipped() else ""


def has_nodes(device: str, ranks: Sequence[int], gb_per_s: Sequence[float]) -> bool:
    """Return whether a network is a part of a node that was measured, or connects such nodes.

    Links inside a node that state less than half or more than twice the bandwidth of the device's
    are those of another machine. ``ranks`` and ``gb_per_s`` are those along each dimension of the
    network, the first of which connects neighbors.
    """
    along = np.cumprod(ranks)
    if along[-1] > NODE and NODE not in along:
        return False
    link = data_sheet(device).link_bytes_per_s / 1e9
    inside = np.asarray(gb_per_s)[along <= NODE]
    return bool((link / 2 <= inside).all() and (inside <= 2 * link).all())


def fitted_name(sheet: str) -> str:
    """Return the name here of a device by that of its data sheet.

    Raises:
        ConfigError: If its collectives are not fitted.
    """
    wanted = find_data_sheet(sheet)
    found = [name for name in _shipped() if find_data_sheet(name) == wanted]
    if wanted is None or not found:
        raise ConfigError(
            f"no measured collectives of '{sheet}', whose ranks would exchange; known are "
            f"{', '.join(_shipped())}."
        )
    return found[0]


def collective_us(device: str, operation: str, num_bytes: Sequence[int], ranks: int) -> np.ndarray:
    """Return the microseconds of collectives among the devices of one node.

    ``device`` is one of ``fitted_devices()``, ``operation`` all_reduce, all_gather, reduce_scatter
    or all_to_all, ``num_bytes`` the whole buffer of a rank, of an all-gather the result. The time
    is interpolated between measured numbers of ranks; beyond the largest it is that of the largest.

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


def across_nodes_us(
    device: str, operation: str, num_bytes: Sequence[int], nodes: np.ndarray, link: NetworkLink
) -> np.ndarray:
    """Return the microseconds of collectives, as ``collective_us``, among devices of several nodes.

    An all-reduce is a ring or a tree, whichever is faster, as NCCL chooses; all-gathers and
    reduce-scatters are rings, an all-to-all sends every piece directly. ``nodes`` are the devices
    that take part in each node, of at least 2 nodes.
    """
    sizes, count = np.asarray(num_bytes, dtype=np.float64), len(nodes)
    ranks, inside = int(nodes.sum()), int(nodes.max())
    least = collective_us(device, operation, [1], max(inside, 2))
    within = collective_us(device, operation, num_bytes, inside) if inside > 1 else least
    wire = link.bytes_per_us * int(nodes.min())

    def takes(messages: int, moved: np.ndarray, bytes_per_us: float) -> np.ndarray:
        return messages * link.latency_us + np.maximum(within, least + moved / bytes_per_us)

    if operation == "all_to_all":
        return takes(1, sizes * (ranks - inside) / ranks, link.bytes_per_us)
    share = (ranks - 1) / ranks
    if operation != "all_reduce":
        return takes(count - 1, share * sizes, wire)
    ring = takes(2 * count, 2 * share * sizes, wire)
    tree = takes(2 * int(np.log2(count)), 2 * sizes, wire * _TREE_SHARE)
    return np.minimum(ring, tree)


def collective_ns(
    device: str, kind: int, size_C: np.ndarray, ranks: np.ndarray, link: NetworkLink
) -> np.ndarray:
    """Return the nanoseconds of collectives as nodes state them, int64 (C,).

    ``kind`` is a key of ``OPERATIONS``; ``size_C`` is ``comm_size``, of all-gathers the shard of a
    rank, else its whole buffer. Nodes of eight ``ranks`` are counted from rank 0.

    Raises:
        ConfigError: If the device is not known.
    """
    whole = (size_C * (len(ranks) if kind == CollectiveType.ALL_GATHER else 1)).tolist()
    nodes = np.unique(ranks // NODE, return_counts=True)[1]
    if len(nodes) == 1:
        times_us = collective_us(device, OPERATIONS[kind], whole, len(ranks))
    else:
        times_us = across_nodes_us(device, OPERATIONS[kind], whole, nodes, link)
    return np.maximum(np.rint(times_us * 1000), 1).astype(np.int64)
