import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from laws import tried

from layerdag.errors import DataError, GraphError
from layerdag.graph import random_dag
from layerdag.surrogates.families.networks import _reachability
from layerdag.surrogates.families.networks._reachability import ancestors_of, layers_and_ancestors


def slow_ancestors(num_nodes: int, edge_index_2E: torch.Tensor) -> np.ndarray:
    reach = np.zeros((num_nodes, num_nodes), dtype=bool)
    reach[edge_index_2E[1].numpy(), edge_index_2E[0].numpy()] = True
    for middle in range(num_nodes):
        reach |= reach[:, [middle]] & reach[[middle], :]
    return reach


@given(st.integers(0, 2**31), st.lists(st.integers(1, 5), min_size=1, max_size=7))
@tried(30)
def test_ancestors_are_the_transitive_closure_whatever_the_order_of_nodes(seed, widths):
    rng = np.random.default_rng(seed)
    dag = random_dag(rng, widths, [2])
    dag = dag.permuted(torch.from_numpy(rng.permutation(dag.num_nodes)))
    layer_N, bits = layers_and_ancestors(dag.num_nodes, dag.edge_index_2E)
    assert torch.equal(layer_N, dag.layers())
    found = ancestors_of(bits, dag.num_nodes).numpy()
    np.testing.assert_array_equal(found, slow_ancestors(dag.num_nodes, dag.edge_index_2E))


def test_a_graph_without_edges_has_no_ancestors() -> None:
    layer_N, bits = layers_and_ancestors(3, torch.zeros((2, 0), dtype=torch.int64))
    assert layer_N.tolist() == [0, 0, 0]
    assert bits.numel() == 2
    assert not ancestors_of(bits, 3).any()


def test_a_cycle_is_refused() -> None:
    with pytest.raises(GraphError):
        layers_and_ancestors(2, torch.tensor([[0, 1], [1, 0]]))


def test_a_graph_that_attention_cannot_take_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_reachability, "MOST_NODES", 2)
    with pytest.raises(DataError, match="3 nodes; attention among all of them takes at most 2"):
        layers_and_ancestors(3, torch.zeros((2, 0), dtype=torch.int64))
