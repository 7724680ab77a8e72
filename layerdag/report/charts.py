"""Inline SVG charts."""

import html
import math
from collections.abc import Sequence

import numpy as np

from layerdag.report.content import CategoryFractions, Distribution, Lane, Sample, Timeline
from layerdag.statistics import Interval
from layerdag.viz.html import Markup, element, number, percent, scrolling, text
from layerdag.workloads.exploration import PlanOutcome


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

    def edges(self, bins: int) -> np.ndarray:
        """Return the ends of ``bins`` bins that are equally wide on the axis, (bins + 1,)."""
        edges = np.linspace(self._low, self._high, bins + 1)
        return np.asarray(10.0**edges if self.log else edges)

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


def tick_text(value: float) -> str:
    """Return a tick's number, whole numbers without decimals."""
    return f"{value:,.0f}" if value == round(value) and abs(value) < 1e6 else number(value, 2)


STRIP_LOW, STRIP_HIGH = 0.25, 16.0


def figure(title: str, label: str, inner: str, size: tuple[int, int], style: str) -> Markup:
    """Return a figure with a caption and a description for screen readers.

    Args:
        title: Caption.
        label: The description.
        inner: The drawing.
        size: Width and height of the drawing.
        style: Classes of the figure.
    """
    return Markup(
        f'<figure class="{style}"><figcaption>{html.escape(title)}</figcaption>'
        f'<svg viewBox="0 0 {size[0]} {size[1]}" role="img" '
        f'aria-label="{html.escape(label)}">{inner}</svg></figure>'
    )


def slot(index: int, count: int) -> int:
    """Return the style slot of a sample: the last is synthetic (2), the one before real test."""
    return index + 3 - count


def ratio_strip(ratio: float | None, spread: Interval | None) -> Markup:
    """Return a dot with its interval on a logarithmic strip with a mark at 1."""
    if ratio is None:
        return Markup("")

    def x(value: float) -> float:
        inside = min(max(value, STRIP_LOW), STRIP_HIGH)
        return 4 + 112 * math.log(inside / STRIP_LOW) / math.log(STRIP_HIGH / STRIP_LOW)

    whisker = ""
    if spread is not None:
        whisker = (
            f'<line class="whisker" x1="{x(spread.low):.1f}" x2="{x(spread.high):.1f}" '
            'y1="8" y2="8"/>'
        )
    return Markup(
        f'<svg class="strip" viewBox="0 0 120 16" aria-hidden="true">'
        f'<line class="one" x1="{x(1.0):.1f}" x2="{x(1.0):.1f}" y1="1" y2="15"/>{whisker}'
        f'<circle class="dot" cx="{x(ratio):.1f}" cy="8" r="3.4"/></svg>'
    )


def legend(sources: tuple[str, ...]) -> Markup:
    """Return the key to the lines and bars."""
    keys = "".join(
        f'<li><svg viewBox="0 0 26 10" aria-hidden="true"><path class="line '
        f's{slot(i, len(sources))}" d="M1 5H25"/></svg>{html.escape(source)}</li>'
        for i, source in enumerate(sources)
    )
    return Markup(f'<ul class="legend">{keys}</ul>')


WIDTH, TOP, BOTTOM = 300, 8, 22
NAME_ROOM, VALUE_ROOM = 118, 54
NAME_LENGTH = 17
OPERATORS = "aten::"
"""Nearly every operator's name begins so, and the part behind it is what tells them apart."""


