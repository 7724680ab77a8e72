"""Bars of the shares of named categories."""

import html

import numpy as np

from layerdag.report import CategoryFractions
from layerdag.report.charts._marks import figure, slot
from layerdag.viz import Markup, percent

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
    """Return the name without its middle: names of one family differ at their ends."""
    tail = length // 2 - 1
    return name if len(name) <= length else f"{name[: length - 1 - tail]}…{name[-tail:]}"
