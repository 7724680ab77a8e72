"""How far a sample is from the size that was asked for."""

import math

import pytest
import torch

from layerdag.graph import DAG
from layerdag.sampling.drawing import asked_nodes, size_miss


def chain(nodes: int) -> DAG:
    """Return a path of nodes."""
    edges_2E = torch.stack([torch.arange(nodes - 1), torch.arange(1, nodes)])
    return DAG.build(torch.zeros((nodes, 1), dtype=torch.int64), edges_2E)


@pytest.mark.parametrize(
    ("asked", "miss"),
    [
        (math.nan, 0.0),
        (20.0, 0.0),
        (21.9, 0.0),
        (18.2, 0.0),
        (18.1, math.log(20 / 18.1)),
        (40.0, math.log(2)),
        (10.0, math.log(2)),
    ],
)
def test_a_tenth_more_or_fewer_nodes_is_no_miss(asked: float, miss: float) -> None:
    assert size_miss(chain(20), {"num_nodes": asked}, 1000) == pytest.approx(miss)


def test_nothing_is_missed_where_no_size_is_asked_for() -> None:
    assert size_miss(chain(20), {"num_layers": 3.0}, 1000) == 0.0


def test_no_more_nodes_can_be_asked_for_than_a_graph_may_have() -> None:
    assert size_miss(chain(20), {"num_nodes": 500.0}, 20) == 0.0
    assert size_miss(chain(20), {"num_nodes": 500.0}, 100) == pytest.approx(math.log(5))


def test_at_least_one_node_is_asked_for_and_words_are_none() -> None:
    assert asked_nodes({"num_nodes": 0.2}, 10) == 1.0
    assert asked_nodes({"num_nodes": "many"}, 10) is None
