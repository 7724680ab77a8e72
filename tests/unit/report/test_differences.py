"""The page of a difference: ribbons and tables, bounded."""

import json
import re
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest
from raw_graphs import chain

from layerdag.differences.comparison import compare_aligned
from layerdag.differences.difference import (
    AlignedPrograms,
    CommunicationDelta,
    Difference,
    PairedValue,
    UnmatchedRun,
)
from layerdag.errors import UsageError
from layerdag.report.differences import (
    _MOST_RIBBONS,
    BAR,
    MOST_ROWS,
    WIDTH,
    ribbon,
    verdicts,
    write_difference,
)


def test_the_ribbon_shows_what_is_aligned_and_what_only_one_has(tmp_path):
    found = compare_aligned(chain("a", "abcde"), chain("b", "abxxde"))
    text = write_difference(found, tmp_path / "page.html").read_text()
    assert len(re.findall(r'class="ribbon"', text)) == 2
    assert len(re.findall(r'class="ribbon-gone"', text)) == 1
    assert len(re.findall(r'class="ribbon-new"', text)) == 1
    assert "5 nodes of A above 6 of B, 4 aligned" in text


def test_names_are_escaped_and_long_tables_stop(tmp_path):
    found = compare_aligned(chain("<a>", "ab"), chain("b", "ab", label="<script>"))
    many = tuple(UnmatchedRun("a", "graph", at, {"<op>": 1}) for at in range(MOST_ROWS + 5))
    text = write_difference(replace(found, stretches=many), tmp_path / "page.html").read_text()
    assert "<script>" not in text
    assert "<op>" not in text
    assert f"the first {MOST_ROWS}; 5 more in the JSON" in text


def test_an_equal_pair_has_a_page_that_says_so(tmp_path):
    found = compare_aligned(chain("a", "ab"), chain("a", "ab"), ignore=("time",))
    text = write_difference(found, tmp_path / "page.html").read_text()
    assert "equal in all that counts. Not counted: time." in text


def test_a_page_is_written_over_a_page_and_over_nothing_else(tmp_path):
    found = compare_aligned(chain("a", "ab"), chain("b", "abc"))
    page = tmp_path / "page.html"
    assert write_difference(found, page) == page
    first = page.read_bytes()
    write_difference(found, page)
    assert page.read_bytes() == first
    assert "structure" in json.loads(page.with_suffix(".json").read_text())["differing"]
    with pytest.raises(UsageError, match=r"page.htm: the page of a difference is a .html file"):
        write_difference(found, tmp_path / "page.htm")


@pytest.mark.parametrize("content", ["{}", "[]", "not json", '{"differing": []}', "[" * 5000])
def test_figures_of_something_else_are_never_replaced(tmp_path, content):
    figures = tmp_path / "page.json"
    figures.write_text(content)
    with pytest.raises(UsageError, match="never replaced; choose another name"):
        write_difference(
            compare_aligned(chain("a", "ab"), chain("b", "ab")), tmp_path / "page.html"
        )
    assert figures.read_text() == content
    assert not (tmp_path / "page.html").exists()


def test_every_verdict_and_link_leads_to_a_section_that_there_is(tmp_path):
    for other in ("ab", "abc", "xy"):
        found = compare_aligned(chain("a", "ab"), chain("b", other, label="z"))
        text = write_difference(found, tmp_path / "page.html").read_text()
        links = set(re.findall(r'href="#([^"]+)"', text))
        assert links <= set(re.findall(r'id="([^"]+)"', text))
        assert "labels" in links


def aligned(nodes: tuple[int, int], *runs: tuple[int, int, int]) -> AlignedPrograms:
    both = sum(length for at_a, at_b, length in runs if min(at_a, at_b) >= 0)
    return AlignedPrograms("ranks 0-3 <x>", nodes, both, 0, (0, 0), (0, 0), runs)


def rectangles(figure: ET.Element, style: str) -> list[dict[str, float]]:
    return [
        {name: float(box.attrib[name]) for name in ("x", "y", "width")}
        for box in figure.iter("rect")
        if box.attrib["class"] == f"ribbon-{style}"
    ]


def drawn(program: AlignedPrograms) -> ET.Element:
    return ET.fromstring(ribbon(program).html)


def test_bars_are_as_long_as_the_programs():
    upper, lower = rectangles(drawn(aligned((40, 10), (0, 0, 10), (10, -1, 30))), "base")
    assert upper["width"] == 4 * lower["width"]
    assert upper["y"] < lower["y"]
    assert upper["x"] + upper["width"] <= WIDTH


