"""What samples give away, with all of its figures."""

from collections.abc import Sequence
from dataclasses import dataclass

from layerdag._runtime import stage, stages
from layerdag.api import attribute_views
from layerdag.api.auditing._lines import audit_lines
from layerdag.api.auditing._split_advice import too_few_held_out
from layerdag.api.auditing._tally import AuditTally, Samples
from layerdag.api.auditing._words import WordSearch
from layerdag.api.auditing.shadows import ShadowReport
from layerdag.datasets import GraphDataset
from layerdag.evaluation import compare
from layerdag.evaluation.metrics import (
    LOCAL_METRICS,
    NEIGHBORHOOD_METRICS,
    AttributeMetrics,
    Metric,
    SimilarityRow,
)
from layerdag.evaluation.privacy import (
    MOST_HELD,
    Attack,
    CopyCounts,
    LeakRow,
    Novelty,
    Verdict,
    count_copies,
    leak_series,
    novelty,
)
from layerdag.evaluation.rules import StructureReport, check_structure
from layerdag.graph import DAG, GraphStatistics

_WEIGHT_OF_A_SAMPLE = 4
"""Copies, traits, the attacks by all samples, and by fewer of them: about as long each."""

CAVEATS = (
    "What these attacks do not find, another one may: with --checkpoint, shadow models (--shadows) "
    "find more in weights.",
    "More samples can only reveal more: the figures hold for these numbers of samples.",
)


@dataclass(frozen=True, eq=False)
class Audit:
    """What samples give away.

    Attributes:
        train: Number of graphs that the model learned from.
        held_out: Number of validation and test graphs.
        structure: Verdict on the samples by the rules on graphs.
        novelty: Valid, unique, novel shares.
        copies: Copies of real graphs whatever their durations, and near copies.
        leaks: Nearness, attacks on the samples and what is read from them, by their number; empty
            if nothing is held out.
        weights: Attacks on weights and schema of the checkpoint, if one was given.
        neighborhoods: ``NEIGHBORHOOD_METRICS`` of the samples, beside those of the held-out graphs;
            empty if nothing is held out.
        local: ``LOCAL_METRICS`` of the samples that are valid graphs, beside those of the held-out
            graphs; empty if nothing is held out or no sample is valid.
        advice: What is wrong with the split for this purpose, None if nothing is.
        words: Private words in the files of the samples; None where there are no files.
        shadows: How shadow models were trained, and what such models give away; None without any.
        held: Number of samples, drawn at random, behind ``neighborhoods``, ``local`` and what
            learns; None where these looked at all samples.
    """

    train: int
    held_out: int
    structure: StructureReport
    novelty: Novelty
    copies: CopyCounts
    leaks: tuple[LeakRow, ...]
    weights: tuple[Attack, ...]
    neighborhoods: tuple[SimilarityRow, ...]
    local: tuple[SimilarityRow, ...]
    advice: str | None
    words: WordSearch | None = None
    shadows: ShadowReport | None = None
    held: int | None = None

    @property
    def passes(self) -> bool:
        """Whether nothing was found of all samples and of the weights.

        Every figure is no better than chance, no graph is found at a low false-positive rate, no
        sample copies a real graph, and no file holds a private word or could not be searched.
        """
        if not self.leaks or self.copies.copied:
            return False
        if self.words is not None and (self.words.found or self.words.unread):
            return False
        attacks = (*self.leaks[-1].attacks, *self.weights)
        if any(attack.finds_some for attack in attacks):
            return False
        found = [*self.leaks[-1].verdicts, *(attack.verdict for attack in self.weights)]
        return all(verdict is Verdict.CHANCE for verdict in found)

    def __str__(self) -> str:
        """Return the figures as lines to read."""
        return "\n".join(audit_lines(self, CAVEATS))


def audit_of(
    data: GraphDataset,
    made: Samples,
    weights: tuple[Attack, ...] = (),
    *,
    most_held: int = MOST_HELD,
) -> Audit:
    """Return the audit of samples with codes of the data set's schema.

    Args:
        data: The data set.
        made: The samples; of more than ``most_held`` of them, no more are held.
        weights: Attacks on the weights.
        most_held: Samples that figures look at which need many at once, drawn at random.

    Raises:
        UsageError: If there is no training graph or no sample.
    """
    if len(made) > most_held:
        return _audit_of_stream(data, made, weights, most_held)
    with stages(_WEIGHT_OF_A_SAMPLE * len(made)):
        return _audit_in_memory(data, list(made), weights)


def _audit_in_memory(data: GraphDataset, made: list[DAG], weights: tuple[Attack, ...]) -> Audit:
    """Return the audit of samples that are held together."""
    train, held_out = data.graphs["train"], data.held_out
    measured = data.schema.measured_columns
    with stage("structure and copies", len(made)):
        structure = check_structure(made, GraphStatistics.measure(train, data.schema.sizes()))
        new = novelty(train, held_out, made, structure.valid_B)
        copies = count_copies(train, held_out, made, measured)
    leaks = leak_series(
        data.members, held_out, made, measured=measured, numeric=data.schema.size_columns
    )
    return Audit(
        train=len(train),
        held_out=len(held_out),
        structure=structure,
        novelty=new,
        copies=copies,
        leaks=leaks,
        weights=weights,
        neighborhoods=_compared(data, made, NEIGHBORHOOD_METRICS),
        local=_compared(data, _valid(made, structure), LOCAL_METRICS),
        advice=too_few_held_out(data),
    )


def _audit_of_stream(
    data: GraphDataset, made: Samples, weights: tuple[Attack, ...], most_held: int
) -> Audit:
    """Return the audit of more samples than are held."""
    tally = AuditTally(data, len(made), most_held)
    with stage(f"copies and attacks of all {len(made):,} samples"):
        tally.read(made)
    held = tally.held
    of_held = check_structure(held)
    return Audit(
        train=len(data.graphs["train"]),
        held_out=len(data.held_out),
        structure=tally.structure,
        novelty=tally.novelty,
        copies=tally.copies,
        leaks=tally.leaks(),
        weights=weights,
        neighborhoods=_compared(data, held, NEIGHBORHOOD_METRICS),
        local=_compared(data, _valid(held, of_held), LOCAL_METRICS),
        advice=too_few_held_out(data),
        held=len(held),
    )


def _valid(made: Sequence[DAG], structure: StructureReport) -> list[DAG]:
    """Return the samples that are valid graphs."""
    return [dag for dag, is_valid in zip(made, structure.valid_B, strict=True) if is_valid]


def _compared(
    data: GraphDataset, made: Sequence[DAG], metrics: Sequence[Metric | AttributeMetrics]
) -> tuple[SimilarityRow, ...]:
    """Return metrics of samples and of held-out graphs; none where one of both is missing."""
    if not data.held_out or not made:
        return ()
    views = attribute_views(data.schema)
    return compare(data.graphs["train"], data.held_out, made, views, metrics=metrics).rows
