"""The verdicts that a report begins with."""

import json
import re
from dataclasses import dataclass, replace
from enum import Enum
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import torch
from killing import states_when_killed

from layerdag.dag.dag import DAG
from layerdag.errors import GraphError, UsageError
from layerdag.report.content import Answer, Picture, ReportContent, SummaryRow
from layerdag.report.page import (
    plain,
    render,
    require_replaceable_page,
    require_replaceable_report,
    write_report,
)


def test_each_question_has_answer_reason_and_a_link():
    answer = Answer("May it?", "no", "poor", "It is <a copy>.", "membership")
    found = render(ReportContent("t", "l", answers=(answer,)))
    assert "May it?" in found
    assert 'class="answer tone-poor"' in found
    assert "It is &lt;a copy&gt;." in found
    assert '<a href="#membership">Why: membership attacks</a>' in found


SMALL = ReportContent("t", "l", summary=(SummaryRow("a", "1"),), caveats=("c",))


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


def test_every_element_is_closed_and_every_link_leads_somewhere():
    outline = Outline(render(SMALL))
    assert not outline.open
    assert outline.targets == ["#main", "#summary", "#provenance"]
    assert {target[1:] for target in outline.targets} <= set(outline.ids)


def test_the_content_can_be_reached_before_the_links():
    order = Outline(render(SMALL)).order
    assert order.index("a") < order.index("header") < order.index("main") < order.index("footer")


def test_words_are_escaped_in_the_title():
    text = render(replace(SMALL, title="A <b>& B"))
    assert "<title>A &lt;b&gt;&amp; B</title>" in text
    assert "<b>" not in text


def test_it_has_one_heading_a_language_and_fits_small_screens():
    text = render(SMALL)
    assert text.count("<h1") == 1
    assert '<html lang="en">' in text
    assert "width=device-width" in text
    assert "prefers-color-scheme: dark" in text
    assert "@media print" in text


def test_the_page_is_well_formed_and_its_links_lead_somewhere(content):
    page = Outline(render(content))
    assert page.open == []
    assert len(set(page.ids)) == len(page.ids)
    assert {target[1:] for target in page.targets} <= set(page.ids)
    assert {
        *("verdict", "summary", "neighbors", "timelines", "pictures", "validity", "membership"),
        *("similarity", "distributions", "usefulness", "simulation", "provenance"),
    } <= set(page.ids)


def test_the_page_loads_nothing_from_anywhere(content):
    page = render(content)
    assert not re.findall(r"(?:src|href)=\"(?!#)", page)
    assert "<script" not in page
    assert "http" not in page.replace('http-equiv="Content-Security-Policy"', "")
    assert not re.search(r"url\((?!#)|@import|<(link|img|iframe)\b", page)
    assert "default-src 'none'" in page
    assert "A &lt;title&gt;" in page


def test_similarity_along_the_depth_is_a_table_of_its_own_where_there_is_one(content):
    page = render(content)
    assert "Ratios along the depth" in page
    assert "80% to 100%" in page
    assert "Ratios along the depth" not in render(replace(content, depth=()))


def test_what_synthetic_graphs_teach_stands_with_its_interval(content):
    caption = r"synthetic reaches [-0-9.]+% of the real correlation \([-0-9.]+ to [-0-9.]+\)"
    assert re.search(caption, render(content))


def test_a_part_without_result_has_no_section(content):
    page = render(replace(content, transfer=None, similarity=None, pictures=()))
    assert 'id="usefulness"' not in page
    assert 'id="similarity"' not in page
    assert 'id="validity"' in page
    assert render(ReportContent("Empty", "Nothing.")).count("<section") == 0


def test_the_figures_lie_beside_the_page_as_strict_json(content, tmp_path):
    written = write_report(content, tmp_path / "out" / "report.html")
    assert written.read_text().startswith("<!doctype html>")
    figures = json.loads((tmp_path / "out" / "report.json").read_text())
    assert figures["similarity"]["generated"] == 10
    assert figures["novelty"]["graphs"] == 10
    assert figures["pictures"][0]["dag"] == {
        "nodes": content.pictures[0].dag.num_nodes,
        "edges": content.pictures[0].dag.num_edges,
    }
    assert "label_N" not in figures["pictures"][0]


def test_the_prose_is_no_code(content):
    page = render(replace(content, repairs=(("message without a sender, sent by stage 0", 3),)))
    assert "one fit, seed 0" in page
    assert "synthetic keeping it" in page
    assert "the rule is broken when" in page
    assert "message without a sender" in page
    assert "(0,)" not in page
    assert "mean over seeds" not in page
    assert "Kendall" not in page.partition('id="simulation"')[2]


def test_figures_without_a_ratio_have_a_table_of_their_own(content):
    page = render(content)
    distances, _, others = page.partition("Figures that are no distances")
    assert ">Samples that lie among real graphs</th>" in others.partition("</table>")[0]
    assert "Samples that lie among" not in distances.partition('id="similarity"')[2]


def test_rules_have_a_column_for_real_graphs_where_there_are_any(content):
    assert "real keeping it" in render(content)
    assert "real keeping it" not in render(replace(content, real_structure=None))


