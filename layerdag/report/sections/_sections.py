"""The sections of the page, each from one result; a section without result is left out."""

from collections.abc import Sequence

import numpy as np

from layerdag.evaluation.rules import GRAPH_RULES, StructureReport
from layerdag.report import (
    CategoryFractions,
    Distribution,
    ReportContent,
    distribution_chart,
    legend,
    shares_chart,
)
from layerdag.report.sections._colors import colors_of
from layerdag.report.sections._words import attribute_words, summary_words, value_words
from layerdag.viz import (
    Markup,
    class_legend,
    draw,
    element,
    number,
    percent,
    percents,
    section,
    table,
)


def summary(content: ReportContent) -> Markup | None:
    """Return the table on top."""
    if not content.summary:
        return None
    rows = [
        (
            summary_words(row.what),
            row.synthetic,
            row.real,
            element("span", row.note, class_="quiet"),
        )
        for row in content.summary
    ]
    body = table(
        "Synthetic graphs next to real ones",
        ("figure", "synthetic", "real", "how to read"),
        rows,
        1,
        2,
        shown=len(rows),
    )
    return section("summary", "Summary", element("div", body, class_="summary"))


def pictures(content: ReportContent) -> Markup | None:
    """Return the drawings side by side."""
    if not content.pictures:
        return None
    slot_of = colors_of(content)
    drawings = element(
        "div", *(draw(picture, slot_of) for picture in content.pictures), class_="grid-pictures"
    )
    first = content.pictures[0].title
    heading = "Sampled graphs" if first.startswith("sample-") else "A real and a sampled graph"
    return section("pictures", heading, class_legend(slot_of), drawings)


def validity(content: ReportContent) -> Markup | None:
    """Return the rules with the share of graphs that keep each."""
    if content.structure is None:
        return None
    parts = [_rules(content.structure, content.real_structure), _depth(content.structure)]
    if content.novelty is not None:
        novel = content.novelty
        note = (
            f"Of {novel.graphs} synthetic graphs {percent(novel.unique)} are distinct and "
            f"{percent(novel.novel)} repeat no training graph; {percent(novel.vun)} "
            f"{percents(novel.vun_interval)} are valid, distinct and new. Of the real held-out "
            f"graphs {percent(novel.copied_real)} repeat a training graph, which is the "
            "scale for copies."
        )
        parts.append(element("p", note))
    if content.repairs:
        parts.append(_repairs(content.repairs))
    return section("validity", "Validity and novelty", *parts)


def _rules(structure: StructureReport, real: StructureReport | None) -> Markup:
    """Return the table of rules."""
    rows = []
    for name, fraction in structure.pass_rate.items():
        scale = "" if real is None or name not in real.pass_rate else percent(real.pass_rate[name])
        severity = element("span", GRAPH_RULES[name].severity.value, class_="quiet")
        shares = (percent(fraction),) if real is None else (percent(fraction), scale)
        rows.append((GRAPH_RULES[name].what, *shares, severity))
    caption = f"Share of graphs that keep each rule ({structure.graphs} synthetic graphs)"
    kept = (
        ("synthetic keeping it",) if real is None else ("synthetic keeping it", "real keeping it")
    )
    head = ("the rule is broken when", *kept, "severity")
    return table(caption, head, rows, *range(1, 1 + len(kept)))


def _depth(structure: StructureReport) -> Markup:
    """Return the node figures along the depth."""
    rows = [
        (
            f"{row.first_layer} to {row.last_layer}",
            f"{row.nodes:,}",
            percent(row.consistent),
            percent(row.seen),
        )
        for row in structure.by_depth
    ]
    head = (
        "layers",
        "nodes",
        "with a parent in the layer before",
        "no more parents than in training",
    )
    return table("Synthetic nodes along the depth: drift would show here", head, rows, 1, 2, 3)


def _repairs(repairs: Sequence[tuple[str, int]]) -> Markup:
    """Return what was repaired when graphs were decoded into traces."""
    rows = [(what, f"{count:,}") for what, count in repairs]
    caption = "Repairs: what was repaired when synthetic graphs were decoded into traces"
    return table(caption, ("repair", "how often"), rows, 1)


def distributions(content: ReportContent) -> Markup | None:
    """Return the charts behind the distances."""
    if not content.distributions and not content.shares:
        return None
    parts = []
    if content.distributions:
        parts += [_legend_of(content.distributions), _charts(content.distributions)]
    if content.shares:
        parts += _categories(content.shares)
    note = element(
        "p",
        "Above, which values occur how often; below, the share of values up to each one: the area "
        "between two of these lines is their Wasserstein-1 distance. Axes are cut at the outer "
        "0.5 %.",
        class_="quiet",
    )
    return section("distributions", "Distributions", note, *parts)


def _categories(every: Sequence[CategoryFractions]) -> list[Markup]:
    """Return bars of each attribute; those of which all nodes have one value are named only."""
    columns = [_in_words(one) for one in every]
    varied = [one for one in columns if _present(one).sum() > 1]
    alike = [
        f"{one.title.lower()} ({one.labels[int(np.argmax(_present(one)))]})"
        for one in columns
        if _present(one).sum() == 1
    ]
    bars = element("div", *(shares_chart(one) for one in varied), class_="grid-charts")
    parts = [element("h3", "Categories")]
    parts.append(legend(tuple(source for source, _ in every[0].shares)))
    if varied:
        parts.append(bars)
    if alike:
        parts.append(element("p", f"The same in every node: {', '.join(alike)}.", class_="quiet"))
    return parts


def _present(one: CategoryFractions) -> np.ndarray:
    """Return which categories occur at all."""
    return np.max([fraction_K for _, fraction_K in one.shares], axis=0) > 0


def _in_words(one: CategoryFractions) -> CategoryFractions:
    """Return the same shares under plain names."""
    labels = tuple(value_words(one.title, label) for label in one.labels)
    return CategoryFractions(attribute_words(one.title), labels, one.shares)


def _legend_of(distributions: tuple[Distribution, ...]) -> Markup:
    return legend(tuple(sample.source for sample in distributions[0].samples))


def _charts(distributions: tuple[Distribution, ...]) -> Markup:
    return element("div", *(distribution_chart(one) for one in distributions), class_="grid-charts")


def simulation(content: ReportContent) -> Markup | None:
    """Return what the simulator says of real and synthetic workloads."""
    if not content.simulations and content.systems is None:
        return None
    parts = []
    if content.simulations:
        parts += [_legend_of(content.simulations), _charts(content.simulations)]
    if content.systems is not None:
        times = content.systems
        rows = [
            (name, number(real), number(synthetic))
            for name, real, synthetic in zip(
                times.systems, times.real, times.synthetic, strict=True
            )
        ]
        caption = times.quantity[:1].upper() + times.quantity[1:]
        parts.append(table(caption, ("system", "real", "synthetic"), rows, 1, 2))
    return section("simulation", "Simulation", *parts)


def provenance(content: ReportContent) -> Markup | None:
    """Return where the figures come from, and what they do not show."""
    parts = []
    if content.caveats:
        parts.append(element("ul", *(element("li", caveat) for caveat in content.caveats)))
    if content.provenance:
        pairs = [
            piece
            for label, value in content.provenance
            for piece in (element("dt", label), element("dd", value))
        ]
        parts.append(element("dl", *pairs))
    return section("provenance", "Provenance and limits", *parts) if parts else None
