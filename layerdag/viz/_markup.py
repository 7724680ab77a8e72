"""HTML from text: everything is escaped on its way in, tables have captions and scopes."""

import html
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from layerdag.evaluation.metrics import Interval


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
    caption: str, head: Sequence[str], rows: Iterable[Sequence[Markup | str]], *numeric: int
) -> Markup:
    """Return a table; the first column names the row, the ``numeric`` columns align right."""

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
    inner = element(
        "table", element("caption", caption), element("thead", header), element("tbody", *body)
    )
    return element("div", inner, class_="scroll", tabindex="0", role="region", aria_label=caption)


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


def percent(share: float | None) -> str:
    """Return a share as a percentage; 100 % means all, never nearly all."""
    if share is None or not math.isfinite(share):
        return "—"
    if share in (0.0, 1.0):
        return f"{share:.0%}"
    return f"{min(max(100 * share, 0.1), 99.9):.1f}%"


def interval(value: Interval | None) -> str:
    """Return an interval in brackets, "" for none."""
    return "" if value is None else f"[{number(value.low, 2)}, {number(value.high, 2)}]"
