"""Systolic arrays by the words that users type: their size, dataflow, and map from cycles to time.

It stands apart from the other compute models since few runs need one, and none should wait for it.
"""

import re

import numpy as np

from layerdag.errors import ConfigError
from layerdag.runtime.settings import did_you_mean
from layerdag.simulator.compute_arguments import number
from layerdag.simulator.learned import ElementwiseLatency, read_columns
from layerdag.simulator.systolic import (
    TPU_V4_BATCH,
    TPU_V4_RANGES,
    TPU_V4_REGIONS,
    TPU_V4_ROOF,
    TPU_V6E_BATCH,
    TPU_V6E_RANGES,
    TPU_V6E_ROOF,
    BatchReduction,
    Clock,
    CyclesToTime,
    Dataflow,
    Gemm,
    SystolicArray,
    SystolicCompute,
    fit_roof,
)

MAPS: dict[str, tuple[CyclesToTime, BatchReduction]] = {
    "tpu-v4": (TPU_V4_ROOF, TPU_V4_BATCH),
    "tpu-v4-regions": (TPU_V4_REGIONS, TPU_V4_BATCH),
    "tpu-v4-ranges": (TPU_V4_RANGES, TPU_V4_BATCH),
    "tpu-v6e": (TPU_V6E_ROOF, TPU_V6E_BATCH),
    "tpu-v6e-ranges": (TPU_V6E_RANGES, TPU_V6E_BATCH),
}
"""Published maps, with the reduction for batches; both were fitted to a 128 x 128 array, ws."""

_FITTED_ON = SystolicArray(128, 128, Dataflow.WEIGHT_STATIONARY)
_SIZE = re.compile(r"(\d{1,6})x(\d{1,6})")


def systolic_model(size: str, options: dict[str, str]) -> SystolicCompute:
    """Return the array ``ROWSxCOLUMNS``; takes the options that it knows out of ``options``.

    Raises:
        ConfigError: If the size or an option is not of its form, or a published map is asked of an
            array that it was not fitted to.
    """
    match = _SIZE.fullmatch(size)
    if not match:
        raise ConfigError(
            f"compute model 'systolic': '{size}' is no size; write ROWSxCOLUMNS, such as "
            "systolic:128x128."
        )
    array = SystolicArray(int(match[1]), int(match[2]), _dataflow(options.pop("dataflow", "ws")))
    if "clock" in options and "map" in options:
        raise ConfigError("compute model 'systolic': give a clock or a map, not both.")
    to_time, batch = _to_time(array, options)
    bandwidth = number("systolic", options, "bandwidth", 0.0) if "bandwidth" in options else None
    learned = options.pop("elementwise", None)
    elementwise = ElementwiseLatency.from_csv(learned) if learned else None
    return SystolicCompute(
        array, to_time, batch=batch, bytes_per_ns=bandwidth, elementwise=elementwise
    )


def _dataflow(name: str) -> Dataflow:
    try:
        return Dataflow(name)
    except ValueError:
        raise ConfigError(
            f"compute model 'systolic': dataflow is '{name}'; it is ws (weight stationary), os "
            "(output stationary) or is (input stationary)."
        ) from None


def _to_time(
    array: SystolicArray, options: dict[str, str]
) -> tuple[CyclesToTime, BatchReduction | None]:
    name = options.pop("map", None)
    if name is None:
        return Clock(number("systolic", options, "clock", 1.0)), None
    if name.endswith(".csv"):
        return _fitted(array, name), None
    if name not in MAPS:
        raise ConfigError(
            f"compute model 'systolic': unknown map '{name}'.{did_you_mean(name, MAPS)} "
            f"Known are {', '.join(MAPS)}, and a CSV of your own."
        )
    if array != _FITTED_ON:
        raise ConfigError(
            f"compute model 'systolic': the map {name} was fitted to systolic:128x128,dataflow=ws; "
            "use that array, a clock, or a CSV of your own measurements."
        )
    return MAPS[name]


def _fitted(array: SystolicArray, path: str) -> CyclesToTime:
    table_S4 = read_columns(path, ("m", "n", "k", "latency_us"))
    if not (np.isfinite(table_S4) & (table_S4 > 0)).all():
        raise ConfigError(f"{path}: sizes and latencies must all be positive numbers.")
    gemms = [Gemm(*row) for row in table_S4[:, :3].astype(np.int64).tolist()]
    cycles_S = np.array([array.run(gemm).cycles for gemm in gemms])
    try:
        return fit_roof(cycles_S, gemms, table_S4[:, 3])
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
