"""Scores from verdicts."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

from sampling import LOGIC

COUNTED = {"killed", "timeout", "crash", "survived", "uncovered"}
NORMAL_95 = 1.959964


def wilson(killed: int, count: int) -> tuple[float, float]:
    """Return the 95 % Wilson score interval of a share."""
    if count == 0:
        return 0.0, 1.0
    share, z2 = killed / count, NORMAL_95**2
    center = (share + z2 / (2 * count)) / (1 + z2 / count)
    half = NORMAL_95 * math.sqrt(share * (1 - share) / count + z2 / (4 * count**2))
    return center - half / (1 + z2 / count), center + half / (1 + z2 / count)


def scores(rows: Sequence[dict[str, Any]]) -> str:
    """Return a table of scores by area."""
    lines = [
        "| area | faults | in the code | score | 95 % interval | logic | arguments, words, values "
        "| uncovered |",
        "| --- | --: | --: | --: | --: | --: | --: | --: |",
    ]
    areas = dict.fromkeys(row["area"] for row in rows)
    for area in [*areas, "all"]:
        own = [r for r in rows if r["area"] == area or area == "all"]
        lines.append(_score_line(area, [r for r in own if r["outcome"] in COUNTED]))
    return "\n".join(lines)


def _score_line(area: str, rows: list[dict[str, Any]]) -> str:
    """Return one row of the table."""
    low, high = wilson(_killed(rows), len(rows))
    logic = [r for r in rows if r["operator"] in LOGIC]
    other = [r for r in rows if r["operator"] not in LOGIC]
    population = sum(dict((r["area"], r["population"]) for r in rows).values())
    uncovered = sum(r["outcome"] == "uncovered" for r in rows)
    return (
        f"| {area} | {len(rows)} | {population:,} | {_share(rows)} | {low:.0%} to {high:.0%} "
        f"| {_share(logic)} | {_share(other)} | {uncovered} |"
    )


def _killed(rows: Iterable[dict[str, Any]]) -> int:
    """Return how many were noticed."""
    return sum(row["outcome"] not in ("survived", "uncovered") for row in rows)


def _share(rows: Sequence[dict[str, Any]]) -> str:
    """Return the share that was noticed."""
    return f"{_killed(rows) / len(rows):.1%}" if rows else "-"


def survivors(rows: Iterable[dict[str, Any]]) -> str:
    """Return a list of what nobody noticed, by area and place."""
    left = [r for r in rows if r["outcome"] in ("survived", "uncovered")]
    left.sort(key=lambda r: (r["area"], r["path"], r["line"]))
    return "\n".join(
        f"- {r['path']}:{r['line']} {r['function']} ({r['operator']}"
        f"{', no test runs it' if r['outcome'] == 'uncovered' else ''}): "
        f"`{r['change']}` in `{r['statement']}`"
        for r in left
    )
