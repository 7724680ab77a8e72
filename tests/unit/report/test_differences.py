"""The page of a difference: ribbons and tables, bounded."""

import json
import re
from dataclasses import replace

import pytest
from raw_graphs import chain

from layerdag.differences.comparison import compare_aligned
from layerdag.differences.difference import (
    CommunicationDelta,
    Difference,
    PairedValue,
    UnmatchedRun,
)
from layerdag.errors import UsageError
from layerdag.report.differences import (
    MAX_ROWS,
    verdicts,
    write_difference,
)


def test_the_ribbon_shows_what_is_aligned_and_what_only_one_has(tmp_path):
    found = compare_aligned(chain("a", "abcde"), chain("b", "abxxde"))
    text = write_difference(found, tmp_path / "page.html").read_text()
    (figure,) = re.findall(r"<figure.*?</figure>", text)
    # What only one has lies on its bar: two ribbons, and a mark for each of A and of B.
    assert [figure.count(f"var(--{name})") for name in ("accent", "k7", "synthetic")] == [4, 1, 1]
    assert "5 nodes of A above 6 of B, 4 aligned" in text


def test_names_are_escaped_and_long_tables_stop(tmp_path):
    found = compare_aligned(chain("<a>", "ab"), chain("b", "ab", label="<script>"))
    many = tuple(UnmatchedRun("a", "graph", at, {"<op>": 1}) for at in range(MAX_ROWS + 5))
    text = write_difference(replace(found, stretches=many), tmp_path / "page.html").read_text()
    assert "<script>" not in text
    assert "<op>" not in text
    assert f"the first {MAX_ROWS}; 5 more in the JSON" in text


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
