"""The section on how near samples are to real graphs."""

from collections.abc import Sequence

from layerdag.evaluation import DepthSimilarity, SimilarityReport, SimilarityRow
from layerdag.report import AS_REAL, CLOSE, ReportContent, ratio_strip
from layerdag.report.sections._words import metric_words
from layerdag.viz import Markup, element, interval, number, section, table

WORST = 6
"""Rows of the table of distances that are visible at once, the farthest first."""


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
    distances = sorted((row for row in computed if row.is_distance), key=_farthest_first)
    rows = [_similarity_row(row) for row in distances]
    head = ("what is compared", "ratio at equal count", "in words", "ratio", "ratio on a scale",
        "interval of the ratio", "distance of samples", "distance of training graphs",
        "distance is")  # fmt: skip
    body = table(_similarity_caption(report), head, rows, 1, 3, 6, 7, shown=WORST)
    failures = [
        element("li", f"{metric_words(result.metric)}: {result.error}")
        for result in report.failures
    ]
    listed = [element("h3", "Not computed"), element("ul", *failures)] if failures else []
    deep = [_along_depth(content.depth)] if content.depth else []
    scores = _scores([row for row in computed if not row.is_distance])
    return section("similarity", "Similarity", explanation, body, *scores, *deep, *listed)


def _farthest_first(row: SimilarityRow) -> float:
    """Return a key that puts the largest ratio first, and what has none last."""
    return float("inf") if row.matched_ratio is None else -row.matched_ratio


def _scores(rows: Sequence[SimilarityRow]) -> list[Markup]:
    """Return the table of the figures that have no ratio, if there are any."""
    cells = [
        (
            metric_words(row.metric),
            number(row.generated.value),
            number(row.reference.value),
            row.metric.goal.value,
            element("span", row.metric.description, class_="quiet"),
        )
        for row in rows
    ]
    head = ("figure", "samples", "training graphs", "better", "what it is")
    caption = "Figures that are no distances"
    return [table(caption, head, cells, 1, 2)] if cells else []


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
    names = [metric_words(row.metric) for row in stretches[0].rows]
    caption = (
        "Ratios along the depth of a graph: with a sampler that drifts they grow from row to row"
    )
    head = ("layers", "synthetic nodes", *names, "mean")
    return table(caption, head, rows, *range(1, len(head)))


def _similarity_caption(report: SimilarityReport) -> str:
    return (
        f"The farthest first: {report.generated} synthetic, {report.train} real training, "
        f"{report.test} real test graphs; bootstrap seed {report.seed}, {report.replicates} "
        "resamples"
    )


def _similarity_row(row: SimilarityRow) -> tuple[Markup | str, ...]:
    """Return the cells of one metric."""
    if row.metric.name.startswith("mmd:"):
        distance = "maximum mean discrepancy, squared"
    else:
        distance = f"Wasserstein-1, {row.metric.unit}" if row.metric.unit else "total variation"
    return (
        metric_words(row.metric),
        element("strong", number(row.matched_ratio, 2)),
        verdict(row.matched_ratio),
        number(row.ratio, 2),
        ratio_strip(row.ratio, row.ratio_interval),
        element("span", interval(row.ratio_interval), class_="quiet"),
        number(row.generated.value),
        number(row.reference.value),
        element("span", distance, class_="quiet"),
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
