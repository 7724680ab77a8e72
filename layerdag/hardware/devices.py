"""Accelerators: what their makers print of them, and the shares of it that steps reach.

``ACCELERATORS`` has a row for each. Steps by formula use its ``DataSheet``, simulated nodes its
``Device``; both are parts of the same row.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from layerdag.errors import ConfigError, UsageError
from layerdag.runtime.json_shape import from_json, parse_json, plain_reason
from layerdag.runtime.reading import read_whole
from layerdag.runtime.settings import did_you_mean

Number = Any
"""A float, or a float64 array of one number for each of many devices."""


@dataclass(frozen=True)
class DataSheet:
    """One accelerator as its maker describes it, dense rates.

    Attributes:
        name: Name on the command line and in tables.
        generation: Devices of one generation reach like shares of their sheets.
        bf16: Peak operations per second of products in bfloat16.
        fp8: The same in 8 bits; that of bfloat16 where it has no such units.
        fp4: The same in 4 bits.
        bytes_per_s: Bandwidth of its memory.
        memory_gib: Its memory in GiB.
        link_bytes_per_s: One direction of its link to devices of its node or rack.
        network_bytes_per_s: One direction of its share of the network between nodes: one port of
            the usual reference design (200, 400 or 800 Gbit/s), of TPUs that between slices.
        host: Time that its host takes for a launch, over that of an x86 host.
    """

    name: str
    generation: str
    bf16: Number
    fp8: Number
    fp4: Number
    bytes_per_s: Number
    memory_gib: Number
    link_bytes_per_s: Number
    network_bytes_per_s: Number
    host: Number = 1.0


@dataclass(frozen=True)
class Device:
    """Peak rates of one device, dense, in operations and bytes per second.

    Classes of number are "f64", "f32", "bf16" (and f16), "i8", "f8" and "f4".
    """

    name: str
    flops: Mapping[str, float]
    bytes_per_s: float


@dataclass(frozen=True)
class DeviceShares:
    """Shares of the peak by large products, and of the bandwidth by element-wise operators."""

    compute: float
    memory: float


@dataclass(frozen=True)
class Accelerator:
    """A row of the table.

    Attributes:
        names: What users may write; the first is that of its data sheet.
        sheet: For steps by formula; None where memory and links are not known.
        device: For simulated nodes; None where only rates of narrow formats are known.
        capability: NVIDIA's compute capability, where its kernels are known.
        kernel_tables: Folder of its kernels in the package aiconfigurator-core, "" for none.
        shares: Fitted to public training steps, those of products in 16 bits; a test holds them
            against ``workloads/step_efficiency.json``.
    """

    names: tuple[str, ...]
    sheet: DataSheet | None
    device: Device | None
    capability: float | None
    kernel_tables: str
    shares: DeviceShares | None


_GRACE = 0.5
"""Of a host with Grace cores: public steps of mixtures that wait for the host,
other devices left out of the fit, are best with 0.4 to 0.6 (``layerdag accuracy --refit``)."""


def _accelerator(
    names: str,
    generation: str,
    tera: tuple[int, int, int],
    gb: tuple[int, int, int, int],
    *,
    host: float = 1.0,
    wide: Mapping[str, float] | None = None,
    capability: float | None = None,
    tables: str = "",
    shares: tuple[float, float] | None = None,
) -> Accelerator:
    """Return a row.

    ``tera`` are 1e12 operations per second in bf16, fp8 and fp4, ``gb`` memory bandwidth in GB/s,
    memory in GiB, link and network in GB/s. Names are separated by blanks; of a device with
    ``wide`` rates ("f64", "f32" and "i8", in operations per second) the last is that of ``Device``.
    """
    memory, capacity, link, network = gb
    bf16, fp8, fp4 = (rate * 1e12 for rate in tera)
    known = tuple(names.split())
    sheet = DataSheet(
        known[0], generation, bf16, fp8, fp4, memory * 1e9, float(capacity), link * 1e9,
        network * 1e9, host,
    )  # fmt: skip
    device = None
    if wide is not None:
        own_fp8 = {"f8": fp8} if fp8 != bf16 else {}
        device = Device(known[-1], {**wide, "bf16": bf16, **own_fp8}, memory * 1e9)
    fitted = None if shares is None else DeviceShares(*shares)
    return Accelerator(known, sheet, device, capability, tables, fitted)


_AMPERE = {"f64": 9.7e12, "f32": 19.5e12, "i8": 624e12}
_HOPPER = {"f64": 34e12, "f32": 67e12, "i8": 1979e12}

ACCELERATORS = (
    _accelerator(
        "a100_40 a100-40", "ampere", (312, 312, 312), (1555, 40, 300, 25), wide=_AMPERE,
        capability=8.0, tables="a100_sxm", shares=(0.82, 0.84),
    ),
    _accelerator(
        "a100_80 a100 a100-80", "ampere", (312, 312, 312), (2039, 80, 300, 25), wide=_AMPERE,
        capability=8.0, tables="a100_sxm", shares=(0.82, 0.78),
    ),
    _accelerator(
        "h100_sxm h100", "hopper", (989, 1979, 1979), (3350, 80, 450, 50), wide=_HOPPER,
        capability=9.0, tables="h100_sxm", shares=(0.71, 0.72),
    ),
    _accelerator(
        "h100_sxm_96", "hopper", (989, 1979, 1979), (2400, 96, 450, 50), capability=9.0
    ),
    _accelerator(
        "h200_sxm h200", "hopper", (989, 1979, 1979), (4800, 141, 450, 50), wide=_HOPPER,
        capability=9.0, tables="h200_sxm", shares=(0.79, 0.78),
    ),
    _accelerator(
        "b200_sxm b200", "blackwell", (2250, 4500, 9000), (8000, 180, 900, 50),
        wide={"f64": 37e12, "f32": 75e12, "i8": 4500e12}, capability=10.0, tables="b200_sxm",
        shares=(0.78, 0.80),
    ),
    _accelerator(
        "gb200", "blackwell", (2500, 5000, 10000), (8000, 186, 900, 50), host=_GRACE,
        capability=10.0,
    ),
    _accelerator(
        "b300_sxm b300", "blackwell-ultra", (2250, 4500, 13500), (8000, 268, 900, 100),
        capability=10.3,
    ),
    _accelerator(
        "gb300", "blackwell-ultra", (2500, 5000, 15000), (8000, 279, 900, 100), host=_GRACE,
        capability=10.3,
    ),
    _accelerator("mi300x", "cdna3", (1307, 2615, 2615), (5300, 192, 448, 50)),
    _accelerator("mi350x", "cdna4", (2300, 4600, 9200), (8000, 288, 538, 50)),
    _accelerator("mi355x", "cdna4", (2500, 5000, 10000), (8000, 288, 538, 50)),
    _accelerator(
        "l40s", "ada", (362, 733, 733), (864, 48, 32, 25),
        wide={"f64": 1.4e12, "f32": 91.6e12, "i8": 733e12}, capability=8.9, tables="l40s",
    ),
    _accelerator("rtx4090", "ada", (165, 330, 330), (1008, 24, 32, 25), capability=8.9),
    _accelerator(
        "rtx_pro_6000_server rtx_pro_6000", "blackwell-rtx", (504, 1007, 2015), (1597, 96, 64, 50)
    ),
    Accelerator(
        ("tpu-v3",), None, Device("tpu-v3", {"f32": 63.3e12, "bf16": 63.3e12}, 429.2e9), None, "",
        None,
    ),
    _accelerator(
        "tpu-v4", "tpu", (275, 275, 275), (1228, 32, 150, 150),
        wide={"f32": 275e12, "i8": 275e12}, shares=(0.81, 0.78),
    ),
    _accelerator("tpu-v5e", "tpu", (197, 197, 197), (819, 16, 100, 25)),
    _accelerator("tpu-v5p", "tpu", (459, 459, 459), (2765, 95, 300, 50)),
    _accelerator("tpu-v6e", "tpu", (918, 918, 918), (1640, 32, 224, 50)),
)  # fmt: skip
"""Every accelerator. Rates are those of the makers' data sheets, of SXM and rack versions (B200: an
eighth of HGX and DGX B200); those of the A100 and of TPU v3 are those of the estimators that
docs/reference/simulator.md names."""

_BY_NAME = {name: row for row in ACCELERATORS for name in row.names}

DATA_SHEETS = {row.sheet.name: row.sheet for row in ACCELERATORS if row.sheet is not None}
"""Sheets by their own names."""

DEVICES = {row.device.name: row.device for row in ACCELERATORS if row.device is not None}
"""Devices whose rates are known in every class of number, by name."""

COMPUTE_CAPABILITY = {
    name: row.capability for row in ACCELERATORS for name in row.names if row.capability is not None
}
"""NVIDIA's compute capability by every name of a GPU whose kernels are known."""

