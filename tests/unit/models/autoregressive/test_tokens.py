import torch

from layerdag.graph import DAG
from layerdag.models.autoregressive import StructuralFeatures
from layerdag.models.autoregressive._layout import Edges, Layout
from tests.unit.models.autoregressive.small_models import collated


def test_counts_at_each_token_of_a_small_graph():
    """0 -> 1, 0 -> 2, 1 -> 3, 0 -> 3; layers {0}, {1, 2}, {3}."""
    dag = DAG.build(
        torch.zeros(4, 1, dtype=torch.int64), torch.tensor([[0, 0, 0, 1], [1, 2, 3, 3]])
    )
    batch = collated([dag, dag])
    layout = Layout.of(batch)
    edges = Edges.of(batch, layout)
    structure = StructuralFeatures.of(layout, edges, edges.out_degree_T)
    expected = {
        "degree_T": [0, 0, 1, 1, 2],
        "out_degree_T": [0, 3, 1, 0, 0],
        "size_T": [1, 1, 2, 2, 1],
        "left_T": [0, 0, 1, 0, 0],
        "open_T": [0, 3, 3, 2, 0],
        "open_layer_T": [0, 3, 1, 1, 0],
        "open_before_T": [0, 0, 2, 1, 0],
        "position_T": [0, 1, 2, 3, 4],
        "layer_T": [0, 0, 1, 1, 2],
    }
    for name, row in expected.items():
        assert getattr(structure, name).tolist() == row * 2, name
