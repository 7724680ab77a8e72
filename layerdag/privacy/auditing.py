"""``ld.audit``: copies, membership inference and leaked words, with verdicts, as lines of text."""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Protocol, runtime_checkable

from layerdag.dag.dag import DAG, graph_hashes
from layerdag.dag.statistics import GraphStatistics
from layerdag.datasets.advice import too_few_held_out
from layerdag.datasets.conversion import GraphLike
from layerdag.datasets.dataset import GraphDataset
from layerdag.datasets.encoding import encoded
from layerdag.datasets.loading import load_dataset, read_learned_dataset
from layerdag.datasets.splits import SplitFingerprint, require_same_split
from layerdag.errors import DataError, UsageError
from layerdag.evaluation.metrics.base import (
    AttributeMetrics,
    Metric,
    MetricResult,
    SimilarityRow,
    attribute_views,
)
from layerdag.evaluation.metrics.neighborhoods import NEIGHBORHOOD_METRICS
from layerdag.evaluation.similarity import LOCAL_METRICS, compare
from layerdag.evaluation.validity import StructureReport, StructureTally
from layerdag.privacy.attacks import Inference
from layerdag.privacy.audit_inputs import Graphs, WordSearch, read_sets, search_words
from layerdag.privacy.copies import (
    CopyComparison,
    CopyCounts,
    CopyTest,
    Novelty,
    copy_counts,
    novelty_of_hashes,
)
from layerdag.privacy.likelihood_ratio import schema_attacks
from layerdag.privacy.membership import AttackResult, likelihood_attack
from layerdag.privacy.rare_words import RareWords, rare_words
from layerdag.privacy.sample_leaks import (
    MAX_HELD,
    LeakTally,
    ReservoirSample,
    SampleLeaks,
    sample_leaks,
)
from layerdag.privacy.shadows import ShadowReport, ShadowSettings, shadow_attacks
from layerdag.runtime.notes import Note, merge_notes
from layerdag.runtime.terminal import stage, stages, track
from layerdag.samples.manifest import read_manifest
from layerdag.samples.stream import SampleStream, stream_samples
from layerdag.schema.schema import GraphSchema
from layerdag.statistics import Verdict
from layerdag.training.checkpoint import LoadedCheckpoint, checkpoint_schema, load_checkpoint
from layerdag.viz.numbers import interval, number, percent, percents

AT_ONCE = 256


@runtime_checkable
class SampleSource(Protocol):
    """Samples in memory or on the disk, of a known number."""

    def __len__(self) -> int:
        """Return the number of samples."""

    def __iter__(self) -> Iterator[DAG]:
        """Yield the samples."""


