"""What pads a batch changes no loss and no gradient, whatever the sizes."""

from dataclasses import astuple, fields, replace

import pytest
import torch
from hypothesis import given, strategies as st
from small_models import collated, small_dags, small_model

from layerdag.dag.dag import tensors_of
from layerdag.models.fast.padding import PaddedSizes

SIZES = st.builds(PaddedSizes, *(st.integers(1, 60) for _ in fields(PaddedSizes)))


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
    larger = model.padding.sizes(model.derived(collated(dags)))
    sizes = model.padding.sizes(batch).grown(larger, room)
    wanted = losses_and_gradients(model, batch)
    found = losses_and_gradients(model, model.padding.padded(batch, sizes))
    torch.testing.assert_close(found[0], wanted[0], rtol=1e-12, atol=1e-9)
    torch.testing.assert_close(found[1], wanted[1], rtol=1e-9, atol=1e-9)


def test_batches_of_the_same_sizes_have_the_same_shapes():
    dags = small_dags(6)
    model = small_model(dags)
    batches = [model.derived(collated(some)) for some in (dags[:2], dags[2:])]
    sizes = model.padding.sizes(batches[0]).grown(model.padding.sizes(batches[1]), 1.0)
    padded = [model.padding.padded(batch, sizes) for batch in batches]
    shapes = [
        [tensor.shape for part in (batch, batch.derived) for tensor in tensors_of(part)]
        for batch in padded
    ]
    assert shapes[0] == shapes[1]
    assert model.padding.counts(batches[0]) != model.padding.counts(batches[1])


@given(SIZES, SIZES, st.floats(1, 3))
def test_sizes_that_grew_hold_what_they_were_made_of(one, other, room):
    both = one.grown(other, room)
    assert both.hold(one)
    assert both.hold(other)
    # What has room does not grow.
    assert both.grown(one, room) == both
    # Every graph that pads a batch has a node of its own.
    for part in (one, other):
        assert both.nodes - part.nodes >= both.graphs - part.graphs
    assert not one.hold(replace(one, edges=one.edges + 1))
    assert all(a >= b for a, b in zip(astuple(both), astuple(one), strict=True))
