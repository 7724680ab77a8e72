"""The page of a difference: ribbons and tables, bounded."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from raw_graphs import chain

from layerdag.errors import UsageError
from layerdag.report.differences import write_difference
from layerdag.report.differences._page import MOST_ROWS
from layerdag.workloads.differences import Stretch, diff


def test_the_ribbon_shows_what_is_aligned_and_what_only_one_has(tmp_path: Path) -> None:
    found = diff(chain("a", "abcde"), chain("b", "abxxde"))
    text = write_difference(found, tmp_path / "page.html").read_text()
    assert len(re.findall(r'class="ribbon"', text)) == 2
    assert len(re.findall(r'class="ribbon-gone"', text)) == 1
    assert len(re.findall(r'class="ribbon-new"', text)) == 1
    assert "5 nodes of A above 6 of B, 4 aligned" in text


def test_names_are_escaped_and_long_tables_stop(tmp_path: Path) -> None:
    found = diff(chain("<a>", "ab"), chain("b", "ab", label="<script>"))
    many = tuple(Stretch("a", "graph", at, {"<op>": 1}) for at in range(MOST_ROWS + 5))
    text = write_difference(replace(found, stretches=many), tmp_path / "page.html").read_text()
    assert "<script>" not in text
    assert "<op>" not in text
    assert f"the first {MOST_ROWS}; 5 more in the JSON" in text


def test_an_equal_pair_has_a_page_that_says_so(tmp_path: Path) -> None:
    found = diff(chain("a", "ab"), chain("a", "ab"), ignore=("time",))
    text = write_difference(found, tmp_path / "page.html").read_text()
    assert "equal in all that counts. Not counted: time." in text


def test_a_page_is_written_over_a_page_and_over_nothing_else(tmp_path: Path) -> None:
    found = diff(chain("a", "ab"), chain("b", "abc"))
    page = tmp_path / "page.html"
    assert write_difference(found, page) == page
    first = page.read_bytes()
    write_difference(found, page)
    assert page.read_bytes() == first
    assert "structure" in json.loads(page.with_suffix(".json").read_text())["differing"]
    with pytest.raises(UsageError, match=r"page.htm: the page of a difference is a .html file"):
        write_difference(found, tmp_path / "page.htm")


@pytest.mark.parametrize("content", ["{}", "[]", "not json", '{"differing": []}', "[" * 5000])
def test_figures_of_something_else_are_never_replaced(tmp_path: Path, content: str) -> None:
    figures = tmp_path / "page.json"
    figures.write_text(content)
    with pytest.raises(UsageError, match="never replaced; choose another name"):
        write_difference(diff(chain("a", "ab"), chain("b", "ab")), tmp_path / "page.html")
    assert figures.read_text() == content
    assert not (tmp_path / "page.html").exists()


def test_every_verdict_and_link_leads_to_a_section_that_there_is(tmp_path: Path) -> None:
    for other in ("ab", "abc", "xy"):
        found = diff(chain("a", "ab"), chain("b", other, label="z"))
        text = write_difference(found, tmp_path / "page.html").read_text()
        links = set(re.findall(r'href="#([^"]+)"', text))
        assert links <= set(re.findall(r'id="([^"]+)"', text))
        assert "labels" in links
