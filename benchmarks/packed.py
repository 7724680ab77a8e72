"""Time and memory of packing and training on many graphs: ``python benchmarks/packed.py FOLDER``.

Writes ``--num`` random flow graphs of ``--nodes`` nodes to FOLDER/graphs (once), packs them with
``layerdag pack``, and trains with ``layerdag train`` for ``--steps`` steps, each in a process of
its own, on one thread. Prints one JSON object with the wall time and the peak memory of each.

``--copies N`` trains on the packed training graphs N times over, laid end to end in the files as
packing N times as many would: reading 100,000 files twice takes ten minutes of a processor.

A graph has layers of one to eight nodes, up to three parents a node in earlier layers, a word of
twenty and a number for each node, and a label.
"""

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from layerdag.datasets.packed import ARRAYS, NAMES, PackedHeader, open_array
from layerdag.graph.attributed_graph import AttributedGraph, write_json
from layerdag.runtime.rng import numpy_generator
from layerdag.runtime.terminal import track

KINDS = tuple(f"op{i}" for i in range(20))


def random_graph(name: str, nodes: int, rng: np.random.Generator) -> AttributedGraph:
    """Return a random layered graph."""
    layer_N = np.repeat(np.arange(nodes), rng.integers(1, 9, nodes))[:nodes]
    first_N = np.searchsorted(layer_N, layer_N)
    above_N = np.searchsorted(layer_N, layer_N - 1)
    pairs = {
        (int(rng.integers(above_N[node] if k == 0 else 0, first_N[node])), node)
        for node in range(int(first_N[first_N > 0].min(initial=nodes)), nodes)
        for k in range(int(rng.integers(1, 4)))
    }
    edges_E2 = np.array(sorted(pairs), dtype=np.int64).reshape(-1, 2)
    return AttributedGraph(
        name=name,
        categories={"kind": [KINDS[i] for i in rng.integers(0, len(KINDS), nodes)]},
        numbers={"size": np.round(rng.lognormal(8, 2, nodes))},
        edge_index_2E=edges_E2.T,
        edge_type_E=np.zeros(len(edges_E2), dtype=np.int64),
        conditions={"label": float(rng.lognormal())},
    )


def write_graphs(folder: Path, num: int, nodes: int, seed: int) -> None:
    """Write the graphs that are not there, a thousand in each folder."""
    for i in track(range(num), "writing graphs", num):
        path = folder / f"{i // 1000:04}" / f"g{i:07}.json"
        if not path.is_file():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_json(path, random_graph(path.stem, nodes, numpy_generator(seed, i)))


def repeated(source: Path, target: Path, copies: int) -> Path:
    """Write a packed data set in which the training graphs of another one occur so many times."""
    header = PackedHeader.read(source)
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    arrays = {name: open_array(source, name) for name in ARRAYS}
    ends_B = np.cumsum([0, *header.splits.values()])
    parts = [(*part, copies if i == 0 else 1) for i, part in enumerate(pairwise(ends_B))]
    for name, array in arrays.items():
        ptr = arrays["edge_ptr" if name.startswith("edge") else "node_ptr"]
        if name in ("numbers", "words"):
            ptr = np.arange(ends_B[-1] + 1)
        if name in ("node_ptr", "edge_ptr"):
            sizes = [np.tile(np.diff(ptr[a : b + 1]), times) for a, b, times in parts]
            np.save(target / f"{name}.npy", np.cumsum([0, *np.concatenate(sizes)]))
            continue
        rows = sum(int(ptr[b] - ptr[a]) * times for a, b, times in parts)
        shape = (rows, *array.shape[1:])
        made = np.lib.format.open_memmap(target / f"{name}.npy", "w+", array.dtype, shape)
        done = 0
        for first, last, times in parts:
            part = array[ptr[first] : ptr[last]]
            nodes = int(arrays["node_ptr"][last] - arrays["node_ptr"][first])
            for copy in range(times):
                made[done : done + len(part)] = part + (copy * nodes if name == "edges" else 0)
                done += len(part)
    listed = json.loads((source / NAMES).read_text())
    listed = {
        key: [word for a, b, times in parts for word in words[a:b] * times]
        for key, words in listed.items()
    }
    (target / NAMES).write_text(json.dumps(listed))
    splits = {**header.splits, "train": header.splits["train"] * copies}
    replace(header, splits=splits).write(target)
    return target


def measured(arguments: list[str]) -> dict[str, Any]:
    """Run a verb in a process of its own; return its wall time and peak memory."""
    start = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "layerdag", *arguments],
        stdout=subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
    )
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"layerdag {' '.join(arguments)} failed")
    return {
        "wall_s": round(time.monotonic() - start, 1),
        "processor_s": round(usage.ru_utime + usage.ru_stime, 1),
        "peak_MB": round(usage.ru_maxrss / 1024),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--num", type=int, default=5_000)
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--schema-nodes", type=int, default=100_000)
    parser.add_argument("--copies", type=int, default=1)
    parser.add_argument("--packed", action="store_true", help="FOLDER/packed is there")
    parser.add_argument("--in-memory", action="store_true", help="train on the folder itself, too")
    args = parser.parse_args()
    graphs, packed = args.folder / "graphs", args.folder / "packed"
    write_graphs(graphs, args.num, args.nodes, args.seed)
    settings = [
        *("data=folder", f"training.max_steps={args.steps}", "training.evaluate_every=1000"),
        *("overwrite=true", "logger.sample_graphs=0", "threads=1"),
    ]
    found: dict[str, Any] = {"graphs": args.num, "nodes": args.num * args.nodes}
    found["pack"] = (
        None
        if args.packed
        else measured(
            [
                *(
                    "pack",
                    str(graphs),
                    "--out",
                    str(packed),
                    "--overwrite",
                    "--public-words",
                    "all",
                ),
                *("--schema-nodes", str(args.schema_nodes)),
            ]
        )
    )
    if args.copies > 1:
        packed = repeated(packed, args.folder / "copies", args.copies)
    found["training_nodes"] = args.nodes * PackedHeader.read(packed).splits["train"]
    found["packed_MB"] = sum(path.stat().st_size for path in packed.iterdir()) >> 20
    found["train"] = measured(
        ["train", *settings, f"data.folder={packed}", f"out={args.folder / 'run'}"]
    )
    if args.in_memory:
        found["train_in_memory"] = measured(
            [
                *("train", *settings, f"data.folder={graphs}", "data.public_words=all"),
                f"out={args.folder / 'run-in-memory'}",
            ]
        )
    print(json.dumps({**found, "peak_MB_here": resource.getrusage(0).ru_maxrss >> 10}, indent=1))


if __name__ == "__main__":
    main()
