"""Several runs on one page."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from layerdag.errors import DataError, UsageError
from layerdag.report.comparison import (
    ReportedRun,
    comparison_figures,
    read_reports,
    write_comparison,
)
from layerdag.report.content import Answer
from layerdag.report.page import report_figures, write_report


@pytest.fixture
def runs(content) -> tuple[ReportedRun, ReportedRun]:
    """Two runs of other verdicts and provenance."""
    other = replace(
        content,
        answers=(Answer("May it be shared?", "yes", "good", "Nothing <was> found."),),
        provenance=(("seed", "1"),),
        summary=content.summary[:2],
        leaks=(),
    )
    return ReportedRun("first", report_figures(content)), ReportedRun(
        "se<cond", report_figures(other)
    )


def rows(page: str, section: str) -> list[list[str]]:
    """Return the texts of the rows of a section."""
    part = page.partition(f'<section id="{section}"')[2].partition("</section>")[0]
    found = re.findall(r"<tr>(.*?)</tr>", part)
    return [
        [re.sub(r"<[^>]*>", "", cell) for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row)]
        for row in found
    ]


def test_verdicts_stand_side_by_side_with_their_reasons(runs, tmp_path):
    page = write_comparison(runs, tmp_path / "runs.html").read_text()
    head, verdict = rows(page, "verdict")
    assert head == ["question", "first", "se&lt;cond"]
    assert verdict[0] == "May it be shared?"
    assert verdict[1].startswith("no")
    assert verdict[2] == "yesNothing &lt;was&gt; found."
    assert page.index('id="verdict"') < page.index('id="similarity"')


def test_what_differs_in_how_they_were_made_is_a_table_and_the_rest_a_sentence(runs, tmp_path):
    page = write_comparison(runs, tmp_path / "runs.html").read_text()
    assert rows(page, "made")[1:] == [["seed", "0", "1"]]
    same = write_comparison((runs[0], runs[0]), tmp_path / "same.html").read_text()
    assert "Equal in all: seed (0)." in same


def test_runs_differ_most_in_what_stands_first(runs, tmp_path):
    first, second = runs
    changed = json.loads(json.dumps(second.figures))
    row = next(
        one for one in changed["similarity"]["rows"]
        if one["generated"]["metric"]["name"] == "edges"
    )  # fmt: skip
    row["generated"]["value"] *= 50
    page = write_comparison((first, ReportedRun("b", changed)), tmp_path / "runs.html").read_text()
    assert rows(page, "similarity")[1][0] == "Number of dependencies"


def test_a_run_without_attacks_has_a_dash(runs, tmp_path):
    page = write_comparison(runs, tmp_path / "runs.html").read_text()
    table = rows(page, "membership")
    assert table[1][0] == "Nearer to training"
    assert all(row[2] == "—" for row in table[1:])


def test_the_figures_are_by_what_and_by_run(runs):
    figures = comparison_figures(runs)
    assert figures["runs"] == ["first", "se<cond"]
    assert figures["verdicts"] == {"May it be shared?": {"first": "no", "se<cond": "yes"}}
    lines = figures["summary"]
    assert lines["median ratio"]["se<cond"] is None
    json.dumps(figures, allow_nan=False)


def test_a_comparison_replaces_its_own_page_and_no_other_file(runs, tmp_path):
    page = tmp_path / "runs.html"
    write_comparison(runs, page)
    write_comparison(runs, page)
    for text in ("{}", "no JSON", "[1]"):
        page.with_suffix(".json").write_text(text)
        with pytest.raises(UsageError, match="never replaced"):
            write_comparison(runs, page)
    with pytest.raises(UsageError, match=r"is a \.html file"):
        write_comparison(runs, tmp_path / "runs.txt")


@pytest.fixture
def written(content, tmp_path) -> list[Path]:
    return [write_report(content, tmp_path / name / "report.html") for name in ("a", "b")]


def test_a_run_is_a_folder_a_page_or_its_figures(written):
    a, b = written
    for places in ([a, b], [a.parent, b.with_suffix(".json")], [str(a), str(b.parent)]):
        runs = read_reports(places)
        assert [run.name for run in runs] == ["a", "b"]
        assert runs[0].figures["title"] == "A <title>"


def test_what_a_report_says_is_found_again(content, written):
    run, _ = read_reports(written)
    assert [*run.answers] == [one.question for one in content.answers]
    assert run.provenance == dict(content.provenance)
    assert run.summary == {row.what: row.synthetic for row in content.summary}
    assert [*run.attacks] == ["nearness", *(one.name for one in content.leaks[-1].attacks)]
    assert run.attacks["nearness"]["auc"] == content.leaks[-1].nearness.dcr_share


def test_ratios_are_those_of_the_report(content, written):
    run, _ = read_reports(written)
    expected = [row.matched_ratio for row in content.similarity.rows if row.matched_ratio]
    assert sorted(run.ratios.values()) == pytest.approx(sorted(expected))
    assert "Number of nodes" in run.ratios


def test_runs_of_equal_folder_names_are_told_apart(content, tmp_path):
    places = [
        write_report(content, tmp_path / name / "out" / "report.html") for name in ("one", "two")
    ]
    assert [run.name for run in read_reports(places)] == ["one/out", "two/out"]


def test_reports_of_one_folder_are_named_by_their_files(content, tmp_path):
    places = [write_report(content, tmp_path / name) for name in ("first.html", "second.html")]
    assert [run.name for run in read_reports(places)] == ["first", "second"]


def test_one_run_or_the_same_one_twice_is_wrong_use(written):
    with pytest.raises(UsageError, match="two reports or more"):
        read_reports(written[:1])
    with pytest.raises(UsageError, match="the same file"):
        read_reports([written[0], written[0].parent])


@pytest.mark.parametrize(
    "text",
    [
        "no JSON", "[1]", "3", "null", "{}", '{"summary": 3}', '{"summary": [], "answers": [1]}',
        '{"summary": [], "leaks": [{}]}', '{"summary": [], "similarity": {"rows": [{}]}}',
        '{"summary": [], "provenance": [["a"]]}', '{"summary": [{}]}', "[" * 100_000,
    ],
)  # fmt: skip
def test_what_is_no_report_is_told_with_its_place(written, tmp_path, text):
    bad = tmp_path / "bad.json"
    bad.write_text(text)
    with pytest.raises(DataError, match=r"bad\.json: is no report of layerdag"):
        read_reports([written[0], bad])


def test_a_missing_report_is_told(written, tmp_path):
    with pytest.raises(DataError, match="there is no such file"):
        read_reports([written[0], tmp_path / "nothing"])


def test_a_report_without_parts_has_none():
    figures: dict[str, Any] = json.loads('{"title": "t", "lead": "l", "summary": []}')
    run = ReportedRun("r", figures)
    assert (run.answers, run.ratios, run.provenance, run.attacks) == ({}, {}, {}, {})
