"""The causal encoder against the same computation token by token."""

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from layerdag.models.autoregressive import EncoderBlock, EncoderConfig, alibi_slopes
from layerdag.models.autoregressive._encoder import attention, block_sum
from layerdag.models.autoregressive._layout import Layout
from tests.unit.models.autoregressive.small_models import collated, context_of, small_dags

WIDTH, HEADS = 8, 2


def encoder_block(**settings: object) -> EncoderBlock:
    torch.manual_seed(3)
    return EncoderBlock(WIDTH, HEADS, EncoderConfig(**settings)).eval()


def noise(rows: int) -> Tensor:
    return torch.randn(rows, WIDTH, generator=torch.Generator().manual_seed(1))


def attended_by_hand(layer: EncoderBlock, x_TD: Tensor, layout: Layout, block: int) -> Tensor:
    """Each token attends to its block and the one before, and to a mean of each older block."""
    query_TD, key_TD, value_TD = layer.query_key_value(layer.norm(x_TD)).chunk(3, dim=-1)
    rows = []
    for token in range(layout.num_tokens):
        start = int(layout.start_B[layout.graph_T[token]])
        older = max((token - start) // block - 1, 0)
        near = torch.arange(start + older * block, token + 1)
        far = [torch.arange(start + i * block, start + (i + 1) * block) for i in range(older)]
        keys = torch.cat([key_TD[near], *(key_TD[i].mean(0, keepdim=True) for i in far)])
        values = torch.cat([value_TD[near], *(value_TD[i].mean(0, keepdim=True) for i in far)])
        penalty = torch.cat([(token - near).float(), torch.zeros(older)])
        heads = []
        for head, slope in enumerate(alibi_slopes(HEADS, x_TD.device)):
            part = slice(head * WIDTH // HEADS, (head + 1) * WIDTH // HEADS)
            score = keys[:, part] @ query_TD[token, part] / math.sqrt(WIDTH / HEADS)
            heads.append((score - slope * penalty).softmax(0) @ values[:, part])
        rows.append(torch.cat(heads))
    return torch.stack(rows)


@pytest.mark.parametrize("block", [1, 2, 3, 64])
def test_attention_is_that_of_each_token_over_its_window_and_the_means_of_older_blocks(block: int):
    batch = collated(small_dags(2))
    layout, context = context_of(batch, block)
    layer, x_TD = encoder_block(messages="none"), noise(layout.num_tokens)
    wanted = attended_by_hand(layer, x_TD, layout, block)
    torch.testing.assert_close(
        layer(x_TD, context), layer.finish(x_TD, wanted, torch.zeros_like(wanted))
    )


def test_messages_are_the_mean_of_the_parents_values():
    batch = collated(small_dags(2))
    layout, context = context_of(batch, 4)
    layer, x_TD = encoder_block(attention="none"), noise(layout.num_tokens)
    value_TD = layer.query_key_value(layer.norm(x_TD)).chunk(3, dim=-1)[2]
    message_TD = torch.zeros_like(x_TD)
    for token in range(layout.num_tokens):
        parents = context.parent_E[context.child_E == token]
        if parents.numel():
            message_TD[token] = value_TD[parents].mean(0)
    torch.testing.assert_close(
        layer(x_TD, context), layer.finish(x_TD, torch.zeros_like(x_TD), message_TD)
    )


@pytest.mark.parametrize("block", [1, 2, 4, 64])
def test_a_token_changes_itself_and_later_tokens_of_its_graph_alone(block: int):
    layout, context = context_of(collated(small_dags(2)), block)
    layer, x_TD = encoder_block(), noise(layout.num_tokens)
    plain = layer(x_TD, context)
    for token in range(0, layout.num_tokens, 5):
        changed = x_TD.clone()
        # Not by a constant: the normalization would take it away.
        changed[token] += torch.linspace(-1, 2, WIDTH)
        moved_T = (layer(changed, context) != plain).any(1)
        assert moved_T[token]
        assert not moved_T[:token].any()
        assert not moved_T[layout.graph_T != layout.graph_T[token]].any()


def test_without_attention_and_messages_every_token_is_alone():
    layout, context = context_of(collated(small_dags(1)), 4)
    layer, x_TD = encoder_block(attention="none", messages="none"), noise(layout.num_tokens)
    one_by_one = [layer.finish(row, 0 * row, 0 * row) for row in x_TD[:, None]]
    torch.testing.assert_close(layer(x_TD, context), torch.cat(one_by_one))


def test_variants_have_the_same_parameters_and_begin_with_the_same_weights():
    whole, bare = encoder_block(), encoder_block(attention="none", messages="none")
    assert whole.state_dict().keys() == bare.state_dict().keys()
    for name, weight in whole.state_dict().items():
        assert torch.equal(weight, bare.state_dict()[name]), name


@pytest.mark.parametrize("heads", [1, 2, 4, 8])
def test_the_penalty_halves_by_equal_steps_and_the_last_head_has_none(heads: int):
    slopes = alibi_slopes(heads, torch.device("cpu"))
    assert slopes[-1] == 0
    wanted = [2 ** (-8 * h / heads) for h in range(1, heads)]
    assert slopes[:-1].tolist() == pytest.approx(wanted)


def test_biases_hide_later_tokens_and_missing_blocks():
    layout, context = context_of(collated(small_dags(3)), 2)
    hidden_ww = context.first_bias_Hww.isinf()
    width = hidden_ww.shape[-1]
    assert (hidden_ww == torch.ones(width, width).triu(1).bool()).all()
    pooled_ZHbz = context.later_bias_ZHbw[..., 4:]
    valid_ZHbz = context.blocks.pooled_valid_Zz[:, None, None].expand_as(pooled_ZHbz)
    assert torch.equal(pooled_ZHbz == 0, valid_ZHbz)
    assert torch.equal(pooled_ZHbz.isinf(), ~valid_ZHbz)
    assert layout.num_tokens > 4


def test_attention_is_scaled_dot_product_attention(generator: torch.Generator):
    query, key, value = torch.randn(3, 5, 4, WIDTH, generator=generator)
    bias = torch.randn(HEADS, 4, 4, generator=generator)

    def split(x: Tensor) -> Tensor:
        return x.unflatten(-1, (HEADS, -1)).transpose(1, 2)

    wanted = F.scaled_dot_product_attention(split(query), split(key), split(value), attn_mask=bias)
    found = attention(query, key, value, bias)
    torch.testing.assert_close(found, wanted.transpose(1, 2).flatten(2))


def test_block_sums_add_the_tokens_of_each_block_in_single_precision():
    layout, context = context_of(collated(small_dags(3)), 3)
    ones = torch.ones(layout.num_tokens, 2, dtype=torch.bfloat16)
    found = block_sum(ones, context.blocks)
    assert found.dtype == torch.float32
    assert found[:, 0].tolist() == torch.bincount(context.blocks.of_T).tolist()
