import math

import pytest
import torch

from layerdag.graph import GraphSizes, GraphStatistics
from layerdag.models.diffusion import LayerSizeConfig
from layerdag.models.diffusion._layer_size import LayerSizeNet


@pytest.fixture
def network(sizes: GraphSizes, make_dag) -> LayerSizeNet:
    statistics = GraphStatistics.measure([make_dag(2, 3, 1) for _ in range(3)], sizes)
    return LayerSizeNet(sizes, statistics, (4, 2, 3), LayerSizeConfig(width=8, rounds=1))


def test_probabilities_of_all_sizes_sum_to_1(network: LayerSizeNet, generator: torch.Generator):
    size = torch.arange(400)
    logits = torch.randn(1, 4, generator=generator).expand(400, 4)
    total = network.log_probability(logits, size).double().exp().sum()
    assert total == pytest.approx(1, abs=1e-5)


def test_no_width_is_impossible(network: LayerSizeNet):
    far = network.log_probability(torch.zeros(1, 4), torch.tensor([1000]))
    assert math.isfinite(float(far))


def test_draws_follow_the_probabilities_tail_included(
    network: LayerSizeNet, generator: torch.Generator
):
    count = 40_000
    logits = torch.tensor([[0.3, -0.5, 1.0, 0.0]])
    uniform = torch.rand(count, 2, generator=generator, dtype=torch.float64)
    drawn = network.sample(logits.expand(count, 4), uniform)
    wanted = count * network.log_probability(logits.expand(8, 4), torch.arange(8)).exp()
    found = drawn.bincount(minlength=8)[:8]
    assert drawn.max() > 3
    assert ((found - wanted) ** 2 / wanted).sum() < 32  # 8 degrees of freedom: chance 1e-4


def test_a_forbidden_size_is_never_drawn(network: LayerSizeNet, generator: torch.Generator):
    logits = torch.tensor([[float("-inf"), 0.0, 0.0, 0.0]]).expand(5000, 4)
    uniform = torch.rand(5000, 2, generator=generator, dtype=torch.float64)
    assert network.sample(logits, uniform).min() == 1
