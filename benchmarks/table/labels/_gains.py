"""The page of what samples add to fifty real graphs.

Shape letters: S seeds.
"""

from collections.abc import Mapping, Sequence
from itertools import product
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


def gain_table(by_task: Mapping[str, Sequence[Record]], score: str) -> str:
    """Return a row for each data set and family of surrogates: real graphs alone, then gains.

    Args:
        by_task: Runs of each data set, by its title.
        score: One of ``SCORED``.
    """
    ways = list(dict.fromkeys(how for rs in by_task.values() for how in rs[0].figures["labels"]))
    rows = []
    for title, family in product(by_task, JUDGED):
        figures = [record.figures for record in by_task[title]]
        rows.append(
            [
                f"{title}; {FAMILY_TITLES[family]}",
                *(_mean(figures, key, family, score) for key in ("ceiling", "alone")),
                *(_gain(figures, how, family, score) for how in ways),
            ]
        )
    head = ("test graphs; surrogate", "all real", "fifty", *(f"labels {how}" for how in ways))
    return table(head, rows)


def _mean(figures: Sequence[Mapping[str, Any]], key: str, family: str, score: str) -> str:
    return number(float(np.mean([one[key][family][score] for one in figures])))


def _gain(figures: Sequence[Mapping[str, Any]], how: str, family: str, score: str) -> str:
    found = [one["labels"][how]["gain"] for one in figures if how in one["labels"]]
    return pooled([one[family][score] for one in found]) if found else ""


SCORE_TITLES = {"pearson": "Pearson", "mape": "Relative error"}
"""Those on the page."""
FAMILY_TITLES = {"boosting": "boosted trees", "message_passing": "message passing"}

WORDS = Words(
    title="Fifty real graphs and samples",
    before=(
        "Does a generator that learned from fifty graphs add anything to these fifty? `fast` "
        "learns from forty, is selected by ten, and draws six graphs for the conditions of each "
        "(best of four). Surrogates learn from all real training graphs, from the fifty, and from "
        "the fifty with the samples, and predict the labels of real test graphs. Labels of samples "
        "are those asked for, those of the generator's posterior, those of surrogates fitted to "
        "the fifty, or measured where a label can be computed for any graph. The columns of labels "
        "are gains over the fifty alone (for errors: what is saved), with 95 % intervals over test "
        "graphs and fits; bold: the interval is above 0."
    ),
    tasks={
        "scheduled": "Latent-preferential, time on two workers",
        "jobs": "Corpus, at most 160 nodes, step time without durations",
        "tpu_tile": "TPU Tile, its validation file",
        "na_edge": "NA-Edge, 600 networks, latency",
        "amp": "Amplifiers, 2,000 graphs, gain",
    },
    published="No paper that we know has such a table.",
)
