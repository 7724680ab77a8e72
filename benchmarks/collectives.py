"""Fit the curves of ``layerdag/simulator/fitted_collectives.json``, and say how far they are off.

``python benchmarks/collectives.py TABLE.csv [--write]``: columns source, device, devices,
devices_per_node, operation, bytes, us. Three tenths of the rows are judged by curves that were
fitted to the others; ``--write`` then fits all rows of NCCL and writes the file. All-reduces of
several nodes are judged once more, by the curve inside of a node and two numbers of the network.
"""

import argparse
import json
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.optimize import minimize

from layerdag.simulator.fitted_collectives import (
    CollectiveCurve,
    NetworkLink,
    across_nodes_us,
    fitted_devices,
)

OUT = Path(__file__).parents[1] / "layerdag" / "simulator" / "fitted_collectives.json"
HELD = 0.3
CURVE = ["source", "device", "operation", "devices", "devices_per_node"]
NAMES = {"a100_sxm": "a100-80", "h100_sxm": "h100", "h200_sxm": "h200", "b200_sxm": "b200"}


def main() -> None:
    """Judge, and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", type=Path)
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    table = pd.read_csv(args.table)
    held = np.random.default_rng(0).random(len(table)) < HELD
    rows = []
    for (source, device, operation, *_), group in table.groupby(CURVE):
        is_held = held[group.index]
        rest, judged = group[~is_held], group[is_held]
        if rest.empty:
            continue
        curve = CollectiveCurve.fit(rest["bytes"].to_numpy(), rest["us"].to_numpy())
        found = curve.microseconds(judged["bytes"].to_numpy())
        error = np.abs(found / judged["us"].to_numpy() - 1)
        rows += [(source.split("-")[0], device, operation, each * 100) for each in error]
    result = pd.DataFrame(rows, columns=["source", "device", "operation", "error"])
    for by in (["source"], ["source", "device"], ["source", "operation"]):
        print(result.groupby(by)["error"].quantile([0.5, 0.9]).unstack().round(1).to_string())
    every = result["error"]
    print(
        f"all: median {every.median():.1f} %, 90 % {every.quantile(0.9):.1f} %, {len(every)} rows"
    )
    across_nodes(table, held)
    if args.write:
        write(table[table["source"].str.startswith("aiconfigurator")])


def across_nodes(table: pd.DataFrame, held: np.ndarray) -> None:
    """Print errors of all-reduces of several nodes by bandwidth and latency of their network."""
    chosen = (table["operation"] == "all_reduce") & (table["devices"] > table["devices_per_node"])
    for (_, device, _, ranks, inside), group in table[chosen].groupby(CURVE):
        name = NAMES.get(device, device.removesuffix("_dgx").replace("_", "-"))
        if name not in fitted_devices():
            continue
        nodes = np.full(ranks // inside, inside)
        rest, judged = group[~held[group.index]], group[held[group.index]]
        starts = [np.log([bandwidth, 10.0]) for bandwidth in (3e3, 1e4, 2e4)]
        found = [
            minimize(mean_error, start, (name, nodes, rest), method="Nelder-Mead")
            for start in starts
        ]
        best = min(found, key=lambda each: each.fun).x
        off = np.expm1(errors(best, name, nodes, judged)) * 100
        print(
            f"{device}, {ranks // inside} nodes of {inside}: median {np.median(off):.1f} %, 90 % "
            f"{np.quantile(off, 0.9):.1f} %, {len(off)} rows; {np.exp(best[0]) / 1e3:.1f} GB/s, "
            f"{np.exp(best[1]):.0f} us"
        )


def errors(logs: np.ndarray, device: str, nodes: np.ndarray, rows: pd.DataFrame) -> np.ndarray:
    """Return errors of all-reduces, as logarithms, by the logarithms of the network's numbers."""
    link = NetworkLink(*np.exp(logs).tolist())
    us = across_nodes_us(device, "all_reduce", rows["bytes"].tolist(), nodes, link)
    off: np.ndarray = np.abs(np.log(us / rows["us"].to_numpy()))
    return off


def mean_error(logs: np.ndarray, device: str, nodes: np.ndarray, rows: pd.DataFrame) -> float:
    """Return their mean."""
    return float(errors(logs, device, nodes, rows).mean())


def write(table: pd.DataFrame) -> None:
    """Fit the collectives of NCCL among the devices of one node."""
    devices: dict[str, dict[str, dict[str, list[list[float]]]]] = {}
    for (_, device, operation, ranks, _), group in table.groupby(CURVE):
        curve = CollectiveCurve.fit(group["bytes"].to_numpy(), group["us"].to_numpy())
        of_device = devices.setdefault(NAMES.get(device, device), {})
        of_device.setdefault(operation, {})[str(ranks)] = [list(knot) for knot in curve.knots]
    document = {
        "what": "knots (log2 of bytes, log of microseconds) by device, operation, ranks of a node",
        "source": "fitted to nccl_perf of aiconfigurator-core 0.12.0, NVIDIA, Apache-2.0",
        "devices": devices,
    }
    text = json.dumps(document, separators=(",", ":"))
    OUT.write_text(text.replace('"devices":', '\n"devices":').replace('},"', '},\n"') + "\n")


if __name__ == "__main__":
    main()
