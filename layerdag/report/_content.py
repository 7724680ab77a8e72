"""What a report shows: plain, frozen results of the floors below, gathered by the caller."""

from dataclasses import dataclass, field

import numpy as np

from layerdag.evaluation import DepthSimilarity, SimilarityReport
from layerdag.evaluation.privacy import Attack, LeakRow, Novelty
from layerdag.evaluation.rules import StructureReport
from layerdag.surrogates import TransferReport
from layerdag.viz import Picture


@dataclass(frozen=True)
class SummaryRow:
    """One line of the table on top.

    Attributes:
        what: What is measured.
        synthetic: The figure for synthetic graphs, as text.
        real: The same figure for real graphs, or the scale to read it on; "" for none.
        note: A few words on how to read it.
    """

    what: str
    synthetic: str
    real: str = ""
    note: str = ""


@dataclass(frozen=True, eq=False)
class Sample:
    """A set of numbers with the name of where they come from.

    Attributes:
        source: Name, also in the legend: "real train", "real test", "synthetic".
        values: The numbers.
        weights: How often each number counts; equally often by default.
    """

    source: str
    values: np.ndarray
    weights: np.ndarray | None = None


@dataclass(frozen=True, eq=False)
class Distribution:
    """A number whose distribution is compared between samples.

    Attributes:
        title: What the number is.
        unit: Its unit, "" for none.
        samples: Two or three samples, the synthetic one last.
        log: True to draw it on a logarithmic axis.
    """

    title: str
    unit: str
    samples: tuple[Sample, ...]
    log: bool = False


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
    """What one rank does of one sort of work.

    Attributes:
        name: Of the rank and the sort.
        start_ms_S: Start of each of S pieces, in milliseconds.
        end_ms_S: End of each.
        kind_S: What each does, in a word or two.
    """

    name: str
    start_ms_S: np.ndarray
    end_ms_S: np.ndarray
    kind_S: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Timeline:
    """A job on a simulated cluster.

    Attributes:
        title: Caption.
        lanes: Of the ranks that are shown.
        duration_ms: Until the last rank ends.
        ranks: Number of ranks, shown or not.
    """

    title: str
    lanes: tuple[Lane, ...]
    duration_ms: float
    ranks: int


@dataclass(frozen=True, eq=False)
class CategoryFractions:
    """The shares of named categories, compared between samples.

    Attributes:
        title: What the categories are.
        labels: Names of the K categories.
        shares: (source, share of each category) for each sample, the synthetic one last.
    """

    title: str
    labels: tuple[str, ...]
    shares: tuple[tuple[str, np.ndarray], ...]


@dataclass(frozen=True)
class SystemTimes:
    """How long real and synthetic workloads take on each of several systems.

    Attributes:
        systems: Names of the systems.
        real: Mean figure of each system over real workloads.
        synthetic: The same over synthetic workloads.
        quantity: What the figure is, with its unit.
    """

    systems: tuple[str, ...]
    real: tuple[float, ...]
    synthetic: tuple[float, ...]
    quantity: str


@dataclass(frozen=True)
class Answer:
    """The verdict on one question.

    Attributes:
        question: What a reader wants to know.
        answer: A word or a few.
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
        title: Heading.
        lead: One or two sentences below it.
        answers: The verdicts that come first.
        summary: The table on top.
        structure: Verdict on the synthetic graphs.
        real_structure: Verdict on the real test graphs by the same rules.
        novelty: Valid, unique, novel shares.
        leaks: What the synthetic graphs give away of the training graphs, by their number.
        weight_attacks: What the checkpoint gives away of them.
        similarity: Distances next to real train vs real test.
        depth: The same for each depth bin, so that drift shows.
        distributions: What the distances are about, as pictures.
        shares: The same for categories.
        repairs: What was repaired when synthetic graphs were decoded into traces, and how often.
        transfer: Train on synthetic, test on real.
        target: Name and unit of what the surrogates predict.
        simulations: Distributions of simulated quantities.
        systems: Mean time of real and synthetic workloads on each system.
        pictures: Graphs side by side, real ones first.
        neighbors: Samples beside the real graphs most like them.
        timelines: Jobs on the same simulated cluster, real ones first.
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
    leaks: tuple[LeakRow, ...] = ()
    weight_attacks: tuple[Attack, ...] = ()
    similarity: SimilarityReport | None = None
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