def shares_chart(shares: CategoryFractions, most: int = 14, items: str = "nodes") -> Markup:
    """Return bars of the largest categories, one bar a sample.

    Args:
        shares: The categories.
        most: Number of categories that are shown.
        items: What the shares are of, for the title of the axis.
    """
    size = np.max([fraction_K for _, fraction_K in shares.shares], axis=0)
    order = np.argsort(-size, kind="stable")[:most]
    top = max(float(size.max(initial=0)), 1e-9)
    bars = 4 + 5 * len(shares.shares)
    height = TOP + len(order) * bars + BOTTOM
    parts = []
    for row, category in enumerate(order.tolist()):
        y = TOP + row * bars
        parts.append(_name(shares.labels[category], y + bars / 2 + 1))
        for i, (source, fraction_K) in enumerate(shares.shares):
            length = (WIDTH - NAME_ROOM - VALUE_ROOM) * float(fraction_K[category]) / top
            parts.append(
                f'<rect class="bar s{slot(i, len(shares.shares))}" x="{NAME_ROOM}" '
                f'y="{y + 5 * i}" '
                f'width="{length:.1f}" height="4.4"><title>{html.escape(source)}: '
                f"{100 * float(fraction_K[category]):.2f} %</title></rect>"
            )
        end = NAME_ROOM + (WIDTH - NAME_ROOM - VALUE_ROOM) * float(size[category]) / top + 4
        parts.append(
            f'<text class="tick" x="{end:.1f}" y="{y + bars / 2 + 1:.1f}">'
            f"{percent(float(size[category]))}</text>"
        )
    parts.append(
        f'<text class="axis-title" x="{NAME_ROOM}" y="{height - 6}">share of {items}, %</text>'
    )
    hidden = len(shares.labels) - len(order)
    title = shares.title + (f" (largest {len(order)}, {hidden} not shown)" if hidden else "")
    label = f"Shares of {shares.title}"
    return figure(title, label, "".join(parts), (WIDTH, height), "chart bars")


def _name(label: str, y: float) -> str:
    """Return the name of a category, cut where it is long, whole when pointed at."""
    shown = _shortened(label.removeprefix(OPERATORS), NAME_LENGTH)
    return (
        f'<text class="tick" x="{NAME_ROOM - 6}" y="{y:.1f}" text-anchor="end">'
        f"<title>{html.escape(label)}</title>{html.escape(shown)}</text>"
    )


def _shortened(name: str, length: int) -> str:
    tail = length // 2 - 1
    return name if len(name) <= length else f"{name[: length - 1 - tail]}…{name[-tail:]}"


CURVE_WIDTH, HEIGHT = 300, 236
LEFT, RIGHT = 50, 10
HISTOGRAM = (8, 68)
"""Top and bottom of the histogram; those of the cumulative distribution follow."""
CUMULATIVE = (84, 194)
MAX_POINTS = 200
BINS = 16


def distribution_chart(distribution: Distribution) -> Markup:
    """Return histogram and cumulative distribution of each sample on one axis.

    The area between two of the cumulative lines is their Wasserstein-1 distance.
    """
    low, high = _range(distribution)
    scale = ChartAxis(low, high, distribution.log, LEFT, CURVE_WIDTH - RIGHT)
    bins_K = [_binned(sample, scale) for sample in distribution.samples]
    top = max(max(float(fraction.max(initial=0)) for fraction in bins_K), 1e-9)
    lines = "".join(
        f'<path class="line s{slot(i, len(bins_K))}" d="{path}"/>'
        for i, (sample, fraction) in enumerate(zip(distribution.samples, bins_K, strict=True))
        for path in (_histogram(fraction, scale, top), _steps(sample, scale))
    )
    unit = f" ({distribution.unit})" if distribution.unit else ""
    names = ", ".join(sample.source for sample in distribution.samples)
    label = f"Distribution of {distribution.title}{unit}: {names}"
    frame = _frame(scale, top) + _titles(distribution)
    title = distribution.title[:1].upper() + distribution.title[1:]
    return figure(title, label, frame + lines, (CURVE_WIDTH, HEIGHT), "chart")


def _titles(distribution: Distribution) -> str:
    across = distribution.unit or "value"
    scale = ", logarithmic" if distribution.log else ""
    middle = (LEFT + CURVE_WIDTH - RIGHT) / 2
    parts = [
        f'<text class="axis-title" x="{middle}" y="{HEIGHT - 6}" text-anchor="middle">'
        f"{html.escape(across)}{scale}</text>"
    ]
    for (top, bottom), title in ((HISTOGRAM, "share"), (CUMULATIVE, "share up to here")):
        y = (top + bottom) / 2
        parts.append(
            f'<text class="axis-title" x="11" y="{y}" text-anchor="middle" '
            f'transform="rotate(-90 11 {y})">{title}</text>'
        )
    return "".join(parts)


