"""``layerdag runs``: reports side by side."""

import json

import pytest

from layerdag.cli.main import main
from layerdag.report.content import Answer, ReportContent
from layerdag.report.page import write_report


@pytest.fixture
def reports(tmp_path) -> list[str]:
    found = []
    for name, word in (("a", "yes"), ("b", "no")):
        answers = (Answer("May it be shared?", word, "fair", "Because."),)
        page = write_report(ReportContent("t", "l", answers), tmp_path / name / "report.html")
        found.append(str(page.parent))
    return found


def test_verdicts_are_printed_and_the_page_is_written(reports, tmp_path, capsys):
    page = tmp_path / "runs.html"
    assert main(["runs", *reports, "--out", str(page)]) == 0
    told = capsys.readouterr()
    assert told.out.splitlines() == [
        "a", "  May it be shared?            yes", "b", "  May it be shared?            no",
    ]  # fmt: skip
    assert "wrote" in told.err
    assert "Because." in page.read_text()
    assert json.loads(page.with_suffix(".json").read_text())["runs"] == ["a", "b"]


def test_figures_are_printed_as_json(reports, capsys):
    assert main(["runs", *reports, "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["verdicts"]["May it be shared?"] == {"a": "yes", "b": "no"}


def test_exit_codes_tell_wrong_use_from_damaged_data(reports, tmp_path):
    assert main(["runs", reports[0]]) == 2
    assert main(["runs", *reports, "--out", str(tmp_path / "x.txt")]) == 2
    assert main(["runs", reports[0], str(tmp_path / "nothing")]) == 1
