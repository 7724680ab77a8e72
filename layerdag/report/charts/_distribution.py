"""A number's distribution in several samples: a histogram above the cumulative distribution."""

import html

import numpy as np

from layerdag.report import Distribution, Sample
from layerdag.report.charts._axis import Axis, tick_text
from layerdag.report.charts._marks import figure, slot
from layerdag.viz import Markup, number

WIDTH, HEIGHT = 300, 236
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
    scale = Axis(low, high, distribution.log, LEFT, WIDTH - RIGHT)
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
    return figure(title, label, frame + lines, (WIDTH, HEIGHT), "chart")


def _titles(distribution: Distribution) -> str:
    """Return the titles of the axes."""
    across = distribution.unit or "value"
    scale = ", logarithmic" if distribution.log else ""
    middle = (LEFT + WIDTH - RIGHT) / 2
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
    """Return the sorted values and the share of the sample up to each."""
    order = np.argsort(sample.values, kind="stable")
    value = np.asarray(sample.values, dtype=float)[order]
    weight = np.ones(value.size) if sample.weights is None else sample.weights[order]
    return value, np.cumsum(weight) / max(float(weight.sum()), 1e-300)


def _binned(sample: Sample, scale: Axis) -> np.ndarray:
    """Return the share of the sample in each bin; what lies outside counts at the ends."""
    ends = scale.edges(BINS)
    value = np.clip(np.asarray(sample.values, dtype=float), ends[0], ends[-1])
    count, _ = np.histogram(value, ends, weights=sample.weights)
    return np.asarray(count / max(float(count.sum()), 1e-300))


def _histogram(fraction_K: np.ndarray, scale: Axis, top: float) -> str:
    """Return the outline of a histogram as an SVG path."""
    high, low = HISTOGRAM
    x = scale.x(scale.edges(fraction_K.size))
    y = low - (low - high) * fraction_K / top
    steps = "".join(f"V{b:.1f}H{a:.1f}" for a, b in zip(x[1:], y, strict=True))
    return f"M{LEFT} {low}{steps}V{low}"


def _steps(sample: Sample, scale: Axis) -> str:
    """Return the cumulative distribution as an SVG path of at most ``MAX_POINTS`` steps."""
    value, fraction = _cumulative(sample)
    last = np.append(value[1:] != value[:-1], True)[: value.size]
    value, fraction = value[last], fraction[last]
    if value.size > MAX_POINTS:
        kept = np.unique(np.linspace(0, value.size - 1, MAX_POINTS).astype(int))
        value, fraction = value[kept], fraction[kept]
    high, low = CUMULATIVE
    x = np.clip(scale.x(value), LEFT, WIDTH - RIGHT)
    y = low - (low - high) * fraction
    steps = "".join(f"H{a:.1f}V{b:.1f}" for a, b in zip(x, y, strict=True))
    return f"M{LEFT} {low}{steps}H{WIDTH - RIGHT}"


def _frame(scale: Axis, top: float) -> str:
    """Return axes, grid and ticks of both parts."""
    parts = []
    marks = ((HISTOGRAM, (0.0, 1.0), top), (CUMULATIVE, (0.0, 0.5, 1.0), 1.0))
    for (high, low), shares, whole in marks:
        for fraction in shares:
            y = low - (low - high) * fraction
            parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}"/>')
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
    """Return a share of an axis, two digits at most."""
    return f"{number(100 * fraction, 2)}%" if 0 < fraction < 0.1 else f"{fraction:.0%}"
