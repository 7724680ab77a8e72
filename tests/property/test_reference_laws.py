import numpy as np
import torch
from hypothesis import given, strategies as st
from laws import tried
from random_graphs import random_dag

from layerdag.dag.dag import DAGBatch, GraphSizes
from layerdag.dag.statistics import GraphStatistics
from layerdag.models.base import SampleRequest
from layerdag.models.config import EdgeConfig, LayerSizeConfig, NodeConfig, ReferenceConfig
from layerdag.models.reference.model import ReferenceLayerDAG

SIZES = GraphSizes((5, 2), edge_types=3)
shapes = st.lists(st.integers(1, 6), min_size=1, max_size=6)
small = tried(15)


def untrained(seed: int) -> ReferenceLayerDAG:
    dags = [random_dag(np.random.default_rng(0), [2, 4, 3], [5, 2], num_edge_types=3)]
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        config = ReferenceConfig(
            layer_size=LayerSizeConfig(width=8),
            node=NodeConfig(width=8, heads=2, steps=3),
            edge=EdgeConfig(width=8, rounds=1, steps=2),
        )
        return ReferenceLayerDAG(SIZES, GraphStatistics.measure(dags, SIZES), config).eval()


def batch_of(dags) -> DAGBatch:
    none = torch.zeros(len(dags), 0)
    return DAGBatch.from_dags(dags, none, none.long())


@small
@given(st.integers(0, 2**30), st.integers(0, 2**30), st.integers(1, 40), st.integers(1, 6))
def test_every_sample_is_a_layered_dag_within_its_limits(weights, seed, max_nodes, max_layers):
    none = torch.zeros(3, 0)
    seeds = (seed, seed + 1, seed + 2)
    request = SampleRequest(none, none.long(), seeds, max_nodes=max_nodes, max_layers=max_layers)
    for dag in untrained(weights).sample(request).dags:
        layer_N = dag.check().layers()
        assert 1 <= dag.num_nodes <= max_nodes
        assert layer_N.max() < max_layers
        assert torch.equal(layer_N, layer_N.sort().values)
        assert (
            dag.edge_type_E.numel() == 0 or 0 <= dag.edge_type_E.min() <= dag.edge_type_E.max() < 3
        )


@small
@given(st.lists(shapes, min_size=1, max_size=4), st.integers(0, 2**30))
def test_layer_size_likelihood_adds_up_over_graphs(layouts, seed):
    """A batch has the likelihood of its graphs one by one: nothing leaks between graphs."""
    rng = np.random.default_rng(seed)
    dags = [random_dag(rng, layout, [5, 2], num_edge_types=3) for layout in layouts]
    model = untrained(seed)

    def total(batch: DAGBatch) -> torch.Tensor:
        with torch.no_grad():
            return model.losses(batch, torch.Generator().manual_seed(0))["layer_size"].total

    apart = sum(total(batch_of([dag])) for dag in dags)
    torch.testing.assert_close(total(batch_of(dags)), apart, rtol=1e-4, atol=1e-4)
