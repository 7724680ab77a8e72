import numpy as np
import torch
from hypothesis import given, strategies as st
from laws import tried
from random_graphs import random_dag

from layerdag.dag.dag import graph_hash
from layerdag.graph.topology import longest_path_layers

LAYERS = st.lists(st.integers(1, 6), min_size=1, max_size=8)


@given(sizes=LAYERS, seed=st.integers(0, 2**32 - 1))
@tried(60)
def test_every_node_beyond_layer_zero_has_a_parent_one_layer_before(sizes, seed):
    dag = random_dag(np.random.default_rng(seed), sizes, [3], extra_edges=1.0)
    layer_N = dag.layers()
    source_E, target_E = dag.edge_index_2E
    assert bool((layer_N[source_E] < layer_N[target_E]).all())
    nearest_N = torch.full_like(layer_N, -1).scatter_reduce(0, target_E, layer_N[source_E], "amax")
    assert torch.equal(nearest_N, layer_N - 1)
    assert torch.equal(torch.bincount(layer_N), torch.tensor(sizes))


@given(sizes=LAYERS, seed=st.integers(0, 2**32 - 1))
@tried(40)
def test_relabeling_moves_layers_along_and_keeps_the_hash(sizes, seed):
    rng = np.random.default_rng(seed)
    dag = random_dag(rng, sizes, [3], extra_edges=0.7)
    order_N = torch.from_numpy(rng.permutation(dag.num_nodes))
    moved = dag.permuted(order_N)
    assert torch.equal(moved.layers(), dag.layers()[order_N])
    assert graph_hash(moved) == graph_hash(dag)


@given(sizes=LAYERS, seed=st.integers(0, 2**32 - 1))
@tried(30)
def test_layers_of_a_disjoint_union_are_the_layers_of_its_parts(sizes, seed):
    dag = random_dag(np.random.default_rng(seed), sizes, [2], extra_edges=0.5)
    edges = dag.edge_index_2E.numpy()
    union = np.concatenate([edges, edges + dag.num_nodes], axis=1)
    both = longest_path_layers(2 * dag.num_nodes, union)
    assert np.array_equal(both, np.tile(dag.layers().numpy(), 2))
