"""What kernels read of a batch for an encoder block is what PyTorch's operators read.

Shape letters: D width of a state, H heads, T tokens.
"""

import pytest
import torch
from fused_kernels import far_apart
from hypothesis import given, strategies as st
from laws import tried
from small_models import collated, context_of, small_dags
from torch import Tensor

from layerdag.models.fast.encoder import (
    AttentionContext,
    EncoderBlock,
    alibi_slopes,
)
from layerdag.models.fast.fused_attention import Reads


def given_of(tokens: int, width: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Queries, keys and values, and a gradient of what is read."""
    generator = torch.Generator().manual_seed(seed)
    all_T3D, gradient_T2D = (
        torch.randn(tokens, times * width, generator=generator) for times in (3, 2)
    )
    return all_T3D.requires_grad_(), gradient_T2D


def reads_of(context: AttentionContext, width: int, heads: int) -> Reads:
    slope_H = alibi_slopes(heads, torch.device("cpu"))
    tokens = context.tokens
    edges = tokens.parent_E, tokens.child_E, tokens.in_degree_T
    return Reads(tokens.blocks, slope_H, *edges, width)


def by_operators(
    all_T3D: Tensor, gradient_T2D: Tensor, context: AttentionContext, heads: int
) -> tuple[Tensor, Tensor]:
    """What is read and the gradient of what it is read from, in double precision."""
    exact_T3D = all_T3D.detach().double().requires_grad_()
    layer = EncoderBlock(all_T3D.shape[1] // 3, heads)
    value_TD = exact_T3D.chunk(3, dim=-1)[2]
    attended_TD = layer._attend(exact_T3D, context)
    read_T2D = torch.cat([attended_TD, context.tokens.parents_mean(value_TD)], dim=-1)
    return read_T2D, torch.autograd.grad(read_T2D, exact_T3D, gradient_T2D.double())[0]


@tried(40)
@given(
    st.sampled_from([(8, 1), (24, 3), (12, 4), (136, 4), (72, 1)]),
    st.sampled_from([1, 2, 3, 8, 64]),
    st.integers(1, 5),
    st.integers(0, 99),
    st.sampled_from([torch.float32, torch.bfloat16]),
)
def test_what_is_read_and_its_gradients_are_those_of_operators(widths, block, graphs, seed, dtype):
    width, heads = widths
    layout, context = context_of(collated(small_dags(graphs, seed)), block, heads)
    all_T3D, gradient_T2D = given_of(layout.num_tokens, width, seed)
    all_T3D = all_T3D.detach().to(dtype).requires_grad_()
    gradient_T2D = gradient_T2D.to(dtype)
    found = reads_of(context, width, heads)(all_T3D)
    assert found.dtype == dtype
    (found_gradient,) = torch.autograd.grad(found, all_T3D, gradient_T2D)
    wanted, wanted_gradient = by_operators(all_T3D, gradient_T2D, context, heads)
    tolerance = 3e-6 if dtype == torch.float32 else 2e-2
    assert far_apart(found, wanted) < tolerance
    assert far_apart(found_gradient, wanted_gradient) < tolerance


def test_gaps_between_numbers_change_nothing():
    layout, context = context_of(collated(small_dags(3)), 4)
    all_T3D, gradient_T2D = given_of(layout.num_tokens, 16)
    reads = reads_of(context, 16, 2)
    wanted = reads(all_T3D)
    (wanted_gradient,) = torch.autograd.grad(wanted, all_T3D, gradient_T2D)
    apart_T3D = all_T3D.detach().T.contiguous().T.requires_grad_()
    found = reads(apart_T3D)
    assert torch.equal(found, wanted)
    (gradient,) = torch.autograd.grad(found, apart_T3D, gradient_T2D.T.contiguous().T)
    torch.testing.assert_close(gradient, wanted_gradient)


def test_scores_far_apart_neither_overflow_nor_vanish():
    layout, context = context_of(collated(small_dags(3)), 4)
    all_T3D, gradient_T2D = given_of(layout.num_tokens, 16)
    all_T3D = (30 * all_T3D.detach()).requires_grad_()
    found = reads_of(context, 16, 2)(all_T3D)
    (gradient,) = torch.autograd.grad(found, all_T3D, gradient_T2D)
    wanted, wanted_gradient = by_operators(all_T3D, gradient_T2D, context, 2)
    assert far_apart(found, wanted) < 1e-4
    assert far_apart(gradient, wanted_gradient) < 1e-3


@pytest.mark.parametrize("part", ["query", "key", "value"])
def test_numbers_that_are_none_show_in_what_is_read(part):
    layout, context = context_of(collated(small_dags(2)), 4)
    all_T3D, _ = given_of(layout.num_tokens, 16)
    with torch.no_grad():
        all_T3D.unflatten(1, (3, 16))[-1, ["query", "key", "value"].index(part), 5] = torch.nan
    found = reads_of(context, 16, 2)(all_T3D)
    assert found[-1].isnan().any()


def test_a_graph_that_is_kept_gives_the_same_gradients_again_and_none_of_gradients():
    layout, context = context_of(collated(small_dags(2)), 4)
    all_T3D, gradient_T2D = given_of(layout.num_tokens, 16)
    found = reads_of(context, 16, 2)(all_T3D)
    once = torch.autograd.grad(found, all_T3D, gradient_T2D, retain_graph=True)
    again = torch.autograd.grad(found, all_T3D, gradient_T2D, retain_graph=True)
    assert torch.equal(once[0], again[0])
    (gradient,) = torch.autograd.grad(found.square().sum(), all_T3D, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()
