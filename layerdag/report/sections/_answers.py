"""The verdicts that a page begins with: a question, its answer, and the reason in a sentence."""

from collections.abc import Sequence

from layerdag.report import Answer, ReportContent
from layerdag.viz import Markup, element, section

_TONES = {"good": "answer tone-good", "fair": "answer tone-fair", "poor": "answer tone-poor"}
_WHERE = {
    "summary": "the summary",
    "membership": "membership attacks",
    "similarity": "similarity",
    "usefulness": "what predictors learned",
    "validity": "validity and novelty",
    "provenance": "provenance and limits",
}


def answers(content: ReportContent) -> Markup | None:
    """Return a card for each question."""
    return section("verdict", "Verdict", cards(content.answers)) if content.answers else None


def cards(every: Sequence[Answer]) -> Markup:
    """Return questions side by side, each with answer, reason, and a link to the figures."""
    return element("div", *map(_card, every), class_="answers")


def _card(one: Answer) -> Markup:
    """Return the card of a question."""
    link = element("a", f"Why: {_WHERE.get(one.at, one.at)}", href=f"#{one.at}")
    return element(
        "div",
        element("h3", one.question),
        element("p", one.answer, class_="word"),
        element("p", one.reason),
        *([element("p", link)] if one.at else []),
        class_=_TONES[one.tone],
    )
