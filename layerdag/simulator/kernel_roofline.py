"""A roofline of three fitted numbers: launch time, share of the peak, share of the bandwidth."""

from dataclasses import dataclass

import numpy as np

FEWEST_KERNELS = 8
MOST_KERNELS = 2000


@dataclass(frozen=True)
class KernelRoofline:
    """Time = launch + sqrt(compute^2 + memory^2), which rounds the corner of the roofline.

    Attributes:
        launch_us: Time of a kernel without work, in microseconds.
        compute_share: Share of the data sheet's peak that long kernels reach; above 1 where the
            operations of a kernel are counted too high.
        memory_share: Share of the bandwidth.
        error: Median relative error of the kernels that it was fitted to.
    """

    launch_us: float
    compute_share: float
    memory_share: float
    error: float = 0.0

    def microseconds(self, compute_us_S: np.ndarray, memory_us_S: np.ndarray) -> np.ndarray:
        """Return the time of kernels from their times at the data sheet's rates, shape (S,)."""
        return self.launch_us + np.hypot(
            compute_us_S / self.compute_share, memory_us_S / self.memory_share
        )

    @classmethod
    def fit(
        cls, compute_us_S: np.ndarray, memory_us_S: np.ndarray, measured_us_S: np.ndarray
    ) -> "KernelRoofline":
        """Fit to measured kernels, by the robust error of the logarithm.

        Args:
            compute_us_S: Operations over the data sheet's peak, in microseconds.
            memory_us_S: Bytes over its bandwidth.
            measured_us_S: Measured times, all positive; at least ``FEWEST_KERNELS``.
        """
        from scipy.optimize import least_squares

        step = -(-len(measured_us_S) // MOST_KERNELS)
        rows = (compute_us_S[::step], memory_us_S[::step])
        log_us = np.log(measured_us_S[::step])

        # Long kernels make up a step, so that they count more, though not by their whole time.
        weight = np.exp((log_us - log_us.mean()) / 4).clip(0.3, 3)

        def residual(logs: np.ndarray) -> np.ndarray:
            return (np.log(_of(logs).microseconds(*rows)) - log_us) * weight

        bounds = ([-1.0, -7.0, -6.0], [6.0, 3.0, 3.0])
        starts = ([0.9, -0.5, -0.3], [1.0, -3.0, -1.0])
        found = [
            least_squares(residual, start, bounds=bounds, loss="soft_l1", f_scale=0.3)
            for start in starts
        ]
        best = _of(min(found, key=lambda fit: fit.cost).x)
        error = np.abs(best.microseconds(compute_us_S, memory_us_S) / measured_us_S - 1)
        return cls(best.launch_us, best.compute_share, best.memory_share, float(np.median(error)))


def _of(logs: np.ndarray) -> KernelRoofline:
    launch, compute, memory = np.exp(logs).tolist()
    return KernelRoofline(launch, compute, memory)
