"""Speed and memory of the PyTorch importer, as JSON.

    python benchmarks/importer.py DATA/collected/ws*gpt*et.json.gz
    python benchmarks/importer.py --grow 1000 10000 100000 1000000 FILE

For each file: nodes per second of processor time (best of --repeats passes in one process) and two
peaks a node: of Python's own allocations (``tracemalloc``) and of resident memory beyond that of a
process that only imports the package (Linux). Small files and xz show their fixed costs there.
``--grow`` repeats the nodes of the first file, with new ids, handles and storages each time, to
traces of the given sizes: linear time shows as a constant rate. Beside it stand the figures of the
official converter (mlcommons/chakra, quoted in issue 3): they were measured by others on another
machine and cover its step from the linked trace to ``.et``.
"""

import argparse
import gzip
import json
import re
import subprocess
import sys
import tempfile
import time
import tracemalloc
from pathlib import Path
from typing import Any

from layerdag.traces.pytorch.importer import import_host

OFFICIAL = {
    "nodes_per_s": "7,000 at 9,000 nodes, falling to 2,500 at 89,000",
    "peak_bytes_per_node": 10_800,
}
_STRIDE = 1_000_000


def grown(path: Path, num_nodes: int, out: Path) -> None:
    """Write the nodes of a host trace (schema 1.0.2 or later) again and again, as one trace."""
    opener = gzip.open if path.read_bytes()[:2] == b"\x1f\x8b" else open
    with opener(path, "rt") as stream:
        trace = json.load(stream)
    nodes = trace.pop("nodes")
    head = json.dumps({key: value for key, value in trace.items() if key != "finish_ts"})
    with out.open("w") as stream:
        stream.write(head[:-1] + ', "nodes": [')
        for at in range(num_nodes):
            turn, place = divmod(at, len(nodes))
            stream.write((",\n" if at else "\n") + _moved(nodes[place], turn * _STRIDE))
        stream.write('], "finish_ts": 0}')


def _moved(node: dict[str, Any], by: int) -> str:
    """Return a node with ids, handles and storages moved on."""
    moved = {**node, "id": node["id"] + by}
    moved["attrs"] = [
        {**each, "value": each["value"] + by} if each["name"] == "rf_id" else each
        for each in node["attrs"]
    ]
    for side in ("inputs", "outputs"):
        text = json.dumps(node[side]["values"])
        values = re.sub(r"\[(\d+), (\d+), (\d+, \d+, \d+, \")", _shift(by), text)
        moved[side] = {**node[side], "values": json.loads(values)}
    return json.dumps(moved)


def _shift(by: int) -> Any:
    """Return the replacement that moves tensor and storage ids."""
    return lambda found: f"[{int(found[1]) + by}, {int(found[2]) + by}, {found[3]}"


def measure(path: Path, repeats: int) -> dict[str, object]:
    """Return speed and memory of one file."""
    speed = _in_child(["--speed", str(path), "--repeats", str(repeats)])
    base = _in_child(["--resident", ""])
    resident = _in_child(["--resident", str(path)]) - base
    traced = _in_child(["--traced", str(path)])
    nodes = speed["nodes"]
    return {
        "file": path.name,
        "host_nodes": nodes,
        "result_nodes": speed["result"],
        "nodes_per_cpu_s": round(nodes / speed["seconds"]),
        "traced_bytes_per_node": round(traced / nodes),
        "resident_bytes_per_node": round(resident / nodes),
        "peak_resident_mib": round((resident + base) / 2**20),
    }


def _in_child(words: list[str]) -> Any:
    """Run this script in a process of its own."""
    run = [sys.executable, __file__, *words]
    return json.loads(subprocess.run(run, check=True, capture_output=True, text=True).stdout)


def _speed(path: str, repeats: int) -> dict[str, float]:
    """Return nodes, nodes of the result, and the fewest seconds of processor time."""
    seconds = []
    for _ in range(repeats):
        begin = time.process_time()
        result = import_host(path)
        seconds.append(time.process_time() - begin)
    return {
        "nodes": result.num_host_nodes,
        "result": result.trace.num_nodes,
        "seconds": min(seconds),
    }


def _resident(path: str) -> int:
    """Return the peak resident bytes of this process after an import ("" for none)."""
    held = import_host(path) if path else None
    # Not getrusage: a process inherits the peak of the one that started it (Linux).
    peak = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    del held
    return int(peak[1]) * 1024 if peak else 0


def _traced(path: str) -> int:
    """Return the peak of Python's allocations during an import."""
    tracemalloc.start()
    import_host(path)
    return tracemalloc.get_traced_memory()[1]


def main() -> int:
    """Measure each file, or the grown ones."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", type=Path, help="host traces")
    parser.add_argument("--grow", nargs="+", type=int, metavar="NODES")
    parser.add_argument("--repeats", type=int, default=3)
    for hidden in ("--speed", "--resident", "--traced"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    args = parser.parse_args()
    found: Any
    if args.speed is not None:
        found = _speed(args.speed, args.repeats)
    elif args.resident is not None:
        found = _resident(args.resident)
    elif args.traced is not None:
        found = _traced(args.traced)
    else:
        found = {"official_converter": OFFICIAL, "files": []}
        with tempfile.TemporaryDirectory() as folder:
            files = list(args.files)
            for num_nodes in args.grow or ():
                files.append(Path(folder) / f"grown_{num_nodes}.json")
                grown(args.files[0], num_nodes, files[-1])
            found["files"] = [measure(path, args.repeats) for path in files]
    print(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
