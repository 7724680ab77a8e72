"""``layerdag info`` of samples in parts: how far the run is, sizes and conditions, from indices."""

from collections import Counter
from pathlib import Path
from typing import Any

from layerdag._runtime import format_size
from layerdag.datasets.samples import PartIndex, SampleRun

_MOST_WORDS = 6


def run_summary(folder: Path) -> dict[str, Any]:
    """Return what a folder of parts holds as plain JSON types; one index is held at a time.

    Raises:
        DataError: If the file of the run is damaged.
    """
    run, figures = SampleRun.read(folder), _Figures()
    missing: list[str] = []
    for part in range(run.num_parts):
        index = run.index_of(folder, part)
        if index is None:
            missing.append(run.file_of(part))
        else:
            figures.add(index)
    return {
        "folder": str(folder),
        "format": run.file_format,
        "seed": run.seed,
        "num": run.num,
        "parts": run.num_parts,
        "missing_parts": missing,
        **figures.to_json(),
    }


class _Figures:
    """What the indices say of the samples."""

    def __init__(self) -> None:
        self._nodes, self._ranks = _Range(), _Range()
        self._truncated = self._bytes = 0
        self._words: dict[str, Counter[str]] = {}
        self._numbers: dict[str, _Range] = {}

    def add(self, index: PartIndex) -> None:
        """Count the samples of one part."""
        self._bytes += index.num_bytes
        for entry in index.samples:
            self._nodes.add(entry["nodes"])
            self._truncated += bool(entry["truncated"])
            if entry.get("ranks") is not None:
                self._ranks.add(entry["ranks"])
            for name, value in entry["conditions"].items():
                if isinstance(value, str):
                    self._words.setdefault(name, Counter())[value] += 1
                else:
                    self._numbers.setdefault(name, _Range()).add(value)

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        return {
            "samples": self._nodes.count,
            "bytes": self._bytes,
            "truncated": self._truncated,
            "nodes": self._nodes.to_json(),
            "ranks": self._ranks.to_json(),
            "conditions": {
                **{name: dict(counts.most_common()) for name, counts in self._words.items()},
                **{name: found.to_json() for name, found in self._numbers.items()},
            },
        }


class _Range:
    """Least, largest and sum of numbers."""

    def __init__(self) -> None:
        self.count, self.total = 0, 0.0
        self.low, self.high = float("inf"), float("-inf")

    def add(self, value: float) -> None:
        """Count one number."""
        self.count, self.total = self.count + 1, self.total + value
        self.low, self.high = min(self.low, value), max(self.high, value)

    def to_json(self) -> dict[str, float] | None:
        """Return it as plain JSON, None without a number."""
        if not self.count:
            return None
        return {"min": self.low, "mean": self.total / self.count, "max": self.high}


def run_lines(summary: dict[str, Any]) -> list[str]:
    """Return the summary as text."""
    missing = summary["missing_parts"]
    there = summary["parts"] - len(missing)
    samples = f"{summary['samples']:,} of {summary['num']:,} samples"
    parts = f"{there:,} of {summary['parts']:,} parts ({summary['format']})"
    size = format_size(summary["bytes"])
    lines = [f"{summary['folder']}: {samples} in {parts}, {size}"]
    if missing:
        shown = ", ".join(missing[:3]) + (", ..." if len(missing) > 3 else "")
        lines.append(f"  {'missing':<14}{len(missing):,} parts: {shown}")
    last = summary["seed"] + summary["num"] - 1
    lines.append(f"  {'seeds':<14}{summary['seed']} to {last}")
    for name in ("nodes", "ranks"):
        if summary[name]:
            lines.append(f"  {name:<14}{_range_text(summary[name])}")
    lines.append(f"  {'truncated':<14}{summary['truncated']:,}")
    for name, found in summary["conditions"].items():
        is_range = set(found) == {"min", "mean", "max"}
        text = _range_text(found) if is_range else _counts(found)
        lines.append(f"  {name:<14}{text} (requested)")
    return lines


def _range_text(found: dict[str, float]) -> str:
    return f"{found['min']:,.6g} to {found['max']:,.6g}, mean {found['mean']:,.6g}"


def _counts(counts: dict[str, int]) -> str:
    """Return the most frequent words with their counts."""
    shown = [f"{word} {count:,}" for word, count in list(counts.items())[:_MOST_WORDS]]
    more = f", {len(counts) - _MOST_WORDS:,} more" if len(counts) > _MOST_WORDS else ""
    return ", ".join(shown) + more