def test_what_only_one_has_is_marked_on_its_bar():
    figure = drawn(aligned((8, 6), (0, 0, 4), (4, -1, 4), (-1, 4, 2)))
    upper, lower = rectangles(figure, "base")
    (gone,), (new,) = rectangles(figure, "gone"), rectangles(figure, "new")
    assert (gone["y"], new["y"]) == (upper["y"], lower["y"])
    assert gone["width"] == 2 * new["width"]
    # The second half of A, and what follows four of six nodes of B.
    assert gone["x"] - upper["x"] == gone["width"]
    assert new["x"] - lower["x"] == 2 * new["width"]


def test_a_ribbon_goes_from_the_end_of_one_bar_to_the_start_of_the_other():
    figure = drawn(aligned((4, 4), (0, 0, 4)))
    upper, lower = rectangles(figure, "base")
    (band,) = figure.iter("path")
    assert f" {upper['y'] + BAR:g}C" in band.attrib["d"]
    assert f" {lower['y']:g}H" in band.attrib["d"]


def test_of_very_many_runs_the_longest_are_drawn():
    runs = [(2 * i, 2 * i, 1) for i in range(_MOST_RIBBONS + 100)]
    size = 2 * len(runs)
    figure = drawn(aligned((size + 50, size + 50), *runs, (size, size, 50)))
    bands = list(figure.iter("path"))
    assert len(bands) == _MOST_RIBBONS
    (upper, _) = rectangles(figure, "base")
    scale = upper["width"] / (size + 50)
    first = bands[0].attrib["d"].split()[0]
    assert float(first[1:]) - upper["x"] == round(size * scale, 2)


def test_programs_without_nodes_can_be_drawn():
    figure = drawn(aligned((0, 0)))
    assert len(rectangles(figure, "base")) == 2


def test_the_picture_is_described_in_words():
    figure = drawn(aligned((1200, 3), (0, 0, 3), (3, -1, 1197)))
    svg, caption = figure.find("svg"), figure.find("figcaption")
    assert svg is not None
    assert caption is not None
    assert svg.attrib["aria-label"] == caption.text
    assert caption.text == "ranks 0-3 <x>: 1,200 nodes of A above 3 of B, 3 aligned"


EVERY = {"structure", "operators", "communication", "time"}


def equal() -> Difference:
    return compare_aligned(chain("a", "ab"), chain("a", "ab"))


def test_equal_programs_are_told_so_without_times_that_none_has():
    (program,) = verdicts(equal(), EVERY)
    assert (program.answer, program.tone) == ("yes", "good")
    assert program.reason == "2 nodes correspond, 0 are only in A and 0 only in B."


def test_other_programs_are_told_with_how_much_corresponds():
    program = verdicts(compare_aligned(chain("a", "abcde"), chain("b", "abxxde")), EVERY)[0]
    assert (program.answer, program.tone, program.at) == ("no", "poor", "structure")
    assert program.reason == "4 nodes correspond, 1 are only in A and 2 only in B."


def test_communication_is_summed():
    rows = (
        CommunicationDelta("ALL_REDUCE", 2, (4, 4), (1024, 1024)),
        CommunicationDelta("message", 2, (1, 0), (1024, 0)),
    )
    _, found = verdicts(replace(equal(), communication=rows), EVERY)
    assert found.answer == "no"
    assert found.reason == "A has 5 collectives and messages of 2 KiB, B has 4 of 1 KiB."


@pytest.mark.parametrize(
    ("a", "b", "told", "tone", "words"),
    [
        (1000.0, 1001.0, "yes", "good", "1.00 ms, that of B 1.00 ms"),
        (1000.0, 1040.0, "+4 %", "good", "1.00 ms, that of B 1.04 ms"),
        (200.0, 100.0, "-50 %", "poor", "200 us, that of B 100 us"),
        (4e6, 5e6, "+25 %", "fair", "4.00 s, that of B 5.00 s"),
    ],
)
def test_time_is_told_in_percent_and_in_units_that_people_read(a, b, told, tone, words):
    times = (PairedValue("compute", 1.0, 9.0, "us"), PairedValue("simulated makespan", a, b, "us"))
    _, found = verdicts(replace(equal(), times=times), EVERY)
    assert (found.answer, found.tone) == (told, tone)
    assert words in found.reason
    assert "simulated makespan" in found.reason


def test_a_verdict_links_to_nothing_that_the_page_lacks():
    (program,) = verdicts(equal(), set())
    assert program.at == ""
