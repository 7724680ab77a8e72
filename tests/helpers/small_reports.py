"""A report of a few random graphs that has every section."""

import numpy as np
from random_graphs import random_dag

from layerdag.dag.dag import DAG, GraphSizes
from layerdag.dag.statistics import GraphStatistics
from layerdag.evaluation.metrics.base import AttributeView
from layerdag.evaluation.similarity import compare, compare_by_depth
from layerdag.evaluation.validity import check_structure
from layerdag.privacy.copies import novelty
from layerdag.privacy.sample_leaks import sample_leaks
from layerdag.report.content import (
    Answer,
    Distribution,
    Lane,
    Neighbors,
    Picture,
    ReportContent,
    Sample,
    SystemTimes,
    Timeline,
)
from layerdag.report.gather import attribute_shares, structure_distributions, summary_rows
from layerdag.surrogates.families.trees import BoostingSettings, fit_boosting
from layerdag.surrogates.targets import Labeled
from layerdag.surrogates.training_sets import REAL, SYNTHETIC
from layerdag.surrogates.tstr import evaluate_tstr

ATTRIBUTES = (AttributeView("op"), AttributeView("size", ordered=True))
SIZES = GraphSizes(attributes=(5, 4))


def _graphs(rng: np.random.Generator, count: int) -> list[DAG]:
    return [random_dag(rng, rng.integers(1, 5, 6).tolist(), [5, 4]) for _ in range(count)]


def _fit(dags, target_B, sizes, seed):
    return fit_boosting(
        dags, target_B, sizes, seed=seed, settings=BoostingSettings(trees=5, depth=2)
    )


def _labeled(dags: list[DAG]) -> Labeled:
    return Labeled(tuple(dags), np.array([float(dag.num_nodes) for dag in dags]))


def small_report() -> ReportContent:
    """Return a report with every section."""
    rng = np.random.default_rng(20241)
    train, test, synthetic = _graphs(rng, 20), _graphs(rng, 12), _graphs(rng, 10)
    statistics = GraphStatistics.measure(train, SIZES)
    structure, real = check_structure(synthetic, statistics), check_structure(test, statistics)
    novel = novelty(train, test, synthetic, structure.valid_B)
    similar = compare(train, test, synthetic, ATTRIBUTES, replicates=3)
    taught = evaluate_tstr(
        _labeled(train),
        _labeled(synthetic),
        _labeled(test),
        SIZES,
        {"boosting": _fit},
        seeds=(0,),
        conditions=(REAL, SYNTHETIC),
    )
    times = tuple(Sample(name, rng.random(9)) for name in ("real test", "synthetic"))
    labels = tuple(f"node {i}" for i in range(test[0].num_nodes))
    return ReportContent(
        answers=(Answer("May it be shared?", "no", "poor", "There is a copy.", "membership"),),
        title="A <title>",
        lead="What & why.",
        summary=summary_rows(structure, real, novel, similar, taught),
        structure=structure,
        real_structure=real,
        novelty=novel,
        leaks=sample_leaks(train, test, synthetic),
        similarity=similar,
        depth=compare_by_depth(train, test, synthetic, ATTRIBUTES, replicates=2),
        distributions=structure_distributions(train, test, synthetic, ATTRIBUTES),
        shares=attribute_shares(
            train, test, synthetic, ATTRIBUTES, [["a", "b", "c", "d", "e"], []]
        ),
        transfer=taught,
        simulations=(Distribution("makespan", "µs", times),),
        systems=SystemTimes(("ring", "switch"), (1.0, 2.0), (1.5, 2.5), "makespan in µs"),
        pictures=(Picture("Real", test[0], labels, labels),),
        neighbors=(
            Neighbors(
                "gpt",
                Picture("sample", test[0], labels, labels),
                Picture("real", test[0], labels, labels),
                0.5,
                0.4,
                12,
            ),
        ),
        timelines=(
            Timeline(
                "A real job", (Lane("rank 0 computes", *np.array([[0.0], [2.0]]), ("mm",)),), 2.0, 1
            ),
        ),
        simulated_on="switch, 25 GB/s, 1 us",
        provenance=(("seed", "0"),),
        caveats=("A small set.",),
    )
