"""What the networks return for one and for several targets."""

import pytest
import torch
from torch_geometric.data import Batch

from layerdag.graph import GraphSizes
from layerdag.surrogates import Labeled
from layerdag.surrogates.families import (
    DAGTransformer,
    GraphNetwork,
    MessagePassingNetwork,
    TransformerSettings,
)
from layerdag.surrogates.families.networks._base import known_data


@pytest.mark.parametrize(("outputs", "shape"), [(1, (3,)), (2, (3, 2))])
def test_a_network_has_an_output_for_each_target(
    outputs: int, shape: tuple[int, ...], real: Labeled, sizes: GraphSizes
) -> None:
    small = TransformerSettings(width=8, rounds=1, heads=2)
    networks: tuple[GraphNetwork, ...] = (
        MessagePassingNetwork(sizes, 8, 1, outputs),
        DAGTransformer(sizes, small, outputs),
    )
    batch = Batch.from_data_list([known_data(dag, sizes) for dag in real.dags[:3]])
    for network in networks:
        assert network(batch).shape == torch.Size(shape)
