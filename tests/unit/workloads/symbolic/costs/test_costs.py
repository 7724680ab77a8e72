"""Costs of operators: by hand for a small model, and conserved by every way to split it."""

import math
from dataclasses import replace
from typing import Any

import pytest
from symbolic_jobs import GPT, LLAMA, MIXTURE

from layerdag.workloads.symbolic import ModelShape
from layerdag.workloads.symbolic.costs import Costs, Linear
from layerdag.workloads.symbolic.plans import Plan, Step

STEP = Step(batch=8, sequence=128)


def costs(shape: ModelShape = LLAMA, step: Step = STEP, **plan: Any) -> Costs:
    """Return the costs on one rank of a plan."""
    return Costs(shape, Plan(**plan), step)


# ---- by hand ----


def test_a_product_of_three_tokens_by_hand() -> None:
    """4 inputs, 5 outputs, bf16: 20 weights; 3 * 9 activations of two bytes."""
    one, layer = costs(), Linear(4, 5)
    assert one.linear(layer, 3) == (2 * 3 * 20, 3 * 9 * 2 + 20 * 2)
    assert one.linear_dx(layer, 3) == one.linear(layer, 3)
    assert one.linear_dw(layer, 3) == (2 * 3 * 20, 3 * 9 * 2 + 20 * 2 * 2)  # read and written


def test_experts_read_each_copy_of_the_weights() -> None:
    operations, moved = costs().linear(Linear(4, 5, 3), 6)
    assert operations == 2 * 6 * 20  # each token passes one of them
    assert moved == 6 * 9 * 2 + 3 * 20 * 2


@pytest.mark.parametrize(
    ("precision", "bytes_per_parameter"),
    [("bf16", 2 + 24 + 2), ("fp16", 28), ("bf16-fp32-gradients", 30), ("fp32", 4 + 16 + 4)],
)
def test_an_update_reads_gradients_and_states_and_writes_states_and_weights(
    precision: str, bytes_per_parameter: int
) -> None:
    _, moved = costs(step=replace(STEP, precision=precision)).adam(1000)
    assert moved == 1000 * bytes_per_parameter


def test_decode_reads_the_cache_and_its_own_token() -> None:
    decode = costs(step=replace(STEP, phase="decode"))
    operations, moved = decode.attention()
    assert decode.tokens == 8
    assert operations == 4 * 8 * 129 * LLAMA.query_width
    assert moved == (2 * 8 * LLAMA.query_width + 2 * 8 * 129 * LLAMA.kv_width) * 2


def test_unfused_attention_moves_its_scores_as_well() -> None:
    flash, unfused = costs().attention(), costs(attention="unfused").attention()
    assert unfused[0] == flash[0]
    assert unfused[1] - flash[1] == 4 * (8 * 128) * 128 * LLAMA.heads * 2


def test_the_causal_triangle_is_half_of_the_square() -> None:
    full, half = costs().attention(), costs(step=replace(STEP, causal="half")).attention()
    assert (2 * half[0], half[1]) == full


def test_inference_computes_the_last_token_of_each_sequence_only() -> None:
    assert costs().head_tokens == 8 * 128
    assert costs(step=replace(STEP, phase="prefill")).head_tokens == 8


# ---- conserved ----

SPLITS: list[dict[str, int]] = [
    {"tensor": 2},
    {"tensor": 4},
    {"data": 4},
    {"context": 2},
    {"data": 2, "tensor": 2, "context": 2},
]


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("layer", ["qkv", "out", "up", "down"])
@pytest.mark.parametrize("shape", [GPT, LLAMA], ids=lambda shape: shape.name)
def test_ranks_together_compute_each_product_once(
    shape: ModelShape, layer: str, split: dict[str, int]
) -> None:
    whole, part = costs(shape), costs(shape, **split)
    for name in ("linear", "linear_dx", "linear_dw"):
        once = getattr(whole, name)(getattr(whole, layer), whole.tokens)[0]
        each = getattr(part, name)(getattr(part, layer), part.tokens)[0]
        assert each * math.prod(split.values()) == once


@pytest.mark.parametrize("split", SPLITS)
def test_ranks_together_attend_once(split: dict[str, int]) -> None:
    assert costs(**split).attention()[0] * math.prod(split.values()) == costs().attention()[0]


@pytest.mark.parametrize("micro_batches", [1, 2, 4, 8])
def test_micro_batches_share_the_tokens(micro_batches: int) -> None:
    part = costs(step=replace(STEP, micro_batches=micro_batches))
    assert part.tokens * micro_batches == costs().tokens
    assert part.attention()[0] * micro_batches == costs().attention()[0]


@pytest.mark.parametrize("tensor", [1, 2, 4])
def test_sequence_parallel_ranks_share_the_residual_stream(tensor: int) -> None:
    part = costs(tensor=tensor, sequence_parallel=True)
    assert part.own_tokens * tensor == part.tokens
    assert part.own_stream * tensor == part.stream == costs().stream


@pytest.mark.parametrize("expert", [1, 2, 4])
def test_expert_ranks_share_the_experts_and_nothing_else(expert: int) -> None:
    whole, part = costs(MIXTURE, data=4), costs(MIXTURE, data=4, expert=expert)
    assert part.layer_experts * expert == whole.layer_experts
    assert part.layer_dense == whole.layer_dense


@pytest.mark.parametrize("tensor", [2, 4])
def test_tensor_ranks_share_all_parameters_but_norms(tensor: int) -> None:
    whole, part = costs(), costs(tensor=tensor)
    norms = 2 * LLAMA.norm_parameters
    assert (part.layer_dense - norms) * tensor == whole.layer_dense - norms


def test_a_vocabulary_that_does_not_divide_is_padded() -> None:
    odd = replace(LLAMA, vocabulary=1001)
    assert [costs(odd, tensor=n).logits.outputs for n in (1, 2, 4)] == [1001, 501, 251]


def test_a_tied_table_is_held_once_on_a_rank() -> None:
    tied = costs(replace(LLAMA, tied=True))
    assert tied.exit(shared=False) - tied.exit(shared=True) == tied.table
    assert costs(replace(LLAMA, tied=False)).exit(shared=True) == tied.exit(shared=False)


@pytest.mark.parametrize("name", ["attention", "attention_back"])
def test_longer_sequences_cost_more_than_their_share(name: str) -> None:
    shorter, longer = costs(), costs(step=replace(STEP, sequence=256))
    assert getattr(longer, name)()[0] == 4 * getattr(shorter, name)()[0]
    assert getattr(longer, name)()[1] == 2 * getattr(shorter, name)()[1]
