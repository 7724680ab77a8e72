import numpy as np
import pytest
import torch

from layerdag.errors import DataError
from layerdag.graph import DAG, GraphSizes
from layerdag.surrogates import Labeled
from layerdag.surrogates._features import graph_features


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
