"""Small charts of lines with intervals, side by side in one SVG file.

Columns share what is on their horizontal axis, rows share their vertical axis.
"""

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

PANEL, HEIGHT, GAP = 190, 112, 26
LEFT, TOP, BETWEEN, BOTTOM, RIGHT = 58, 14, 46, 28, 16
COLORS = ("#0b66a8", "#c4500b")
STYLE = (
    "text{font:11px system-ui,sans-serif;fill:#333}.t{font-weight:600}.e{text-anchor:end}"
    ".m{text-anchor:middle}.g{stroke:#e2e2e2}.a{stroke:#888}.l{fill:none;stroke-width:1.8}"
    ".r{stroke-dasharray:4 3;stroke-width:1.2;opacity:.75}.w{stroke-width:1.2;opacity:.6}"
)


class ChartAxis:
    """Maps values to horizontal positions.

    Attributes:
        log: Whether the axis is logarithmic.
    """

    def __init__(self, low: float, high: float, log: bool, left: int, right: int) -> None:
        self.log = log
        self._low, self._high = (math.log10(low), math.log10(high)) if log else (low, high)
        self._left, self._right = left, right

    def x(self, value: np.ndarray) -> np.ndarray:
        """Return horizontal positions."""
        position = np.log10(np.maximum(value, 10.0**self._low)) if self.log else value
        fraction = (position - self._low) / max(self._high - self._low, 1e-12)
        return np.asarray(self._left + (self._right - self._left) * fraction)

    def ticks(self) -> list[float]:
        """Return a few round values inside the range."""
        powers = self._powers() if self.log else []
        # Less than a decade has too few powers of ten: even steps read better.
        return powers if len(powers) > 1 else self._multiples()

    def _powers(self) -> list[float]:
        """Return powers of ten, or multiples 1, 2, 5 of them where the range is short."""
        first, last = math.floor(self._low), math.ceil(self._high)
        step = max((last - first) // 5, 1)
        factors = (1, 2, 5) if self._high - self._low < 2 else (1,)
        every = [k * 10.0**power for power in range(first, last + 1, step) for k in factors]
        return [v for v in every if self._low - 1e-9 <= math.log10(v) <= self._high + 1e-9]

    def _multiples(self) -> list[float]:
        """Return three to six multiples of 1, 2 or 5 times a power of ten."""
        low, high = (10.0**self._low, 10.0**self._high) if self.log else (self._low, self._high)
        span = max(high - low, 1e-12)
        power = 10.0 ** math.floor(math.log10(span / 3))
        gap = next(k * power for k in (1, 2, 5, 10) if span / (k * power) <= 5)
        return [
            k * gap for k in range(math.ceil(low / gap - 1e-9), math.floor(high / gap + 1e-9) + 1)
        ]


@dataclass(frozen=True)
class Dot:
    """A value with its interval, in the units of the axes; both ends are the value without one."""

    x: float
    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Line:
    """One line of a panel.

    Attributes:
        dots: From left to right.
        level: Of real graphs, drawn dashed; None: nothing is drawn.
    """

    dots: Sequence[Dot]
    level: float | None = None


@dataclass(frozen=True)
class Panels:
    """A row of panels.

    Attributes:
        titles: What its lines are, one for each color.
        columns: Lines of each panel, one for each title.
        log: Whether the vertical axis is logarithmic.
        ends: Ends of the vertical axis; None: those of what is drawn.
    """

    titles: Sequence[str]
    columns: Sequence[Sequence[Line]]
    log: bool = False
    ends: tuple[float, float] | None = field(default=None)


def drawing(label: str, xs: Sequence[str], rows: Sequence[Panels]) -> str:
    """Return the text of the SVG file.

    Args:
        label: Description for screen readers.
        xs: Titles of the horizontal axes, one for each column.
        rows: Panels from top to bottom.
    """
    width = LEFT + len(xs) * PANEL + (len(xs) - 1) * GAP + RIGHT
    height = TOP + len(rows) * (HEIGHT + BETWEEN) + BOTTOM
    parts = [_row(panels, place) for place, panels in enumerate(rows)]
    bottom = TOP + len(rows) * (HEIGHT + BETWEEN) - 2
    parts += [
        f'<text class="m" x="{_left(place) + PANEL / 2:.0f}" y="{bottom}">{html.escape(x)}</text>'
        for place, x in enumerate(xs)
    ]
    key = "dots: means, bars: 95 % intervals; dashed: real graphs"
    parts.append(f'<text class="m" x="{width / 2:.0f}" y="{bottom + 20}">{key}</text>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" role="img" aria-label="{html.escape(label)}">'
        f'<style>{STYLE}</style><rect width="{width}" height="{height}" fill="#fff"/>'
        f"{''.join(parts)}</svg>\n"
    )


def _left(column: int) -> int:
    return LEFT + column * (PANEL + GAP)


def _row(panels: Panels, place: int) -> str:
    """Return the title, the vertical axis and the panels of a row."""
    top = TOP + place * (HEIGHT + BETWEEN) + 16
    low, high = panels.ends or _ends(panels)
    axis = ChartAxis(low, high, panels.log, top + HEIGHT, top)
    title = " and ".join(
        f'<tspan fill="{COLORS[i]}">{html.escape(name)}</tspan>'
        for i, name in enumerate(panels.titles)
    )
    parts = [f'<text class="t" x="{LEFT}" y="{top - 7}">{title}</text>']
    ticks = [(tick, float(axis.x(np.array(tick)))) for tick in axis.ticks()]
    parts += [
        f'<text class="e" x="{LEFT - 6}" y="{y + 4:.1f}">{tick:g}</text>' for tick, y in ticks
    ]
    for column, lines in enumerate(panels.columns):
        parts.append(_panel(lines, _left(column), top, axis, [y for _, y in ticks]))
    return "".join(parts)


def _panel(
    lines: Sequence[Line], left: int, top: int, axis: ChartAxis, grid: Sequence[float]
) -> str:
    """Return one panel: grid, levels of real graphs, intervals, lines and dots."""
    xs = sorted({dot.x for line in lines for dot in line.dots})
    right, bottom = left + PANEL, top + HEIGHT
    parts = [f'<line class="g" x1="{left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>' for y in grid]
    parts.append(f'<line class="a" x1="{left}" x2="{right}" y1="{bottom}" y2="{bottom}"/>')
    if not xs:
        return "".join(parts)
    across = ChartAxis(xs[0] / 1.25, xs[-1] * 1.25, True, left, right)
    parts += [
        f'<text class="m" x="{float(across.x(np.array(x))):.1f}" y="{bottom + 14}">{x:,.0f}</text>'
        for x in xs
    ]
    for i, line in enumerate(lines):
        parts.append(_line(line, across, axis, COLORS[i], (left, right)))
    return "".join(parts)


def _line(line: Line, across: ChartAxis, up: ChartAxis, color: str, ends: tuple[int, int]) -> str:
    def at(axis: ChartAxis, value: float) -> float:
        return round(float(axis.x(np.array(value))), 1)

    places = [(at(across, d.x), at(up, d.value), at(up, d.low), at(up, d.high)) for d in line.dots]
    path = " ".join(f"{x},{y}" for x, y, _, _ in places)
    parts = [f'<polyline class="l" stroke="{color}" points="{path}"/>']
    if line.level is not None:
        y = at(up, line.level)
        parts.append(
            f'<line class="r" stroke="{color}" x1="{ends[0]}" x2="{ends[1]}" y1="{y}" y2="{y}"/>'
        )
    for x, y, low, high in places:
        parts.append(
            f'<line class="w" stroke="{color}" x1="{x}" x2="{x}" y1="{low}" y2="{high}"/>'
            f'<circle fill="{color}" cx="{x}" cy="{y}" r="3"/>'
        )
    return "".join(parts)


def _ends(panels: Panels) -> tuple[float, float]:
    """Return the ends of what is drawn in a row, with a little room."""
    lines = [line for column in panels.columns for line in column]
    values = [v for line in lines for dot in line.dots for v in (dot.low, dot.value, dot.high)]
    values += [line.level for line in lines if line.level is not None]
    if not values:
        return 1.0, 10.0
    low, high = min(values), max(values)
    if panels.log:
        low = max(low, 0.2 * min(dot.value for line in lines for dot in line.dots))
        return low / 1.1, high * 1.1
    room = 0.06 * max(high - low, math.ulp(1.0))
    return low - room, high + room
