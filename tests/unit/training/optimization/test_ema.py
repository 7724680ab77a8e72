import pytest
import torch
from torch import nn

from layerdag.training.optimization import ExponentialMovingAverage


def test_average_follows_the_weights_with_growing_decay():
    model = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(model.weight)
    average = ExponentialMovingAverage(model, decay=0.2)
    nn.init.ones_(model.weight)
    average.update()  # decay min(0.2, 2 / 11)
    first = 1 - 2 / 11
    torch.testing.assert_close(average.weights()["weight"].item(), first)
    average.update()  # decay 0.2
    torch.testing.assert_close(average.weights()["weight"].item(), 0.2 * first + 0.8)


def test_averaged_weights_are_in_place_inside_the_block_only():
    model = nn.Linear(2, 2)
    average = ExponentialMovingAverage(model, decay=0.9)
    before = model.weight.detach().clone()
    nn.init.zeros_(model.weight)
    with average.applied():
        assert torch.equal(model.weight, before)
    assert torch.equal(model.weight, torch.zeros(2, 2))


def test_an_average_goes_on_from_its_state():
    model = nn.Linear(3, 2)
    torch.manual_seed(0)
    whole, first = ExponentialMovingAverage(model, 0.9), ExponentialMovingAverage(model, 0.9)
    updates = [torch.randn(2, 3) for _ in range(6)]
    for at, weight in enumerate(updates):
        if at == 3:
            again = ExponentialMovingAverage(nn.Linear(3, 2), 0.9)
            again.load_state_dict(first.state_dict())
            first = again
            first._parameters = dict(model.named_parameters())
        with torch.no_grad():
            model.weight.copy_(weight)
        whole.update()
        first.update()
    assert torch.equal(whole.weights()["weight"], first.weights()["weight"])


def test_live_weights_come_back_though_the_block_fails():
    model = nn.Linear(2, 2)
    average = ExponentialMovingAverage(model, decay=0.9)
    with torch.no_grad():
        model.weight.fill_(7.0)
    with pytest.raises(ZeroDivisionError), average.applied():
        raise ZeroDivisionError
    assert torch.equal(model.weight, torch.full((2, 2), 7.0))
