"""The page of a difference: ribbons and tables, bounded."""

import re
from dataclasses import replace
from pathlib import Path

from raw_graphs import chain

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
