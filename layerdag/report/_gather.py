"""Parts of a report from sets of DAGs, so that every caller shows the same things."""

from collections.abc import Sequence

import numpy as np

from layerdag.evaluation import SimilarityReport, histograms_of
from layerdag.evaluation.metrics import AttributeView, descriptors
from layerdag.evaluation.privacy import Novelty
from layerdag.evaluation.rules import StructureReport
from layerdag.graph import DAG
from layerdag.report._content import CategoryFractions, Distribution, Sample as Numbers, SummaryRow
from layerdag.surrogates import REAL, SHUFFLED, SYNTHETIC, TransferReport
from layerdag.viz import number, percent, percents

SOURCES = ("real train", "real test", "synthetic")
LOGARITHMIC = ("nodes", "edges")
SHOWN = (
    "nodes",
    "edges",
    "layers",
    "mean_width",
    "width",
    "in_degree",
    "out_degree",
    "edge_span",
)


def structure_distributions(
    train: Sequence[DAG],
    test: Sequence[DAG],
    synthetic: Sequence[DAG],
    attributes: Sequence[AttributeView],
) -> tuple[Distribution, ...]:
    """Return the distributions of sizes, widths, degrees and spans."""
    metrics = {metric.name: metric for metric in descriptors(attributes)}
    result = []
    for name in SHOWN:
        histograms = histograms_of(name, (train, test, synthetic), attributes)
        samples = tuple(
            Numbers(source, one.support_K, one.pooled()[0])
            for source, one in zip(SOURCES, histograms, strict=True)
        )
        metric = metrics[name]
        result.append(
            Distribution(metric.description, metric.unit, samples, log=name in LOGARITHMIC)
        )
    return tuple(result)


def attribute_shares(
    train: Sequence[DAG],
    test: Sequence[DAG],
    synthetic: Sequence[DAG],
    attributes: Sequence[AttributeView],
    vocabularies: Sequence[Sequence[str]],
) -> tuple[CategoryFractions, ...]:
    """Return the shares of the codes of each unordered attribute.

    Args:
        train: Real training graphs.
        test: Real test graphs.
        synthetic: Generated graphs.
        attributes: Name and kind of each attribute.
        vocabularies: Name of each code of each attribute, in column order.
    """
    result = []
    for view, names in zip(attributes, vocabularies, strict=True):
        if view.ordered:
            continue
        histograms = histograms_of(f"attribute:{view.name}", (train, test, synthetic), attributes)
        labels = tuple(_name(names, code) for code in histograms[0].support_K.tolist())
        shares = tuple(
            (source, one.pooled()[0]) for source, one in zip(SOURCES, histograms, strict=True)
        )
        result.append(CategoryFractions(view.name, labels, shares))
    return tuple(result)


def _name(names: Sequence[str], code: int) -> str:
    return names[code] if 0 <= code < len(names) else f"code {code}"


def summary_rows(
    structure: StructureReport,
    real_structure: StructureReport,
    novelty: Novelty,
    similarity: SimilarityReport,
    transfer: TransferReport | None,
) -> tuple[SummaryRow, ...]:
    """Return the lines of the summary table; the same as ``layerdag demo`` prints."""
    distances = [row for row in similarity.rows if row.is_distance]
    ratios = np.array([row.ratio for row in distances if row.ratio is not None])
    matched = [row.matched_ratio for row in distances if row.matched_ratio is not None]
    rows = [
        SummaryRow(
            "valid graphs",
            percent(structure.validity),
            percent(real_structure.validity),
            "every rule of severity error is kept",
        ),
        SummaryRow(
            "layer-consistent graphs",
            percent(structure.pass_rate["layer-consistent"]),
            percent(real_structure.pass_rate["layer-consistent"]),
            "every node of layer l+1 has a parent in layer l",
        ),
        SummaryRow(
            "valid, unique and novel",
            f"{percent(novelty.vun)} {percents(novelty.vun_interval)}",
            "",
            f"{percent(novelty.copied)} copies; among real held-out graphs "
            f"{percent(novelty.copied_real)}",
        ),
    ]
    for name in ("nodes", "edges", "layers", "width", "in_degree", "out_degree"):
        row = similarity.row(name)
        note = f"ratio {number(row.ratio, 2)}; {number(row.matched_ratio, 2)} at equal count"
        rows.append(
            SummaryRow(
                f"W1 of {row.metric.description}",
                number(row.generated.value),
                number(row.reference.value),
                note,
            )
        )
    if ratios.size:
        median = float(np.median(matched)) if matched else None
        note = (
            f"over {ratios.size} metrics; largest {number(float(ratios.max()), 2)}; "
            f"median at equal count {number(median, 2)}"
        )
        rows.append(SummaryRow("median ratio", number(float(np.median(ratios)), 2), "1", note))
    bound = similarity.row("classifier_bound")
    rows.append(
        SummaryRow(
            "distinguished from real graphs by a classifier",
            number(bound.generated.value, 2),
            number(bound.reference.value, 2),
            "lower bound of the Jensen-Shannon distance: 0 indistinguishable, 1 distinct",
        )
    )
    if transfer is not None:
        rows += _transfer_rows(transfer)
    return tuple(rows)


def _transfer_rows(report: TransferReport) -> list[SummaryRow]:
    """Return a line for each family that was trained on both synthetic and real graphs."""
    rows = []
    for family in dict.fromkeys(row.family for row in report.rows):
        by_condition = {row.condition: row for row in report.rows if row.family == family}
        if not {REAL, SYNTHETIC} <= set(by_condition):
            continue
        note = f"tested on {report.tested_on} real graphs"
        if SHUFFLED in by_condition:
            floor = by_condition[SHUFFLED].scores["pearson"].mean
            note += f"; with shuffled targets {number(floor, 2)}"
        for score in ("pearson", "spearman"):
            rows.append(
                SummaryRow(
                    f"surrogate's {score.capitalize()} ({family})",
                    number(by_condition[SYNTHETIC].scores[score].mean),
                    number(by_condition[REAL].scores[score].mean),
                    note if score == "pearson" else "",
                )
            )
    return rows
