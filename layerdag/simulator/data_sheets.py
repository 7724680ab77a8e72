"""What makers print of accelerators: rates, memory, links; and the shares that steps reach."""

from dataclasses import dataclass
from typing import Any

from layerdag.errors import UsageError
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
        network_bytes_per_s: One direction of its share of the network between nodes.
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


_GRACE = 0.5
"""Of a host with Grace cores beside the device: public steps of mixtures that wait for the host,
other devices left out of the fit, are best with 0.4 to 0.6 (``layerdag accuracy --refit``)."""


def _sheet(
    name: str,
    generation: str,
    tera: tuple[int, int, int],
    gb: tuple[int, int, int, int],
    host: float = 1.0,
) -> DataSheet:
    """Return a sheet from 1e12 operations per second, and from GB/s and GiB."""
    memory, capacity, link, network = gb
    bf16, fp8, fp4 = (rate * 1e12 for rate in tera)
    moved = memory * 1e9, float(capacity), link * 1e9, network * 1e9
    return DataSheet(name, generation, bf16, fp8, fp4, *moved, host)


DATA_SHEETS = {
    sheet.name: sheet
    for sheet in (
        _sheet("a100_40", "ampere", (312, 312, 312), (1555, 40, 300, 25)),
        _sheet("a100_80", "ampere", (312, 312, 312), (2039, 80, 300, 25)),
        _sheet("h100_sxm", "hopper", (989, 1979, 1979), (3350, 80, 450, 50)),
        _sheet("h100_sxm_96", "hopper", (989, 1979, 1979), (2400, 96, 450, 50)),
        _sheet("h200_sxm", "hopper", (989, 1979, 1979), (4800, 141, 450, 50)),
        _sheet("b200_sxm", "blackwell", (2250, 4500, 9000), (8000, 180, 900, 50)),
        _sheet("gb200", "blackwell", (2500, 5000, 10000), (8000, 186, 900, 50), _GRACE),
        _sheet("b300_sxm", "blackwell-ultra", (2250, 4500, 13500), (8000, 268, 900, 100)),
        _sheet("gb300", "blackwell-ultra", (2500, 5000, 15000), (8000, 279, 900, 100), _GRACE),
        _sheet("mi300x", "cdna3", (1307, 2615, 2615), (5300, 192, 448, 50)),
        _sheet("mi350x", "cdna4", (2300, 4600, 9200), (8000, 288, 538, 50)),
        _sheet("mi355x", "cdna4", (2500, 5000, 10000), (8000, 288, 538, 50)),
        _sheet("l40s", "ada", (362, 733, 733), (864, 48, 32, 25)),
        _sheet("rtx4090", "ada", (165, 330, 330), (1008, 24, 32, 25)),
        _sheet("rtx_pro_6000_server", "blackwell-rtx", (504, 1007, 2015), (1597, 96, 64, 50)),
        _sheet("tpu-v4", "tpu", (275, 275, 275), (1228, 32, 150, 150)),
        _sheet("tpu-v5e", "tpu", (197, 197, 197), (819, 16, 100, 25)),
        _sheet("tpu-v5p", "tpu", (459, 459, 459), (2765, 95, 300, 50)),
        _sheet("tpu-v6e", "tpu", (918, 918, 918), (1640, 32, 224, 50)),
    )
}
"""Sheets by name: SXM and rack versions; the network is one port of the usual reference design for
each device (200, 400 or 800 Gbit/s), for TPUs that between slices."""

SHORT_NAMES = {
    "a100-40": "a100_40", "a100-80": "a100_80", "a100": "a100_80", "h100": "h100_sxm",
    "h200": "h200_sxm", "b200": "b200_sxm", "b300": "b300_sxm",
    "rtx_pro_6000": "rtx_pro_6000_server",
}  # fmt: skip
"""Names of ``--compute`` and what people write, by the name of the sheet."""


def data_sheet(name: str) -> DataSheet:
    """Return the sheet of a device.

    Raises:
        UsageError: If there is none of that name; suggests the nearest.
    """
    known = SHORT_NAMES.get(name, name)
    if known not in DATA_SHEETS:
        raise UsageError(
            f"there is no data sheet of '{name}'.{did_you_mean(name, DATA_SHEETS)} Known: "
            f"{', '.join(DATA_SHEETS)}."
        )
    return DATA_SHEETS[known]


@dataclass(frozen=True)
class DeviceShares:
    """StepEfficiency of a data sheet.

    Attributes:
        compute: Share of the peak rate that large matrix products reach in a step.
        memory: Share of the memory bandwidth that element-wise operators reach.
    """

    compute: float
    memory: float


FITTED = {
    "a100-40": DeviceShares(0.82, 0.84),
    "a100-80": DeviceShares(0.82, 0.78),
    "h100": DeviceShares(0.71, 0.72),
    "h200": DeviceShares(0.79, 0.78),
    "b200": DeviceShares(0.78, 0.80),
    "tpu-v4": DeviceShares(0.81, 0.78),
}
"""By name of ``DEVICES``: shares fitted to public training steps, those of products in 16 bits
(docs/reference/accuracy.md); a test holds them against ``workloads/step_efficiency.json``."""

USUAL = DeviceShares(0.78, 0.79)
"""StepEfficiency of a device that no step was fitted to: the mean of the others."""


def shares_of(device: str | None) -> DeviceShares:
    """Return the shares of a device by its name, the usual ones where it was never fitted."""
    return USUAL if device is None else FITTED.get(device, USUAL)
