"""The frame of every page: head, links to its sections, style, foot."""

from collections.abc import Sequence
from importlib.resources import files

from layerdag._version import __version__
from layerdag.viz import Markup, element, joined, text

# A page needs nothing from anywhere, so it forbids itself everything but its own style.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def document(title: str, lead: str, sections: Sequence[tuple[str, str, Markup]]) -> str:
    """Return one HTML document.

    Args:
        title: Its heading.
        lead: A sentence or two below it.
        sections: Identifier, words of the link, and content of each.
    """
    links = (element("li", element("a", label, href=f"#{name}")) for name, label, _ in sections)
    head = element(
        "header",
        element("h1", title),
        element("p", lead, class_="lead"),
        element("nav", element("ul", *links), aria_label="Sections"),
    )
    main = element("main", *(part for _, _, part in sections), id="main")
    foot = element(
        "footer", f"Written by layerdag {__version__}. The figures lie beside this page as JSON."
    )
    skip = element("a", "Skip to the content", class_="skip", href="#main")
    style = (files("layerdag.report") / "style.css").read_text()
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{text(title).html}</title><style>{style}</style></head>"
        f"<body>{joined((skip, head, main, foot)).html}</body></html>\n"
    )
