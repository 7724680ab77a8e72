"""The sections of the page, each from one result; a section without result is left out."""

from collections.abc import Sequence

from layerdag.evaluation import DepthSimilarity, SimilarityReport, SimilarityRow
from layerdag.evaluation.rules import GRAPH_RULES, StructureReport
from layerdag.report import (
    Distribution,
    ReportContent,
    distribution_chart,
    legend,
    ratio_strip,
    shares_chart,
)
from layerdag.viz import (
    Markup,
    class_legend,
    classes_by_size,
    draw,
    element,
    interval,
    number,
    percent,
    section,
    table,
)

AS_REAL, CLOSE = 1.25, 2.5
"""Ratios up to which a distance reads "as real" and "close"."""


def summary(content: ReportContent) -> Markup | None:
    """Return the table on top."""
    if not content.summary:
        return None
    rows = [
        (row.what, row.synthetic, row.real, element("span", row.note, class_="quiet"))
        for row in content.summary
    ]
    body = table(
        "Synthetic graphs next to real ones",
        ("figure", "synthetic", "real", "how to read"),
        rows,
        1,
        2,
    )
    return section("summary", "Summary", element("div", body, class_="summary"))


def pictures(content: ReportContent) -> Markup | None:
    """Return the drawings side by side."""
    if not content.pictures:
        return None
    slot_of = classes_by_size(content.pictures)
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
            f"{percent(novel.novel)} repeat no training graph; {percent(novel.vun)} are valid, "
            f"distinct and new. Of the real held-out graphs {percent(novel.copied_real)} repeat a "
            "training graph, which is the scale for copies."
        )
        parts.append(element("p", note))
    if content.repairs:
        parts.append(_repairs(content.repairs))
    return section("validity", "Validity and novelty", *parts)


def _rules(structure: StructureReport, real: StructureReport | None) -> Markup:
    """Return the table of rules."""
    rows = []
    for name, share in structure.pass_rate.items():
        scale = "" if real is None or name not in real.pass_rate else percent(real.pass_rate[name])
        what = element("span", GRAPH_RULES[name].what, class_="quiet")
        severity = GRAPH_RULES[name].severity.value
        shares = (percent(share),) if real is None else (percent(share), scale)
        rows.append((name, severity, *shares, what))
    caption = f"Share of graphs that keep each rule ({structure.graphs} synthetic graphs)"
    kept = (
        ("synthetic keeping it",) if real is None else ("synthetic keeping it", "real keeping it")
    )
    head = ("rule", "severity", *kept, "the rule is broken when")
    return table(caption, head, rows, *range(2, 2 + len(kept)))


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
    head = ("layers", "nodes", "layer-consistent", "arity as in training")
    return table("Synthetic nodes along the depth: drift would show here", head, rows, 1, 2, 3)


def similarity(content: ReportContent) -> Markup | None:
    """Return the table of distances, and the failures beside it."""
    report = content.similarity
    if report is None:
        return None
    explanation = element(
        "p",
        "Each distance is between synthetic and real test graphs; beside it the same distance "
        "between real training and real test graphs, which is the only scale there is. A ratio of "
        "1 is as close as real data comes. Brackets are 95 % bootstrap intervals over graphs. "
        "Fewer graphs lie further away for no other reason; “equal count” is the ratio to as many "
        f"real training graphs as there are synthetic ones. Up to {AS_REAL} of it reads “as "
        f"real”, up to {CLOSE} “close”.",
    )
    computed = [row for row in report.rows if not row.generated.error]
    rows = [_similarity_row(row) for row in computed if row.is_distance]
    head = ("metric", "distance", "synthetic", "real train", "ratio", "", "", "equal count", "")
    body = table(_similarity_caption(report), head, rows, 2, 3, 4, 7)
    failures = [
        element("li", f"{result.metric.name}: {result.error}") for result in report.failures
    ]
    listed = [element("h3", "Not computed"), element("ul", *failures)] if failures else []
    deep = [_along_depth(content.depth)] if content.depth else []
    scores = _scores([row for row in computed if not row.is_distance])
    return section("similarity", "Similarity", explanation, body, *scores, *deep, *listed)


