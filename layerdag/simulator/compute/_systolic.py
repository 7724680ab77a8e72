"""Cycles of a systolic array: three dataflows, convolution lowering, utilization, access counts.

The formulas are those of SCALE-Sim (v3, calculation mode), checked against its reports:
a GEMM of M x K by K x N is laid over R rows and C columns in folds that all cost the same.

=========== ======= ========== ====== ====================
dataflow    on rows on columns time   cycles of a fold
=========== ======= ========== ====== ====================
output      M       N          K      T + R + C - 2
weight      K       N          M      T + 2R + C - 2
input       K       M          N      T + 2R + C - 2
=========== ======= ========== ====== ====================
"""

from dataclasses import dataclass
from enum import Enum

from layerdag.errors import ConfigError


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
        """Return what lies on rows, on columns and in time."""
        if self.dataflow is Dataflow.OUTPUT_STATIONARY:
            return gemm.m, gemm.n, gemm.k
        if self.dataflow is Dataflow.WEIGHT_STATIONARY:
            return gemm.k, gemm.n, gemm.m
        return gemm.k, gemm.m, gemm.n

    def _accesses(self, gemm: Gemm) -> tuple[int, int, int]:
        """Return (ifmap reads, filter reads, ofmap writes) in words."""
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
