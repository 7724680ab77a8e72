"""Two programs as bars, from first to last node, with a ribbon between nodes that correspond."""

import html

from layerdag.viz import Markup
from layerdag.workloads.differences import AlignedPrograms

WIDTH, BAR, GAP = 960, 16, 60
_LEFT = 26.0
_MOST_RIBBONS = 400
_LEAST = 0.8


def ribbon(program: AlignedPrograms) -> Markup:
    """Return the figure of one pair of programs.

    Bars have the color of what corresponds; what only one has is drawn in the second color. The
    longest runs are drawn if there are very many.
    """
    scale = (WIDTH - _LEFT - 4) / max(*program.nodes, 1)
    runs = sorted(program.runs, key=lambda run: -run[2])[:_MOST_RIBBONS]
    top, bottom = 2, 2 + BAR + GAP
    shapes = [
        _bar(_LEFT, top, program.nodes[0] * scale, "base"),
        _bar(_LEFT, bottom, program.nodes[1] * scale, "base"),
        f'<text class="tick" x="4" y="{top + 12}">A</text>',
        f'<text class="tick" x="4" y="{bottom + 12}">B</text>',
    ]
    for at_a, at_b, length in runs:
        left_a, left_b, size = _LEFT + at_a * scale, _LEFT + at_b * scale, length * scale
        if at_b < 0:
            shapes.append(_bar(left_a, top, size, "gone"))
        elif at_a < 0:
            shapes.append(_bar(left_b, bottom, size, "new"))
        else:
            shapes.append(_band(left_a, left_b, size, top + BAR, bottom))
    label = (
        f"{program.name}: {program.nodes[0]:,} nodes of A above {program.nodes[1]:,} of B, "
        f"{program.aligned:,} aligned"
    )
    return Markup(
        f'<figure class="chart ribbons"><figcaption>{html.escape(label)}</figcaption>'
        f'<svg viewBox="0 0 {WIDTH} {bottom + BAR + 4}" role="img" '
        f'aria-label="{html.escape(label)}">{"".join(shapes)}</svg></figure>'
    )


def _bar(left: float, top: int, width: float, style: str) -> str:
    """Return a piece of a bar."""
    width = max(width, _LEAST)
    color = {"base": "ribbon-base", "gone": "ribbon-gone", "new": "ribbon-new"}[style]
    return f'<rect class="{color}" x="{left:.2f}" y="{top}" width="{width:.2f}" height="{BAR}"/>'


def _band(left_a: float, left_b: float, width: float, top: int, bottom: int) -> str:
    """Return the band between two runs of the same length."""
    width = max(width, _LEAST)
    middle = (top + bottom) / 2
    right_a, right_b = left_a + width, left_b + width
    return (
        f'<path class="ribbon" d="M{left_a:.2f} {top}C{left_a:.2f} {middle} {left_b:.2f} {middle} '
        f"{left_b:.2f} {bottom}H{right_b:.2f}C{right_b:.2f} {middle} {right_a:.2f} {middle} "
        f'{right_a:.2f} {top}Z"/>'
    )
