"""The three verdicts that a report begins with, each with its reason in one sentence."""

import math

import numpy as np

from layerdag.evaluation import SimilarityReport
from layerdag.evaluation.privacy import LeakRow, Novelty, Verdict
from layerdag.report._content import Answer
from layerdag.surrogates import REAL, SYNTHETIC, TransferReport
from layerdag.viz import number

AS_REAL, CLOSE = 1.25, 2.5
"""Ratios of distances up to which samples read "as real" and "close"."""

MAY_BE_SHARED, IS_IT_LIKE, IS_IT_USEFUL = (
    "May it be shared?", "Is it like the real ones?", "Is it useful?"
)  # fmt: skip


def median_ratio(report: SimilarityReport | None) -> float | None:
    """Return the median ratio at equal count over all distances; None if there is none."""
    known = _ratios(report)
    return float(np.median(known)) if known else None


def mean_ratio(report: SimilarityReport | None) -> float | None:
    """Return the mean ratio at equal count over all distances; None if there is none."""
    known = _ratios(report)
    return float(np.mean(known)) if known else None


def _ratios(report: SimilarityReport | None) -> list[float]:
    """Return the ratio at equal count of each distance that has one."""
    rows = () if report is None else report.rows
    found = [row.matched_ratio for row in rows if row.is_distance]
    return [ratio for ratio in found if ratio is not None and np.isfinite(ratio)]


def sharing(novel: Novelty, leaks: tuple[LeakRow, ...]) -> Answer:
    """Return whether samples may be shared, as far as copies and attacks can tell.

    Args:
        novel: Copies among the samples.
        leaks: Nearness and attacks on the samples, by their number; may be empty.
    """
    copies = round(novel.copied * novel.graphs)
    found = [verdict for row in leaks[-1:] for verdict in row.verdicts]
    if copies:
        return Answer(
            MAY_BE_SHARED, "no", "poor",
            f"{copies:,} of {novel.graphs:,} samples repeat a real job that was trained on.",
            "validity",
        )  # fmt: skip
    none = f"None of {novel.graphs:,} samples repeats a real job that was trained on"
    if any(row.leaks for row in leaks[-1:]):
        return Answer(
            MAY_BE_SHARED, "no", "poor",
            f"{none}, but an attack tells from the samples which jobs were.",
            "membership",
        )  # fmt: skip
    if Verdict.LEAKS in found:
        return Answer(
            MAY_BE_SHARED, "yes, with a reserve", "fair",
            f"{none}. One of the attacks tells a little of which jobs were, though not more than "
            "one of so many may by chance.",
            "membership",
        )  # fmt: skip
    if not found or any(verdict is not Verdict.CHANCE for verdict in found):
        return Answer(
            MAY_BE_SHARED, "yes, with a reserve", "fair",
            f"{none}, but there are too few jobs to tell whether somebody could find out which "
            "jobs those were.",
            "membership" if leaks else "validity",
        )  # fmt: skip
    return Answer(
        MAY_BE_SHARED, "yes", "good",
        f"{none}, and no attack tells from the samples which jobs those were.",
        "membership",
    )  # fmt: skip


def likeness(ratio: float | None) -> Answer:
    """Return whether samples are like real graphs.

    Args:
        ratio: Median over all metrics of the distance of samples from held-out graphs, divided by
            that of as many other real graphs; None of fewer than eight graphs on a side.
    """
    if ratio is None:
        return Answer(
            IS_IT_LIKE, "too few to tell", "fair",
            "Fewer than 8 real graphs were held out of training, or fewer than 8 samples kept.",
            "provenance",
        )  # fmt: skip
    grade = ("as real", "good") if ratio <= AS_REAL else ("close", "fair")
    word, tone = grade if ratio <= CLOSE else ("far", "poor")
    return Answer(
        IS_IT_LIKE,
        word,
        tone,
        f"In the median over all measures, samples lie {number(ratio, 2)} times as far from real "
        "graphs that training never saw as equally many other real graphs do.",
        "similarity",
    )


def usefulness_of(report: TransferReport | None, missing: str = "") -> Answer:
    """Return whether predictors learn from samples what they learn from real graphs.

    Args:
        report: What they learned; None where they could not be tested.
        missing: Why not, as a sentence.
    """
    if report is None or not report.rows:
        missing = missing or "No predictor was trained."
        return Answer(IS_IT_USEFUL, "too few to tell", "fair", missing, "summary")
    family = report.rows[0].family
    real, made = (report.row(family, one).scores["spearman"].mean for one in (REAL, SYNTHETIC))
    known = math.isfinite(real) and math.isfinite(made)
    reaches = known and made > 0 and made >= 0.9 * real  # two guesses are alike, and of no use
    tone = "good" if reaches else "fair" if known and made >= 0.5 else "poor"
    word = {"good": "as real ones", "fair": "partly", "poor": "hardly"}[tone]
    return Answer(
        IS_IT_USEFUL,
        word,
        tone,
        f"A predictor of step times that learned from the samples alone puts {report.tested_on} "
        f"real jobs in order with a rank correlation of {number(made, 2)}, and one that learned "
        f"from real jobs with {number(real, 2)} (1 is perfect, 0 is guessing).",
        "usefulness",
    )
