import torch

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


def test_dropping_hides_about_the_asked_share_and_nothing_at_zero():
    batch = collated(small_dags(2))
    wide = batch.__class__(
        **(
            vars(batch)
            | {
                "numeric_BC": torch.zeros(2000, 1),
                "category_BM": torch.zeros(2000, 1, dtype=torch.int64),
                "node_ptr": torch.arange(2001),
            }
        )
    )
    numeric, category = drop_conditions(wide, 0.2, torch.Generator().manual_seed(0))
    assert abs(numeric.isnan().float().mean() - 0.36) < 0.05
    assert abs((category == -1).float().mean() - 0.36) < 0.05
    numeric, category = drop_conditions(wide, 0.0, torch.Generator())
    assert not numeric.isnan().any()
    assert not (category == -1).any()