def _range(distribution: Distribution) -> tuple[float, float]:
    """Return the range of all samples, cut at the 0.5 % tails so that one outlier hides nothing."""
    lows, highs = [], []
    for sample in distribution.samples:
        value, fraction = _cumulative(sample)
        if distribution.log:
            # Zeros lie left of any logarithmic axis.
            value, fraction = value[value > 0], fraction[value > 0]
        if not value.size:
            continue
        lows.append(value[min(int(np.searchsorted(fraction, 0.005)), value.size - 1)])
        highs.append(value[min(int(np.searchsorted(fraction, 0.995)), value.size - 1)])
    low, high = float(min(lows, default=1.0)), float(max(highs, default=1.0))
    if distribution.log:
        return low, max(high, 2 * low)
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def _cumulative(sample: Sample) -> tuple[np.ndarray, np.ndarray]:
    order = np.argsort(sample.values, kind="stable")
    value = np.asarray(sample.values, dtype=float)[order]
    weight = np.ones(value.size) if sample.weights is None else sample.weights[order]
    return value, np.cumsum(weight) / max(float(weight.sum()), 1e-300)


def _binned(sample: Sample, scale: ChartAxis) -> np.ndarray:
    """Return the share of the sample in each bin; what lies outside counts at the ends."""
    ends = scale.edges(BINS)
    value = np.clip(np.asarray(sample.values, dtype=float), ends[0], ends[-1])
    count, _ = np.histogram(value, ends, weights=sample.weights)
    return np.asarray(count / max(float(count.sum()), 1e-300))


def _histogram(fraction_K: np.ndarray, scale: ChartAxis, top: float) -> str:
    high, low = HISTOGRAM
    x = scale.x(scale.edges(fraction_K.size))
    y = low - (low - high) * fraction_K / top
    steps = "".join(f"V{b:.1f}H{a:.1f}" for a, b in zip(x[1:], y, strict=True))
    return f"M{LEFT} {low}{steps}V{low}"


def _steps(sample: Sample, scale: ChartAxis) -> str:
    value, fraction = _cumulative(sample)
    last = np.append(value[1:] != value[:-1], True)[: value.size]
    value, fraction = value[last], fraction[last]
    if value.size > MAX_POINTS:
        kept = np.unique(np.linspace(0, value.size - 1, MAX_POINTS).astype(int))
        value, fraction = value[kept], fraction[kept]
    high, low = CUMULATIVE
    x = np.clip(scale.x(value), LEFT, CURVE_WIDTH - RIGHT)
    y = low - (low - high) * fraction
    steps = "".join(f"H{a:.1f}V{b:.1f}" for a, b in zip(x, y, strict=True))
    return f"M{LEFT} {low}{steps}H{CURVE_WIDTH - RIGHT}"


def _frame(scale: ChartAxis, top: float) -> str:
    parts = []
    marks = ((HISTOGRAM, (0.0, 1.0), top), (CUMULATIVE, (0.0, 0.5, 1.0), 1.0))
    for (high, low), shares, whole in marks:
        for fraction in shares:
            y = low - (low - high) * fraction
            parts.append(
                f'<line class="grid" x1="{LEFT}" x2="{CURVE_WIDTH - RIGHT}" y1="{y}" y2="{y}"/>'
            )
            parts.append(
                f'<text class="tick" x="{LEFT - 5}" y="{y + 3.5}" text-anchor="end">'
                f"{_percent(fraction * whole)}</text>"
            )
    for value in scale.ticks():
        x = float(scale.x(np.array(value)))
        y = CUMULATIVE[1]
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{y}" y2="{y + 4}"/>')
        parts.append(
            f'<text class="tick" x="{x:.1f}" y="{y + 16}" text-anchor="middle">'
            f"{tick_text(value)}</text>"
        )
    return "".join(parts)


def _percent(fraction: float) -> str:
    return f"{number(100 * fraction, 2)}%" if 0 < fraction < 0.1 else f"{fraction:.0%}"


TIMELINE_WIDTH, TIMELINE_LEFT, TIMELINE_RIGHT, TIMELINE_TOP, TIMELINE_BOTTOM = 480, 142, 10, 4, 40
LANE, GAP = 18, 5
_LEAST = 0.35
"""Narrower pieces of a lane are drawn so wide, or joined with their neighbor."""


