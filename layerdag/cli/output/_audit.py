"""``layerdag audit`` and ``validate --against``: do samples give their training graphs away?"""

import json
from collections.abc import Iterator
from dataclasses import replace

from layerdag._runtime import log_stages, stage
from layerdag.api import (
    CAVEATS,
    Audit,
    WhiteBox,
    audit_of,
    figure_cells,
    neighborhood_cells,
)
from layerdag.cli.settings import RealData
from layerdag.report import ReportContent, SummaryRow, plain
from layerdag.report.sections import attack_words
from layerdag.surrogates import stream_samples
from layerdag.training import load_checkpoint
from layerdag.viz import interval, number, percent, percents


def audit(
    samples: str, against: RealData, checkpoint: str | None, attack: WhiteBox | None = None
) -> Audit:
    """Compare samples with the training and the held-out graphs of a data set.

    Args:
        samples: Folder that ``layerdag sample`` wrote.
        against: The data set.
        checkpoint: What was sampled from, for the attack on the weights; None leaves it out.
        attack: How weights are attacked; None is without shadow models.

    Raises:
        UsageError: If samples or checkpoint come from another split of the data.
        DataError: If a file is missing or damaged.
    """
    log_stages()
    with stage("reading the real graphs"):
        data = against.beside_samples(samples)
    made = stream_samples(samples, data.schema)
    if checkpoint is None:
        return audit_of(data, made)
    loaded = load_checkpoint(checkpoint)
    weights, report = (attack or WhiteBox()).on(loaded, against.beside_weights(loaded))
    return replace(audit_of(data, made, weights), shadows=report)


def figures_json(found: Audit) -> str:
    """Return all figures of an audit as JSON."""
    return json.dumps(plain(_figures(found)), indent=1, allow_nan=False)


def _figures(found: Audit) -> dict[str, object]:
    """Return all figures by name; "nearness" and "attacks" are those of all samples."""
    last = found.leaks[-1] if found.leaks else None
    return {
        "train": found.train,
        "held_out": found.held_out,
        "passes": found.passes,
        "advice": found.advice,
        "novelty": found.novelty,
        "copies": found.copies,
        "words": found.words,
        "nearness": last and last.nearness,
        "attacks": [*(last.attacks if last else ()), *found.weights],
        "shadows": found.shadows,
        "inferences": last.inferences if last else (),
        "by_number_of_samples": found.leaks,
        "neighborhoods": found.neighborhoods,
        "local": found.local,
        **({} if found.held is None else {"held": found.held}),
    }


def content_of(found: Audit) -> ReportContent:
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
    copies = found.copies
    yield SummaryRow(
        "copies of real graphs, new durations",
        percent(copies.copied),
        percent(copies.copied_real),
        "beside it, held-out graphs that repeat a training graph",
    )
    yield SummaryRow(
        "near copies of real graphs",
        percent(copies.near),
        percent(copies.near_quantile),
        "nearer to a real graph than all but so many held-out graphs are",
    )
    if found.words is not None:
        files, count = f"{found.words.files:,}", f"{len(found.words.found):,}"
        first = found.words.found[0].sentence() if found.words.found else "every file was searched"
        yield SummaryRow(f"private words in the {files} files of the samples", count, "0", first)
    if found.leaks:
        near = found.leaks[-1].nearness
        fraction = f"{percent(near.dcr_share)} {percents(near.interval)}"
        yield SummaryRow("nearer to training than to held-out", fraction, "50%", near.in_words())
    for attack in (*(found.leaks[-1].attacks if found.leaks else ()), *found.weights):
        area = f"{number(attack.auc, 2)} {interval(attack.interval)}"
        honest = attack.holdout
        beside = "0.5 is chance"
        if honest is not None:
            beside = f"{number(honest.auc, 2)} {interval(honest.interval)} of held-out graphs"
        yield SummaryRow(f"attack: {attack_words(attack.name)}", area, beside, attack.in_words())
    for attack in found.shadows.as_targets if found.shadows is not None else ():
        area = f"{number(attack.auc, 2)} {interval(attack.interval)}"
        what = f"attack: {attack_words(attack.name)}; {attack.description}"
        yield SummaryRow(what, area, "0.5 is chance", attack.in_words())
    for read in found.leaks[-1].inferences if found.leaks else ():
        yield SummaryRow(
            f"read from samples: {read.description}",
            percent(read.of_training),
            f"{percent(read.of_held_out)} of held-out graphs",
            read.in_words(),
        )
    for name, of_samples, of_real in neighborhood_cells(found.neighborhoods):
        yield SummaryRow(
            f"nodes whose neighborhood occurs {name}", of_samples, of_real, "mean per graph"
        )
    for row in found.local:
        if not row.generated.error:
            yield SummaryRow(row.metric.description, *figure_cells(row), row.metric.name)
