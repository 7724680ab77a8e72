"""HTML from text: everything is escaped on its way in, tables have captions and scopes."""

import html
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from layerdag.statistics import Interval

LONG, SHOWN = 12, 8
"""Tables of more than ``LONG`` rows show the first ``SHOWN`` and unfold the others."""


@dataclass(frozen=True)
class Markup:
    """A finished piece of HTML; plain text becomes one through ``text``."""

    html: str


def text(value: object) -> Markup:
    """Return ``value`` as escaped text."""
    return Markup(html.escape(str(value)))


def element(tag: str, *children: Markup | str, **attributes: str) -> Markup:
    """Return an element; strings are escaped, a trailing underscore of an attribute is dropped."""
    written = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{html.escape(value)}"'
        for name, value in attributes.items()
    )
    inner = "".join(
        (child if isinstance(child, Markup) else text(child)).html for child in children
    )
    return Markup(f"<{tag}{written}>{inner}</{tag}>")


def joined(pieces: Iterable[Markup]) -> Markup:
    """Return the pieces one after the other."""
    return Markup("".join(piece.html for piece in pieces))


def table(
    caption: str,
    head: Sequence[str],
    rows: Iterable[Sequence[Markup | str]],
    *numeric: int,
    shown: int | None = None,
) -> Markup:
    """Return a table; the first column names the row, the ``numeric`` columns align right.

    Of a long table the first ``SHOWN`` rows are visible at once, the others unfold (print has all).

    Args:
        caption: What the table shows.
        head: Names of the columns.
        rows: The cells of each row.
        *numeric: Columns of numbers.
        shown: Visible rows of a table that does not fit; None for ``SHOWN`` of more than ``LONG``.
    """
    kept = list(rows)
    most = shown or SHOWN
    if len(kept) <= (shown or LONG):
        return _whole(caption, head, kept, numeric)
    more = f"{len(kept) - most:,} more rows: {caption}"
    rest = _whole(more, head, kept[most:], numeric)
    return joined(
        [
            _whole(caption, head, kept[:most], numeric),
            element("details", element("summary", f"{len(kept) - most:,} more rows"), rest),
        ]
    )


def _whole(
    caption: str,
    head: Sequence[str],
    rows: Sequence[Sequence[Markup | str]],
    numeric: Sequence[int],
) -> Markup:
    """Return one table that scrolls sideways where it is too wide, by keyboard, too."""

    def classes(column: int) -> dict[str, str]:
        return {"class_": "n"} if column in numeric else {}

    header = element(
        "tr", *(element("th", name, scope="col", **classes(i)) for i, name in enumerate(head))
    )
    body = [
        element(
            "tr",
            element("th", row[0], scope="row"),
            *(element("td", cell, **classes(i)) for i, cell in enumerate(row[1:], start=1)),
        )
        for row in rows
    ]
    title = element("caption", element("span", caption))
    inner = element("table", title, element("thead", header), element("tbody", *body))
    return scrolling(inner, caption)


def scrolling(inner: Markup, label: str) -> Markup:
    """Return something wide in a frame that scrolls sideways and can be reached by keyboard."""
    return element("div", inner, class_="scroll", tabindex="0", role="group", aria_label=label)


def section(identifier: str, title: str, *children: Markup) -> Markup:
    """Return a section with a heading that links can reach."""
    heading = element("h2", title, id=f"{identifier}-title")
    return element(
        "section", heading, *children, id=identifier, aria_labelledby=f"{identifier}-title"
    )


def number(value: float | None, digits: int = 3) -> str:
    """Return a number with ``digits`` significant digits, "—" for none."""
    if value is None or not math.isfinite(value):
        return "—"
    if value != 0 and not 1e-3 <= abs(value) < 1e6:
        return f"{value:.{digits - 1}e}"
    decimals = 0 if value == 0 else max(digits - 1 - math.floor(math.log10(abs(value))), 0)
    return f"{value:,.{decimals}f}"


def percent(fraction: float | None) -> str:
    """Return a fraction as a percentage; 100 % means all, never nearly all."""
    if fraction is None or not math.isfinite(fraction):
        return "—"
    if fraction in (0.0, 1.0):
        return f"{fraction:.0%}"
    return f"{min(max(100 * fraction, 0.1), 99.9):.1f}%"


def percents(value: "Interval") -> str:
    """Return an interval of fractions in brackets, as percentages."""
    return f"[{value.low:.0%}, {value.high:.0%}]"


def interval(value: "Interval | None") -> str:
    """Return an interval in brackets, "" for none."""
    return "" if value is None else f"[{number(value.low, 2)}, {number(value.high, 2)}]"
