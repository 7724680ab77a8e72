"""Speed and memory of reading and writing Chakra traces: ``python benchmarks/traces.py``.

Prints one JSON object. The trace is made here: every node has a name of its own, one or two
dependencies and eight attributes (about 180 bytes per node), like a trace imported from PyTorch.
Speeds are the best of ``--repeats`` on one core, from the bytes of a file in memory to columns and
back, by wall time and by processor time (which other work on the machine disturbs less). Memory is
the peak resident size of a process that reads the file from disk, less that of a process that only
imports the package.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from layerdag.traces.chakra.files import decode_trace, encode_trace, read_trace, write_trace
from layerdag.traces.trace import (
    AttributeTable,
    NodeType,
    Ragged,
    Trace,
    Wire,
    dependency_edges,
    trace_layers,
)

_NAMES = ("is_cpu_op", "num_ops", "tensor_size", "duration_ns", "device", "dtype", "stream", "seq")
_WIRES = (
    *(Wire.BOOL, Wire.INT64, Wire.UINT64, Wire.INT64),
    *(Wire.STRING, Wire.STRING, Wire.INT64, Wire.UINT32),
)


def synthetic_trace(num_nodes: int, seed: int = 0) -> Trace:
    """Return a trace whose nodes depend on one or two of the last 100 nodes."""
    rng = np.random.default_rng(seed)
    count_N = np.minimum(rng.integers(1, 3, num_nodes), np.arange(num_nodes))
    ptr_N1 = np.concatenate(([0], np.cumsum(count_N)))
    child_D = np.repeat(np.arange(num_nodes), count_N)
    back_D = rng.integers(1, 101, child_D.size)
    strings = (*_NAMES, "cpu", "float32", *(f"aten::operator_{at}" for at in range(num_nodes)))
    width = len(_NAMES)
    word_N8 = rng.integers(0, 2**40, (num_nodes, width)).astype(np.uint64)
    word_N8[:, 0] = 0
    word_N8[:, 4:6] = (width, width + 1)
    word_N8[:, 6:] %= 2**31
    empty = Ragged(np.zeros(num_nodes + 1, np.int64), np.zeros(0, np.uint64))
    return Trace(
        id_N=np.arange(num_nodes, dtype=np.uint64),
        name_N=np.arange(width + 2, width + 2 + num_nodes, dtype=np.int32),
        type_N=np.full(num_nodes, NodeType.COMP, np.uint8),
        start_us_N=np.zeros(num_nodes, np.uint64),
        duration_us_N=rng.integers(1, 1000, num_nodes).astype(np.uint64),
        data_deps=Ragged(ptr_N1, np.maximum(child_D - back_D, 0).astype(np.uint64)),
        ctrl_deps=empty,
        io_N6=np.full((num_nodes, 6), -1, np.int32),
        attributes=AttributeTable(
            ptr_N1=np.arange(num_nodes + 1) * width,
            name_A=np.tile(np.arange(width, dtype=np.int32), num_nodes),
            wire_A=np.tile(np.array(_WIRES, np.uint8), num_nodes),
            word_A=word_N8.reshape(-1),
            doc_A=np.full(num_nodes * width, -1, np.int32),
            blobs=(),
        ),
        strings=strings,
        version="1.0.0",
    )


def best_rates(action: Callable[[], object], nodes: int, repeats: int) -> dict[str, int]:
    """Return nodes per second by wall time and by processor time, each the best of the repeats."""
    wall, busy = [], []
    for _ in range(repeats):
        start, start_busy = time.perf_counter(), time.process_time()
        action()
        wall.append(time.perf_counter() - start)
        busy.append(time.process_time() - start_busy)
    return {"wall": round(nodes / min(wall)), "cpu": round(nodes / min(busy))}


def measure_speed(num_nodes: int, repeats: int, path: str) -> dict[str, object]:
    """Return the speeds for one size, and leave the trace at ``path``."""
    trace = synthetic_trace(num_nodes)
    write_trace(trace, path)
    data = encode_trace(trace)
    return {
        "nodes": num_nodes,
        "bytes_per_node_on_disk": round(len(data) / num_nodes, 1),
        "read_nodes_per_s": best_rates(lambda: decode_trace(data), num_nodes, repeats),
        "write_nodes_per_s": best_rates(lambda: encode_trace(trace), num_nodes, repeats),
        "edges_nodes_per_s": best_rates(lambda: dependency_edges(trace), num_nodes, repeats),
        "layers_nodes_per_s": best_rates(lambda: trace_layers(trace), num_nodes, 1),
    }


def measure_peak(path: str) -> int:
    """Return the peak resident bytes of this process after reading ``path`` ("" for nothing)."""
    held = read_trace(path) if path else None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    del held
    return peak


def in_child(words: list[str]) -> Any:
    """Run this script in a process of its own, whose peak starts at that of this small one."""
    run = [sys.executable, __file__, *words]
    return json.loads(subprocess.run(run, check=True, capture_output=True, text=True).stdout)


def measure(num_nodes: int, repeats: int) -> dict[str, object]:
    """Return speeds and memory for one size."""
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "trace.et")
        words = ["--speed", path, "--nodes", str(num_nodes), "--repeats", str(repeats)]
        speeds = in_child(words)
        used = in_child(["--peak", path]) - in_child(["--peak", ""])
    peak = {"read_peak_mib": round(used / 2**20), "read_peak_bytes_per_node": used // num_nodes}
    return {**speeds, **peak}


def main() -> None:
    """Parse the flags, measure, print JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--speed", help=argparse.SUPPRESS)
    parser.add_argument("--peak", help=argparse.SUPPRESS)
    args = parser.parse_args()
    found: object
    if args.speed is not None:
        found = measure_speed(args.nodes[0], args.repeats, args.speed)
    elif args.peak is not None:
        found = measure_peak(args.peak)
    else:
        sizes = [measure(num_nodes, args.repeats) for num_nodes in args.nodes]
        found = {"benchmark": "traces", "repeats": args.repeats, "sizes": sizes}
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
