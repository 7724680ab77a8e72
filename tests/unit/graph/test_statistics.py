import json

import pytest
import torch

from layerdag.errors import GraphError
from layerdag.graph import DAG, GraphSizes, GraphStatistics

SIZES = GraphSizes(attributes=(3, 2), edge_types=2)


def fork() -> DAG:
    """0 -> 1, 0 -> 2; kinds 0, 1, 1."""
    return DAG.build(
        torch.tensor([[0, 1], [1, 0], [1, 1]]),
        torch.tensor([[0, 0], [1, 2]]),
        edge_type_E=torch.tensor([0, 1]),
    )


def test_counts_of_a_fork():
    found = GraphStatistics.measure([fork(), fork()], SIZES)
    assert found.graphs == 2
    assert found.attributes == ((2, 4, 0), (2, 4))
    assert found.edge_types == (2, 2)
    assert found.in_degrees == (((0, 2),), ((1, 4),), ())
    assert found.out_degrees == (((2, 2),), ((0, 4),), ())
    assert found.layer_sizes == ((1, 2), (2, 2))
    assert found.layer_counts == ((2, 2),)
    assert (found.max_in_degree, found.max_out_degree, found.max_layer_size) == (1, 2, 2)
    assert found.mean_in_degree == pytest.approx(2 / 3)


def test_survives_json():
    found = GraphStatistics.measure([fork()], SIZES)
    assert GraphStatistics.from_dict(json.loads(json.dumps(found.to_dict()))) == found


def test_a_code_beyond_the_sizes_is_refused():
    with pytest.raises(GraphError, match="attribute 1"):
        GraphStatistics.measure([fork()], GraphSizes(attributes=(3, 1), edge_types=2))


def test_an_empty_set_is_refused():
    with pytest.raises(GraphError, match="empty"):
        GraphStatistics.measure([], SIZES)
