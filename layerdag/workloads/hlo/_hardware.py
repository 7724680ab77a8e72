"""Rates of a device for the roofline of compiled programs."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from layerdag._runtime import did_you_mean, read_whole
from layerdag.errors import ConfigError
from layerdag.workloads.hlo._program import Computation

_MAX_BYTES = 1 << 20
_KEYS = ("peak_flops", "per_datatype_flops", "memory_bandwidth", "name")


@dataclass(frozen=True)
class Hardware:
    """A device.

    Attributes:
        peak_flops: Operations per second of element types that are not listed.
        memory_bandwidth: Bytes per second.
        per_datatype_flops: Operations per second by element type; "tf32" is taken for matrix
            products and convolutions of f32.
        name: For messages.
    """

    peak_flops: float
    memory_bandwidth: float
    per_datatype_flops: Mapping[str, float] = field(default_factory=dict)
    name: str = ""

    def __post_init__(self) -> None:
        rates = {"peak_flops": self.peak_flops, "memory_bandwidth": self.memory_bandwidth}
        rates |= {f"per_datatype_flops.{name}": v for name, v in self.per_datatype_flops.items()}
        for name, rate in rates.items():
            if not 0 < rate < math.inf:
                raise ConfigError(f"{name} is {rate}; it must be a positive number, per second.")

    @classmethod
    def of(cls, text: str) -> "Hardware":
        """Return a preset by its name, or what a JSON file says.

        Raises:
            ConfigError: If it is neither, or a value is missing or no rate.
        """
        if text in HARDWARE:
            return HARDWARE[text]
        if not Path(text).is_file():
            raise ConfigError(
                f"There is no hardware '{text}'.{did_you_mean(text, HARDWARE)} Known: "
                f"{', '.join(HARDWARE)}, or a JSON file with peak_flops and memory_bandwidth."
            )
        return cls.from_file(text)

    @classmethod
    def from_file(cls, path: str | Path) -> "Hardware":
        """Read ``{"peak_flops": ..., "memory_bandwidth": ..., "per_datatype_flops": {...}}``.

        Raises:
            ConfigError: If the file cannot be read, or a value is missing or no rate.
        """
        try:
            data = json.loads(read_whole(path, _MAX_BYTES, ConfigError))
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{path}: is no JSON ({error!s:.100}).") from None
        if not isinstance(data, dict):
            raise ConfigError(f"{path}: holds no JSON object; write one with peak_flops.")
        unknown = [key for key in data if key not in _KEYS]
        if unknown:
            raise ConfigError(
                f"{path}: unknown key '{unknown[0]}'.{did_you_mean(unknown[0], _KEYS)} Known: "
                f"{', '.join(_KEYS)}."
            )
        listed = data.get("per_datatype_flops", {})
        if not isinstance(listed, dict):
            raise ConfigError(f"{path}: per_datatype_flops must be an object of rates by type.")
        try:
            return cls(
                _rate(data, "peak_flops"),
                _rate(data, "memory_bandwidth"),
                {name: _rate(listed, name) for name in listed},
                str(data.get("name", Path(path).stem)),
            )
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from None

    def seconds(self, operation: Computation) -> float:
        """Return the time of an operation: the larger of its operations and its bytes."""
        listed = self.per_datatype_flops
        peak = listed.get(operation.element, self.peak_flops)
        if operation.matrix and operation.element == "f32":
            peak = listed.get("tf32", peak)
        return max(operation.flops / peak, operation.mem_bytes / self.memory_bandwidth)


def _rate(data: Mapping[str, object], name: str) -> float:
    """Return a number of a mapping."""
    value = data.get(name)
    if value is None:
        raise ConfigError(f"'{name}' is missing; state it per second.")
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"'{name}' is {value!r:.40}; it must be a number, per second.")
    return float(value)


def _a100(name: str, memory_bandwidth: float) -> Hardware:
    wide = dict.fromkeys(("f64", "f32", "i32", "si32", "ui32"), 19.5e12)
    narrow = {"tf32": 156e12, "bf16": 312e12, "f16": 312e12, "i8": 624e12, "i1": 624e12}
    return Hardware(9.7e12, memory_bandwidth, {**wide, **narrow}, name)


HARDWARE = {
    hardware.name: hardware
    for hardware in (
        _a100("a100-40", 1555e9),
        _a100("a100-80", 2039e9),
        Hardware(63.3e12, 429.2e9, {}, "tpu-v3"),
    )
}
"""Presets: the rates that Hespas ships for these devices."""
