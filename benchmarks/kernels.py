"""How far interpolated kernels lie from measured ones that were hidden from the interpolation.

``python benchmarks/kernels.py TABLE.csv[.xz] [--framework NAME] [--hide-all]``: columns as in the
tables of aiconfigurator-core with the names of ``kernel_roofline.KERNEL_AXES``, and device, kind,
framework, kernel, precision, kv_precision, distribution, us. Three tenths of the shapes of each
device and kind, in all frameworks, are judged; they are removed from the installed
tables before these are fitted (with --hide-all, three tenths of all shapes of the tables are).
"fitted" is the roofline of three numbers for each kernel alone; "another device" is predicted from
the table of the device whose ratio of peak to bandwidth is nearest, at its own data sheet.
"""

import argparse
import zlib
from typing import Any

import numpy as np
import pandas as pd

from layerdag.hardware.dtypes import WEIGHT_FORMATS
from layerdag.simulator.kernel_roofline import KERNEL_AXES, kernel_work
from layerdag.simulator.kernel_tables import KernelTable, read_kernels

HELD = 0.3
SHEETS = {
    "a100_sxm": ({"bf16": 312e12, "i8": 624e12, "f8": 312e12, "f4": 312e12}, 2039e9),
    "h100_sxm": ({"bf16": 989e12, "i8": 1979e12, "f8": 1979e12, "f4": 1979e12}, 3350e9),
    "h200_sxm": ({"bf16": 989e12, "i8": 1979e12, "f8": 1979e12, "f4": 1979e12}, 4800e9),
    "b200_sxm": ({"bf16": 2250e12, "i8": 4500e12, "f8": 4500e12, "f4": 9000e12}, 8000e9),
    "gb200": ({"bf16": 2500e12, "i8": 5000e12, "f8": 5000e12, "f4": 10000e12}, 8000e9),
}
WORDS = ("kernel", "precision", "kv_precision", "distribution")


def is_held(frame: pd.DataFrame, kind: str) -> np.ndarray:
    """Return which shapes are judged: a fixed three tenths of them, whatever the order."""
    sizes = frame[list(KERNEL_AXES[kind])].fillna(0).to_numpy(np.int64)
    drawn = [zlib.crc32(repr((kind, row)).encode()) % 1000 for row in sizes.tolist()]
    return np.array(drawn) < 1000 * HELD


def tables_of(frame: pd.DataFrame, kind: str) -> dict[tuple[str, ...], KernelTable]:
    """Return the table of each kernel."""
    words = [word for word in WORDS if word in frame and frame[word].notna().all()]
    found = {}
    for key, group in frame.groupby(words):
        if len(group) < 50:
            continue
        sizes = group[list(KERNEL_AXES[kind])].to_numpy(np.float64)
        named = dict(zip(words, key, strict=True))
        found[key] = KernelTable.fit(
            kind,
            sizes,
            group["us"].to_numpy(),
            named["precision"],
            named.get("kv_precision", ""),
        )
    return found


def main() -> None:
    """Judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table")
    parser.add_argument("--framework")
    parser.add_argument("--hide-all", action="store_true")
    args = parser.parse_args()
    judged = pd.read_csv(args.table, low_memory=False)
    judged[["window", "past"]] = judged[["window", "past"]].fillna(0)
    tables: dict[tuple[str, str, str], Any] = {}
    rows = []
    for (device, kind, framework), group in judged.groupby(["device", "kind", "framework"]):
        if args.framework not in (None, framework):
            continue
        frame = read_kernels(device, kind, framework)
        axes = list(KERNEL_AXES[kind])
        hidden = is_held(frame, kind)
        held = group[is_held(group, kind)]
        if not args.hide_all:
            shapes = pd.MultiIndex.from_frame(held[axes].astype(np.int64))
            hidden = pd.MultiIndex.from_frame(frame[axes].astype(np.int64)).isin(shapes)
        tables[device, kind, framework] = found = tables_of(frame[~hidden], kind)
        words = [word for word in WORDS if word in frame and frame[word].notna().all()]
        for key, part in held.groupby(words):
            if key not in found:
                continue
            table, sizes = found[key], part[axes].to_numpy(np.float64)
            us = part["us"].to_numpy()
            work = kernel_work(kind, sizes, table.precision, table.kv_precision)
            fitted = table.roofline.microseconds(work[0] / 1e9, work[1] / 1e6)
            low, high = table.interval(sizes)
            for columns in zip(table.microseconds(sizes), fitted, low, high, us, strict=True):
                rows.append((device, kind, framework, key, *columns))
    names = ["device", "kind", "framework", "key", "grid", "fitted", "low", "high", "us"]
    result = pd.DataFrame(rows, columns=names)
    for name in ("grid", "fitted"):
        result[name] = (result[name] / result["us"] - 1).abs() * 100
    result["inside"] = (result["low"] <= result["us"]) & (result["us"] <= result["high"])
    shown = result.groupby("kind")[["grid", "fitted"]].quantile([0.5, 0.9]).unstack()
    print(shown.round(1).to_string())
    print("rows", result.groupby("kind").size().to_dict())
    print("inside of the interval", result.groupby("kind")["inside"].mean().round(3).to_dict())
    other(judged, tables)


def other(judged: pd.DataFrame, tables: dict[tuple[str, str, str], Any]) -> None:
    """Print errors where a whole device is hidden and its kin's tables are used."""
    rows = []
    for (device, kind, framework), group in judged.groupby(["device", "kind", "framework"]):
        for key, part in group.groupby([w for w in WORDS if w in group and group[w].notna().all()]):
            precision = key[1] if isinstance(key, tuple) else "bf16"
            number = WEIGHT_FORMATS[precision].number_class
            best = nearest(device, kind, framework, key, tables, number)
            if best is None:
                continue
            table, kin = best
            sizes = part[list(KERNEL_AXES[kind])].to_numpy(np.float64)
            work = kernel_work(kind, sizes, table.precision, table.kv_precision)
            peaks = [SHEETS[name][0][number] / SHEETS[kin][0][number] for name in (device,)]
            width = SHEETS[device][1] / SHEETS[kin][1]
            base = table.roofline.microseconds(work[0] / 1e9, work[1] / 1e6)
            moved = table.roofline.microseconds(work[0] / 1e9 / peaks[0], work[1] / 1e6 / width)
            us = table.microseconds(sizes) * moved / base
            error = np.abs(us / part["us"].to_numpy() - 1) * 100
            rows += [(device, kind, each) for each in error]
    result = pd.DataFrame(rows, columns=["device", "kind", "error"])
    print("a device never fitted, by its nearest kin (median, 90 %)")
    shown = result.groupby(["device", "kind"])["error"].quantile([0.5, 0.9]).unstack()
    print(shown.assign(rows=result.groupby(["device", "kind"]).size()).round(1).to_string())


def nearest(
    device: str, kind: str, framework: str, key: Any, tables: dict[Any, Any], number: str
) -> tuple[KernelTable, str] | None:
    """Return the table of the same kernel on the nearest other device, and that device."""
    found = []
    for (name, its_kind, its_framework), of_kernel in tables.items():
        if name == device or its_kind != kind or its_framework != framework or key not in of_kernel:
            continue
        ratio = [SHEETS[each][0][number] / SHEETS[each][1] for each in (device, name)]
        found.append((abs(np.log(ratio[0] / ratio[1])), name, of_kernel[key]))
    best = min(found, key=lambda each: each[:2], default=None)
    return None if best is None else (best[2], best[1])


if __name__ == "__main__":
    main()
