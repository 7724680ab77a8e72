"""The page of what samples add to fifty real graphs.

Shape letters: S seeds.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .._page import Words, number, table
from .._runs import Record

JUDGED = ("boosting", "message_passing")
SCORED = ("pearson", "spearman", "mape")


def pooled(values: Sequence[Sequence[float]]) -> str:
    """Return the mean of gains with its interval.

    The error from test graphs is common to all fits; that of fits falls with their number.
    """
    gain_S, spread_S = np.array(values).T
    of_fits = gain_S.std(ddof=1) / np.sqrt(gain_S.size) if gain_S.size > 1 else 0.0
    half = 1.96 * float(np.hypot(spread_S.mean(), of_fits))
    mean = float(gain_S.mean())
    marked = "**" if mean - half > 0 else ""
    low, high = number(mean - half), number(mean + half)
    return f"{marked}{number(mean)}{marked} [{low}, {high}]"


def gain_table(records: Sequence[Record], family: str) -> str:
    """Return the scores of one family: fifty alone, samples alone, and what both gain."""
    figures = [record.figures for record in records]

    def mean(rows: Sequence[Mapping[str, Any]], score: str) -> str:
        return number(float(np.mean([row[family][score] for row in rows])))

    def gains(rows: Sequence[Mapping[str, Any]]) -> list[str]:
        return [pooled([row[family][score] for row in rows]) for score in SCORED]

    head = (
        FAMILY_TITLES[family],
        "Pearson",
        "Spearman",
        "error, relative",
        "gain in Pearson",
        "gain in Spearman",
        "error saved",
    )
    empty = [""] * len(SCORED)
    rows = []
    for title, key in (("all real training graphs", "ceiling"), ("fifty real graphs", "alone")):
        rows.append([title, *(mean([f[key] for f in figures], s) for s in SCORED), *empty])
    for how in figures[0]["labels"]:
        both = [f["labels"][how] for f in figures]
        alone = [mean([one["samples"] for one in both], score) for score in SCORED]
        together = [mean([one["together"] for one in both], score) for score in SCORED]
        rows.append([f"samples, labels {how}", *alone, *empty])
        rows.append(
            [f"fifty and samples, labels {how}", *together, *gains([b["gain"] for b in both])]
        )
    return table(head, rows)


FAMILY_TITLES = {"boosting": "boosted trees", "message_passing": "message passing"}

WORDS = Words(
    title="Fifty real graphs and samples",
    before=(
        "Does a generator that learned from fifty graphs add anything to these fifty? `fast` "
        "learns from forty of them, is selected by ten, and is asked for the conditions of each, "
        "six graphs for each (best of four). Surrogates learn from the fifty, from the "
        "samples, and from both, and predict the labels of real test graphs. Labels of samples "
        "are those asked for, those of the generator's posterior, those of surrogates that were "
        "fitted to the fifty (boosted trees and message passing, their geometric mean), or "
        "measured, where a label can be computed for any graph. Nothing else of the training part "
        "is seen but its words and bins of nodes. Gains are the difference to the fifty alone, "
        "with 95 % intervals over test graphs and fits; bold: the interval is above 0."
    ),
    tasks={
        "scheduled": "Latent-preferential graphs, time on two workers",
        "jobs": "Jobs of the corpus of at most 160 nodes, step time, durations hidden",
        "tpu_tile": "TPU Tile, its validation file",
        "na_edge": "NA-Edge, 600 networks, latency",
        "amp": "Operational amplifiers, 2,000 graphs, gain",
    },
    published="LayerDAG has no such table; papers on synthetic graphs report samples alone.",
)
