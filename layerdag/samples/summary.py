"""Count what a folder of samples in parts holds."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from layerdag.samples.manifest import SampleRun

_MAX_MISSING = 1000
"""Names of missing parts that are listed."""


def run_summary(folder: Path) -> dict[str, Any]:
    """Return what a folder of parts holds as plain JSON types.

    Raises:
        DataError: If the file of the run is damaged.
    """
    run = SampleRun.read(folder)
    there, size, truncated = set(), 0, 0
    nodes: list[float] = []
    ranks: list[float] = []
    words: dict[str, Counter[str]] = defaultdict(Counter)
    numbers: dict[str, list[float]] = defaultdict(list)
    for index in run.parts_at(folder):
        there.add(index.part)
        size += index.num_bytes
        for entry in index.samples:
            nodes.append(entry["nodes"])
            truncated += bool(entry["truncated"])
            ranks += [] if entry.get("ranks") is None else [entry["ranks"]]
            for name, value in entry["conditions"].items():
                if isinstance(value, str):
                    words[name][value] += 1
                else:
                    numbers[name].append(value)
    absent = (part for part in range(run.num_parts) if part not in there)
    missing = [run.file_of(part) for part in islice(absent, _MAX_MISSING)]
    more = run.num_parts - len(there) - len(missing)
    return {
        "folder": str(folder),
        "format": run.file_format,
        "seed": run.seed,
        "num": run.num,
        "parts": run.num_parts,
        "missing_parts": missing,
        **({"more_missing_parts": more} if more else {}),
        **({"missing_because": run.absent(folder, 3)} if missing else {}),
        "samples": len(nodes),
        "bytes": size,
        "truncated": truncated,
        "nodes": _spread(nodes),
        "ranks": _spread(ranks),
        "conditions": {
            **{name: dict(counts.most_common()) for name, counts in words.items()},
            **{name: _spread(found) for name, found in numbers.items()},
        },
    }


def _spread(values: Sequence[float]) -> dict[str, float] | None:
    if not values:
        return None
    return {"min": min(values), "mean": sum(values) / len(values), "max": max(values)}
