"""Heat maps: the fastest step of each pair of degrees, whatever the rest of the plan is."""

from collections.abc import Sequence

from layerdag.viz import Markup, element, scrolling, text
from layerdag.workloads.exploration import Outcome

SHADES = 48
"""Percent of color in the cell of the fastest plan; more would leave too little contrast in the
dark."""

SLOWEST = 2.0
"""Times as slow as the fastest plan: no color any more."""


def heat_map(outcomes: Sequence[Outcome], rows: str, columns: str, best_s: float) -> Markup:
    """Return a table of the fastest step times.

    Args:
        outcomes: Of one model on one cluster.
        rows: Name of the degree down the side, a field of ``Outcome``.
        columns: Name of the degree along the top.
        best_s: Time of the cell with the most color, in seconds.
    """
    tried: dict[tuple[int, int], list[Outcome]] = {}
    for outcome in outcomes:
        tried.setdefault((getattr(outcome, rows), getattr(outcome, columns)), []).append(outcome)
    across = sorted({column for _, column in tried})
    header = element(
        "tr", element("td", f"{rows} \\ {columns}"), *(_head(c, "col") for c in across)
    )
    lines = [
        element(
            "tr", _head(row, "row"), *(_cell(tried.get((row, column)), best_s) for column in across)
        )
        for row in sorted({row for row, _ in tried})
    ]
    caption = (
        f"Seconds per step, the fastest of all plans with these {rows} and {columns} degrees; the "
        f"less color, the slower, none from {SLOWEST:g} times the fastest on"
    )
    inner = element(
        "table",
        element("caption", element("span", caption)),
        element("thead", header),
        element("tbody", *lines),
        class_="heat",
    )
    return scrolling(inner, caption)


def _head(degree: int, scope: str) -> Markup:
    return element("th", str(degree), scope=scope, class_="n")


def _cell(tried: list[Outcome] | None, best_s: float) -> Markup:
    """Return the cell of some plans; the fastest of them is named when it is pointed at."""
    if not tried:
        return element("td", "—", class_="n quiet", title="no such plan")
    times = [outcome for outcome in tried if outcome.step_s is not None]
    if not times:
        least = min(outcome.memory_gib for outcome in tried)
        return element("td", "too large", class_="n quiet", title=f"at least {least:,.0f} GiB")
    fastest = min(times, key=lambda outcome: outcome.step_s or 0.0)
    seconds = fastest.step_s or 0.0
    fraction = max(0.0, 1 - (seconds / best_s - 1) / (SLOWEST - 1)) if best_s else 0.0
    color = f"background:color-mix(in srgb,var(--accent) {SHADES * fraction:.0f}%,transparent)"
    return element("td", text(f"{seconds:.3g}"), class_="n", style=color, title=fastest.plan)