KERNEL_TABLES = {
    row.device.name: row.kernel_tables
    for row in ACCELERATORS
    if row.device is not None and row.kernel_tables
}
"""Folders of measured kernels by name of the device."""

FITTED_SHARES = {
    row.device.name: row.shares
    for row in ACCELERATORS
    if row.device is not None and row.shares is not None
}
"""Shares by name of the device (docs/reference/accuracy.md)."""

USUAL_SHARES = DeviceShares(0.78, 0.79)
"""Shares of a device that no step was fitted to: the mean of the others."""

_MAX_JSON_BYTES = 1 << 20


@dataclass(frozen=True)
class Hardware:
    """A device that runs compiled programs, with rates per second by element type of MLIR.

    ``peak_flops`` is that of types that are not listed; "tf32" is taken for matrix products and
    convolutions of f32.
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
    def from_name(cls, text: str) -> "Hardware":
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
        text = read_whole(path, _MAX_JSON_BYTES, ConfigError)
        known = [each.name for each in fields(cls)]
        try:
            data = parse_json(text)
            unknown = [key for key in data if key not in known] if isinstance(data, dict) else ()
            if unknown:
                raise ConfigError(
                    f"unknown key '{unknown[0]}'.{did_you_mean(unknown[0], known)} Known: "
                    f"{', '.join(known)}."
                )
            found = from_json(cls, data)
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from None
        except (ValueError, RecursionError) as error:
            raise ConfigError(
                f"{path}: {plain_reason(error)}; write a JSON object with peak_flops and "
                "memory_bandwidth, per second."
            ) from None
        return replace(found, name=found.name or Path(path).stem)

    def seconds(self, flops: int, mem_bytes: int, element: str, *, matrix: bool) -> float:
        """Return the time of an operation: that of its operations or its bytes, if longer."""
        listed = self.per_datatype_flops
        peak = listed.get(element, self.peak_flops)
        if matrix and element == "f32":
            peak = listed.get("tf32", peak)
        return max(flops / peak, mem_bytes / self.memory_bandwidth)


HARDWARE = {
    name: Hardware(
        9.7e12,
        DEVICES[name].bytes_per_s,
        {
            **dict.fromkeys(("f64", "f32", "i32", "si32", "ui32"), 19.5e12),
            **{"tf32": 156e12, "bf16": 312e12, "f16": 312e12, "i8": 624e12, "i1": 624e12},
        },
        name,
    )
    for name in ("a100-40", "a100-80")
} | {"tpu-v3": Hardware(63.3e12, DEVICES["tpu-v3"].bytes_per_s, {}, "tpu-v3")}
"""Presets: the rates that Hespas ships. Double precision is that of tensor cores."""


def require_device(name: str) -> Device:
    """Return the rates of a device.

    Raises:
        ConfigError: If there is none of that name; suggests the nearest.
    """
    if name not in DEVICES:
        raise ConfigError(
            f"there is no device '{name}'.{did_you_mean(name, DEVICES)} Known: "
            f"{', '.join(DEVICES)}."
        )
    return DEVICES[name]


def find_data_sheet(name: str) -> DataSheet | None:
    """Return the sheet of a device by any of its names, None if there is none."""
    row = _BY_NAME.get(name)
    return None if row is None else row.sheet


def data_sheet(name: str) -> DataSheet:
    """Return the sheet of a device by any of its names.

    Raises:
        UsageError: If there is none of that name; suggests the nearest.
    """
    sheet = find_data_sheet(name)
    if sheet is None:
        raise UsageError(
            f"there is no data sheet of '{name}'.{did_you_mean(name, DATA_SHEETS)} Known: "
            f"{', '.join(DATA_SHEETS)}."
        )
    return sheet


def shares_of(name: str | None) -> DeviceShares:
    """Return the shares of a device by its name, the usual ones where it was never fitted."""
    return USUAL_SHARES if name is None else FITTED_SHARES.get(name, USUAL_SHARES)
