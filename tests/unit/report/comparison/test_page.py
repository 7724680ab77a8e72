"""Several runs on one page."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from layerdag.errors import UsageError
from layerdag.report import Answer, ReportContent, figures_of
from layerdag.report.comparison import ReportedRun, comparison_figures, write_comparison


@pytest.fixture
def runs(content: ReportContent) -> tuple[ReportedRun, ReportedRun]:
    """Two runs of other verdicts and provenance."""
    other = replace(
        content,
        answers=(Answer("May it be shared?", "yes", "good", "Nothing <was> found."),),
        provenance=(("seed", "1"),),
        summary=content.summary[:2],
        leaks=(),
    )
    return ReportedRun("first", figures_of(content)), ReportedRun("se<cond", figures_of(other))


def rows(page: str, section: str) -> list[list[str]]:
    """Return the texts of the rows of a section."""
    part = page.partition(f'<section id="{section}"')[2].partition("</section>")[0]
    found = re.findall(r"<tr>(.*?)</tr>", part)
    return [
        [re.sub(r"<[^>]*>", "", cell) for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row)]
        for row in found
    ]


def test_verdicts_stand_side_by_side_with_their_reasons(runs, tmp_path: Path) -> None:
    page = write_comparison(runs, tmp_path / "runs.html").read_text()
    head, verdict = rows(page, "verdict")
    assert head == ["question", "first", "se&lt;cond"]
    assert verdict[0] == "May it be shared?"
    assert verdict[1].startswith("no")
    assert verdict[2] == "yesNothing &lt;was&gt; found."
    assert page.index('id="verdict"') < page.index('id="similarity"')


def test_what_differs_in_how_they_were_made_is_a_table_and_the_rest_a_sentence(
    runs, tmp_path: Path
) -> None:
    page = write_comparison(runs, tmp_path / "runs.html").read_text()
    assert rows(page, "made")[1:] == [["seed", "0", "1"]]
    same = write_comparison((runs[0], runs[0]), tmp_path / "same.html").read_text()
    assert "Equal in all: seed (0)." in same


def test_runs_differ_most_in_what_stands_first(runs, tmp_path: Path) -> None:
    first, second = runs
    changed = json.loads(json.dumps(second.figures))
    row = next(
        one for one in changed["similarity"]["rows"]
        if one["generated"]["metric"]["name"] == "edges"
    )  # fmt: skip
    row["generated"]["value"] *= 50
    page = write_comparison((first, ReportedRun("b", changed)), tmp_path / "runs.html").read_text()
    assert rows(page, "similarity")[1][0] == "Number of dependencies"


def test_a_run_without_attacks_has_a_dash(runs, tmp_path: Path) -> None:
    page = write_comparison(runs, tmp_path / "runs.html").read_text()
    table = rows(page, "membership")
    assert table[1][0] == "Nearer to training"
    assert all(row[2] == "—" for row in table[1:])


def test_the_figures_are_by_what_and_by_run(runs) -> None:
    figures = comparison_figures(runs)
    assert figures["runs"] == ["first", "se<cond"]
    assert figures["verdicts"] == {"May it be shared?": {"first": "no", "se<cond": "yes"}}
    lines = figures["summary"]
    assert lines["median ratio"]["se<cond"] is None
    json.dumps(figures, allow_nan=False)


def test_a_comparison_replaces_its_own_page_and_no_other_file(runs, tmp_path: Path) -> None:
    page = tmp_path / "runs.html"
    write_comparison(runs, page)
    write_comparison(runs, page)
    for text in ("{}", "no JSON", "[1]"):
        page.with_suffix(".json").write_text(text)
        with pytest.raises(UsageError, match="never replaced"):
            write_comparison(runs, page)
    with pytest.raises(UsageError, match=r"is a \.html file"):
        write_comparison(runs, tmp_path / "runs.txt")
