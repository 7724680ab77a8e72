import pytest
import torch
from private_jobs import PrivateJobs
from torch import nn

from layerdag.graph import GraphSizes, GraphStatistics
from layerdag.models.autoregressive import FastConfig, FastLayerDAG
from layerdag.training.private import code_scales


def _scale_of(mine: PrivateJobs, readout: nn.Module) -> torch.Tensor:
    model = mine.base.model
    assert isinstance(model, FastLayerDAG)
    linear = readout.get_submodule("project")
    assert isinstance(linear, nn.Linear)
    return code_scales(model.heads, model.statistics)[linear]


def test_every_readout_has_a_scale_for_each_code(mine: PrivateJobs):
    model = mine.base.model
    assert isinstance(model, FastLayerDAG)
    scales = code_scales(model.heads, model.statistics)
    readouts = [m for name, m in model.heads.named_modules() if name.endswith("project")]
    assert {id(linear) for linear in scales} == set(map(id, readouts))
    assert all(scale_K.shape == linear.bias.shape for linear, scale_K in scales.items())
    assert all(bool((s >= 0).all() and (s <= 0.5).all()) for s in scales.values())


def test_rare_codes_have_small_scales_and_the_commoner_the_larger(mine: PrivateJobs):
    model = mine.base.model
    assert isinstance(model, FastLayerDAG)
    count_K = torch.tensor(model.statistics.attributes[0])
    scale_K = _scale_of(mine, model.heads.kind_readout)
    below_half = count_K < count_K.sum() / 2
    order = count_K[below_half].argsort()
    assert bool((scale_K[below_half][order].diff() >= 0).all())


def test_counts_are_told_apart_by_their_own_statistics(mine: PrivateJobs):
    model = mine.base.model
    assert isinstance(model, FastLayerDAG)
    largest = model.statistics.max_layer_size
    scale_K = _scale_of(mine, model.heads.size_readout)
    assert scale_K.argmax() <= model.heads.size.encode(torch.tensor(largest))
    assert scale_K[-1] == scale_K.min()  # no public layer is beyond the largest


@pytest.mark.parametrize("out_degrees", [True, False])
def test_numbers_of_children_count_where_the_model_draws_them(mine: PrivateJobs, out_degrees: bool):
    sizes: GraphSizes = mine.base.spec.sizes
    statistics: GraphStatistics = mine.base.spec.statistics
    config = FastConfig(predict_out_degree=out_degrees, width=32, depth=1)
    model = FastLayerDAG(sizes, statistics, config)
    known = len(code_scales(model.heads, statistics))
    assert known == 4 + len(sizes.attributes) - 1 + out_degrees
