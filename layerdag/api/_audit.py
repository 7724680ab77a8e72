"""Do samples and weights give away the graphs that a generator learned from?"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from layerdag.api._compare import attribute_views
from layerdag.api.auditing import (
    AuditTally,
    Graphs,
    Samples as SampleSource,
    WhiteBox,
    WordSearch,
    audit_lines,
    read_sets,
    search_words,
    too_few_held_out,
)
from layerdag.api.auditing.shadows import ShadowReport, ShadowSettings
from layerdag.datasets import (
    GraphDataset,
    GraphLike,
    SplitFingerprint,
    encoded,
    load_dataset,
    require_same_split,
)
from layerdag.errors import DataError, UsageError
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
from layerdag.sampling import checkpoint_schema
from layerdag.surrogates import read_manifest, stream_samples
from layerdag.training import LoadedCheckpoint, load_checkpoint

Samples = Sequence[GraphLike] | str | Path

Tell = Callable[[str], None]
_LOG = logging.getLogger("layerdag")

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


def audit(  # noqa: PLR0913 - which graphs are which, and how weights are attacked
    samples: Samples | None = None,
    data: GraphDataset | str | Path | None = None,
    checkpoint: LoadedCheckpoint | str | Path | None = None,
    *,
    train: Graphs | None = None,
    holdout: Graphs | None = None,
    synthetic: Graphs | None = None,
    shadows: ShadowSettings | int | None = None,
    tell: Tell = _LOG.info,
) -> Audit:
    """Compare samples with training and held-out graphs, and attack.

    ``audit(samples, data)`` takes a data set with its split; ``audit(train=..., holdout=...,
    synthetic=...)`` three folders, or graphs in memory, of which you say what was trained on.

    Args:
        samples: What ``sample`` returned, or a folder that ``layerdag sample`` wrote. Its files are
            searched for words of ``data`` if both are folders.
        data: The data set that the generator learned from, split as it was then.
        checkpoint: What was sampled from, for attacks on weights and schema; None leaves them out.
        train: Graphs that the generator learned from, instead of ``data``.
        holdout: Graphs of the same kind that it never saw.
        synthetic: Samples in any format; every file of the folder is searched for private words.
        shadows: Shadow models for the attack by likelihood ratio, their number (at least 16) or all
            settings; None trains none. They need ``checkpoint``.
        tell: Takes a line on each shadow model.

    Raises:
        UsageError: If samples or checkpoint are known to come from another split of the data, or
            the arguments are neither of both sets.
        DataError: If a file is missing or damaged.
    """
    if shadows is not None and checkpoint is None:
        raise UsageError("Shadow models are for an attack on weights; give a checkpoint, too.")
    if isinstance(shadows, int):
        shadows = ShadowSettings(count=shadows)
    attack = WhiteBox(shadows, tell)
    if train is not None or holdout is not None:
        return _audit_of_folders(samples, data, checkpoint, (train, holdout, synthetic), attack)
    samples = synthetic if samples is None else samples
    if samples is None or data is None:
        raise UsageError(
            "An audit needs samples and a data set, or train, holdout and synthetic graphs."
        )
    folder = data if isinstance(data, str | Path) else None
    if not isinstance(data, GraphDataset):
        data = load_dataset(data)
    words = None
    if isinstance(samples, str | Path):
        learned = SplitFingerprint.from_dict(read_manifest(samples).get("split"))
        _require_split(learned, data, str(samples))
        made: SampleSource = stream_samples(samples, data.schema)
        words = None if folder is None else _searched(samples, folder)
    else:
        made = encoded(samples, data.schema)
    if checkpoint is None:
        return replace(audit_of(data, made), words=words)
    if not isinstance(checkpoint, LoadedCheckpoint):
        checkpoint = load_checkpoint(checkpoint)
    _require_split(checkpoint.meta.split, data, str(checkpoint.path))
    weights, report = attack.on(checkpoint, data)
    return replace(audit_of(data, made, weights), words=words, shadows=report)


def _searched(samples: str | Path, folder: str | Path) -> WordSearch | None:
    """Search samples for the words of a data set; None if it has no traces and no flow graphs."""
    try:
        return search_words(samples, folder) if Path(folder).is_dir() else None
    except DataError:
        return None


def _audit_of_folders(
    samples: Samples | None,
    data: object,
    checkpoint: LoadedCheckpoint | str | Path | None,
    sets: tuple[Graphs | None, Graphs | None, Graphs | None],
    attack: WhiteBox,
) -> Audit:
    """Return the audit of training, held-out and synthetic graphs."""
    train, holdout, synthetic = sets
    if data is not None or samples is not None or None in (train, holdout, synthetic):
        raise UsageError(
            "An audit of folders needs all of train, holdout and synthetic, and neither samples "
            "nor data."
        )
    assert train is not None and holdout is not None and synthetic is not None  # noqa: PT018
    found = read_sets(train, holdout, synthetic)
    weights: tuple[Attack, ...] = ()
    report: ShadowReport | None = None
    if checkpoint is not None:
        loaded = (
            checkpoint if isinstance(checkpoint, LoadedCheckpoint) else load_checkpoint(checkpoint)
        )
        weights, report = attack.on(loaded, found.in_codes_of(checkpoint_schema(loaded)))
    done = replace(audit_of(found.data, found.made, weights), shadows=report)
    if not isinstance(synthetic, str | Path):
        return done
    return replace(done, words=search_words(synthetic, found.private))


def audit_of(
    data: GraphDataset,
    made: SampleSource,
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
    made = list(made)
    train, held_out = data.graphs["train"], data.held_out
    structure = check_structure(made, GraphStatistics.measure(train, data.schema.sizes()))
    return Audit(
        train=len(train),
        held_out=len(held_out),
        structure=structure,
        novelty=novelty(train, held_out, made, structure.valid_B),
        copies=count_copies(train, held_out, made, data.schema.measured_columns),
        leaks=leak_series(
            data.members,
            held_out,
            made,
            measured=data.schema.measured_columns,
            numeric=data.schema.size_columns,
        ),
        weights=weights,
        neighborhoods=_compared(data, made, NEIGHBORHOOD_METRICS),
        local=_compared(data, _valid(made, structure), LOCAL_METRICS),
        advice=too_few_held_out(data),
    )


def _audit_of_stream(
    data: GraphDataset, made: SampleSource, weights: tuple[Attack, ...], most_held: int
) -> Audit:
    """Return the audit of more samples than are held."""
    tally = AuditTally(data, len(made), most_held)
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


def _require_split(learned: SplitFingerprint | None, data: GraphDataset, model: str) -> None:
    """Raise UsageError if a model is known to have learned from another split."""
    if learned is not None:
        require_same_split(learned, data.split, model=model, data=data.name)
