"""From cycles of a simulated systolic array to microseconds on a real device.

The maps were fitted by others to measured GEMMs on TPU v4 and v6e and published with SCALE-Sim;
``fit_roof`` fits one to other measurements. A simulated cycle is no hardware cycle, so the factor
is not a clock.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import final

import numpy as np

from layerdag.errors import ConfigError
from layerdag.simulator.compute._systolic import Gemm


class CyclesToTime(ABC):
    """Maps the cycles of one matrix product to time."""

    @abstractmethod
    def microseconds(self, cycles: int, gemm: Gemm) -> float:
        """Return the time of ``gemm``, which takes ``cycles`` on the array."""


@final
@dataclass(frozen=True)
class Clock(CyclesToTime):
    """A cycle takes 1 / ``ghz`` ns.

    Attributes:
        ghz: Cycles per ns.
    """

    ghz: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.ghz < float("inf"):
            raise ConfigError(f"the clock is {self.ghz} GHz; it must be positive.")

    def microseconds(self, cycles: int, gemm: Gemm) -> float:
        """Return the time of ``cycles``."""
        del gemm
        return cycles / (1000 * self.ghz)


@final
@dataclass(frozen=True)
class RoofMap(CyclesToTime):
    """t = slope * max(cycles, 2 (MK + KN + MN) / bytes_per_cycle) + offset, in microseconds.

    Attributes:
        slope: Microseconds per cycle.
        offset: Microseconds of a launch.
        bytes_per_cycle: Memory rate; two bytes per element (bf16).
    """

    slope: float
    offset: float
    bytes_per_cycle: float

    def microseconds(self, cycles: int, gemm: Gemm) -> float:
        """Return the time of ``gemm``, which takes ``cycles`` on a 128 x 128 array."""
        return self.slope * max(cycles, _bytes(gemm) / self.bytes_per_cycle) + self.offset


@final
@dataclass(frozen=True)
class RangeMap(CyclesToTime):
    """A straight line for small, medium and large GEMMs (all sizes <= 128, <= 1024, beyond).

    Attributes:
        lines: (slope in us per cycle, offset in us) of each range.
    """

    lines: tuple[tuple[float, float], tuple[float, float], tuple[float, float]]

    def microseconds(self, cycles: int, gemm: Gemm) -> float:
        """Return the time of ``gemm``."""
        largest = max(gemm.m, gemm.n, gemm.k)
        slope, offset = self.lines[0 if largest <= 128 else 1 if largest <= 1024 else 2]
        return slope * cycles + offset


@final
@dataclass(frozen=True)
class RegionMap(CyclesToTime):
    """One ``RoofMap`` for each of eight regions of sizes, in blocks of 128.

    The region is 4 (K > 1 block) + 2 (N >= 16 blocks) + (M >= 16 blocks).
    """

    regions: tuple[RoofMap, ...]

    def microseconds(self, cycles: int, gemm: Gemm) -> float:
        """Return the time of ``gemm``."""
        blocks_m, blocks_n, blocks_k = (-(-size // 128) for size in (gemm.m, gemm.n, gemm.k))
        region = 4 * (blocks_k > 1) + 2 * (blocks_n >= 16) + (blocks_m >= 16)
        return self.regions[region].microseconds(cycles, gemm)


TPU_V4_RANGES = RangeMap(((0.002762, -0.062665), (0.000388, 2.05942), (0.000202, 29.7217)))
TPU_V6E_RANGES = RangeMap(((0.001389, 0.6048), (0.000068, 1.5468), (0.00004, 4.3847)))
TPU_V4_ROOF = RoofMap(3.408e-5, 1.471, 29.47)
TPU_V6E_ROOF = RoofMap(3.048e-5, 0.879, 39.07)
TPU_V4_REGIONS = RegionMap(
    (
        RoofMap(5.652e-6, 1.419, 5.261),
        RoofMap(1.623e-5, 1.579, 20.38),
        RoofMap(7.745e-6, 1.599, 9.399),
        RoofMap(1.653e-4, 1.468, 305.7),
        RoofMap(3.533e-5, 1.470, 24.73),
        RoofMap(1.270e-4, 1.646, 116.2),
        RoofMap(8.638e-5, 1.447, 78.92),
        RoofMap(1.241e-4, 4.277, 141.0),
    )
)


@dataclass(frozen=True)
class BatchReduction:
    """Time of a batch of B equal GEMMs in one operator, relative to B separate ones.

    R = u + (1 - u) / B with u = t^p / (t^p + c) and t the number of 128 x 128 output tiles.
    """

    exponent: float
    half: float

    def microseconds(self, batch: int, single_us: float, gemm: Gemm) -> float:
        """Return the time of ``batch`` GEMMs of which one takes ``single_us``."""
        tiles = float(-(-gemm.m // 128) * -(-gemm.n // 128)) ** self.exponent
        separate = tiles / (tiles + self.half)
        return single_us * batch * (separate + (1 - separate) / batch)


TPU_V4_BATCH = BatchReduction(0.805, 21.0)
TPU_V6E_BATCH = BatchReduction(0.7769, 23.20)


def _bytes(gemm: Gemm) -> int:
    return 2 * (gemm.m * gemm.k + gemm.k * gemm.n + gemm.m * gemm.n)


def fit_roof(cycles_S: np.ndarray, gemms: list[Gemm], measured_us_S: np.ndarray) -> RoofMap:
    """Fit a ``RoofMap`` by least squares of the relative error (weights 1 / t^2).

    For each memory rate of a fine logarithmic grid slope and offset follow in closed form; the
    rate with the least error wins.

    Args:
        cycles_S: Simulated cycles of each sample.
        gemms: Their sizes.
        measured_us_S: Their measured times in microseconds, positive.

    Raises:
        ConfigError: If there are fewer than three samples or a time is not positive.
    """
    if len(gemms) < 3 or len(cycles_S) != len(gemms) or len(measured_us_S) != len(gemms):
        raise ConfigError("fitting needs at least three samples with cycles, sizes and times each.")
    if (measured_us_S <= 0).any():
        raise ConfigError("fitting needs positive times; drop the samples without one.")
    bytes_S = np.array([_bytes(gemm) for gemm in gemms], dtype=np.float64)
    best: tuple[float, RoofMap] | None = None
    for rate in np.geomspace(1.0, 1000.0, 301):
        load_S = np.maximum(cycles_S, bytes_S / rate)
        design_S2 = np.stack([load_S, np.ones_like(load_S)], axis=1) / measured_us_S[:, None]
        (slope, offset), *_ = np.linalg.lstsq(design_S2, np.ones(len(gemms)), rcond=None)
        error = float(((design_S2 @ np.array([slope, offset]) - 1) ** 2).sum())
        if best is None or error < best[0]:
            best = (error, RoofMap(float(slope), float(offset), float(rate)))
    assert best is not None
    return best[1]
