from dataclasses import replace

import torch

from layerdag.graph import GraphSizes, GraphStatistics
from layerdag.models.diffusion._degree_codes import DegreeCodes


def test_only_in_degrees_that_occur_have_codes(sizes: GraphSizes, make_dag):
    statistics = GraphStatistics.measure([make_dag(2, 3)], sizes)
    kinds = (((0, 4), (1, 2)), ((1, 1), (200, 3)), (), ())
    codes = DegreeCodes(replace(statistics, in_degrees=kinds))
    assert codes.counts == (4, 3, 3)
    assert codes.encode(torch.tensor([0, 1, 2, 199, 200, 999])).tolist() == [0, 1, 1, 1, 2, 2]
    assert codes.decode(torch.tensor([0, 1, 2])).tolist() == [0, 1, 200]
