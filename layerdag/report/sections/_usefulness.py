"""The section on what surrogates learn from the samples."""

from collections.abc import Sequence

from layerdag.report import ReportContent
from layerdag.report.sections._words import condition_words, family_words, score_words
from layerdag.surrogates import (
    RELATIVE,
    SCORES,
    ConditionalError,
    ReachedFraction,
    TransferReport,
    TransferRow,
)
from layerdag.viz import Markup, element, interval, joined, number, section, table, text


def usefulness(content: ReportContent) -> Markup | None:
    """Return the table of surrogates."""
    report = content.transfer
    if report is None:
        return None
    explanation = element(
        "p",
        f"Predictors learn {content.target} from the graph, and all are tested on the same "
        f"{report.tested_on} real graphs that no training saw; {fits(report.seeds)}. Intervals of "
        f"95 % over {'fits and ' if len(report.seeds) > 1 else ''}test graphs. Compare the rows: "
        "real graphs are the ceiling, shuffled ones the floor.",
    )
    head = ("learned from", "graphs", *(score_words(metric.name) for metric in SCORES))
    tables = []
    for family in dict.fromkeys(row.family for row in report.rows):
        rows = [_transfer_row(row) for row in report.rows if row.family == family]
        caption = f"{family_words(family)}{_ceiling(report, family)}"
        tables.append(table(caption, head, rows, *range(1, len(head))))
    tables += [element("p", _conditional(one)) for one in report.conditional]
    return section("usefulness", "Train on synthetic, test on real", explanation, joined(tables))


def fits(seeds: Sequence[int]) -> str:
    """Return in words how many fits a figure is the mean of, and their seeds."""
    if len(seeds) == 1:
        return f"one fit, seed {seeds[0]}"
    listed = ", ".join(map(str, seeds[:-1]))
    return f"mean of {len(seeds)} fits, seeds {listed} and {seeds[-1]}"


def _conditional(error: ConditionalError) -> str:
    """Return in words how far recorded labels are from those of a predictor of real graphs."""
    off, off_real = (number(100 * one["mape"].mean, 2) for one in (error.synthetic, error.real))
    rank, rank_real = (number(one["spearman"].mean, 2) for one in (error.synthetic, error.real))
    return (
        f"Do samples have the labels that stand beside them? {family_words(error.family)}, fitted "
        f"to real graphs, differ from them by {off}% in the mean, and from those of real test "
        f"graphs by {off_real}%; rank correlation {rank} and {rank_real}."
    )


def _ceiling(report: TransferReport, family: str) -> str:
    """Return what fraction of the ceiling synthetic graphs reach, where both were run."""
    mine = {one.score: one for one in report.fractions if one.family == family}
    if not mine:
        return ""
    return f": synthetic reaches {' and '.join(_reached(mine[name]) for name in RELATIVE)}"


def _reached(fraction: ReachedFraction) -> str:
    """Return a fraction in percent, with its interval."""
    score = score_words(fraction.score).lower()
    found = f"{number(100 * fraction.value, 3)}% of the real {score}"
    if fraction.interval is None:
        return found
    low, high = (number(100 * end, 3) for end in (fraction.interval.low, fraction.interval.high))
    return f"{found} ({low} to {high})"


def _transfer_row(row: TransferRow) -> list[Markup | str]:
    """Return the cells of one training condition, each score with its interval below."""
    cells: list[Markup | str] = [condition_words(row.condition), str(row.trained_on)]
    for metric in SCORES:
        score = row.scores[metric.name]
        spread = element("span", interval(score.interval), class_="quiet")
        cells.append(joined([text(number(score.mean)), Markup("<br>"), spread]))
    return cells
