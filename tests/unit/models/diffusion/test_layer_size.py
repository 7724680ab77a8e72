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


def test_the_tail_has_the_probability_of_a_record(network: LayerSizeNet):
    """9 layers were seen: a tenth of the probability lies beyond the largest."""
    logits = torch.randn(1, 4, generator=torch.Generator().manual_seed(0)).expand(4, 4)
    inner = network.log_probability(logits, torch.arange(4)).exp().sum()
    assert inner == pytest.approx(0.9)
    assert network.tail_probability == pytest.approx(0.1)


def test_beyond_the_largest_size_each_node_more_is_a_factor_less_likely(network: LayerSizeNet):
    log_probability = network.log_probability(torch.zeros(1, 4).expand(9, 4), torch.arange(4, 13))
    ratio = log_probability.diff().exp()
    torch.testing.assert_close(ratio, ratio[:1].expand(8), rtol=1e-4, atol=0)
    # 9 layers have 18 nodes: the mean excess over the largest is that of their mean size.
    assert ratio[0] == pytest.approx(1 - 9 / 18, rel=1e-4)


def test_inside_the_probabilities_are_a_softmax(network: LayerSizeNet, generator):
    logits = torch.randn(2, 4, generator=generator)
    found = network.log_probability(logits, torch.tensor([3, 0]))
    wanted = logits.log_softmax(1)[[0, 1], [3, 0]] + math.log(0.9)
    torch.testing.assert_close(found, wanted)


def test_graphs_of_single_nodes_have_a_tail_that_stops_now_and_then(sizes: GraphSizes, make_dag):
    """The mean excess of layers of one node would be none, so that of a record is taken."""
    statistics = GraphStatistics.measure([make_dag(1, 1)], sizes)
    network = LayerSizeNet(sizes, statistics, (4, 2, 2), LayerSizeConfig(width=4, rounds=0))
    assert network.tail_stop_probability == pytest.approx(2 / 3)
    far = network.log_probability(torch.zeros(2, 2), torch.tensor([2, 50]))
    assert far.isfinite().all()
    assert far[0] > far[1]


def test_a_size_is_drawn_from_its_own_uniforms(network: LayerSizeNet):
    logits = torch.zeros(1, 4)
    sizes = [
        int(network.sample(logits, torch.tensor([[u, v]], dtype=torch.float64)))
        for u, v in ((0.01, 0.5), (0.89, 0.5), (0.95, 0.999), (0.95, 0.4), (0.95, 0.1))
    ]
    assert sizes == [0, 3, 4, 5, 7]
