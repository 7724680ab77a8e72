"""Small parts of charts: frame and caption, key to the colors, ratios with their interval."""

import html
import math

from layerdag.evaluation.metrics import Interval
from layerdag.viz import Markup

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
