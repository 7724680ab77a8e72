"""``layerdag validate --against``: do samples give their training graphs away?"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from layerdag.cli.output._split_advice import too_few_held_out
from layerdag.cli.settings import RealData
from layerdag.datasets import GraphDataset
from layerdag.datasets.schema import GraphSchema
from layerdag.evaluation.metrics import Interval
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
from layerdag.graph import GraphStatistics
from layerdag.report import ReportContent, SummaryRow, plain, write_report
from layerdag.surrogates import read_samples
from layerdag.training import LoadedCheckpoint, load_checkpoint
from layerdag.viz import interval, number, percent

CAVEATS = (
    "What these attacks do not find, another one may: shadow models have not been tried.",
    "More samples can only tell more: the figures hold for these numbers of samples.",
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
        advice: What is wrong with the split for this purpose, None if nothing is.
    """

    train: int
    held_out: int
    structure: StructureReport
    novelty: Novelty
    leaks: tuple[LeakRow, ...]
    weights: tuple[Attack, ...]
    advice: str | None

    @property
    def passes(self) -> bool:
        """Whether every figure of all samples and of the weights is no better than chance."""
        if not self.leaks:
            return False
        found = [*self.leaks[-1].verdicts, *(attack.verdict for attack in self.weights)]
        return all(verdict is Verdict.CHANCE for verdict in found)


def audit(samples: str, against: RealData, checkpoint: str | None) -> Audit:
    """Compare samples with the training and the held-out graphs of a data set.

    Args:
        samples: Folder that ``layerdag sample`` wrote.
        against: The data set.
        checkpoint: What was sampled from, for the attack on the weights; None leaves it out.

    Raises:
        UsageError: If samples or checkpoint come from another split of the data.
        DataError: If a file is missing or damaged.
    """
    data = against.beside_samples(samples)
    train, held_out = data.graphs["train"], data.held_out
    made = read_samples(samples, data.schema)
    structure = check_structure(made, GraphStatistics.measure(train, data.schema.sizes()))
    weights = () if checkpoint is None else _weights(load_checkpoint(checkpoint), against, data)
    return Audit(
        train=len(train),
        held_out=len(held_out),
        structure=structure,
        novelty=novelty(train, held_out, made, structure.valid_B),
        leaks=leak_series(train, held_out, made),
        weights=weights,
        advice=too_few_held_out(data),
    )


def _weights(loaded: LoadedCheckpoint, against: RealData, data: GraphDataset) -> tuple[Attack, ...]:
    """Return the attacks on weights and schema, if there are held-out graphs to tell from."""
    data = against.beside_weights(loaded)
    if not data.held_out:
        return ()
    train, held_out = data.graphs["train"], data.held_out
    return (
        likelihood_attack(loaded.model, data.schema, train, held_out),
        *schema_attacks(GraphSchema.from_dict(loaded.schema), train, held_out),
    )


def show(found: Audit, page: str | None, *, as_json: bool) -> None:
    """Print the audit as a table or as JSON, and write it as a page if one is named."""
    if page is not None:
        write_report(_content(found), Path(page))
    if as_json:
        print(json.dumps(plain(_figures(found)), indent=1, allow_nan=False))
        return
    for line in _lines(found):
        print(line)
    if page is not None:
        print(f"report: {page}")


def _figures(found: Audit) -> dict[str, object]:
    """Return all figures by name; "nearness" and "attacks" are those of all samples."""
    last = found.leaks[-1] if found.leaks else None
    return {
        "train": found.train,
        "held_out": found.held_out,
        "passes": found.passes,
        "advice": found.advice,
        "novelty": found.novelty,
        "nearness": last and last.nearness,
        "attacks": [*(last.attacks if last else ()), *found.weights],
        "by_number_of_samples": found.leaks,
    }


def _content(found: Audit) -> ReportContent:
    """Return what the page shows."""
    return ReportContent(
        title="What the samples give away",
        lead="Copies of training graphs, and attacks that ask which real graphs were learned.",
        summary=tuple(_summary(found)),
        structure=found.structure,
        novelty=found.novelty,
        leaks=found.leaks,
        weight_attacks=found.weights,
        caveats=(*([found.advice] if found.advice else []), *CAVEATS),
    )


def _summary(found: Audit) -> Iterator[SummaryRow]:
    """Yield a line on copies, and one on each figure of all samples and of the weights."""
    new = found.novelty
    yield SummaryRow(
        "copies of training graphs",
        percent(new.copied),
        percent(new.copied_real),
        f"of {new.graphs:,} samples; beside it, of {found.held_out:,} held-out graphs",
    )
    if found.leaks:
        near = found.leaks[-1].nearness
        share = f"{percent(near.share)} {_percents(near.interval)}"
        yield SummaryRow("nearer to training than to held-out", share, "50%", near.in_words())
    for attack in (*(found.leaks[-1].attacks if found.leaks else ()), *found.weights):
        area = f"{number(attack.auc, 2)} {interval(attack.interval)}"
        yield SummaryRow(f"attack {attack.name}", area, "0.5 is chance", attack.in_words())


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
            share = f"{percent(near.share)} {_percents(near.interval)}"
            yield f"  {row.samples:>6,} samples  {share}: {near.in_words()}"
    for place in range(len(found.leaks[-1].attacks) if found.leaks else 0):
        yield f"attack {found.leaks[-1].attacks[place].name} (an area of 0.5 is chance)"
        for row in found.leaks:
            yield f"  {row.samples:>6,} samples  {_told(row.attacks[place])}"
    for attack in found.weights:
        yield f"attack {attack.name}, on the weights (an area of 0.5 is chance)"
        yield f"                  {_told(attack)}"
    if found.advice:
        yield found.advice
    yield " ".join(CAVEATS)


def _percents(interval: Interval) -> str:
    """Return an interval of shares in brackets."""
    return f"[{interval.low:.0%}, {interval.high:.0%}]"


def _told(attack: Attack) -> str:
    """Return area, interval and verdict of an attack."""
    return f"area {number(attack.auc, 2)} {interval(attack.interval)}: {attack.in_words()}"
