"""Reports that were written before, read again."""

import json
from pathlib import Path
from typing import Any

import pytest

from layerdag.errors import DataError, UsageError
from layerdag.report import ReportContent, write_report
from layerdag.report.comparison import ReportedRun, read_reports


@pytest.fixture
def written(content: ReportContent, tmp_path: Path) -> list[Path]:
    return [write_report(content, tmp_path / name / "report.html") for name in ("a", "b")]


def test_a_run_is_a_folder_a_page_or_its_figures(written: list[Path]) -> None:
    a, b = written
    for places in ([a, b], [a.parent, b.with_suffix(".json")], [str(a), str(b.parent)]):
        runs = read_reports(places)
        assert [run.name for run in runs] == ["a", "b"]
        assert runs[0].figures["title"] == "A <title>"


def test_what_a_report_says_is_found_again(content: ReportContent, written: list[Path]) -> None:
    run, _ = read_reports(written)
    assert [*run.answers] == [one.question for one in content.answers]
    assert run.provenance == dict(content.provenance)
    assert run.summary == {row.what: row.synthetic for row in content.summary}
    assert [*run.attacks] == ["nearness", *(one.name for one in content.leaks[-1].attacks)]
    assert run.attacks["nearness"]["auc"] == content.leaks[-1].nearness.dcr_share


def test_ratios_are_those_of_the_report(content: ReportContent, written: list[Path]) -> None:
    run, _ = read_reports(written)
    expected = [row.matched_ratio for row in content.similarity.rows if row.matched_ratio]
    assert sorted(run.ratios.values()) == pytest.approx(sorted(expected))
    assert "Number of nodes" in run.ratios


def test_runs_of_equal_folder_names_are_told_apart(content: ReportContent, tmp_path: Path) -> None:
    places = [
        write_report(content, tmp_path / name / "out" / "report.html") for name in ("one", "two")
    ]
    assert [run.name for run in read_reports(places)] == ["one/out", "two/out"]


def test_reports_of_one_folder_are_named_by_their_files(
    content: ReportContent, tmp_path: Path
) -> None:
    places = [write_report(content, tmp_path / name) for name in ("first.html", "second.html")]
    assert [run.name for run in read_reports(places)] == ["first", "second"]


def test_one_run_or_the_same_one_twice_is_wrong_use(written: list[Path]) -> None:
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
def test_what_is_no_report_is_told_with_its_place(
    written: list[Path], tmp_path: Path, text: str
) -> None:
    bad = tmp_path / "bad.json"
    bad.write_text(text)
    with pytest.raises(DataError, match=r"bad\.json: is no report of layerdag"):
        read_reports([written[0], bad])


def test_a_missing_report_is_told(written: list[Path], tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no such file"):
        read_reports([written[0], tmp_path / "nothing"])


def test_a_report_without_parts_has_none() -> None:
    figures: dict[str, Any] = json.loads('{"title": "t", "lead": "l", "summary": []}')
    run = ReportedRun("r", figures)
    assert (run.answers, run.ratios, run.provenance, run.attacks) == ({}, {}, {}, {})