def _scores(rows: Sequence[SimilarityRow]) -> list[Markup]:
    """Return the table of the figures that have no ratio, if there are any."""
    cells = [
        (
            row.metric.name,
            number(row.generated.value),
            number(row.reference.value),
            row.metric.goal.value,
            element("span", row.metric.description, class_="quiet"),
        )
        for row in rows
    ]
    head = ("figure", "synthetic", "real train", "better", "what it is")
    caption = "Figures that are no distances"
    return [table(caption, head, cells, 1, 2)] if cells else []


def _repairs(repairs: Sequence[tuple[str, int]]) -> Markup:
    """Return what was repaired when graphs were decoded into traces."""
    rows = [(what, f"{count:,}") for what, count in repairs]
    caption = "Repairs: what was repaired when synthetic graphs were decoded into traces"
    return table(caption, ("repair", "how often"), rows, 1)


def _along_depth(stretches: tuple[DepthSimilarity, ...]) -> Markup:
    """Return the ratios of each stretch of the depth."""
    rows: list[list[Markup | str]] = [
        [
            f"{one.begin:.0%} to {one.end:.0%}",
            f"{one.nodes:,}",
            *(number(row.ratio, 2) for row in one.rows),
            element("strong", number(one.mean_ratio, 2)),
        ]
        for one in stretches
    ]
    names = [row.metric.name for row in stretches[0].rows]
    caption = (
        "Ratios along the depth of a graph: with a sampler that drifts they grow from row to row"
    )
    head = ("layers", "synthetic nodes", *names, "mean")
    return table(caption, head, rows, *range(1, len(head)))


def _similarity_caption(report: SimilarityReport) -> str:
    return (
        f"{report.generated} synthetic, {report.train} real training, {report.test} real test "
        f"graphs; bootstrap seed {report.seed}, {report.replicates} resamples"
    )


def _similarity_row(row: SimilarityRow) -> tuple[Markup | str, ...]:
    """Return the cells of one metric."""
    if row.metric.name.startswith("mmd:"):
        distance = "MMD²"
    else:
        distance = f"W1, {row.metric.unit}" if row.metric.unit else "TV"
    name = element("span", row.metric.name, title=row.metric.description)
    return (
        name,
        element("span", distance, class_="quiet"),
        number(row.generated.value),
        number(row.reference.value),
        element("strong", number(row.ratio, 2)),
        element("span", interval(row.ratio_interval), class_="quiet"),
        ratio_strip(row.ratio, row.ratio_interval),
        element("strong", number(row.matched_ratio, 2)),
        verdict(row.matched_ratio),
    )


def verdict(ratio: float | None) -> Markup:
    """Return the ratio in words."""
    if ratio is None:
        return Markup("")
    if ratio <= AS_REAL:
        return element("span", "as real", class_="verdict good")
    if ratio <= CLOSE:
        return element("span", "close", class_="verdict fair")
    return element("span", "far", class_="verdict poor")


def distributions(content: ReportContent) -> Markup | None:
    """Return the charts behind the distances."""
    if not content.distributions and not content.shares:
        return None
    parts = []
    if content.distributions:
        parts += [_legend_of(content.distributions), _charts(content.distributions)]
    if content.shares:
        bars = element(
            "div", *(shares_chart(shares) for shares in content.shares), class_="grid-charts"
        )
        parts.append(element("h3", "Categories"))
        parts.append(legend(tuple(source for source, _ in content.shares[0].shares)))
        parts.append(bars)
    note = element(
        "p",
        "Cumulative shares: the area between two curves is their Wasserstein-1 distance. Axes are "
        "cut at the outer 0.5 % of the items.",
        class_="quiet",
    )
    return section("distributions", "Distributions", note, *parts)


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
