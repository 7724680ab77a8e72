"""Fit the numbers of ``layerdag/hardware/fitted_kernels.json``.

``python benchmarks/fit_kernels.py RUNS.jsonl [--out FILE]``, where RUNS.jsonl lists steps measured
on one H100 with their host traces and profiles beside it (``runs/<run>.host.json.xz`` and
``runs/<run>.device.json.xz``). With the package aiconfigurator-core installed, products, attention
and experts of the devices that it has tables of are fitted as well.
"""

import argparse
import json
from collections import defaultdict
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from layerdag.hardware.devices import DEVICES
from layerdag.hardware.kernels import (
    KERNEL_AXES,
    MIN_KERNELS,
    KernelRoofline,
    installed_table,
    kernel_work,
)
from layerdag.simulator.measured_kernels import node_work
from layerdag.traces.pytorch.importer import import_host, kernel_times
from layerdag.traces.trace import NodeType

OUT = Path(__file__).parents[1] / "layerdag" / "hardware" / "fitted_kernels.json"
SOURCES = {
    "h100": "steps and operators measured on one H100 by the authors, CC BY 4.0",
    "others": "tables of aiconfigurator-core 0.12.0, NVIDIA, Apache-2.0",
}
PRECISIONS = {"bf16": "bf16", "f8": "fp8"}
"""Of tables, by class of number."""
FAMILIES = {"gemm": "product"}
"""What stands for all operators of a family; other kernels stand for themselves."""
Rows = dict[str, list[tuple[float, float, float]]]


def collect(run: dict[str, Any], folder: Path, rows: Rows) -> None:
    """Add the operators of one step, by key of their family."""
    parts = (folder / f"{run['run']}.{kind}.json.xz" for kind in ("host", "device"))
    host, profile = parts
    trace = import_host(host).trace
    time_us = np.array(kernel_times(host, profile)) / 1e3
    at = np.flatnonzero((trace.type_N == NodeType.COMP) & (time_us > 0))
    work = node_work(trace, at, DEVICES["h100"], run["precision"] == "tf32")
    for key, compute, memory, us in zip(
        work.keys, work.compute_us, work.memory_us, time_us[at], strict=True
    ):
        rows[key].append((compute, memory, us))


def fit_all(rows: Rows) -> dict[str, KernelRoofline]:
    """Return the fit of each family with enough kernels."""
    fits = {}
    for key, measured in sorted(rows.items()):
        if len(measured) >= MIN_KERNELS:
            fits[key] = KernelRoofline.fit(*np.array(measured).T)
    return fits


def fit_tables(device: str) -> dict[str, KernelRoofline]:
    """Return the fits of products, attention and experts from the installed tables."""
    fits = {}
    sheet = DEVICES[device]
    for kind, number in product(KERNEL_AXES, ("bf16", "f8")):
        precision = PRECISIONS[number]
        table = installed_table(device, kind, precision)
        if table is None or number not in sheet.flops:
            continue
        sizes = 2.0**table.logs_SA - 1
        ops, moved = kernel_work(kind, sizes, precision)
        us = table.microseconds(sizes)
        scaled = (ops / sheet.flops[number] * 1e6, moved / sheet.bytes_per_s * 1e6)
        fits[f"{FAMILIES.get(kind, kind)}/{number}"] = KernelRoofline.fit(*scaled, us)
    return fits


def main() -> None:
    """Fit and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path)
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args()
    rows: Rows = defaultdict(list)
    for line in args.runs.read_text().splitlines():
        collect(json.loads(line), args.runs.parent / "runs", rows)
    devices = {"h100": {**fit_tables("h100"), **fit_all(rows)}}
    for device in ("a100-80", "h200", "b200"):
        if found := fit_tables(device):
            devices[device] = found
    document = {
        "what": "launch in us, share of the peak, share of the bandwidth, median relative error",
        "sources": SOURCES,
        "devices": {
            device: {
                key: [
                    float(f"{number:.4g}")
                    for number in (fit.launch_us, fit.compute_share, fit.memory_share, fit.error)
                ]
                for key, fit in fits.items()
            }
            for device, fits in devices.items()
        },
    }
    text = json.dumps(document, indent=1)
    args.out.write_text(
        text.replace(",\n    ", ", ").replace("[\n    ", "[").replace("\n   ]", "]") + "\n"
    )


if __name__ == "__main__":
    main()
