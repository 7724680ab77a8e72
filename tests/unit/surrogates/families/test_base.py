import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, strategies as st
from laws import tried
from random_graphs import random_dag

from layerdag.dag.dag import DAG, GraphSizes
from layerdag.errors import DataError, UsageError
from layerdag.surrogates.families.base import REACH, TargetScale, graph_features


def test_positive_targets_are_standardized_in_the_logarithm():
    target_B = np.array([1.0, 10.0, 100.0])
    scale = TargetScale.fit(target_B)
    assert scale.log
    standard_B = scale.standardize(target_B)
    assert standard_B.mean() == pytest.approx(0, abs=1e-12)
    assert standard_B.std() == pytest.approx(1)
    np.testing.assert_allclose(scale.restore(standard_B), target_B)


def test_predictions_reach_only_a_little_beyond_the_training_targets():
    scale = TargetScale.fit(np.array([-1.0, 1.0]))
    assert scale.restore(np.array([50.0]))[0] == pytest.approx(1 + REACH)


numbers = st.lists(st.floats(-1e6, 1e6, allow_subnormal=False), min_size=2, max_size=20)


@given(numbers, st.booleans())
@tried(40)
def test_training_targets_come_back_from_their_standardized_form(values, positive):
    target_B = np.abs(np.array(values)) + 1e-3 if positive else np.array(values)
    scale = TargetScale.fit(target_B)
    standard_B = scale.standardize(target_B)
    np.testing.assert_allclose(scale.restore(standard_B), target_B, rtol=1e-6, atol=1e-6)
    assert scale.low <= standard_B.min() + 1e-9
    assert scale.high >= standard_B.max() - 1e-9


def test_equal_targets_have_a_scale_and_those_with_a_0_a_linear_one():
    scale = TargetScale.fit(np.array([3.0, 3.0]))
    assert scale.restore(scale.standardize(np.array([3.0])))[0] == pytest.approx(3.0)
    assert not TargetScale.fit(np.array([0.0, 1.0])).log
    scale = TargetScale.fit(np.array([1.0, 10.0]))
    assert np.isfinite(scale.standardize(np.array([0.0]))[0])


def test_the_complaint_counts_graphs_and_missing_targets():
    with pytest.raises(UsageError, match="found 3 graphs of which 2 have none; label the graphs"):
        TargetScale.fit(np.array([1.0, np.nan, np.inf]))


def test_an_unknown_code_is_refused(real):
    with pytest.raises(DataError, match="attribute 0"):
        graph_features(real.dags, GraphSizes(attributes=(2, 3), edge_types=2))


def slow_features(dag: DAG, sizes: GraphSizes) -> list[float]:
    """Return shape and counts of one graph by walking over its nodes and edges."""
    edges = dag.edge_index_2E.T.tolist()
    layer = dag.layers().tolist()
    width = Counter(layer)
    targets, sources = {b for _, b in edges}, {a for a, _ in edges}
    nodes = range(dag.num_nodes)
    row = [
        math.log1p(dag.num_nodes),
        math.log1p(len(edges)),
        math.log1p(len(width)),
        math.log1p(max(width.values())),
        len(edges) / dag.num_nodes,
        dag.num_nodes / len(width),
        sum(node not in targets for node in nodes) / dag.num_nodes,
        sum(node not in sources for node in nodes) / dag.num_nodes,
        sum(layer[b] - layer[a] for a, b in edges) / max(len(edges), 1),
    ]
    types = Counter(dag.edge_type_E.tolist())
    row += [math.log1p(types[code]) for code in range(sizes.edge_types)]
    for column, size in enumerate(sizes.attributes):
        codes = Counter(dag.x_NA[:, column].tolist())
        row += [math.log1p(codes[code]) for code in range(size)]
    return row


@given(st.integers(0, 2**32 - 1))
@tried(15)
def test_features_are_those_of_a_walk_over_each_graph(seed):
    rng = np.random.default_rng(seed)
    sizes = GraphSizes(attributes=(4, 3), edge_types=2)
    dags = [
        random_dag(
            rng, rng.integers(1, 5, int(rng.integers(1, 6))).tolist(), [4, 3], num_edge_types=2
        )
        for _ in range(3)
    ]
    rows = graph_features(dags, sizes)
    assert rows.dtype == np.float32
    np.testing.assert_allclose(rows, [slow_features(dag, sizes) for dag in dags], rtol=1e-5)


def test_an_unknown_edge_type_is_refused_with_its_range(real):
    with pytest.raises(DataError, match=r"Codes of edge reach from 0 to 1, but .* knows 0 to 0"):
        graph_features(real.dags, GraphSizes(attributes=(4, 3), edge_types=1))
