"""Systolic arrays: cycles of the matrix products of a trace, and cycles as time.

The formulas of cycles are those of SCALE-Sim (v3, calculation mode), checked against its reports:
a GEMM of M x K by K x N is laid over R rows and C columns in folds that all cost the same.

=========== ======= ========== ====== ====================
dataflow    on rows on columns time   cycles of a fold
=========== ======= ========== ====== ====================
output      M       N          K      T + R + C - 2
weight      K       N          M      T + 2R + C - 2
input       K       M          N      T + 2R + C - 2
=========== ======= ========== ====== ====================

Maps from cycles to microseconds were fitted by others to measured GEMMs on TPU v4 and v6e and
published with SCALE-Sim; ``fit_roof`` fits one to other measurements. A simulated cycle is no
hardware cycle, so the factor is not a clock.

Chakra's own converter writes the shapes of inputs and outputs of an operator; traces of this
package state operations and bytes only, from which the sizes of products follow.
"""

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import final

import numpy as np

from layerdag.errors import ConfigError
from layerdag.hardware.dtypes import item_bytes
from layerdag.hardware.operators import Operator, Systolic, find_operator
from layerdag.simulator.compute import ComputeModel, MeasuredCompute, whole_ns
from layerdag.simulator.learned import ElementwiseLatency, read_numbers, three_dimensions
from layerdag.traces.trace import Trace


class Dataflow(Enum):
    """Which operand stays in the array; the value is SCALE-Sim's abbreviation."""

    OUTPUT_STATIONARY = "os"
    WEIGHT_STATIONARY = "ws"
    INPUT_STATIONARY = "is"


@dataclass(frozen=True)
class Gemm:
    """A product of m x k by k x n."""

    m: int
    n: int
    k: int

    def __post_init__(self) -> None:
        if min(self.m, self.n, self.k) < 1:
            raise ConfigError(
                f"a GEMM of {self.m} x {self.n} x {self.k} is empty; every size must be at least 1."
            )

    @property
    def num_bytes(self) -> int:
        """Bytes of the three matrices in 16 bits."""
        return 2 * (self.m * self.k + self.k * self.n + self.m * self.n)


