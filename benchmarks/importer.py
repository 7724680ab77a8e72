"""Speed and memory of the PyTorch importer, as JSON.

    python benchmarks/importer.py ../shared/data/collected/ws1s1i006_gpt_none_r0.et.json.gz

One pass for the time, one for the peak of Python's own allocations (which tracing slows down).
"""

import argparse
import json
import sys
import time
import tracemalloc
from pathlib import Path

from layerdag.traces.pytorch_import import import_host


def main() -> int:
    """Import each file and print nodes a CPU second and bytes a node."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path, help="host traces")
    args = parser.parse_args()
    rows = []
    for path in args.files:
        begin = time.process_time()
        nodes = import_host(path).num_host_nodes
        seconds = time.process_time() - begin
        tracemalloc.start()
        import_host(path)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        rows.append(
            {
                "file": path.name,
                "host_nodes": nodes,
                "nodes_per_cpu_s": round(nodes / seconds),
                "peak_bytes_per_node": round(peak / nodes),
            }
        )
    print(json.dumps(rows, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
