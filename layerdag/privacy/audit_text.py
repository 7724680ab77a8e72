"""An audit as lines of text and cells of a table."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from layerdag.datasets.dataset import GraphDataset
from layerdag.evaluation.metrics.base import MetricResult, SimilarityRow
from layerdag.privacy.attacks import Inference
from layerdag.privacy.membership import CHANCE, MARGIN, Attack, chance_half_width, needed
from layerdag.viz.html import interval, number, percent, percents

if TYPE_CHECKING:
    from layerdag.privacy.auditing import Audit


SHOWN_WORDS = 5


def audit_lines(found: "Audit", caveats: Sequence[str]) -> Iterator[str]:
    """Yield what is printed of an audit."""
    yield from _copy_lines(found)
    if found.leaks:
        yield "nearer to training than to held-out graphs (50% is chance)"
        for row in found.leaks:
            near = row.nearness
            fraction = f"{percent(near.dcr_share)} {percents(near.interval)}"
            yield f"  {row.samples:>6,} samples  {fraction}: {near.in_words()}"
    for index in range(len(found.leaks[-1].attacks) if found.leaks else 0):
        yield from _attack_lines(found, index)
    yield from _inference_lines(found)
    for attack in found.weights:
        yield f"attack {attack.name}, on the weights (an area of 0.5 is chance)"
        yield f"                  {_told(attack)}"
        yield from _beside(attack)
    yield from _shadow_lines(found)
    yield from _word_lines(found)
    yield from _structure_lines(found)
    if found.held is not None:
        yield (
            f"What learns, aligns or infers, and neighborhoods and local structure, looked at "
            f"{found.held:,} of the {found.novelty.graphs:,} samples, drawn at random (seed 0); "
            "everything else at all of them."
        )
    if found.advice:
        yield found.advice
    yield " ".join(caveats)


def _copy_lines(found: "Audit") -> Iterator[str]:
    """Yield counts, and how many samples repeat real graphs."""
    new, copies = found.novelty, found.copies
    yield f"{new.graphs:,} samples, {found.train:,} training and {found.held_out:,} held-out graphs"
    yield f"copies of training graphs            {percent(new.copied)}"
    yield f"  the same among held-out graphs     {percent(new.copied_real)}"
    yield f"copies of real graphs, new durations {percent(copies.copied)}"
    yield f"  held-out graphs of training graphs {percent(copies.copied_real)}"
    yield f"near copies of real graphs           {percent(copies.near)}"
    yield f"  as near as so many held-out graphs {percent(copies.near_quantile)}"


def _attack_lines(found: "Audit", index: int) -> Iterator[str]:
    """Yield one attack at every number of samples; what stands beside it at the largest."""
    last = found.leaks[-1].attacks[index]
    yield f"attack {last.name} (an area of 0.5 is chance)"
    for row in found.leaks:
        attack = next((each for each in row.attacks if each.name == last.name), None)
        if attack is not None and attack.sampled is None:
            yield f"  {row.samples:>6,} samples  {_told(attack)}"
    yield from _beside(last)


def _beside(attack: Attack) -> Iterator[str]:
    """Yield what stands beside the area of an attack."""
    if attack.fractions is not None:
        of_members, of_others = (percent(fraction) for fraction in attack.fractions)
        yield f"                  of training graphs {of_members}, of held-out graphs {of_others}"
    yield f"                  {detection_in_words(attack)}"
    if attack.holdout is not None:
        yield f"                  honest holdout: {holdout_in_words(attack.holdout)}"


def detection_in_words(attack: Attack) -> str:
    """Return the true-positive rates of an attack at low false-positive rates."""
    return "; ".join(rate.in_words() for rate in attack.rates)


def holdout_in_words(attack: Attack) -> str:
    """Return what an attack finds where nothing can leak."""
    area = f"area {number(attack.auc, 2)} {interval(attack.interval)}"
    return f"{area}, {attack.description}"


def _inference_lines(found: "Audit") -> Iterator[str]:
    """Yield what is read of training graphs besides which they were."""
    if not found.leaks or not found.leaks[-1].inferences:
        return
    yield "read from samples: of training graphs, of held-out graphs, by chance; advantage"
    for last in found.leaks[-1].inferences:
        for row in found.leaks:
            each = next((one for one in row.inferences if one.name == last.name), None)
            if each is not None and each.samples == row.samples:
                yield f"  {row.samples:>6,} samples  {each.name}: {read_in_words(each)}"


def read_in_words(read: Inference) -> str:
    """Return how well something is read, and what that says."""
    parts = (percent(x) for x in (read.of_training, read.of_held_out, read.by_chance))
    gain = f"{number(read.advantage, 2)} {interval(read.interval)}"
    return f"{', '.join(parts)}; {gain}: {read.in_words()}"


def _shadow_lines(found: "Audit") -> Iterator[str]:
    """Yield how shadow models were trained, and what each gives away to the others."""
    report = found.shadows
    if report is None:
        return
    yield report.in_words()
    for attack in report.as_targets:
        yield f"  {attack.name}: {_told(attack)}"
        yield f"                  {detection_in_words(attack)}"


def _word_lines(found: "Audit") -> Iterator[str]:
    """Yield which files hold private words."""
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


def _structure_lines(found: "Audit") -> Iterator[str]:
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


def _told(attack: Attack) -> str:
    """Return area, interval and verdict of an attack."""
    return f"area {number(attack.auc, 2)} {interval(attack.interval)}: {attack.in_words()}"


REMEDY = (
    "To hold out more, give each graph its part in a column 'split' (train, val, test) of the "
    "label file, or train with a larger data.held_out (data=folder)."
)


def too_few_held_out(data: GraphDataset) -> str | None:
    """Return a warning if no audit of samples could end in "no better than chance", else None."""
    members, others = len(data.members), len(data.held_out)
    if not others:
        return (
            f"{data.name}: no graph is held out, so that an audit can compare samples with "
            f"nothing (layerdag audit). {REMEDY}"
        )
    half = chance_half_width(members, others)
    if half <= MARGIN:
        return None
    return (
        f"{data.name}: {others} graphs are held out (validation and test) beside {members} for "
        "training, too few for an audit of the samples (layerdag audit) to tell small "
        f"leaks from none: an attack shows only above an area of {CHANCE + half:.2f}, and about "
        f"{needed(CHANCE, half, others):,} held-out graphs are needed. {REMEDY}"
    )
