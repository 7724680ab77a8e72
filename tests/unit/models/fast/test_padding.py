"""What pads a batch changes no loss and no gradient, whatever the sizes."""

import math

import pytest
import torch
from small_models import collated, small_dags, small_model


def losses_and_gradients(model, batch):
    terms = model.losses(batch, torch.Generator())
    total = torch.stack([term.total for term in terms.values()])
    gradients = torch.autograd.grad(total.sum(), list(model.parameters()), allow_unused=True)
    return total.detach(), [g for g in gradients if g is not None]


@pytest.mark.parametrize("block", [4, 64])
@pytest.mark.parametrize("room", [1.0, 1.7])
def test_a_padded_batch_has_the_same_losses_and_gradients(block, room):
    dags = small_dags(6)
    model = small_model(dags, block=block).double().eval()
    batch = model.derived(collated(dags[:4]))
    larger = model.padded_sizes(model.derived(collated(dags)))
    sizes = {name: math.ceil(room * size) for name, size in larger.items()}
    wanted = losses_and_gradients(model, batch)
    found = losses_and_gradients(model, model.padded(batch, sizes))
    torch.testing.assert_close(found[0], wanted[0], rtol=1e-12, atol=1e-9)
    torch.testing.assert_close(found[1], wanted[1], rtol=1e-9, atol=1e-9)


def test_the_smallest_sizes_hold_a_batch():
    model = small_model(small_dags(3))
    batch = model.derived(collated(small_dags(3)))
    padded = model.padded(batch, model.padded_sizes(batch))
    torch.testing.assert_close(
        losses_and_gradients(model, padded)[0], losses_and_gradients(model, batch)[0]
    )
    assert model.decisions(padded) == model.decisions(batch)
