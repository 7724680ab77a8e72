"""Small charts as inline SVG: colors come from the page's style, so that they follow its theme."""

import html
import math

import numpy as np

from layerdag.evaluation.metrics import Interval
from layerdag.report._content import CategoryFractions, Distribution, Sample
from layerdag.viz import Markup, number

WIDTH, HEIGHT = 300, 170
LEFT, RIGHT, TOP, BOTTOM = 34, 10, 8, 30
STRIP_LOW, STRIP_HIGH = 0.25, 16.0
MAX_POINTS = 200
NAME_ROOM, VALUE_ROOM = 118, 54
NAME_LENGTH = 17


def distribution_chart(distribution: Distribution) -> Markup:
    """Return the cumulative distribution of each sample; the area between two is their W1."""
    low, high = _range(distribution)
    scale = _Axis(low, high, distribution.log)
    lines = "".join(
        f'<path class="line s{_slot(i, len(distribution.samples))}" d="{_steps(sample, scale)}"/>'
        for i, sample in enumerate(distribution.samples)
    )
    unit = f" ({distribution.unit})" if distribution.unit else ""
    names = ", ".join(sample.source for sample in distribution.samples)
    label = f"Cumulative distribution of {distribution.title}{unit}: {names}"
    return _figure(distribution.title + unit, label, _frame(scale) + lines, HEIGHT)


def shares_chart(shares: CategoryFractions, most: int = 14) -> Markup:
    """Return bars of the largest categories, one bar a sample."""
    size = np.max([share_K for _, share_K in shares.shares], axis=0)
    order = np.argsort(-size, kind="stable")[:most]
    top = max(float(size.max(initial=0)), 1e-9)
    bars = 4 + 5 * len(shares.shares)
    height = TOP + len(order) * bars + 4
    left = NAME_ROOM
    parts = []
    for row, category in enumerate(order.tolist()):
        y = TOP + row * bars
        label = shares.labels[category]
        parts.append(
            f'<text class="tick" x="{left - 6}" y="{y + bars / 2 + 1:.1f}" '
            f'text-anchor="end"><title>{html.escape(label)}</title>'
            f"{html.escape(_shortened(label, NAME_LENGTH))}</text>"
        )
        for i, (source, share_K) in enumerate(shares.shares):
            length = (WIDTH - left - VALUE_ROOM) * float(share_K[category]) / top
            parts.append(
                f'<rect class="bar s{_slot(i, len(shares.shares))}" x="{left}" y="{y + 5 * i}" '
                f'width="{length:.1f}" height="4.4"><title>{html.escape(source)}: '
                f"{100 * float(share_K[category]):.2f} %</title></rect>"
            )
        percent = f"{100 * float(size[category]):.1f} %"
        end = left + (WIDTH - left - VALUE_ROOM) * float(size[category]) / top + 4
        parts.append(
            f'<text class="tick" x="{end:.1f}" y="{y + bars / 2 + 1:.1f}">{percent}</text>'
        )
    hidden = len(shares.labels) - len(order)
    title = shares.title + (f" (largest {len(order)}, {hidden} not shown)" if hidden else "")
    return _figure(title, f"Shares of {shares.title}", "".join(parts), height, "chart bars")


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
        f's{_slot(i, len(sources))}" d="M1 5H25"/></svg>{html.escape(source)}</li>'
        for i, source in enumerate(sources)
    )
    return Markup(f'<ul class="legend">{keys}</ul>')


class _Axis:
    """Maps values to horizontal positions, linear or logarithmic."""

    def __init__(self, low: float, high: float, log: bool) -> None:
        self.log = log
        self._low, self._high = (math.log10(low), math.log10(high)) if log else (low, high)

    def x(self, value: np.ndarray) -> np.ndarray:
        """Return horizontal positions."""
        place = np.log10(np.maximum(value, 10.0**self._low)) if self.log else value
        share = (place - self._low) / max(self._high - self._low, 1e-12)
        return np.asarray(LEFT + (WIDTH - LEFT - RIGHT) * share)

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


def _range(distribution: Distribution) -> tuple[float, float]:
    """Return the range of all samples, cut at the 0.5 % tails so that one outlier hides nothing."""
    lows, highs = [], []
    for sample in distribution.samples:
        value, share = _cumulative(sample)
        if distribution.log:
            # Zeros lie left of any logarithmic axis.
            value, share = value[value > 0], share[value > 0]
        if not value.size:
            continue
        lows.append(value[min(int(np.searchsorted(share, 0.005)), value.size - 1)])
        highs.append(value[min(int(np.searchsorted(share, 0.995)), value.size - 1)])
    low, high = float(min(lows, default=1.0)), float(max(highs, default=1.0))
    if distribution.log:
        return low, max(high, 2 * low)
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def _cumulative(sample: Sample) -> tuple[np.ndarray, np.ndarray]:
    """Return the sorted values and the share of the sample up to each."""
    order = np.argsort(sample.values, kind="stable")
    value = np.asarray(sample.values, dtype=float)[order]
    weight = np.ones(value.size) if sample.weights is None else sample.weights[order]
    return value, np.cumsum(weight) / max(float(weight.sum()), 1e-300)


def _steps(sample: Sample, scale: _Axis) -> str:
    """Return the cumulative distribution as an SVG path of at most ``MAX_POINTS`` steps."""
    value, share = _cumulative(sample)
    last = np.append(value[1:] != value[:-1], True)
    value, share = value[last], share[last]
    if value.size > MAX_POINTS:
        keep = np.unique(np.linspace(0, value.size - 1, MAX_POINTS).astype(int))
        value, share = value[keep], share[keep]
    x = np.clip(scale.x(value), LEFT, WIDTH - RIGHT)
    y = TOP + (HEIGHT - TOP - BOTTOM) * (1 - share)
    steps = "".join(f"H{a:.1f}V{b:.1f}" for a, b in zip(x, y, strict=True))
    return f"M{LEFT} {HEIGHT - BOTTOM}{steps}H{WIDTH - RIGHT}"


def _frame(scale: _Axis) -> str:
    """Return axes, grid and ticks."""
    parts = []
    for share in (0.0, 0.5, 1.0):
        y = TOP + (HEIGHT - TOP - BOTTOM) * (1 - share)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}"/>')
        parts.append(
            f'<text class="tick" x="{LEFT - 5}" y="{y + 3.5}" text-anchor="end">{share:.0%}</text>'
        )
    for value in scale.ticks():
        x = float(scale.x(np.array(value)))
        y = HEIGHT - BOTTOM
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{y}" y2="{y + 4}"/>')
        parts.append(
            f'<text class="tick" x="{x:.1f}" y="{y + 16}" text-anchor="middle">'
            f"{_tick(value)}</text>"
        )
    return "".join(parts)


def _tick(value: float) -> str:
    """Return a tick's number, whole numbers without decimals."""
    return f"{value:,.0f}" if value == round(value) and abs(value) < 1e6 else number(value, 2)


def _figure(title: str, label: str, inner: str, height: int, style: str = "chart") -> Markup:
    """Return a figure with a caption and a description for screen readers."""
    return Markup(
        f'<figure class="{style}"><figcaption>{html.escape(title)}</figcaption>'
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-label="{html.escape(label)}">{inner}</svg></figure>'
    )


def _slot(index: int, count: int) -> int:
    """Return the style slot of a sample: the last is synthetic (2), the one before real test."""
    return index + 3 - count


def _shortened(name: str, length: int) -> str:
    """Return the name without its middle: names of one family differ at their ends."""
    tail = length // 2 - 1
    return name if len(name) <= length else f"{name[: length - 1 - tail]}…{name[-tail:]}"
