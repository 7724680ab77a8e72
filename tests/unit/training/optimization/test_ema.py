import torch
from torch import nn

from layerdag.training.optimization import WeightAverage


def test_average_follows_the_weights_with_growing_decay():
    model = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(model.weight)
    average = WeightAverage(model, decay=0.2)
    nn.init.ones_(model.weight)
    average.update()  # decay min(0.2, 2 / 11)
    first = 1 - 2 / 11
    torch.testing.assert_close(average.weights()["weight"].item(), first)
    average.update()  # decay 0.2
    torch.testing.assert_close(average.weights()["weight"].item(), 0.2 * first + 0.8)


def test_averaged_weights_are_in_place_inside_the_block_only():
    model = nn.Linear(2, 2)
    average = WeightAverage(model, decay=0.9)
    before = model.weight.detach().clone()
    nn.init.zeros_(model.weight)
    with average.applied():
        assert torch.equal(model.weight, before)
    assert torch.equal(model.weight, torch.zeros(2, 2))
