"""The verdicts that a report begins with: a question, its answer, and the reason in a sentence."""

from layerdag.report import ReportContent
from layerdag.viz import Markup, element, section

_CLASSES = {"good": "verdict good", "fair": "verdict fair", "poor": "verdict poor"}


def answers(content: ReportContent) -> Markup | None:
    """Return a card for each question."""
    if not content.answers:
        return None
    cards = [
        element(
            "div",
            element("h3", one.question),
            element("p", element("span", one.answer, class_=_CLASSES[one.tone])),
            element("p", one.reason),
            *([element("p", element("a", "figures", href=f"#{one.at}"))] if one.at else []),
            class_="answer",
        )
        for one in content.answers
    ]
    return section("verdict", "Verdict", element("div", *cards, class_="answers"))
