from dataclasses import replace

import pytest
import torch

from layerdag.graph.batch import DAGBatch
from layerdag.graph.dag import DAG
from layerdag.graph.sizes import GraphSizes
from layerdag.model.fast_layout import Edges, Layout
from layerdag.model.fast_tokens import ConditionEncoder, Place, drop_conditions
from tests.unit.model.fast_models import collated, small_dags


def test_counts_at_each_token_of_a_small_graph():
    """0 -> 1, 0 -> 2, 1 -> 3, 0 -> 3; layers {0}, {1, 2}, {3}."""
    dag = DAG.build(
        torch.zeros(4, 1, dtype=torch.int64), torch.tensor([[0, 0, 0, 1], [1, 2, 3, 3]])
    )
    batch = collated([dag, dag])
    layout = Layout.of(batch)
    place = Place.of(layout, Edges.of(batch, layout))
    expected = {
        "degree_T": [0, 0, 1, 1, 2],
        "planned_T": [0, 3, 1, 0, 0],
        "size_T": [1, 1, 2, 2, 1],
        "left_T": [0, 0, 1, 0, 0],
        "open_T": [0, 3, 3, 2, 0],
        "open_layer_T": [0, 3, 1, 1, 0],
        "open_before_T": [0, 0, 2, 1, 0],
        "position_T": [0, 1, 2, 3, 4],
        "layer_T": [0, 0, 1, 1, 2],
    }
    for name, row in expected.items():
        assert getattr(place, name).tolist() == row * 2, name


def test_an_unknown_number_is_not_taken_for_a_mean_one():
    encoder = ConditionEncoder(GraphSizes((2,), numeric_conditions=2), 32)
    none = torch.zeros(2, 0, dtype=torch.int64)
    found = encoder(torch.tensor([[torch.nan, 1.0], [0.0, 1.0]]), none)
    assert found.isfinite().all()
    assert not torch.allclose(found[0], found[1])


def many_graphs(numeric: int, category: int) -> DAGBatch:
    return replace(
        collated(small_dags(2)),
        numeric_BC=torch.zeros(4000, numeric),
        category_BM=torch.zeros(4000, category, dtype=torch.int64),
        node_ptr=torch.arange(4001),
    )


def test_a_single_condition_is_hidden_at_the_asked_rate_alone_or_with_all():
    numeric, _ = drop_conditions(many_graphs(1, 0), 0.2, torch.Generator().manual_seed(0))
    assert abs(numeric.isnan().float().mean() - 0.36) < 0.03
    numeric, _ = drop_conditions(many_graphs(1, 0), 0.0, torch.Generator())
    assert not numeric.isnan().any()


def test_every_number_of_several_conditions_is_as_likely_to_be_left():
    numeric, category = drop_conditions(many_graphs(2, 1), 0.0, torch.Generator().manual_seed(0))
    left_B = (~numeric.isnan()).sum(1) + (category >= 0).sum(1)
    share_4 = torch.bincount(left_B, minlength=4) / left_B.numel()
    assert share_4.tolist() == pytest.approx([0.25] * 4, abs=0.03)
