"""The verdicts that a report begins with."""

from layerdag.report import Answer, ReportContent
from layerdag.report.sections import answers


def test_each_question_has_answer_reason_and_a_link() -> None:
    content = ReportContent(
        "t", "l", answers=(Answer("May it?", "no", "poor", "It is <a copy>.", "membership"),)
    )
    found = answers(content)
    assert found is not None
    assert "May it?" in found.html
    assert 'class="answer tone-poor"' in found.html
    assert "It is &lt;a copy&gt;." in found.html
    assert '<a href="#membership">Why: membership attacks</a>' in found.html


def test_without_questions_there_is_no_section() -> None:
    assert answers(ReportContent("t", "l")) is None
