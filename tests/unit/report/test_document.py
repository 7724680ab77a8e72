"""The frame that all pages share."""

import re
from html.parser import HTMLParser

from layerdag.report._document import document
from layerdag.viz import element

SECTIONS = (
    ("first", "Its words", element("section", "one", id="first")),
    ("second", "a < b", element("section", "two & three", id="second")),
)


class Outline(HTMLParser):
    """Identifiers, link targets and the order of elements; every element is closed."""

    _VOID = frozenset({"meta", "link", "br"})

    def __init__(self, page: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.targets: list[str] = []
        self.open: list[str] = []
        self.order: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.order.append(tag)
        if tag not in self._VOID:
            self.open.append(tag)
        if found.get("id"):
            self.ids.append(str(found["id"]))
        if tag == "a":
            self.targets.append(str(found.get("href")))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def page(title: str = "Title") -> str:
    return document(title, "What it shows.", SECTIONS)


def test_every_element_is_closed_and_every_link_leads_somewhere() -> None:
    outline = Outline(page())
    assert not outline.open
    assert outline.targets == ["#main", "#first", "#second"]
    assert {target[1:] for target in outline.targets} <= set(outline.ids)


def test_the_content_can_be_reached_before_the_links() -> None:
    order = Outline(page()).order
    assert order.index("a") < order.index("header") < order.index("main") < order.index("footer")


def test_a_page_loads_and_runs_nothing() -> None:
    text = page()
    assert "default-src 'none'" in text
    assert not re.search(r"<(script|link|img|iframe)\b", text)
    assert not re.search(r"url\(|@import", text)


def test_words_are_escaped_in_title_and_links() -> None:
    text = page("A <b>& B")
    assert "<title>A &lt;b&gt;&amp; B</title>" in text
    assert "<b>" not in text
    assert ">a &lt; b</a>" in text


def test_it_has_one_heading_a_language_and_fits_small_screens() -> None:
    text = page()
    assert text.count("<h1") == 1
    assert '<html lang="en">' in text
    assert "width=device-width" in text
    assert "prefers-color-scheme: dark" in text or "color-scheme" in text
    assert "@media print" in text