@dataclass(frozen=True)
class SystolicArray:
    """An array of multiply-add cells."""

    rows: int
    columns: int
    dataflow: Dataflow

    def __post_init__(self) -> None:
        if self.rows < 1 or self.columns < 1:
            raise ConfigError(f"an array of {self.rows} x {self.columns} cells cannot compute.")

    def cycles(self, gemm: Gemm) -> int:
        """Return the cycles of ``gemm`` when the memories keep up.

        SCALE-Sim reports the index of the last one.
        """
        on_rows, on_columns, time = {
            Dataflow.OUTPUT_STATIONARY: (gemm.m, gemm.n, gemm.k),
            Dataflow.WEIGHT_STATIONARY: (gemm.k, gemm.n, gemm.m),
            Dataflow.INPUT_STATIONARY: (gemm.k, gemm.m, gemm.n),
        }[self.dataflow]
        folds = -(-on_rows // self.rows) * -(-on_columns // self.columns)
        fill = self.rows * (1 if self.dataflow is Dataflow.OUTPUT_STATIONARY else 2)
        return folds * (time + fill + self.columns - 2) - 1


class CyclesToTime(ABC):
    """Maps the cycles of one matrix product to time."""

    @abstractmethod
    def microseconds(self, cycles: int, gemm: Gemm) -> float:
        """Return the time of ``gemm``, which takes ``cycles`` on the array."""


@final
@dataclass(frozen=True)
class Clock(CyclesToTime):
    """A cycle takes 1 / ``ghz`` ns."""

    ghz: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.ghz < float("inf"):
            raise ConfigError(f"the clock is {self.ghz} GHz; it must be positive.")

    def microseconds(self, cycles: int, gemm: Gemm) -> float:
        """See ``CyclesToTime.microseconds``."""
        return cycles / (1000 * self.ghz)


@final
@dataclass(frozen=True)
class RoofMap(CyclesToTime):
    """t = slope * max(cycles, 2 (MK + KN + MN) / bytes_per_cycle) + offset, in microseconds.

    Elements take two bytes (bf16).
    """

    slope: float
    offset: float
    bytes_per_cycle: float

    def microseconds(self, cycles: int, gemm: Gemm) -> float:
        """See ``CyclesToTime.microseconds``."""
        return self.slope * max(cycles, gemm.num_bytes / self.bytes_per_cycle) + self.offset


@final
@dataclass(frozen=True)
class RegionMap(CyclesToTime):
    """One ``RoofMap`` for each region of sizes."""

    region: Callable[[Gemm], int]
    maps: tuple[RoofMap, ...]

    def microseconds(self, cycles: int, gemm: Gemm) -> float:
        """See ``CyclesToTime.microseconds``."""
        return self.maps[self.region(gemm)].microseconds(cycles, gemm)


def _range(gemm: Gemm) -> int:
    """Return whether a GEMM is small, medium or large: all sizes <= 128, <= 1024, beyond."""
    largest = max(gemm.m, gemm.n, gemm.k)
    return 0 if largest <= 128 else 1 if largest <= 1024 else 2


def _region(gemm: Gemm) -> int:
    """Return one of eight regions: 4 (K > 1) + 2 (N >= 16) + (M >= 16), in blocks of 128."""
    m, n, k = (-(-size // 128) for size in (gemm.m, gemm.n, gemm.k))
    return 4 * (k > 1) + 2 * (n >= 16) + (m >= 16)


def _lines(*lines: tuple[float, float]) -> RegionMap:
    """Return a map of straight lines (slope in us per cycle, offset in us), one for each range."""
    return RegionMap(_range, tuple(RoofMap(*line, math.inf) for line in lines))


TPU_V4_RANGES = _lines((0.002762, -0.062665), (0.000388, 2.05942), (0.000202, 29.7217))
TPU_V6E_RANGES = _lines((0.001389, 0.6048), (0.000068, 1.5468), (0.00004, 4.3847))
TPU_V4_ROOF = RoofMap(3.408e-5, 1.471, 29.47)
TPU_V6E_ROOF = RoofMap(3.048e-5, 0.879, 39.07)
TPU_V4_REGIONS = RegionMap(
    _region,
    (
        RoofMap(5.652e-6, 1.419, 5.261),
        RoofMap(1.623e-5, 1.579, 20.38),
        RoofMap(7.745e-6, 1.599, 9.399),
        RoofMap(1.653e-4, 1.468, 305.7),
        RoofMap(3.533e-5, 1.470, 24.73),
        RoofMap(1.270e-4, 1.646, 116.2),
        RoofMap(8.638e-5, 1.447, 78.92),
        RoofMap(1.241e-4, 4.277, 141.0),
    ),
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

FITTED_ON = SystolicArray(128, 128, Dataflow.WEIGHT_STATIONARY)
MAPS: dict[str, tuple[CyclesToTime, BatchReduction]] = {
    "tpu-v4": (TPU_V4_ROOF, TPU_V4_BATCH),
    "tpu-v4-regions": (TPU_V4_REGIONS, TPU_V4_BATCH),
    "tpu-v4-ranges": (TPU_V4_RANGES, TPU_V4_BATCH),
    "tpu-v6e": (TPU_V6E_ROOF, TPU_V6E_BATCH),
    "tpu-v6e-ranges": (TPU_V6E_RANGES, TPU_V6E_BATCH),
}
"""Published maps, with the reduction for batches; all were fitted to the array ``FITTED_ON``."""


def fit_roof(cycles_S: np.ndarray, gemms: list[Gemm], measured_us_S: np.ndarray) -> RoofMap:
    """Fit a ``RoofMap`` by least squares of the relative error (weights 1 / t^2).

    For each memory rate of a fine logarithmic grid slope and offset follow in closed form; the
    rate with the least error wins.

    Raises:
        ConfigError: If there are fewer than three samples or a time is not positive.
    """
    if len(gemms) < 3 or len(cycles_S) != len(gemms) or len(measured_us_S) != len(gemms):
        raise ConfigError("fitting needs at least three samples with cycles, sizes and times each.")
    if (measured_us_S <= 0).any():
        raise ConfigError("fitting needs positive times; drop the samples without one.")
    bytes_S = np.array([gemm.num_bytes for gemm in gemms], dtype=np.float64)
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


def read_map(array: SystolicArray, path: str) -> RoofMap:
    """Return the map fitted to a CSV with the columns m, n, k and latency_us.

    Raises:
        ConfigError: If it cannot be read, or holds a number that is not positive.
    """
    table_S4 = read_numbers(path, ("m", "n", "k", "latency_us"))
    if not (np.isfinite(table_S4) & (table_S4 > 0)).all():
        raise ConfigError(f"{path}: sizes and latencies must all be positive numbers.")
    gemms = [Gemm(*row) for row in table_S4[:, :3].astype(np.int64).tolist()]
    cycles_S = np.array([array.cycles(gemm) for gemm in gemms])
    try:
        return fit_roof(cycles_S, gemms, table_S4[:, 3])
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


Shapes = list[tuple[int, ...]]

_MAX_SHAPES_LENGTH = 10_000


@dataclass(frozen=True)
class Product:
    """A batch of equal matrix products."""

    gemm: Gemm
    batch: int = 1
    item_bytes: int = 4


def products_of(trace: Trace, rows: np.ndarray) -> tuple[list[Product], np.ndarray]:
    """Return the distinct matrix products of nodes (M,), and which of them each node is.

    Returns:
        The products, and int64 (M,): the index of each node's product, -1 where it is none.
    """
    num_ops = trace.integers("num_ops")[0][rows]
    tensor_size = trace.integers("tensor_size")[0][rows]
    dtypes = trace.dtypes()
    size_M = np.array([item_bytes(dtypes[row]) or 4 for row in rows.tolist()], dtype=np.int64)
    io_M6 = trace.io_N6[rows]
    keys = (trace.name_N[rows], io_M6[:, 1], io_M6[:, 4], num_ops, tensor_size, size_M)
    columns_M = np.stack([np.asarray(key, dtype=np.int64) for key in keys], axis=1)
    distinct_U, which_M = np.unique(columns_M, axis=0, return_inverse=True)
    found = [_product(trace, *row) for row in distinct_U.tolist()]
    index_U = np.cumsum([product is not None for product in found]) - 1
    index_U[[product is None for product in found]] = -1
    return [product for product in found if product], index_U[which_M.reshape(-1)]


def first_shape(trace: Trace, row: int) -> tuple[int, ...]:
    """Return the shape of the node's first input, () if it is not stated."""
    shapes = _shapes(trace, int(trace.io_N6[row, 1]))
    return shapes[0] if shapes else ()


def _product(
    trace: Trace, name: int, inputs: int, outputs: int, num_ops: int, tensor_size: int, size: int
) -> Product | None:
    """Return the product of a node, None if it is none or costs nothing."""
    operator = find_operator(trace.strings[name])
    if operator is None or operator.systolic is None:
        return None
    stated = _stated(operator, _shapes(trace, inputs), _shapes(trace, outputs))
    if stated is not None:
        return Product(*stated, size)
    if num_ops <= 0:
        return None
    return Product(sizes_from_costs(num_ops / 2, tensor_size / size), 1, size)


def _stated(operator: Operator, inputs: Shapes, outputs: Shapes) -> tuple[Gemm, int] | None:
    """Return sizes and batch of an operator whose shapes are stated; None if they do not fit."""
    if operator.systolic is Systolic.FILTERS and len(inputs) > 1 and outputs:
        weight, image = inputs[1], outputs[0]
        if len(weight) < 3 or len(image) != len(weight) or image[1] != weight[0]:
            return None
        m, n, k, batch = image[0] * math.prod(image[2:]), weight[0], math.prod(weight[1:]), 1
    else:
        if operator.factors is None or len(inputs) <= operator.factors[1]:
            return None
        left, right = (inputs[place] for place in operator.factors)
        if operator.name == "linear":
            right = right[::-1]
        if len(left) < 2 or len(right) < 2 or left[-1] != right[-2]:
            return None
        n, k, batch = right[-1], left[-1], math.prod(right[:-2])
        m = math.prod(left[:-1]) if len(right) == 2 else left[-2]
    return (Gemm(m, n, k), batch) if min(m, n, k, batch) > 0 else None


def sizes_from_costs(macs: float, elements: float) -> Gemm:
    """Return a product M x K by K x N with M = K that has these costs.

    With x = M = K and N = macs / x^2, elements = x^2 + 2 macs / x has two solutions, of which
    the larger one is taken; a cube if there is none, because no product moves fewer elements.

    ``elements`` are read and written, M K + K N + M N.
    """
    side = macs ** (1 / 3)
    if elements > 3 * side * side:
        side = float(np.roots([1.0, 0.0, -elements, 2.0 * macs]).real.max())
    square = max(round(side), 1)
    return Gemm(square, max(round(macs / square**2), 1), square)


def _shapes(trace: Trace, index: int) -> Shapes:
    """Return the shapes in a list such as "[[2, 3], [3, 4], []]", [] if it is none."""
    text = trace.strings[index] if index >= 0 else ""
    if not text.startswith("[") or len(text) > _MAX_SHAPES_LENGTH:
        return []
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return []
    valid = all(
        isinstance(shape, list) and all(type(size) is int and size >= 0 for size in shape)
        for shape in value
    )
    return [tuple(shape) for shape in value] if valid else []


@final
class SystolicCompute(ComputeModel):
    """Times of matrix products on a systolic array, as SCALE-Sim counts its cycles.

    Sizes of a product are those that the node states (shapes of inputs and outputs, as Chakra's
    converter writes them), else they follow from ``num_ops`` and ``tensor_size``
    (docs/reference/simulator.md, "Systolic arrays"). Other nodes take the latency of
    ``elementwise``, else their bytes over the bandwidth, else their recorded time, which nodes on
    the CPU always take. No node takes less than 1 ns.

    Args:
        array: Rows, columns and dataflow.
        to_time: Map from cycles to time; a clock of 1 GHz by default.
        batch: Time of a batch relative to separate products; by default they run one by one.
        bytes_per_ns: Rate of the memory, GB/s of 1e9 bytes. It also bounds products whose
            ``to_time`` is a ``Clock``; the published maps have a memory rate of their own.
        elementwise: Latency of other operators by shape.
    """

    def __init__(
        self,
        array: SystolicArray,
        to_time: CyclesToTime | None = None,
        *,
        batch: BatchReduction | None = None,
        bytes_per_ns: float | None = None,
        elementwise: ElementwiseLatency | None = None,
    ) -> None:
        if bytes_per_ns is not None and not 0 < bytes_per_ns < float("inf"):
            raise ConfigError(f"the bandwidth is {bytes_per_ns} GB/s; it must be positive.")
        self._array = array
        self._to_time = to_time or Clock()
        self._batch = batch
        self._bytes_per_ns = bytes_per_ns
        self._elementwise = elementwise

    def durations_ns(self, trace: Trace, rows: np.ndarray, on_cpu: np.ndarray) -> np.ndarray:
        """See ``ComputeModel.durations_ns``."""
        products, which_M = products_of(trace, rows)
        which_M = np.where(on_cpu, -1, which_M)
        time_ns = self._other_ns(trace, rows, on_cpu | (which_M >= 0))
        single_P = np.array([self.product_us(product) for product in products]) * 1000
        time_ns[which_M >= 0] = single_P[which_M[which_M >= 0]]
        # Microseconds times 1,000 may lie a rounding error below a whole number.
        return whole_ns(time_ns + 1e-6)

    def replayed_ns(self, trace: Trace, rows: np.ndarray) -> np.ndarray:
        """See ``ComputeModel.replayed_ns``; measured times where there are any."""
        return MeasuredCompute().replayed_ns(trace, rows)

    def is_timed(self, trace: Trace, rows: np.ndarray) -> bool:
        """See ``ComputeModel.is_timed``."""
        if self._elementwise or self._bytes_per_ns or products_of(trace, rows)[0]:
            return True
        return MeasuredCompute().is_timed(trace, rows)

    def product_us(self, product: Product) -> float:
        """Return the time of a batch of products in microseconds."""
        gemm = product.gemm
        cycles = self._array.cycles(gemm)
        if self._bytes_per_ns and isinstance(self._to_time, Clock):
            # Double-buffered operands are fetched once. Against SCALE-Sim's stall mode the median
            # error was 1.6 %, the worst 66 %, on 27 layers (docs/reference/simulator.md).
            rate = self._bytes_per_ns / (product.item_bytes * self._to_time.ghz)
            largest = max(gemm.m * gemm.k, gemm.k * gemm.n, gemm.m * gemm.n)
            cycles = max(cycles, -int(-largest // rate))
        single = self._to_time.microseconds(cycles, gemm)
        if self._batch is None:
            return product.batch * single
        return self._batch.microseconds(product.batch, single, gemm)

    def _other_ns(self, trace: Trace, rows: np.ndarray, skip: np.ndarray) -> np.ndarray:
        """Return the time of nodes that are no products, float64 (M,)."""
        if self._elementwise is None and self._bytes_per_ns is None:
            return self.replayed_ns(trace, rows).astype(np.float64)
        time_ns = np.ones(len(rows))
        time_ns[skip] = self.replayed_ns(trace, rows[skip])
        other = rows[~skip]
        if self._elementwise is not None and len(other):
            # The shape of the first input, the operations in a row where none is stated.
            num_ops = trace.integers("num_ops")[0]
            shapes = (first_shape(trace, row) or (int(num_ops[row]),) for row in other.tolist())
            sizes_S3 = np.array([three_dimensions(shape) for shape in shapes], dtype=np.float64)
            time_ns[~skip] = self._elementwise.microseconds(np.maximum(sizes_S3, 1)) * 1000
        elif self._bytes_per_ns is not None:
            time_ns[~skip] = trace.integers("tensor_size")[0][other] / self._bytes_per_ns
        return time_ns
