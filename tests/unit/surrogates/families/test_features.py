import math
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from laws import tried

from layerdag.errors import DataError
from layerdag.graph import DAG, GraphSizes, random_dag
from layerdag.surrogates import Labeled
from layerdag.surrogates.families import graph_features


def test_features_count_the_codes_of_a_small_graph() -> None:
    dag = DAG.build(torch.tensor([[1], [1], [0]]), torch.tensor([[0, 1], [2, 2]]))
    row = graph_features([dag], GraphSizes(attributes=(2,)))[0]
    # log nodes, edges, layers, widest; edges/node, nodes/layer, roots, leaves, mean span
    np.testing.assert_allclose(np.expm1(row[:4]), [3, 2, 2, 2], rtol=1e-6)
    np.testing.assert_allclose(row[4:9], [2 / 3, 3 / 2, 2 / 3, 1 / 3, 1], rtol=1e-6)
    np.testing.assert_allclose(np.expm1(row[9:]), [2, 1, 2], rtol=1e-6)


def test_features_do_not_depend_on_node_order(
    real: Labeled, sizes: GraphSizes, rng: np.random.Generator
) -> None:
    dag = real.dags[0]
    shuffled = dag.permuted(torch.from_numpy(rng.permutation(dag.num_nodes)))
    rows = graph_features([dag, shuffled], sizes)
    np.testing.assert_array_equal(rows[0], rows[1])


def test_an_unknown_code_is_refused(real: Labeled) -> None:
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
def test_features_are_those_of_a_walk_over_each_graph(seed: int) -> None:
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


def test_an_unknown_edge_type_is_refused_with_its_range(real: Labeled) -> None:
    with pytest.raises(DataError, match=r"Codes of edge reach from 0 to 1, but .* knows 0 to 0"):
        graph_features(real.dags, GraphSizes(attributes=(4, 3), edge_types=1))
