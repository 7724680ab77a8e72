"""The page of ``layerdag audit``."""

from collections.abc import Iterator

from layerdag.privacy.auditing import CAVEATS, Audit, figure_cells, neighborhood_cells
from layerdag.report.content import ReportContent, SummaryRow
from layerdag.report.words import attack_words
from layerdag.viz.numbers import interval, number, percent, percents


def audit_content(found: Audit) -> ReportContent:
    """Return what the page of an audit shows."""
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
    new, copies, leaks = found.novelty, found.copies, found.leaks
    for what, share, share_real, note in (
        ("copies of training graphs", new.copied, new.copied_real,
         f"of {new.graphs:,} samples; beside it, of {found.held_out:,} held-out graphs"),
        ("copies of real graphs, new durations", copies.copied, copies.copied_real,
         "beside it, held-out graphs that repeat a training graph"),
        ("near copies of real graphs", copies.near, copies.near_quantile,
         "nearer to a real graph than all but so many held-out graphs are"),
    ):  # fmt: skip
        yield SummaryRow(what, percent(share), percent(share_real), note)
    if found.rare is not None:
        count = f"{found.rare.rare:,}"
        yield SummaryRow("words of few training programs", count, "0", found.rare.in_words())
    if found.words is not None:
        files, count = f"{found.words.files:,}", f"{len(found.words.found):,}"
        first = found.words.found[0].sentence() if found.words.found else "every file was searched"
        yield SummaryRow(f"private words in the {files} files of the samples", count, "0", first)
    if leaks is not None:
        near = leaks.nearness
        fraction = f"{percent(near.dcr_share)} {percents(near.interval)}"
        yield SummaryRow("nearer to training than to held-out", fraction, "50%", near.in_words())
    for attack in (*(() if leaks is None else leaks.attacks), *found.weights):
        auroc = f"{number(attack.auc, 2)} {interval(attack.interval)}"
        honest = attack.holdout
        beside = "0.5 is chance"
        if honest is not None:
            beside = f"{number(honest.auc, 2)} {interval(honest.interval)} of held-out graphs"
        yield SummaryRow(f"attack: {attack_words(attack.name)}", auroc, beside, attack.in_words())
    for attack in found.shadows.as_targets if found.shadows is not None else ():
        auroc = f"{number(attack.auc, 2)} {interval(attack.interval)}"
        what = f"attack: {attack_words(attack.name)}; {attack.description}"
        yield SummaryRow(what, auroc, "0.5 is chance", attack.in_words())
    for read in () if leaks is None else leaks.inferences:
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
