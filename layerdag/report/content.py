"""What a report shows: summary rows, nearest graphs, verdicts."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from layerdag.dag.dag import DAG
from layerdag.evaluation.similarity import MIN_COMPARED, DepthSimilarity, QualityReport
from layerdag.evaluation.validity import StructureReport
from layerdag.privacy.copies import Novelty, kernel_distances
from layerdag.privacy.membership import AttackResult
from layerdag.privacy.sample_leaks import SampleLeaks
from layerdag.statistics import Verdict
from layerdag.surrogates.scoring import MIN_TESTED
from layerdag.surrogates.training_sets import REAL, SYNTHETIC
from layerdag.surrogates.tstr import TransferReport
from layerdag.viz.numbers import interval, number


@dataclass(frozen=True)
class SummaryRow:
    """One line of the table on top: a figure of synthetic graphs as text, and how to read it.

    Attributes:
        real: The same figure of real graphs, or the scale to read it on; "" for none.
    """

    what: str
    synthetic: str
    real: str = ""
    note: str = ""


@dataclass(frozen=True, eq=False)
class Sample:
    """A set of numbers with the name of where they come from.

    Attributes:
        source: Also in the legend: "real train", "real test", "synthetic".
        weights: How often each number counts; equally often by default.
    """

    source: str
    values: np.ndarray
    weights: np.ndarray | None = None


@dataclass(frozen=True, eq=False)
class Distribution:
    """A number whose distribution is compared between samples.

    Attributes:
        unit: "" for none.
        samples: Two or three, the synthetic one last.
        log: Whether the axis is logarithmic.
    """

    title: str
    unit: str
    samples: tuple[Sample, ...]
    log: bool = False


@dataclass(frozen=True, eq=False)
class Picture:
    """A graph to be drawn.

    Attributes:
        label_N: Text that appears when a node is pointed at.
        class_N: Class of each node, shown as color and in the legend.
    """

    title: str
    dag: DAG
    label_N: tuple[str, ...]
    class_N: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Neighbors:
    """A sample beside the real graph that is most like it.

    Attributes:
        family: Family of both, "" where graphs have none.
        sample: The sample, to be drawn.
        real: The real graph.
        distance: Between the two (Weisfeiler-Lehman, 0 equal, 1.41 nothing in common).
        usual: Median distance of real graphs of the family to the real graph most like them; None
            of fewer than two.
        compared: Number of real graphs of the family.
    """

    family: str
    sample: Picture
    real: Picture
    distance: float
    usual: float | None
    compared: int


@dataclass(frozen=True, eq=False)
class Lane:
    """The S pieces of one sort of work on one rank: when each runs and, in a word, what it does."""

    name: str
    start_ms_S: np.ndarray
    end_ms_S: np.ndarray
    kind_S: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Timeline:
    """A job on a simulated cluster.

    Attributes:
        lanes: Of the ranks that are shown.
        ranks: Number of ranks, shown or not.
    """

    title: str
    lanes: tuple[Lane, ...]
    duration_ms: float
    ranks: int

    @property
    def shown_ranks(self) -> int:
        """Number of ranks that have lanes."""
        return len({lane.name.rpartition(" ")[0] for lane in self.lanes})


@dataclass(frozen=True, eq=False)
class CategoryFractions:
    """The shares of K named categories, compared between samples.

    Attributes:
        shares: (source, share of each category) for each sample, the synthetic one last.
    """

    title: str
    labels: tuple[str, ...]
    shares: tuple[tuple[str, np.ndarray], ...]

    @property
    def occurring(self) -> list[str]:
        """Categories that any sample has."""
        share_K = np.max([fraction_K for _, fraction_K in self.shares], axis=0)
        return [label for label, share in zip(self.labels, share_K, strict=True) if share > 0]


@dataclass(frozen=True)
class SystemTimes:
    """How long real and synthetic workloads take on each of several systems, in the mean.

    Attributes:
        quantity: What the figures are, with their unit.
    """

    systems: tuple[str, ...]
    real: tuple[float, ...]
    synthetic: tuple[float, ...]
    quantity: str


@dataclass(frozen=True)
class Answer:
    """The verdict on one question.

    Attributes:
        tone: "good", "fair" or "poor".
        reason: Why, in one sentence.
        at: Section of the page with the figures, "" for none.
    """

    question: str
    answer: str
    tone: str
    reason: str
    at: str = ""


@dataclass(frozen=True, eq=False)
class ReportContent:
    """Everything on the page. A part that is None or empty has no section.

    Attributes:
        lead: One or two sentences below the title.
        leaks: What the synthetic graphs give away of the training graphs.
        weight_attacks: What the checkpoint gives away of them.
        depth: The distances of each depth bin, so that drift shows.
        repairs: What was repaired when synthetic graphs were decoded into traces, and how often.
        target: Name and unit of what the surrogates predict.
        simulated_on: The cluster of the timelines, in words.
        provenance: (label, value) pairs: checkpoint, seeds, counts, hardware, versions, command.
        caveats: Sentences on what the figures do not show.
    """

    title: str
    lead: str
    answers: tuple[Answer, ...] = ()
    summary: tuple[SummaryRow, ...] = ()
    structure: StructureReport | None = None
    real_structure: StructureReport | None = None
    novelty: Novelty | None = None
    leaks: SampleLeaks | None = None
    weight_attacks: tuple[AttackResult, ...] = ()
    similarity: QualityReport | None = None
    depth: tuple[DepthSimilarity, ...] = ()
    distributions: tuple[Distribution, ...] = ()
    shares: tuple[CategoryFractions, ...] = ()
    repairs: tuple[tuple[str, int], ...] = ()
    transfer: TransferReport | None = None
    target: str = "target"
    simulations: tuple[Distribution, ...] = ()
    systems: SystemTimes | None = None
    pictures: tuple[Picture, ...] = ()
    neighbors: tuple[Neighbors, ...] = ()
    timelines: tuple[Timeline, ...] = ()
    simulated_on: str = ""
    provenance: tuple[tuple[str, str], ...] = ()
    caveats: tuple[str, ...] = field(default_factory=tuple)


FAMILY = "family"
MOST_DRAWN = 160
"""Nodes of a graph that can still be read on the page."""


@dataclass(frozen=True)
class NearestReal:
    """A sample and the real graph that is most like it, as rows; else as ``Neighbors``."""

    sample: int
    real: int
    family: str
    distance: float
    usual: float | None
    compared: int


def nearest_real(
    real: Sequence[DAG],
    samples: Sequence[DAG],
    measured: Sequence[int] = (),
    most: int = 3,
    largest: int = MOST_DRAWN,
) -> tuple[NearestReal, ...]:
    """Return a sample of each of the most frequent families beside its nearest real graph.

    Args:
        real: Real graphs, whatever they were used for.
        samples: Samples.
        measured: Columns of measurements, which differ from run to run and do not count.
        most: Number of families.
        largest: Samples and real graphs of more nodes are left out; of the others the one of
            middling size is shown.
    """
    real_of, made_of = _by_family(real, largest), _by_family(samples, largest)
    counts = Counter({name: len(rows) for name, rows in made_of.items() if name in real_of})
    found = []
    for name, _ in counts.most_common(most):
        rows = sorted(made_of[name], key=lambda row: (samples[row].num_nodes, row))
        row = rows[len(rows) // 2]
        programs = [real[i].without_columns(measured) for i in real_of[name]]
        to_real_R = kernel_distances([samples[row].without_columns(measured)], programs)[0]
        nearest = int(to_real_R.argmin())
        found.append(
            NearestReal(
                row, real_of[name][nearest], name, float(to_real_R[nearest]),
                _usual(programs), len(programs),
            )
        )  # fmt: skip
    return tuple(found)


def _by_family(dags: Sequence[DAG], largest: int) -> dict[str, list[int]]:
    rows: dict[str, list[int]] = {}
    for row, dag in enumerate(dags):
        if dag.num_nodes <= largest:
            rows.setdefault(str(dag.conditions.get(FAMILY, "")), []).append(row)
    return rows


def _usual(programs: Sequence[DAG], most: int = 200) -> float | None:
    chosen = programs[:most]
    if len(chosen) < 2:
        return None
    distance_KK = kernel_distances(chosen, chosen)
    np.fill_diagonal(distance_KK, np.inf)
    return float(np.median(distance_KK.min(axis=1)))


AS_REAL, CLOSE = 1.25, 2.5
"""Ratios of distances up to which samples read "as real" and "close"."""

MAY_BE_SHARED, IS_IT_LIKE, IS_IT_USEFUL = (
    "May it be shared?", "Is it like the real ones?", "Is it useful?"
)  # fmt: skip


def median_ratio(report: QualityReport | None) -> float | None:
    """Return the median ratio at equal count over all distances; None if there is none."""
    known = _ratios(report)
    return float(np.median(known)) if known else None


def _ratios(report: QualityReport | None) -> list[float]:
    rows = () if report is None else report.rows
    found = [row.matched_ratio for row in rows if row.is_distance]
    return [ratio for ratio in found if ratio is not None and np.isfinite(ratio)]


def privacy_verdict(novel: Novelty, leaks: SampleLeaks | None) -> Answer:
    """Return whether samples may be shared, as far as copies and attacks can tell.

    Args:
        novel: Copies among the samples.
        leaks: Nearness and attacks on the samples; None where they could not be run.
    """
    copies = round(novel.copied * novel.graphs)
    found = [] if leaks is None else [*leaks.verdicts.values()]
    if copies:
        return Answer(
            MAY_BE_SHARED, "no", "poor",
            f"{copies:,} of {novel.graphs:,} samples repeat a real job that was trained on.",
            "validity",
        )  # fmt: skip
    none = f"None of {novel.graphs:,} samples repeats a real job that was trained on"
    if leaks is not None and leaks.leaks:
        return Answer(
            MAY_BE_SHARED, "no", "poor",
            f"{none}, but an attack on the samples tells which jobs the model was trained on.",
            "membership",
        )  # fmt: skip
    if Verdict.LEAKS in found:
        return Answer(
            MAY_BE_SHARED, "yes, with a reserve", "fair",
            f"{none}. One of the attacks tells a little of which jobs the model was trained on, "
            "though not more than one of so many may by chance.",
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


def similarity_verdict(ratio: float | None, report: QualityReport | None = None) -> Answer:
    """Return whether samples are like real graphs.

    A median does not speak for all: beside rows that say "far" the answer is at most "mixed".

    Args:
        ratio: Median over all metrics of the distance of samples from held-out graphs, divided by
            that of as many other real graphs; None of fewer than eight graphs on a side.
        report: The metrics, where they are at hand.
    """
    if ratio is None:
        return Answer(
            IS_IT_LIKE, "too few to tell", "fair",
            f"Fewer than {MIN_COMPARED} real graphs were held out of training, or samples kept.",
            "provenance",
        )  # fmt: skip
    grade = ("as real", "good") if ratio <= AS_REAL else ("close", "fair")
    word, tone = grade if ratio <= CLOSE else ("far", "poor")
    every = _ratios(report)
    far = sum(one > CLOSE for one in every)
    told = ""
    if far and ratio <= CLOSE:
        word, tone = "mixed", "fair"
        told = f" By {far} of {len(every)} measures they lie far away."
    return Answer(
        IS_IT_LIKE,
        word,
        tone,
        f"In the median over all measures, samples lie {number(ratio, 2)} times as far from real "
        f"graphs that training never saw as equally many other real graphs do.{told}",
        "similarity",
    )


def utility_verdict(report: TransferReport | None, missing: str = "") -> Answer:
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
    if report.tested_on < MIN_TESTED:
        return Answer(
            IS_IT_USEFUL, "too few to tell", "fair",
            f"Predictors could be tested on {report.tested_on} real graphs, and "
            f"{MIN_TESTED} are needed.",
            "usefulness",
        )  # fmt: skip
    ceiling = report.row(family, REAL).scores["spearman"]
    if ceiling.interval is not None and ceiling.interval.low <= 0:
        return Answer(
            IS_IT_USEFUL, "cannot be told", "fair",
            f"A predictor that learned from real graphs does no better than guessing (rank "
            f"correlation {number(real, 2)} {interval(ceiling.interval)}, 0 is guessing), so that "
            "there is nothing to compare samples with.",
            "usefulness",
        )  # fmt: skip
    tone = "good" if reaches else "fair" if known and made >= 0.5 else "poor"
    word = {"good": "as real ones", "fair": "partly", "poor": "hardly"}[tone]
    return Answer(
        IS_IT_USEFUL,
        word,
        tone,
        f"A predictor that learned from the samples alone puts {report.tested_on} real graphs in "
        f"order with a rank correlation of {number(made, 2)}, and one that learned from real "
        f"graphs with {number(real, 2)} (1 is perfect, 0 is guessing).",
        "usefulness",
    )