CAVEATS = (
    "What these attacks do not find, another one may: with --checkpoint, shadow models (--shadows) "
    "find more in weights.",
    "More samples can only reveal more: the figures hold for this number of samples.",
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
        leaks: Nearness, attacks on the samples and what is read from them; None if nothing is held
            out.
        weights: Attacks on weights and schema of the checkpoint, if one was given.
        neighborhoods: ``NEIGHBORHOOD_METRICS`` of the samples, beside those of the held-out graphs;
            empty if nothing is held out.
        local: ``LOCAL_METRICS`` of the samples that are valid graphs, beside those of the held-out
            graphs; empty if nothing is held out or no sample is valid.
        advice: What is wrong with the split for this purpose, None if nothing is.
        words: Private words in the files of the samples; None where there are no files.
        shadows: How shadow models were trained, and what such models give away; None without any.
        held: Number of samples, drawn at random, behind ``neighborhoods``, ``local`` and what
            learns; None where these used all samples.
        notes: What was not understood in real graphs and samples.
        left_out: Why real graphs or samples are not among those counted, a sentence each.
        rare: Words of sampled programs that few training programs have; None for other graphs. Of
            more samples than are held, of ``held``.
    """

    train: int
    held_out: int
    structure: StructureReport
    novelty: Novelty
    copies: CopyCounts
    leaks: SampleLeaks | None
    weights: tuple[AttackResult, ...]
    neighborhoods: tuple[SimilarityRow, ...]
    local: tuple[SimilarityRow, ...]
    advice: str | None
    words: WordSearch | None = None
    shadows: ShadowReport | None = None
    held: int | None = None
    notes: tuple[Note, ...] = ()
    left_out: tuple[str, ...] = ()
    rare: RareWords | None = None

    def __repr__(self) -> str:
        """Return the sizes; ``print`` shows what was found."""
        return (
            f"Audit({self.structure.graphs:,} samples, {self.train:,} training and "
            f"{self.held_out:,} held-out graphs)"
        )

    @property
    def passes(self) -> bool:
        """Whether nothing was found of all samples and of the weights.

        Every figure is no better than chance, no graph is found at a low false-positive rate, no
        sample copies a real graph, and no file holds a private word or could not be searched.
        """
        if self.leaks is None or self.copies.copied:
            return False
        if self.words is not None and (self.words.found or self.words.unread):
            return False
        attacks = (*self.leaks.attacks, *self.weights)
        if any(attack.finds_some for attack in attacks):
            return False
        found = [*self.leaks.verdicts.values(), *(attack.verdict for attack in self.weights)]
        return all(verdict is Verdict.CHANCE for verdict in found)

    def __str__(self) -> str:
        """Return the figures as lines to read."""
        return "\n".join(audit_lines(self, CAVEATS))


def audit_of(
    data: GraphDataset,
    made: SampleSource,
    weights: tuple[AttackResult, ...] = (),
    *,
    most_held: int = MAX_HELD,
) -> Audit:
    """Return the audit of samples with codes of the data set's schema, beside attacks on weights.

    Of more than ``most_held`` samples, so many are held, drawn at random, for figures that need
    many at once. What is kept of each other one is its hash, its verdicts and two distances, some
    hundred bytes.

    Raises:
        UsageError: If there is no training graph or no sample.
    """
    count, schema = len(made), data.schema
    if not count:
        raise UsageError("An audit needs samples, and there are none.")
    train, held_out = data.graphs["train"], data.held_out
    columns = (schema.measured_columns, schema.size_columns)
    is_attacked = bool(data.members and held_out)
    rules = StructureTally(GraphStatistics.measure(train, schema.sizes()))
    test = CopyTest(train, held_out, schema.measured_columns)
    part = ReservoirSample(count, most_held)
    tally = None
    if is_attacked and count > most_held:
        tally = LeakTally(data.members, held_out, count, *columns)
    hashes: list[str] = []
    found: list[CopyComparison] = []
    with stages(count + 2 * min(count, most_held)):
        with stage("structure and copies", count):
            stream = iter(track(made, "auditing samples", count))
            while dags := list(islice(stream, AT_ONCE)):
                rules.add(dags)
                hashes += graph_hashes(dags)
                found += test.resemblances(dags)
                part.add(dags)
                if tally is not None:
                    tally.add(dags)
        held = part.held if count > most_held else dict(sorted(part.held.items()))
        dags = list(held.values())
        leaks = None
        if tally is not None:
            leaks = tally.result(dags)
        elif is_attacked:
            leaks = sample_leaks(data.members, held_out, dags, *columns)
    structure = rules.report()
    valid = [dag for number, dag in held.items() if structure.valid_B[number]]
    return Audit(
        train=len(train),
        held_out=len(held_out),
        structure=structure,
        novelty=novelty_of_hashes(train, held_out, hashes, structure.valid_B),
        copies=copy_counts(test, found),
        leaks=leaks,
        weights=weights,
        neighborhoods=_compared(data, dags, NEIGHBORHOOD_METRICS),
        local=_compared(data, valid, LOCAL_METRICS),
        advice=too_few_held_out(data),
        held=len(held) if len(held) < count else None,
        rare=rare_words(schema, train, dags) if schema.kind.has_steps else None,
        notes=merge_notes([*data.notes, *(made.notes if isinstance(made, SampleStream) else ())]),
        left_out=data.left_out,
    )


def _compared(
    data: GraphDataset, made: Sequence[DAG], metrics: Sequence[Metric | AttributeMetrics]
) -> tuple[SimilarityRow, ...]:
    """Return metrics of samples and of held-out graphs; none where one of both is missing."""
    if not data.held_out or not made:
        return ()
    views = attribute_views(data.schema)
    return compare(data.graphs["train"], data.held_out, made, views, metrics=metrics).rows


Tell = Callable[[str], None]
_LOG = logging.getLogger("layerdag")


@dataclass(frozen=True)
class WhiteBox:
    """How weights are attacked.

    Attributes:
        shadows: How many shadow models are trained, and for how long; None trains none.
        tell: Takes a line on each of them.
    """

    shadows: ShadowSettings | None = None
    tell: Tell = _LOG.info

    def on(
        self, loaded: LoadedCheckpoint, data: GraphDataset
    ) -> tuple[tuple[AttackResult, ...], ShadowReport | None]:
        """Return the attacks on weights and schema, and how shadow models were trained.

        Args:
            loaded: Whose weights are attacked.
            data: Training and held-out graphs in its codes.

        Raises:
            UsageError: If there are too few graphs for shadow models, or their start is not at
                hand.
        """
        found = weight_attacks(loaded, data)
        if self.shadows is None:
            return found, None
        known = data.conditioned_on(checkpoint_schema(loaded).condition_names)
        ratios, report = shadow_attacks(loaded, known, self.shadows, self.tell)
        return (*found[:1], *ratios, *found[1:]), report


def weight_attacks(loaded: LoadedCheckpoint, data: GraphDataset) -> tuple[AttackResult, ...]:
    """Return the attacks on weights and schema, if there are held-out graphs to compare with.

    What further attacks on weights find joins this tuple, and so the audit and its pages.
    """
    if not data.held_out:
        return ()
    names = checkpoint_schema(loaded).condition_names
    if names != data.schema.condition_names:
        data = data.conditioned_on(names)
    members, held_out = data.members, data.held_out
    return (
        likelihood_attack(loaded.model, data.schema, members, held_out),
        *schema_attacks(GraphSchema.from_dict(loaded.schema), members, held_out),
    )


Samples = Sequence[GraphLike] | str | Path


def audit(
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
    learned = None
    if isinstance(samples, str | Path):
        learned = SplitFingerprint.from_dict(read_manifest(samples).get("split"))
    if not isinstance(data, GraphDataset):
        is_folder = isinstance(data, str | Path) and Path(data).is_dir()
        data = read_learned_dataset(data, None, learned) if is_folder else load_dataset(data)
    words = None
    if isinstance(samples, str | Path):
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
    train, holdout, synthetic = sets
    if data is not None or samples is not None or None in (train, holdout, synthetic):
        raise UsageError(
            "An audit of folders needs all of train, holdout and synthetic, and neither samples "
            "nor data."
        )
    assert train is not None and holdout is not None and synthetic is not None  # noqa: PT018
    with stage("reading three sets of graphs"):
        found = read_sets(train, holdout, synthetic)
    weights: tuple[AttackResult, ...] = ()
    report: ShadowReport | None = None
    if checkpoint is not None:
        loaded = (
            checkpoint if isinstance(checkpoint, LoadedCheckpoint) else load_checkpoint(checkpoint)
        )
        weights, report = attack.on(loaded, found.in_codes_of(checkpoint_schema(loaded)))
    done = audit_of(found.data, found.made, weights)
    done = replace(done, shadows=report, left_out=(*found.left_out, *done.left_out))
    if not isinstance(synthetic, str | Path):
        return done
    return replace(done, words=search_words(synthetic, found.private))


def _require_split(learned: SplitFingerprint | None, data: GraphDataset, model: str) -> None:
    """Raise UsageError if a model is known to have learned from another split."""
    if learned is not None:
        require_same_split(learned, data.split, model=model, data=data.name)


SHOWN_WORDS = 5


def audit_lines(found: "Audit", caveats: Sequence[str]) -> Iterator[str]:
    """Yield what is printed of an audit."""
    new, copies = found.novelty, found.copies
    yield f"{new.graphs:,} samples, {found.train:,} training and {found.held_out:,} held-out graphs"
    yield f"copies of training graphs            {percent(new.copied)}"
    yield f"  the same among held-out graphs     {percent(new.copied_real)}"
    yield f"copies of real graphs, new durations {percent(copies.copied)}"
    yield f"  held-out graphs of training graphs {percent(copies.copied_real)}"
    yield f"near copies of real graphs           {percent(copies.near)}"
    yield f"  as near as so many held-out graphs {percent(copies.near_quantile)}"
    if found.rare is not None:
        yield found.rare.in_words()
    if found.leaks is not None:
        yield from _leak_lines(found.leaks)
    for attack in found.weights:
        yield f"attack {attack.name}, on the weights (an AUROC of 0.5 is chance)"
        yield f"                  {_told(attack)}"
        yield from _beside(attack)
    yield from _shadow_lines(found)
    yield from _word_lines(found)
    if found.neighborhoods:
        yield f"{'nodes whose neighborhood occurs':<36} {'samples':<20} held-out graphs"
    for name, of_samples, of_real in neighborhood_cells(found.neighborhoods):
        yield f"  {name:<34} {of_samples:<20} {of_real}"
    if found.local:
        yield f"{'local structure':<36} {'samples':<20} held-out graphs"
    for name, of_samples, of_real in (
        (row.metric.name, *figure_cells(row)) for row in found.local if not row.generated.error
    ):
        yield f"  {name:<34} {of_samples:<20} {of_real}"
    if found.held is not None:
        yield (
            f"What learns, aligns or infers, and neighborhoods and local structure, looked at "
            f"{found.held:,} of the {found.novelty.graphs:,} samples, drawn at random (seed 0); "
            "everything else at all of them."
        )
    if found.advice:
        yield found.advice
    yield " ".join(caveats)


def _leak_lines(leaks: SampleLeaks) -> Iterator[str]:
    near = leaks.nearness
    yield "nearer to training than to held-out graphs (50% is chance)"
    fraction = f"{percent(near.dcr_share)} {percents(near.interval)}"
    yield f"  {leaks.samples:>6,} samples  {fraction}: {near.in_words()}"
    for attack in leaks.attacks:
        yield f"attack {attack.name} (an AUROC of 0.5 is chance)"
        yield f"  {attack.sampled or leaks.samples:>6,} samples  {_told(attack)}"
        yield from _beside(attack)
    if leaks.inferences:
        yield "read from samples: of training graphs, of held-out graphs, by chance; advantage"
    for each in leaks.inferences:
        yield f"  {each.samples:>6,} samples  {each.name}: {read_in_words(each)}"


def _beside(attack: AttackResult) -> Iterator[str]:
    if attack.fractions is not None:
        of_members, of_others = (percent(fraction) for fraction in attack.fractions)
        yield f"                  of training graphs {of_members}, of held-out graphs {of_others}"
    yield f"                  {detection_in_words(attack)}"
    if attack.holdout is not None:
        yield f"                  honest holdout: {holdout_in_words(attack.holdout)}"


def detection_in_words(attack: AttackResult) -> str:
    """Return the true-positive rates of an attack at low false-positive rates."""
    return "; ".join(rate.in_words() for rate in attack.rates)


def holdout_in_words(attack: AttackResult) -> str:
    """Return what an attack finds where nothing can leak."""
    return f"AUROC {number(attack.auc, 2)} {interval(attack.interval)}, {attack.description}"


def read_in_words(read: Inference) -> str:
    """Return how well something is read, and what that says."""
    parts = (percent(x) for x in (read.of_training, read.of_held_out, read.by_chance))
    gain = f"{number(read.advantage, 2)} {interval(read.interval)}"
    return f"{', '.join(parts)}; {gain}: {read.in_words()}"


def _shadow_lines(found: "Audit") -> Iterator[str]:
    report = found.shadows
    if report is None:
        return
    yield report.in_words()
    for attack in report.as_targets:
        yield f"  {attack.name}: {_told(attack)}"
        yield f"                  {detection_in_words(attack)}"


def _word_lines(found: "Audit") -> Iterator[str]:
    search = found.words
    if search is None:
        return
    yield (
        f"private words ({search.words:,} looked for in {search.files:,} files): "
        f"{len(search.found):,} found"
    )
    if search.unread:
        yield (
            f"  not looked into: {len(search.unread):,} packed files, the first is "
            f"{search.unread[0]}; unpack them and repeat"
        )
    yield from (f"  {word.sentence()}" for word in search.found[:SHOWN_WORDS])
    if len(search.found) > SHOWN_WORDS:
        yield f"  and {len(search.found) - SHOWN_WORDS:,} more"


def neighborhood_cells(rows: Sequence[SimilarityRow]) -> Iterator[tuple[str, str, str]]:
    """Yield where neighborhoods of nodes occur, how many of samples, and how many of real graphs.

    Args:
        rows: Of ``NEIGHBORHOOD_METRICS``.
    """
    where = {
        "neighborhood_novelty": "in no training graph",
        "neighborhood_repetition": "again in the same graph",
    }
    for row in rows:
        kind, _, radius = row.metric.name.rpartition(":")
        yield f"{where[kind]}, radius {radius}", _fraction(row.generated), _fraction(row.reference)


def figure_cells(row: SimilarityRow) -> tuple[str, str]:
    """Return the figure of samples and that of real graphs, each with its interval."""
    generated, real = (
        f"{number(one.value)} {interval(one.interval)}".rstrip()
        for one in (row.generated, row.reference)
    )
    return generated, real


def _fraction(result: MetricResult) -> str:
    between = "" if result.interval is None else f" {percents(result.interval)}"
    return f"{percent(result.value)}{between}"


def _told(attack: AttackResult) -> str:
    return f"AUROC {number(attack.auc, 2)} {interval(attack.interval)}: {attack.in_words()}"
