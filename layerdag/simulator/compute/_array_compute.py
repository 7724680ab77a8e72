"""Compute nodes on a systolic array, with a map from its cycles to time."""

from typing import final

import numpy as np

from layerdag.errors import ConfigError
from layerdag.simulator.compute._base import ComputeModel, MeasuredCompute
from layerdag.simulator.compute._cycles_to_time import BatchReduction, Clock, CyclesToTime
from layerdag.simulator.compute._elementwise import ElementwiseLatency, three_dimensions
from layerdag.simulator.compute._products import Product, first_shape, products_of
from layerdag.simulator.compute._systolic import SystolicArray, bandwidth_bound_cycles
from layerdag.simulator.engine import MAX_TIME_NS
from layerdag.traces import Trace


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
            shapes_S3 = _shapes(trace, other)
            time_ns[~skip] = self._elementwise.microseconds(shapes_S3) * 1000
        elif self._bytes_per_ns is not None:
            time_ns[~skip] = trace.integers("tensor_size")[0][other] / self._bytes_per_ns
        return time_ns


def _shapes(trace: Trace, rows: np.ndarray) -> np.ndarray:
    """Return each node's first input as three sizes; ``num_ops`` in a row where none is stated."""
    num_ops = trace.integers("num_ops")[0]
    stated = (first_shape(trace, row) or (int(num_ops[row]),) for row in rows.tolist())
    return np.maximum(np.array([three_dimensions(shape) for shape in stated], dtype=np.float64), 1)
