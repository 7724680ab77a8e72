"""The Pareto front as a picture: time of a step against its cost or memory."""

import html
import math
from collections.abc import Sequence

from layerdag.viz import Markup
from layerdag.workloads.exploration import Outcome

WIDTH, HEIGHT = 640, 300
LEFT, RIGHT, TOP, BOTTOM = 62, 14, 12, 44
MOST_DOTS = 1000


def front_chart(
    outcomes: Sequence[Outcome], front: Sequence[Outcome], slot_of: dict[str, int], priced: bool
) -> Markup:
    """Return a scatter of all outcomes with the front as a line, both axes logarithmic.

    Args:
        outcomes: Those of one model that have a time.
        front: The best of them, by time.
        slot_of: Color of each cluster.
        priced: Whether the second figure is the cost of a step; otherwise it is memory.
    """
    shown = list(dict.fromkeys([*front, *outcomes]))[:MOST_DOTS]
    spots = [(outcome.step_s or 0.0, _second(outcome, priced)) for outcome in shown]
    across, up = (
        _Axis([x for x, _ in spots], LEFT, WIDTH - RIGHT),
        _Axis([y for _, y in spots], HEIGHT - BOTTOM, TOP),
    )
    dots = "".join(
        f'<circle class="k{slot_of[o.cluster]}" cx="{across.at(x):.1f}" cy="{up.at(y):.1f}" '
        f'r="{4.5 if o in front else 2.5}"><title>{html.escape(f"{o.cluster}: {o.plan}")}</title>'
        "</circle>"
        for o, (x, y) in zip(shown, spots, strict=True)
    )
    path = " ".join(
        f"{across.at(o.step_s or 0.0):.1f},{up.at(_second(o, priced)):.1f}" for o in front
    )
    what = "cost of a step" if priced else "memory of the fullest rank (GiB)"
    label = f"Step time against {what}: {len(outcomes)} plans, {len(front)} on the front"
    return Markup(
        f'<figure class="wide"><svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{html.escape(label)}">'
        f"{_ticks(across, up)}{_titles(what)}"
        f'<polyline class="front" points="{path}"/>{dots}</svg></figure>'
    )


def _second(outcome: Outcome, priced: bool) -> float:
    return outcome.cost if priced else outcome.memory_gib


class _Axis:
    """A logarithmic axis from pixel ``start`` to ``end``."""

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
        """Return multiples of a round step, for an axis of less than a factor of two or so."""
        step = 10.0 ** math.floor(math.log10((self.high - self.low) / 2))
        step *= max(k for k in (1, 2, 5) if k * step <= (self.high - self.low) / 2)
        return [
            k * step for k in range(math.ceil(self.low / step), math.floor(self.high / step) + 1)
        ]


def _ticks(across: _Axis, up: _Axis) -> str:
    down = "".join(
        f'<line class="grid" x1="{across.at(x):.1f}" x2="{across.at(x):.1f}" y1="{TOP}" '
        f'y2="{HEIGHT - BOTTOM}"/><text class="tick" x="{across.at(x):.1f}" '
        f'y="{HEIGHT - BOTTOM + 14}" text-anchor="middle">{x:g}</text>'
        for x in across.marks()
    )
    side = "".join(
        f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{up.at(y):.1f}" '
        f'y2="{up.at(y):.1f}"/><text class="tick" x="{LEFT - 6}" y="{up.at(y) + 4:.1f}" '
        f'text-anchor="end">{y:g}</text>'
        for y in up.marks()
    )
    return down + side


def _titles(what: str) -> str:
    middle = (HEIGHT - BOTTOM + TOP) / 2
    return (
        f'<text class="axis-title" x="{(LEFT + WIDTH) / 2}" y="{HEIGHT - 8}" text-anchor="middle">'
        "seconds per step</text>"
        f'<text class="axis-title" x="14" y="{middle}" text-anchor="middle" '
        f'transform="rotate(-90 14 {middle})">{html.escape(what)}</text>'
    )
