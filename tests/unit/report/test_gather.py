"""Parts of a report are the figures of the floors below, in words and numbers."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from layerdag.evaluation.metrics import AttributeView, Interval
from layerdag.evaluation.privacy import Novelty
from layerdag.graph import DAG
from layerdag.report import (
    ReportContent,
    SummaryRow,
    attribute_shares,
    structure_distributions,
    summary_rows,
)
from layerdag.surrogates import REAL, SCORES, SHUFFLED, SYNTHETIC, TransferReport, TransferRow
from layerdag.surrogates.tstr import Score

OP = (AttributeView("op"), AttributeView("size", ordered=True))


def chain(*codes: int) -> DAG:
    steps = torch.arange(len(codes) - 1)
    x_NA = torch.tensor([[code, 0] for code in codes])
    return DAG.build(x_NA, torch.stack([steps, steps + 1]))


TRAIN, TEST, SYNTHETIC_ = [chain(0, 0, 1)], [chain(0, 1)], [chain(1, 1), chain(1, 2)]


def test_shares_are_of_all_nodes_and_unknown_codes_are_numbered() -> None:
    (shares,) = attribute_shares(TRAIN, TEST, SYNTHETIC_, OP, [["add", "mul"], []])
    assert shares.title == "op"  # the ordered attribute has distributions instead
    assert shares.labels == ("add", "mul", "code 2")
    assert [source for source, _ in shares.shares] == ["real train", "real test", "synthetic"]
    values = [share.tolist() for _, share in shares.shares]
    assert values == [pytest.approx([2 / 3, 1 / 3, 0]), [0.5, 0.5, 0], [0, 0.75, 0.25]]


def test_distributions_count_graphs_or_nodes_by_value() -> None:
    found = {one.title: one for one in structure_distributions(TRAIN, TEST, SYNTHETIC_, OP)}
    assert len(found) == 8
    sizes = next(one for title, one in found.items() if "nodes" in title and one.log)
    train, test, synthetic = sizes.samples
    assert (train.source, test.source, synthetic.source) == ("real train", "real test", "synthetic")

    def held(sample) -> dict[float, float]:
        weights = sample.weights / sample.weights.sum()
        pairs = zip(sample.values.tolist(), weights.tolist(), strict=True)
        return {value: weight for value, weight in pairs if weight}

    assert [held(sample) for sample in sizes.samples] == [{3: 1}, {2: 1}, {2: 1}]
    assert sum(one.log for one in found.values()) == 2  # nodes and edges


def rows_of(content: ReportContent, **changes: object) -> dict[str, SummaryRow]:
    given = {
        "structure": content.structure,
        "real_structure": content.real_structure,
        "novelty": content.novelty,
        "similarity": content.similarity,
        "transfer": content.transfer,
    }
    return {row.what: row for row in summary_rows(**(given | changes))}


def test_shares_of_graphs_stand_as_percentages_beside_those_of_real_ones(content) -> None:
    novel = Novelty(10, valid=1.0, unique=0.9, novel=0.8, vun=0.725, copied=0.2, copied_real=None)
    rows = rows_of(content, novelty=novel)
    assert rows["valid, unique and novel"] == SummaryRow(
        "valid, unique and novel",
        "72.5% [42%, 91%]",
        "",
        "20.0% copies; among real held-out graphs —",
    )
    assert rows["valid graphs"].synthetic == "100%"


def test_distances_have_their_ratio_and_the_one_at_equal_count(content) -> None:
    report = content.similarity
    rows = rows_of(content)
    nodes = report.row("nodes")
    row = rows[f"W1 of {nodes.metric.description}"]
    assert float(row.synthetic.replace(",", "")) == pytest.approx(nodes.generated.value, rel=6e-3)
    assert float(row.real.replace(",", "")) == pytest.approx(nodes.reference.value, rel=6e-3)
    ratios = [r.ratio for r in report.rows if r.is_distance and r.ratio is not None]
    assert float(rows["median ratio"].synthetic) == pytest.approx(np.median(ratios), rel=0.06)
    assert rows["median ratio"].note.startswith(f"over {len(ratios)} metrics; largest ")


def test_without_any_distance_at_equal_count_its_median_is_missing(content) -> None:
    rows = tuple(
        replace(row, matched=0.0) if row.is_distance else row for row in content.similarity.rows
    )
    found = rows_of(content, similarity=replace(content.similarity, rows=rows))
    assert found["median ratio"].note.endswith("median at equal count —")


def test_without_any_ratio_there_is_no_median(content) -> None:
    rows = tuple(replace(row, ratio=None) for row in content.similarity.rows)
    assert "median ratio" not in rows_of(content, similarity=replace(content.similarity, rows=rows))


def taught(family: str, condition: str, value: float) -> TransferRow:
    score = Score(value, Interval(value, value), (value,))
    return TransferRow(family, condition, 20, {metric.name: score for metric in SCORES})


def test_a_surrogate_has_lines_only_where_both_real_and_synthetic_graphs_taught_it(content):
    both = [taught("boosting", REAL, 0.9), taught("boosting", SYNTHETIC, 0.8)]
    one = [taught("message passing", REAL, 0.5)]
    report = TransferReport((*both, *one), (), tested_on=12, seeds=(0,))
    rows = rows_of(content, transfer=report)
    assert rows["surrogate's Pearson (boosting)"] == SummaryRow(
        "surrogate's Pearson (boosting)", "0.800", "0.900", "tested on 12 real graphs"
    )
    assert rows["surrogate's Spearman (boosting)"].note == ""
    assert not any("message passing" in what for what in rows)
    floor = TransferReport((*both, taught("boosting", SHUFFLED, 0.125)), (), 12, (0,))
    note = rows_of(content, transfer=floor)["surrogate's Pearson (boosting)"].note
    assert note == "tested on 12 real graphs; with shuffled targets 0.12"
    assert not any("surrogate" in what for what in rows_of(content, transfer=None))