def timeline_chart(timeline: Timeline, slot_of: dict[str, int], end_ms: float) -> Markup:
    """Return a lane for each rank and what it does, on an axis of milliseconds.

    Args:
        timeline: Of one job.
        slot_of: Color of each kind of work.
        end_ms: Where the axis ends; the same for jobs that stand beside each other.
    """
    scale = ChartAxis(0.0, max(end_ms, 1e-9), False, TIMELINE_LEFT, TIMELINE_WIDTH - TIMELINE_RIGHT)
    height = TIMELINE_TOP + len(timeline.lanes) * (LANE + GAP) + TIMELINE_BOTTOM
    parts = [_ticks(scale, height)]
    for row, lane in enumerate(timeline.lanes):
        y = TIMELINE_TOP + row * (LANE + GAP)
        parts.append(
            f'<rect class="lane" x="{TIMELINE_LEFT}" y="{y}" '
            f'width="{TIMELINE_WIDTH - TIMELINE_RIGHT - TIMELINE_LEFT}" '
            f'height="{LANE}"/><text class="tick" x="{TIMELINE_LEFT - 6}" y="{y + 13}" '
            f'text-anchor="end">'
            f"{html.escape(lane.name)}</text>{_pieces(lane, scale, y, slot_of)}"
        )
    label = f"{timeline.title}: {len(timeline.lanes)} lanes, {timeline.duration_ms:.3g} ms"
    caption = f"{timeline.title}, {timeline.duration_ms:.3g} ms"
    return figure(caption, label, "".join(parts), (TIMELINE_WIDTH, height), "chart timeline")


def _ticks(scale: ChartAxis, height: int) -> str:
    bottom = height - TIMELINE_BOTTOM
    lines = "".join(
        f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TIMELINE_TOP}" y2="{bottom + 3}"/>'
        f'<text class="tick" x="{x:.1f}" y="{bottom + 15}" text-anchor="middle">'
        f"{tick_text(value)}</text>"
        for value in scale.ticks()
        for x in [float(scale.x(np.array(value)))]
    )
    middle = (TIMELINE_LEFT + TIMELINE_WIDTH - TIMELINE_RIGHT) / 2
    return (
        f'{lines}<text class="axis-title" x="{middle}" y="{height - 6}" text-anchor="middle">'
        "simulated time (ms)</text>"
    )


def _pieces(lane: Lane, scale: ChartAxis, y: int, slot_of: dict[str, int]) -> str:
    """Return the pieces of a lane as one path a kind; tiny neighbors of a kind are one piece."""
    start_S, end_S = scale.x(lane.start_ms_S), scale.x(lane.end_ms_S)
    paths = []
    for kind in dict.fromkeys(lane.kind_S):
        mine = np.array([one == kind for one in lane.kind_S])
        order = np.argsort(start_S[mine], kind="stable")
        pieces: list[list[float]] = []
        for left, right in zip(start_S[mine][order], end_S[mine][order], strict=True):
            right = max(float(right), float(left) + _LEAST)
            if pieces and left <= pieces[-1][1] + _LEAST / 2:
                pieces[-1][1] = max(pieces[-1][1], right)
            else:
                pieces.append([float(left), right])
        path = "".join(f"M{a:.2f} {y}H{b:.2f}V{y + LANE}H{a:.2f}Z" for a, b in pieces)
        title = f"<title>{html.escape(kind)}</title>"
        paths.append(f'<path class="k{slot_of.get(kind, 7)}" d="{path}">{title}</path>')
    return "".join(paths)


FRONT_WIDTH, FRONT_HEIGHT = 640, 300
FRONT_LEFT, FRONT_RIGHT, FRONT_TOP, FRONT_BOTTOM = 62, 14, 12, 44
MOST_DOTS = 1000


def front_chart(
    outcomes: Sequence[PlanOutcome],
    front: Sequence[PlanOutcome],
    slot_of: dict[str, int],
    priced: bool,
) -> Markup:
    """Return a scatter of all outcomes with the front as a line, both axes logarithmic.

    Args:
        outcomes: Those of one model that have a time.
        front: The best of them, by time.
        slot_of: Color of each cluster.
        priced: Whether the second figure is the cost of a step; otherwise it is memory.
    """
    shown = list(dict.fromkeys([*front, *outcomes]))[:MOST_DOTS]
    spots = [(outcome.step_s or 0.0, outcome.second_figure(priced)) for outcome in shown]
    across, up = (
        _Axis([x for x, _ in spots], FRONT_LEFT, FRONT_WIDTH - FRONT_RIGHT),
        _Axis([y for _, y in spots], FRONT_HEIGHT - FRONT_BOTTOM, FRONT_TOP),
    )
    dots = "".join(
        f'<circle class="k{slot_of[o.cluster]}" cx="{across.at(x):.1f}" cy="{up.at(y):.1f}" '
        f'r="{4.5 if o in front else 2.5}"><title>{html.escape(f"{o.cluster}: {o.plan}")}</title>'
        "</circle>"
        for o, (x, y) in zip(shown, spots, strict=True)
    )
    path = " ".join(
        f"{across.at(o.step_s or 0.0):.1f},{up.at(o.second_figure(priced)):.1f}" for o in front
    )
    what = "cost of a step" if priced else "memory of the fullest rank (GiB)"
    label = f"Step time against {what}: {len(outcomes)} plans, {len(front)} on the front"
    return Markup(
        f'<figure class="wide"><svg viewBox="0 0 {FRONT_WIDTH} {FRONT_HEIGHT}" role="img" '
        f'aria-label="{html.escape(label)}">'
        f"{_front_ticks(across, up)}{_front_titles(what)}"
        f'<polyline class="front" points="{path}"/>{dots}</svg></figure>'
    )


