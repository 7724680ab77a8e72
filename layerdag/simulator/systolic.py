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
from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import Enum
from math import prod
from typing import final

import numpy as np

from layerdag.errors import ConfigError
from layerdag.hardware.dtypes import item_bytes
from layerdag.hardware.operators import Operator, Systolic, find_operator
from layerdag.simulator.compute import ComputeModel, MeasuredCompute
from layerdag.simulator.config import MAX_TIME_NS
from layerdag.simulator.learned import ElementwiseLatency, three_dimensions
from layerdag.traces.trace import Trace


class Dataflow(Enum):
    """Which operand stays in the array; the value is SCALE-Sim's abbreviation."""

    OUTPUT_STATIONARY = "os"
    WEIGHT_STATIONARY = "ws"
    INPUT_STATIONARY = "is"


@dataclass(frozen=True)
class Gemm:
    """A matrix product: ``m`` output pixels, ``n`` filters, ``k`` elements summed."""

    m: int
    n: int
    k: int

    def __post_init__(self) -> None:
        if min(self.m, self.n, self.k) < 1:
            raise ConfigError(
                f"a GEMM of {self.m} x {self.n} x {self.k} is empty; every size must be at least 1."
            )

    @property
    def macs(self) -> int:
        """Multiply-adds."""
        return self.m * self.n * self.k

    @classmethod
    def of_convolution(
        cls,
        image: tuple[int, int],
        kernel: tuple[int, int],
        channels: int,
        filters: int,
        stride: int,
    ) -> "Gemm":
        """Return the GEMM that an unpadded convolution is lowered to (im2col).

        A last step that only partly fits counts as a whole one, as in SCALE-Sim; frameworks drop
        it. The two agree where stride divides image minus kernel.

        Args:
            image: Height and width of the input, padding included.
            kernel: Height and width of a filter.
            channels: Input channels.
            filters: Output channels.
            stride: Step in both directions.
        """
        if stride < 1 or kernel[0] > image[0] or kernel[1] > image[1]:
            raise ConfigError(
                f"a {kernel[0]} x {kernel[1]} filter with stride {stride} does not fit into an "
                f"image of {image[0]} x {image[1]}; add the padding to the image's size."
            )
        height, width = (-(-(i - f) // stride) + 1 for i, f in zip(image, kernel, strict=True))
        return cls(height * width, filters, kernel[0] * kernel[1] * channels)


@dataclass(frozen=True)
class SystolicReport:
    """What one GEMM costs on an array.

    Attributes:
        cycles: Total cycles without stalls; SCALE-Sim reports the index of the last one.
        folds: Times the array is filled.
        mapping_efficiency: Mean share of the array's cells that hold an operand, 0 to 1.
        compute_utilization: The same over the time of a fold, as SCALE-Sim counts that time.
        overall_utilization: Multiply-adds over cells and cycles, 0 to 1.
        ifmap_reads: Words read from the input memory.
        filter_reads: Words read from the weight memory.
        ofmap_writes: Words written to the output memory (SCALE-Sim adds folds * (R + C) for the
            output-stationary dataflow, which no array would write).
    """

    cycles: int
    folds: int
    mapping_efficiency: float
    compute_utilization: float
    overall_utilization: float
    ifmap_reads: int
    filter_reads: int
    ofmap_writes: int


@dataclass(frozen=True)
class SystolicArray:
    """An array of multiply-add cells.

    Attributes:
        rows: Cells in a column.
        columns: Cells in a row.
        dataflow: Which operand stays.
    """

    rows: int
    columns: int
    dataflow: Dataflow

    def __post_init__(self) -> None:
        if self.rows < 1 or self.columns < 1:
            raise ConfigError(f"an array of {self.rows} x {self.columns} cells cannot compute.")

    def run(self, gemm: Gemm) -> SystolicReport:
        """Return what ``gemm`` costs when the memories keep up."""
        on_rows, on_columns, time = self._mapping(gemm)
        row_folds, column_folds = -(-on_rows // self.rows), -(-on_columns // self.columns)
        folds = row_folds * column_folds
        output = self.dataflow is Dataflow.OUTPUT_STATIONARY
        fill = self.rows if output else 2 * self.rows
        cycles = folds * (time + fill + self.columns - 2) - 1
        cells = self.rows * self.columns
        mapping = on_rows * on_columns / (folds * cells)
        # The reports take another fold time for the utilization than for the cycles.
        overhead = self.rows + self.columns - 2 if output else 2 * (self.rows + self.columns) - 3
        ifmap, filters, ofmap = self._accesses(gemm)
        return SystolicReport(
            cycles=cycles,
            folds=folds,
            mapping_efficiency=mapping,
            compute_utilization=mapping * time / (time + overhead),
            overall_utilization=gemm.macs / (cycles * cells) if cycles else 0.0,
            ifmap_reads=ifmap,
            filter_reads=filters,
            ofmap_writes=ofmap,
        )

    def _mapping(self, gemm: Gemm) -> tuple[int, int, int]:
        if self.dataflow is Dataflow.OUTPUT_STATIONARY:
            return gemm.m, gemm.n, gemm.k
        if self.dataflow is Dataflow.WEIGHT_STATIONARY:
            return gemm.k, gemm.n, gemm.m
        return gemm.k, gemm.m, gemm.n

    def _accesses(self, gemm: Gemm) -> tuple[int, int, int]:
        m, n, k = gemm.m, gemm.n, gemm.k
        if self.dataflow is Dataflow.OUTPUT_STATIONARY:
            return m * k * -(-n // self.columns), k * n * -(-m // self.rows), m * n
        row_folds = -(-k // self.rows)
        if self.dataflow is Dataflow.WEIGHT_STATIONARY:
            return m * k * -(-n // self.columns), k * n, m * n * row_folds
        return m * k, k * n * -(-m // self.columns), m * n * row_folds


def bandwidth_bound_cycles(
    cycles: int, reads: tuple[int, int], writes: int, words_per_cycle: tuple[float, float]
) -> int:
    """Return the cycles of a layer whose off-chip memory may be the bottleneck.

    total = max(cycles, max(reads) / read rate, writes / write rate), for double-buffered operands
    that are fetched once. Against SCALE-Sim's stall mode the median error was 1.6 %, the worst
    66 %, on 27 layers (docs/reference/simulator.md).

    Args:
        cycles: Cycles without stalls.
        reads: Words of input and weights read from off-chip memory.
        writes: Words written to it.
        words_per_cycle: Rates of reading (of each operand) and writing.
    """
    read_rate, write_rate = words_per_cycle
    if read_rate <= 0 or write_rate <= 0:
        raise ConfigError(f"memory rates are {words_per_cycle}; both must be positive.")
    return max(cycles, -int(-max(reads) // read_rate), -int(-writes // write_rate))


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


Shapes = list[tuple[int, ...]]

_MAX_SHAPES_LENGTH = 10_000


@dataclass(frozen=True)
class Product:
    """A batch of equal matrix products.

    Attributes:
        gemm: Sizes of one.
        batch: How many there are.
        item_bytes: Bytes of an element.
    """

    gemm: Gemm
    batch: int = 1
    item_bytes: int = 4


def products_of(trace: Trace, rows: np.ndarray) -> tuple[list[Product], np.ndarray]:
    """Return the distinct matrix products of some nodes, and which of them each node is.

    Args:
        trace: The trace.
        rows: int64 (M,), positions of the nodes.

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
    shapes = _shapes(_text(trace, int(trace.io_N6[row, 1])))
    return shapes[0] if shapes else ()


def _product(
    trace: Trace, name: int, inputs: int, outputs: int, num_ops: int, tensor_size: int, size: int
) -> Product | None:
    """Return the product of a node, None if it is none or costs nothing."""
    text = _text(trace, name)
    operator = find_operator(text)
    if operator is None or operator.systolic is None:
        return None
    stated = _stated(operator, _shapes(_text(trace, inputs)), _shapes(_text(trace, outputs)))
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
        return _sound(image[0] * prod(image[2:]), weight[0], prod(weight[1:]), 1)
    if operator.factors is None or len(inputs) <= operator.factors[1]:
        return None
    left, right = (inputs[place] for place in operator.factors)
    if operator.name == "linear":
        right = right[::-1]
    if len(left) < 2 or len(right) < 2 or left[-1] != right[-2]:
        return None
    if len(right) == 2:
        return _sound(prod(left[:-1]), right[-1], left[-1], 1)
    return _sound(left[-2], right[-1], left[-1], prod(right[:-2]))


def _sound(m: int, n: int, k: int, batch: int) -> tuple[Gemm, int] | None:
    return (Gemm(m, n, k), batch) if min(m, n, k, batch) > 0 else None


def sizes_from_costs(macs: float, elements: float) -> Gemm:
    """Return a product M x K by K x N with M = K that has these costs.

    With x = M = K and N = macs / x^2, elements = x^2 + 2 macs / x has two solutions, of which
    the larger one is taken; a cube if there is none, because no product moves fewer elements.

    Args:
        macs: Multiply-adds, M N K.
        elements: Read and written, M K + K N + M N.
    """
    side = macs ** (1 / 3)
    if elements > 3 * side * side:
        side = float(np.roots([1.0, 0.0, -elements, 2.0 * macs]).real.max())
    square = max(round(side), 1)
    return Gemm(square, max(round(macs / square**2), 1), square)


def _text(trace: Trace, index: int) -> str:
    return trace.strings[index] if index >= 0 else ""


def _shapes(text: str) -> Shapes:
    """Return the shapes in a list such as "[[2, 3], [3, 4], []]", [] if it is none."""
    if not text.startswith("[") or len(text) > _MAX_SHAPES_LENGTH:
        return []
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return []
    return [tuple(item) for item in value if _is_shape(item)] if all(map(_is_shape, value)) else []


def _is_shape(item: object) -> bool:
    return isinstance(item, list) and all(type(size) is int and size >= 0 for size in item)


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
        to_time: Map from cycles to time.
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
        time_ns = np.minimum(np.floor(time_ns + 1e-6), 2.0 * MAX_TIME_NS)
        return np.maximum(time_ns, 1).astype(np.int64)

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
        cycles = self._array.run(gemm).cycles
        if self._bytes_per_ns and isinstance(self._to_time, Clock):
            rate = self._bytes_per_ns / (product.item_bytes * self._to_time.ghz)
            reads = (gemm.m * gemm.k, gemm.k * gemm.n)
            cycles = bandwidth_bound_cycles(cycles, reads, gemm.m * gemm.n, (rate, rate))
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
            shapes_S3 = _product_shapes(trace, other)
            time_ns[~skip] = self._elementwise.microseconds(shapes_S3) * 1000
        elif self._bytes_per_ns is not None:
            time_ns[~skip] = trace.integers("tensor_size")[0][other] / self._bytes_per_ns
        return time_ns


def _product_shapes(trace: Trace, rows: np.ndarray) -> np.ndarray:
    """Return each node's first input as three sizes; ``num_ops`` in a row where none is stated."""
    num_ops = trace.integers("num_ops")[0]
    stated = (first_shape(trace, row) or (int(num_ops[row]),) for row in rows.tolist())
    return np.maximum(np.array([three_dimensions(shape) for shape in stated], dtype=np.float64), 1)
