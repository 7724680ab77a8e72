"""The card that lies beside a surrogate: what it predicts, from what, how well, and its limits."""

from collections.abc import Mapping, Sequence
from typing import Any

from layerdag._version import __version__

_ABOUT = {
    "additive": (
        "Costs of nodes that add up, each the exponential of a sum of one term for each attribute "
        "(a generalized additive model; Hastie and Tibshirani, 1986), and boosted trees for what "
        "they leave."
    ),
    "boosting": "Boosted trees on counts and shapes of the graph (Friedman, 2001).",
    "message_passing": (
        "Messages along the edges and against them (GINE; Hu et al., ICLR 2020), pooled to one "
        "number."
    ),
    "dag_transformer": (
        "A transformer whose nodes attend to what reaches them and what they reach (after Luo, "
        "Thost and Shi, NeurIPS 2023), with messages along edges."
    ),
    "stacked": (
        "A stacked ensemble of boosted trees, message passing and a transformer over DAGs, weighed "
        "by graphs that their fits did not see (Wolpert, 1992); intervals are wider where it errs."
    ),
}


def card(
    family: str, notes: Mapping[str, Any], others: Sequence[str] = (), where: str = "a folder each"
) -> str:
    """Return the card, Markdown.

    Args:
        family: Of the surrogate.
        notes: What is saved beside it.
        others: Further targets of the same folder.
        where: These are.
    """
    excluded = ", ".join(map(str, notes.get("excluded", ()))) or "none"
    lines = [
        f"# Surrogate of {notes.get('target', 'label')}",
        "",
        _ABOUT.get(family, family),
        "",
        "| | |",
        "|---|---|",
        f"| family | `{family}` |",
        f"| data set | {notes.get('data', 'unknown')}, {notes.get('train', '?')} training graphs |",
        f"| attributes that it does not see | {excluded} |",
        *([f"| further targets | {', '.join(others)}, {where} |"] if others else []),
        f"| seed | {notes.get('seed', '?')} |",
        f"| written by | layerdag {__version__} |",
        "",
        *_scores(notes.get("evaluation")),
        *_limits(notes),
        "## Use",
        "",
        "`layerdag surrogate predict THIS_FOLDER TRACE`, or in Python",
        "`layerdag.Surrogate.load(THIS_FOLDER).predict_intervals([TRACE])`.",
    ]
    return "\n".join(lines) + "\n"


def _scores(found: object) -> list[str]:
    """Return the table of scores on the test part, nothing where it was not scored."""
    if not isinstance(found, Mapping):
        return []
    lines = [
        f"## On {found['graphs']} test graphs that no fit saw",
        "",
        "| score | value | 95 % interval |",
        "|---|---|---|",
    ]
    for name, score in found["scores"].items():
        around = score["interval"]
        shown = f"{around['low']:.3g} to {around['high']:.3g}" if around else ""
        value = "not defined" if score["value"] is None else f"{score['value']:.3g}"
        lines.append(f"| {name} | {value} | {shown} |")
    for one in found["coverage"]:
        around = one["interval"]
        lines.append(
            f"| intervals of {one['level']:.0%} that hold the target | {one['covered']:.0%} | "
            f"{around['low']:.0%} to {around['high']:.0%} |"
        )
    return [*lines, ""]


def _limits(notes: Mapping[str, Any]) -> list[str]:
    """Return what the surrogate must not be trusted with."""
    seen = notes.get("seen", {})
    calibrated = notes.get("calibration", {}).get("errors", ())
    intervals = (
        f"Intervals come from {len(calibrated)} validation graphs and hold on average over graphs "
        "like these."
        if calibrated
        else "It gives no intervals: there were too few validation graphs."
    )
    return [
        "## Limits",
        "",
        f"- It knows graphs of {seen.get('fewest', '?')} to {seen.get('most', '?')} nodes, with "
        "the operators and on the machine of its data set; elsewhere it is a guess.",
        "- A prediction reaches at most half a standard deviation beyond the targets of the fit.",
        f"- {intervals}",
        "",
    ]