class _Axis:
    def __init__(self, values: list[float], start: int, end: int) -> None:
        low, high = min(values), max(values)
        self.low, self.high = low / 1.15, high * 1.15
        self._start, self._end = start, end

    def at(self, value: float) -> float:
        """Return the pixel of a value."""
        fraction = math.log(value / self.low) / math.log(self.high / self.low)
        return self._start + fraction * (self._end - self._start)

    def marks(self) -> list[float]:
        """Return round values on the axis."""
        first = math.floor(math.log10(self.low))
        last = math.ceil(math.log10(self.high))
        round_ones = [m * 10.0**e for e in range(first, last + 1) for m in (1, 2, 5)]
        found = [value for value in round_ones if self.low <= value <= self.high]
        return found if len(found) > 1 else self._even()

    def _even(self) -> list[float]:
        step = 10.0 ** math.floor(math.log10((self.high - self.low) / 2))
        step *= max(k for k in (1, 2, 5) if k * step <= (self.high - self.low) / 2)
        return [
            k * step for k in range(math.ceil(self.low / step), math.floor(self.high / step) + 1)
        ]


def _front_ticks(across: _Axis, up: _Axis) -> str:
    down = "".join(
        f'<line class="grid" x1="{across.at(x):.1f}" x2="{across.at(x):.1f}" y1="{FRONT_TOP}" '
        f'y2="{FRONT_HEIGHT - FRONT_BOTTOM}"/><text class="tick" x="{across.at(x):.1f}" '
        f'y="{FRONT_HEIGHT - FRONT_BOTTOM + 14}" text-anchor="middle">{x:g}</text>'
        for x in across.marks()
    )
    side = "".join(
        f'<line class="grid" x1="{FRONT_LEFT}" x2="{FRONT_WIDTH - FRONT_RIGHT}" '
        f'y1="{up.at(y):.1f}" '
        f'y2="{up.at(y):.1f}"/><text class="tick" x="{FRONT_LEFT - 6}" y="{up.at(y) + 4:.1f}" '
        f'text-anchor="end">{y:g}</text>'
        for y in up.marks()
    )
    return down + side


def _front_titles(what: str) -> str:
    middle = (FRONT_HEIGHT - FRONT_BOTTOM + FRONT_TOP) / 2
    return (
        f'<text class="axis-title" x="{(FRONT_LEFT + FRONT_WIDTH) / 2}" '
        f'y="{FRONT_HEIGHT - 8}" text-anchor="middle">'
        "seconds per step</text>"
        f'<text class="axis-title" x="14" y="{middle}" text-anchor="middle" '
        f'transform="rotate(-90 14 {middle})">{html.escape(what)}</text>'
    )


SHADES = 48
"""Percent of color in the cell of the fastest plan; more would leave too little contrast in the
dark."""

SLOWEST = 2.0
"""Times as slow as the fastest plan: no color any more."""


def heat_map(outcomes: Sequence[PlanOutcome], rows: str, columns: str, best_s: float) -> Markup:
    """Return a table of the fastest step times.

    Args:
        outcomes: Of one model on one cluster.
        rows: Name of the degree down the side, a setting of the plan.
        columns: Name of the degree along the top.
        best_s: Time of the cell with the most color, in seconds.
    """
    tried: dict[tuple[int, int], list[PlanOutcome]] = {}
    for outcome in outcomes:
        place = (int(outcome.settings[rows]), int(outcome.settings[columns]))
        tried.setdefault(place, []).append(outcome)
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


def _cell(tried: list[PlanOutcome] | None, best_s: float) -> Markup:
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
