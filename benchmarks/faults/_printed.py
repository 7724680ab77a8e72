"""The report of ``benchmarks/sensitivity.py`` as tables to read."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from faults._declared import FAULTS, Duty


def lines(report: Mapping[str, Any]) -> Iterator[str]:
    """Yield the tables to read."""
    yield "| fault | seen of what must | by, from strength | missed | moved of what must not |"
    yield "|---|---|---|---|---|"
    planted = [[r for r in report["faults"] if r["fault"] == fault.name] for fault in FAULTS]
    yield from (_summary(rows) for rows in planted if rows)
    yield ""
    yield "real graphs that pose as samples: mean, interval of one draw; training graphs; ratio"
    for row in report["holdout"]:
        ends = f"[{row['mean'] - row['half']:.3g}, {row['mean'] + row['half']:.3g}]"
        real = f"{row['real']:.3g}" if "real" in row else "-"
        note = "" if row.get("as_real", True) else "DIFFERS"
        held = row.get("ratio_holds_1")
        share = "" if held is None else f"{held:.0%}"
        yield f"  {row['figure']:<28}{row['mean']:<8.3g}{ends:<20}{real:<8}{share:<6}{note}"
    for rows in planted:
        if not rows:
            continue
        yield ""
        yield f"{rows[0]['fault']}: strengths {', '.join(map(str, rows[0]['strengths']))}"
        yield from (_line(row) for row in rows if row["threshold"] or row["outcome"])


def _summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a row of the table of all faults, which is that of the documentation."""
    by_outcome = {
        outcome: [row for row in rows if row["outcome"] == outcome]
        for outcome in ("seen", "missed", "false move")
    }
    by_strength: dict[float, list[str]] = {}
    for row in sorted(by_outcome["seen"], key=lambda row: row["threshold"]):
        by_strength.setdefault(row["threshold"], []).append(row["figure"])
    seen = "; ".join(f"{strength:g}: {_joined(by_strength[strength])}" for strength in by_strength)
    missed, moved = (
        _joined([row["figure"] for row in by_outcome[outcome]])
        for outcome in ("missed", "false move")
    )
    asked = len(by_outcome["seen"]) + len(by_outcome["missed"])
    still = sum(row["duty"] == Duty.STILL.value for row in rows)
    count = f"{len(by_outcome['seen'])} of {asked}"
    return (
        f"| {rows[0]['fault']} | {count} | {seen} | {missed} | "
        f"{len(by_outcome['false move'])} of {still}{moved and ': ' + moved} |"
    )


def _joined(figures: Sequence[str]) -> str:
    """Return names, those that differ after the colon as one."""
    parts: dict[str, list[str]] = {}
    for figure in figures:
        family, _, part = figure.partition(":")
        parts.setdefault(family, []).append(part)
    return ", ".join(
        f"`{family}:{','.join(found)}`" if all(found) else f"`{family}`"
        for family, found in parts.items()
    )


def _line(row: Mapping[str, Any]) -> str:
    shifts = " ".join(f"{shift:+.3g}" for shift in row["shifts"])
    seen = "-" if row["threshold"] is None else f"{row['threshold']:g}"
    way = "" if row["monotone"] else "not monotone"
    return (
        f"  {row['figure']:<28}{row['duty']:<11}{seen:<6}{row['outcome']:<12}"
        f"half {row['half']:<9.3g}{shifts}  {way}"
    )
