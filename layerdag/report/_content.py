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
    provenance: tuple[tuple[str, str], ...] = ()
    caveats: tuple[str, ...] = field(default_factory=tuple)
