"""What the ranks of a job do, and when."""

import html

import numpy as np

from layerdag.report import Lane, Timeline
from layerdag.report.charts._axis import Axis, tick_text
from layerdag.report.charts._marks import figure
from layerdag.viz import Markup

WIDTH, LEFT, RIGHT, TOP, BOTTOM = 480, 142, 10, 4, 40
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
    scale = Axis(0.0, max(end_ms, 1e-9), False, LEFT, WIDTH - RIGHT)
    height = TOP + len(timeline.lanes) * (LANE + GAP) + BOTTOM
    parts = [_ticks(scale, height)]
    for row, lane in enumerate(timeline.lanes):
        y = TOP + row * (LANE + GAP)
        parts.append(
            f'<rect class="lane" x="{LEFT}" y="{y}" width="{WIDTH - RIGHT - LEFT}" '
            f'height="{LANE}"/><text class="tick" x="{LEFT - 6}" y="{y + 13}" text-anchor="end">'
            f"{html.escape(lane.name)}</text>{_pieces(lane, scale, y, slot_of)}"
        )
    label = f"{timeline.title}: {len(timeline.lanes)} lanes, {timeline.duration_ms:.3g} ms"
    caption = f"{timeline.title}, {timeline.duration_ms:.3g} ms"
    return figure(caption, label, "".join(parts), (WIDTH, height), "chart timeline")


def _ticks(scale: Axis, height: int) -> str:
    """Return grid, ticks and title of the axis."""
    bottom = height - BOTTOM
    lines = "".join(
        f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{bottom + 3}"/>'
        f'<text class="tick" x="{x:.1f}" y="{bottom + 15}" text-anchor="middle">'
        f"{tick_text(value)}</text>"
        for value in scale.ticks()
        for x in [float(scale.x(np.array(value)))]
    )
    middle = (LEFT + WIDTH - RIGHT) / 2
    return (
        f'{lines}<text class="axis-title" x="{middle}" y="{height - 6}" text-anchor="middle">'
        "simulated time (ms)</text>"
    )


def _pieces(lane: Lane, scale: Axis, y: int, slot_of: dict[str, int]) -> str:
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
