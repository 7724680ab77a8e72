"""Planted faults move the figures that are made for them, and no figure that looks elsewhere."""

from itertools import pairwise

import numpy as np
import pytest
from benchmark_faults import DURATION, SCHEMA, declared, jobs, samples

from layerdag.dag.dag import DAG
from layerdag.evaluation.metrics.base import attribute_views
from layerdag.evaluation.metrics.descriptor_metrics import DESCRIPTORS
from layerdag.evaluation.metrics.neighborhoods import NEIGHBORHOOD_METRICS
from layerdag.evaluation.similarity import LOCAL_METRICS, compare
from layerdag.privacy.copies import CopyComparison, CopyTest, novelty
from layerdag.privacy.sample_leaks import sample_leaks

COUNT = 50
METRICS = (
    *DESCRIPTORS,
    *NEIGHBORHOOD_METRICS,
    *(m for m in LOCAL_METRICS if m.name.startswith(("path_", "type_", "repeated_blocks:n"))),
)
FAULTS = {fault.name: fault for fault in declared.FAULTS}
# Of what the benchmark asks, on the corpus, what these small jobs can show.
MUST = {
    "rewired_keeping_degrees": ("edge_bigrams", "path_novelty:3", "neighborhood_novelty:1"),
    "rewired": ("in_degree", "out_degree", "path_frequencies:3", "neighborhood_novelty:1"),
    "attributes_shuffled": ("edge_bigrams", "path_frequencies:2", "neighborhood_novelty:1"),
    "numbers_shuffled": ("attribute_pairs",),
    "durations_scaled": ("attribute:duration", "attribute_pairs"),
}
LESS = {"blocks_not_repeating": ("repeated_blocks:nodes", "neighborhood_repetition:2")}


@pytest.fixture(scope="module")
def drawn() -> samples.Drawn:
    return samples.Drawn.of(
        jobs(np.random.default_rng(0), 4 * COUNT), COUNT, np.random.default_rng(1)
    )


def _figures(drawn: samples.Drawn, dags: tuple[DAG, ...]) -> dict[str, float]:
    views = attribute_views(SCHEMA)
    report = compare(drawn.train, drawn.held_out, dags, views, metrics=METRICS, replicates=2)
    return {row.metric.name: row.generated.value or 0.0 for row in report.rows}


def _by_strength(drawn: samples.Drawn, name: str) -> list[dict[str, float]]:
    fault = declared.faults_for(SCHEMA)[name]
    return [
        _figures(drawn, fault(drawn, strength, np.random.default_rng(2)))
        for strength in (0.0, 0.3, 1.0)
    ]


@pytest.mark.parametrize("name", [*MUST, *LESS])
def test_the_stronger_the_fault_the_more_its_figures_move_and_the_others_stay(name, drawn):
    found = _by_strength(drawn, name)
    for figure in MUST.get(name, ()):
        assert all(less[figure] < more[figure] for less, more in pairwise(found)), figure
    for figure in LESS.get(name, ()):
        assert all(more[figure] > less[figure] for more, less in pairwise(found)), figure
    for figure, value in found[0].items():
        if FAULTS[name].duty(figure) is declared.Duty.STILL:
            assert found[-1][figure] == pytest.approx(value), figure


def test_missing_families_show_in_operators(drawn):
    fault = declared.faults_for(SCHEMA)["families_dropped"]
    before, after = (
        _figures(drawn, fault(drawn, strength, np.random.default_rng(3))) for strength in (0, 0.6)
    )
    for figure in ("attribute:op", "edge_bigrams", "path_frequencies:2"):
        assert after[figure] > 2 * before[figure], figure


@pytest.mark.parametrize("strength", [0.02, 0.1, 0.5])
def test_every_copy_is_counted(strength, drawn):
    dags = samples.copies()(drawn, strength, np.random.default_rng(4))
    assert novelty(drawn.train, drawn.held_out, dags).copied == pytest.approx(strength)


def test_a_memorizer_is_caught_and_a_holdout_is_not(drawn):
    memorized = samples.memorizer(0.05)(drawn, 1.0, np.random.default_rng(5))
    caught = sample_leaks(drawn.train, drawn.held_out, memorized)
    assert caught.attacks[0].auc >= 0.95
    assert caught.nearness.dcr_share >= 0.95
    honest = sample_leaks(drawn.train, drawn.held_out, drawn.samples)
    for figure in (*(attack.interval for attack in honest.attacks), honest.nearness.interval):
        assert figure.low <= 0.5 <= figure.high


def test_training_graphs_measured_again_are_copies(drawn):
    fault = declared.faults_for(SCHEMA)["memorizer_retimed"]
    dags = fault(drawn, 0.2, np.random.default_rng(6))
    found = CopyTest(drawn.train, drawn.held_out, [DURATION]).resemblances(dags)
    assert found.count(CopyComparison.COPY) == round(0.2 * COUNT)
