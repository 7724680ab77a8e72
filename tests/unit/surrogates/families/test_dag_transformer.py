import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from laws import tried
from random_graphs import random_dag
from torch_geometric.data import Batch

from layerdag.datasets.conversion import columns_to_pyg
from layerdag.errors import DataError, GraphError, UsageError
from layerdag.surrogates.families.dag_transformer import (
    DAGAttention,
    DAGTransformer,
    TransformerSettings,
    ancestors_of,
    fit_dag_transformer,
    layers_and_ancestors,
)

SMALL = TransformerSettings(
    width=16, rounds=1, heads=2, epochs=25, batch_size=8, learning_rate=1e-2
)
BRIEF = TransformerSettings(width=8, rounds=1, heads=2, epochs=1)


def test_the_transformer_learns_a_sum_over_nodes(real, test_set, sizes):
    model = fit_dag_transformer(real.dags, real.target_B, sizes, settings=SMALL)
    assert model.family == "dag_transformer"
    assert np.corrcoef(model.predict(test_set.dags), test_set.target_B)[0, 1] > 0.6


def test_a_node_hears_what_reaches_it_and_what_it_reaches_alone():
    torch.manual_seed(0)
    attention = DAGAttention(width=4, heads=2)
    # 0 -> 1; 2 stands apart.
    above = torch.tensor([[1, 0, 0], [1, 1, 0], [0, 0, 1]], dtype=torch.bool)
    seen = torch.stack([above, above.T])[:, None]
    masks = [torch.zeros(seen.shape).masked_fill(~seen, -torch.inf)]
    h_ND = torch.randn(3, 4)
    before = attention(h_ND, masks)
    h_ND[2] += 1
    after = attention(h_ND, masks)
    assert torch.equal(before[:2], after[:2])
    assert not torch.allclose(before[2], after[2])
    h_ND[0] += 1
    assert not torch.allclose(after[1], attention(h_ND, masks)[1])


def test_the_module_alone_takes_any_pyg_batch(real, sizes):
    network = DAGTransformer(sizes, BRIEF).eval()
    data = [columns_to_pyg(dag, 0.0) for dag in real.dags[:3]]
    bare = network(Batch.from_data_list([one.clone() for one in data]))
    prepared = network(Batch.from_data_list([network.prepared(one) for one in data]))
    assert bare.shape == (3,)
    torch.testing.assert_close(bare, prepared)
    bare.sum().backward()
    assert all(p.grad is not None for p in network.parameters())


@pytest.mark.parametrize(("heads", "width"), [(3, 48), (0, 48), (4, 46)])
def test_heads_that_cannot_be_halved_are_refused(heads, width):
    with pytest.raises(UsageError, match="heads must be even"):
        TransformerSettings(heads=heads, width=width)


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


def test_ancestors_of_a_graph_without_edges_and_of_a_cycle():
    layer_N, bits = layers_and_ancestors(3, torch.zeros((2, 0), dtype=torch.int64))
    assert layer_N.tolist() == [0, 0, 0]
    assert bits.numel() == 2
    assert not ancestors_of(bits, 3).any()
    with pytest.raises(GraphError):
        layers_and_ancestors(2, torch.tensor([[0, 1], [1, 0]]))


def test_a_graph_that_attention_cannot_take_is_refused(monkeypatch):
    monkeypatch.setattr("layerdag.surrogates.families.dag_transformer.MOST_NODES", 2)
    with pytest.raises(DataError, match="3 nodes; attention among all of them takes at most 2"):
        layers_and_ancestors(3, torch.zeros((2, 0), dtype=torch.int64))
