"""Do samples and weights give away the graphs that a generator learned from?"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from layerdag.api._compare import attribute_views
from layerdag.api._split_advice import too_few_held_out
from layerdag.datasets import (
    GraphDataset,
    GraphLike,
    SplitFingerprint,
    encoded,
    load_dataset,
    require_same_split,
)
from layerdag.datasets.schema import GraphSchema
from layerdag.evaluation import compare
from layerdag.evaluation.metrics import (
    LOCAL_METRICS,
    NEIGHBORHOOD_METRICS,
    AttributeMetrics,
    Interval,
    Metric,
    MetricResult,
    SimilarityRow,
)
from layerdag.evaluation.privacy import (
    Attack,
    LeakRow,
    Novelty,
    Verdict,
    leak_series,
    likelihood_attack,
    novelty,
    schema_attacks,
)
from layerdag.evaluation.rules import StructureReport, check_structure
from layerdag.graph import DAG, GraphStatistics
from layerdag.sampling import checkpoint_schema
from layerdag.surrogates import read_manifest, read_samples
from layerdag.training import LoadedCheckpoint, load_checkpoint
from layerdag.viz import interval, number, percent

CAVEATS = (
    "What these attacks do not find, another one may: shadow models are not included.",
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
        leaks: Nearness and attacks on the samples, by their number; empty if nothing is held out.
        weights: Attacks on weights and schema of the checkpoint, if one was given.
        neighborhoods: ``NEIGHBORHOOD_METRICS`` of the samples, beside those of the held-out graphs;
            empty if nothing is held out.
        local: ``LOCAL_METRICS`` of the samples that are valid graphs, beside those of the held-out
            graphs; empty if nothing is held out or no sample is valid.
        advice: What is wrong with the split for this purpose, None if nothing is.
    """

    train: int
    held_out: int
    structure: StructureReport
    novelty: Novelty
    leaks: tuple[LeakRow, ...]
    weights: tuple[Attack, ...]
    neighborhoods: tuple[SimilarityRow, ...]
    local: tuple[SimilarityRow, ...]
    advice: str | None

    @property
    def passes(self) -> bool:
        """Whether every figure of all samples and of the weights is no better than chance."""
        if not self.leaks:
            return False
        found = [*self.leaks[-1].verdicts, *(attack.verdict for attack in self.weights)]
        return all(verdict is Verdict.CHANCE for verdict in found)

    def __str__(self) -> str:
        """Return the figures as lines to read."""
        return "\n".join(_lines(self))


def audit(
    samples: Sequence[GraphLike] | str | Path,
    data: GraphDataset | str | Path,
    checkpoint: LoadedCheckpoint | str | Path | None = None,
) -> Audit:
    """Compare samples with the training and the held-out graphs of a data set, and attack.

    Args:
        samples: What ``sample`` returned, or a folder that ``layerdag sample`` wrote.
        data: The data set that the generator learned from, split as it was then.
        checkpoint: What was sampled from, for attacks on weights and schema; None leaves them out.

    Raises:
        UsageError: If samples or checkpoint are known to come from another split of the data.
        DataError: If a file is missing or damaged.
    """
    if not isinstance(data, GraphDataset):
        data = load_dataset(data)
    if isinstance(samples, str | Path):
        learned = SplitFingerprint.from_dict(read_manifest(samples).get("split"))
        _require_split(learned, data, str(samples))
        made = list(read_samples(samples, data.schema))
    else:
        made = encoded(samples, data.schema)
    if checkpoint is None:
        return audit_of(data, made)
    if not isinstance(checkpoint, LoadedCheckpoint):
        checkpoint = load_checkpoint(checkpoint)
    _require_split(checkpoint.meta.split, data, str(checkpoint.path))
    return audit_of(data, made, weight_attacks(checkpoint, data))


def audit_of(data: GraphDataset, made: Sequence[DAG], weights: tuple[Attack, ...] = ()) -> Audit:
    """Return the audit of samples with codes of the data set's schema.

    Args:
        data: The data set.
        made: The samples.
        weights: Attacks on the weights.

    Raises:
        UsageError: If there is no training graph or no sample.
    """
    train, held_out = data.graphs["train"], data.held_out
    structure = check_structure(made, GraphStatistics.measure(train, data.schema.sizes()))
    valid = [dag for dag, is_valid in zip(made, structure.valid_B, strict=True) if is_valid]
    return Audit(
        train=len(train),
        held_out=len(held_out),
        structure=structure,
        novelty=novelty(train, held_out, made, structure.valid_B),
        leaks=leak_series(data.members, held_out, made, measured=data.schema.measured_columns),
        weights=weights,
        neighborhoods=_compared(data, made, NEIGHBORHOOD_METRICS),
        local=_compared(data, valid, LOCAL_METRICS),
        advice=too_few_held_out(data),
    )


def _compared(
    data: GraphDataset, made: Sequence[DAG], metrics: Sequence[Metric | AttributeMetrics]
) -> tuple[SimilarityRow, ...]:
    """Return metrics of samples and of held-out graphs; none where one of both is missing."""
    if not data.held_out or not made:
        return ()
    views = attribute_views(data.schema)
    return compare(data.graphs["train"], data.held_out, made, views, metrics=metrics).rows


def weight_attacks(loaded: LoadedCheckpoint, data: GraphDataset) -> tuple[Attack, ...]:
    """Return the attacks on weights and schema, if there are held-out graphs to tell from."""
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


def _require_split(learned: SplitFingerprint | None, data: GraphDataset, model: str) -> None:
    """Raise UsageError if a model is known to have learned from another split."""
    if learned is not None:
        require_same_split(learned, data.split, model=model, data=data.name)


def _lines(found: Audit) -> Iterator[str]:
    """Yield what is printed."""
    new = found.novelty
    yield f"{new.graphs:,} samples, {found.train:,} training and {found.held_out:,} held-out graphs"
    yield f"copies of training graphs            {percent(new.copied)}"
    yield f"  the same among held-out graphs     {percent(new.copied_real)}"
    if found.leaks:
        yield "nearer to training than to held-out graphs (50% is chance)"
        for row in found.leaks:
            near = row.nearness
            share = f"{percent(near.dcr_share)} {percents(near.interval)}"
            yield f"  {row.samples:>6,} samples  {share}: {near.in_words()}"
    for place in range(len(found.leaks[-1].attacks) if found.leaks else 0):
        yield f"attack {found.leaks[-1].attacks[place].name} (an area of 0.5 is chance)"
        for row in found.leaks:
            yield f"  {row.samples:>6,} samples  {_told(row.attacks[place])}"
    for attack in found.weights:
        yield f"attack {attack.name}, on the weights (an area of 0.5 is chance)"
        yield f"                  {_told(attack)}"
    yield from _structure_lines(found)
    if found.advice:
        yield found.advice
    yield " ".join(CAVEATS)


def _structure_lines(found: Audit) -> Iterator[str]:
    """Yield the tables of neighborhoods and of local structure."""
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
    """Return a fraction with its interval."""
    between = "" if result.interval is None else f" {percents(result.interval)}"
    return f"{percent(result.value)}{between}"


def percents(interval: Interval) -> str:
    """Return an interval of shares in brackets."""
    return f"[{interval.low:.0%}, {interval.high:.0%}]"


def _told(attack: Attack) -> str:
    """Return area, interval and verdict of an attack."""
    return f"area {number(attack.auc, 2)} {interval(attack.interval)}: {attack.in_words()}"
