import torch

from layerdag.graph.statistics import GraphStatistics
from layerdag.model.fast_arity import Arity


def test_codes_that_no_training_node_has_are_ruled_out() -> None:
    statistics = GraphStatistics(
        graphs=1,
        attributes=((2, 1), (3, 0), (0, 1, 2)),
        edge_types=(1,),
        in_degrees=(((0, 2),), ((1, 1),)),
        out_degrees=((0, 2), (1, 1)),
        layer_sizes=((1, 1), (2, 1)),
        layer_counts=((2, 1),),
    )
    arity = Arity(statistics)
    assert arity.limit_attributes(torch.zeros(1, 2), 0).tolist() == [[0.0, -torch.inf]]
    assert arity.limit_attributes(torch.zeros(1, 3), 1).tolist() == [[-torch.inf, 0.0, 0.0]]
