"""One small comparison in every form in which its figures leave the package."""

from typing import Any

import numpy as np
from random_graphs import random_dag

from layerdag.dag.dag import DAG, GraphSizes
from layerdag.dag.statistics import GraphStatistics
from layerdag.evaluation.metrics.base import AttributeView
from layerdag.evaluation.similarity import QualityReport, compare, compare_by_depth
from layerdag.evaluation.validity import check_structure
from layerdag.privacy.copies import novelty
from layerdag.privacy.sample_leaks import sample_leaks
from layerdag.report.gather import summary_rows
from layerdag.report.page import plain
from layerdag.surrogates.scoring import SCORES

ATTRIBUTES = (AttributeView("op"), AttributeView("size", ordered=True), AttributeView("dtype"))


def _graphs(rng: np.random.Generator, count: int, width: int, codes: int) -> list[DAG]:
    return [
        random_dag(rng, rng.integers(1, width, 6).tolist(), [codes, 4, 2], num_edge_types=2)
        for _ in range(count)
    ]


def _as_seen(report: QualityReport) -> dict[str, Any]:
    return {"plain": report.to_dict(), "table": str(report).splitlines()}


def golden_comparison() -> dict[str, Any]:
    """Return figures, tables and JSON objects of a comparison that never changes."""
    rng = np.random.default_rng(17)
    train, test = _graphs(rng, 24, 5, 5), _graphs(rng, 18, 5, 5)
    generated = [*_graphs(rng, 9, 7, 4), *train[:5]]
    sizes = GraphSizes(attributes=(5, 4, 2), edge_types=2)
    statistics = GraphStatistics.measure(train, sizes)
    structure, real = check_structure(generated, statistics), check_structure(test, statistics)
    similar = compare(train, test, generated, ATTRIBUTES, seed=3, replicates=12)
    bare = [DAG.build(dag.x_NA, dag.edge_index_2E[:, :0]) for dag in generated[:6]]
    new = novelty(train, test, generated, structure.valid_B)
    return {
        "similarity": _as_seen(similar),
        "with_failures": _as_seen(compare(train, test, bare, ATTRIBUTES, replicates=3)),
        "by_depth": plain(compare_by_depth(train, test, generated, ATTRIBUTES, replicates=4)),
        "novelty": plain(new),
        "leaks": plain(sample_leaks(train, test, generated)),
        "report": plain({"similarity": similar, "structure": structure}),
        "summary": plain(summary_rows(structure, real, new, similar, None)),
        "scores": plain(SCORES),
    }