def test_figures_replace_older_figures_but_no_other_file(content, tmp_path):
    page = tmp_path / "report.html"
    write_report(content, page)
    write_report(content, page)
    for text in ('{"samples": 3}', "no JSON", "[1]"):
        page.with_suffix(".json").write_text(text)
        with pytest.raises(UsageError, match="never replaced"):
            write_report(content, page)
        assert page.with_suffix(".json").read_text() == text
    letter = tmp_path / "letter.txt"
    letter.write_text("Dear Sir")
    with pytest.raises(UsageError, match="no report of layerdag and never replaced"):
        write_report(content, letter)
    assert letter.read_text() == "Dear Sir"


def test_a_kill_at_any_step_leaves_a_page_and_never_beside_the_figures_of_another(
    content, tmp_path
):
    page = tmp_path / "report.html"

    def look() -> str:
        figures = page.with_suffix(".json")
        title = "Old" if "<title>Old" in page.read_text() else "New"
        if not figures.exists():
            return f"{title} page"
        assert json.loads(figures.read_text())["title"] == title
        return title

    def write(title: str) -> None:
        write_report(replace(content, title=title), page)

    seen = states_when_killed(lambda: write("Old"), lambda: write("New"), look)
    assert list(dict.fromkeys(seen)) == ["Old", "Old page", "New page", "New"]


def test_a_page_with_the_name_of_its_figures_or_of_a_folder_is_refused(content, tmp_path):
    with pytest.raises(UsageError, match=r"figures of the page get this name"):
        write_report(content, tmp_path / "report.json")
    with pytest.raises(UsageError, match="is a folder; name a file"):
        write_report(content, tmp_path)
    with pytest.raises(UsageError, match="'' is no name of a page"):
        require_replaceable_report("")


def chain(length: int) -> DAG:
    steps = torch.arange(length - 1)
    return DAG.build(torch.zeros((length, 1), dtype=torch.int64), torch.stack([steps, steps + 1]))


class Color(Enum):
    RED = "red"


@dataclass(frozen=True)
class Inner:
    color: Color
    label_N: tuple[str, ...] = ("left out",)
    class_N: tuple[str, ...] = ("left out",)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Inner(Color.RED), {"color": "red"}),
        ({1: Color.RED}, {"1": "red"}),
        ((1, [2.5, None, "x", True]), [1, [2.5, None, "x", True]]),
        (np.array([[1.5, np.inf]]), [[1.5, None]]),
        (np.int64(3), 3),
        ({"a": (float("nan"), np.array([1, 2]))}, {"a": [None, [1, 2]]}),
        (np.float32(0.5), 0.5),
        (float("-inf"), None),
        (chain(2), {"nodes": 2, "edges": 1}),
    ],
)
def test_values_become_plain_data(value, expected):
    found = plain(value)
    assert found == expected
    json.dumps(found, allow_nan=False)


def test_a_page_that_cannot_be_drawn_leaves_older_figures_alone(tmp_path):
    page = tmp_path / "report.html"
    write_report(ReportContent("old", "l"), page)
    before = [path.read_bytes() for path in (page, page.with_suffix(".json"))]
    cyclic = DAG.build(torch.zeros((2, 1), dtype=torch.int64), torch.tensor([[0, 1], [1, 0]]))
    broken = Picture("p", cyclic, ("", ""), ("k", "k"))
    with pytest.raises(GraphError, match="cycle"):
        write_report(ReportContent("new", "l", pictures=(broken,)), page)
    assert [path.read_bytes() for path in (page, page.with_suffix(".json"))] == before


def test_sections_come_in_one_order_with_links_to_those_that_are_there():
    page = render(SMALL)
    assert re.findall(r'<a href="#(\w+)">(\w+)</a>', page) == [
        ("summary", "Summary"),
        ("provenance", "Provenance"),
    ]
    assert re.findall(r'<section id="(\w+)"', page) == ["summary", "provenance"]


def guard(path: Path) -> None:
    require_replaceable_page(path, "a study", {"cells"}, (".json", ".csv"))


def test_a_free_place_and_a_page_of_the_same_kind_are_taken(tmp_path):
    page = tmp_path / "a.html"
    guard(page)
    page.write_text("an older page")
    page.with_suffix(".json").write_text(json.dumps({"cells": [], "more": 1}))
    guard(page)


@pytest.mark.parametrize("suffix", [".html", ".json", ".csv"])
@pytest.mark.parametrize("content", ["thesis", "[]", '{"chapters": 3}', "[" * 100_000])
def test_a_file_of_something_else_is_never_replaced(tmp_path, suffix, content):
    page = tmp_path / "a.html"
    page.with_suffix(suffix).write_text(content)
    with pytest.raises(UsageError, match=r"page of a study .* never replaced; choose another name"):
        guard(page)
    assert page.with_suffix(suffix).read_text() == content


def test_a_page_is_an_html_file(tmp_path):
    with pytest.raises(UsageError, match=r"a\.htm: the page of a study is a \.html file"):
        guard(tmp_path / "a.htm")
