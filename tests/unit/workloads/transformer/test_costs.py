"""Costs of operators: by hand for a small model, and conserved by every way to split it."""

from dataclasses import replace
from typing import Any

import pytest
from symbolic_jobs import DIT, GPT, LLAMA, MIXTURE, VIT, sizes, small

from layerdag.errors import ConfigError
from layerdag.plan import Plan, Step
from layerdag.workloads.transformer.costs import (
    Costs,
    Linear,
    layer_activations,
    rank_memory,
    rank_parameters,
)
from layerdag.workloads.transformer.job import transformer_job
from layerdag.workloads.transformer.shapes import ModelShape

STEP = Step(batch=8, sequence=128)


def costs(shape: ModelShape = LLAMA, step: Step = STEP, **plan: Any) -> Costs:
    return Costs(shape, Plan(**plan), step)


def test_products_and_experts_by_hand():
    """4 inputs, 5 outputs, bf16: 20 weights; 3 * 9 activations of two bytes."""
    one, layer = costs(), Linear(4, 5, tokens=3)
    assert one.product(layer) == (2 * 3 * 20, 3 * 9 * 2 + 20 * 2)
    assert one.product(layer, "input") == one.product(layer)
    written = (2 * 3 * 20, 3 * 9 * 2 + 20 * 2 * 2)  # the weight's gradient is read and written
    assert one.product(layer, "weight") == written
    operations, moved = costs().product(Linear(4, 5, tokens=6, copies=3))
    assert operations == 2 * 6 * 20  # each token passes one of them
    assert moved == 6 * 9 * 2 + 3 * 20 * 2


@pytest.mark.parametrize(
    ("precision", "bytes_per_parameter"),
    [("bf16", 2 + 24 + 2), ("fp16", 28), ("bf16-fp32-gradients", 30), ("fp32", 4 + 16 + 4)],
)
def test_an_update_reads_gradients_and_states_and_writes_states_and_weights(
    precision, bytes_per_parameter
):
    _, moved = costs(step=replace(STEP, precision=precision)).adam(1000)
    assert moved == 1000 * bytes_per_parameter


def test_decode_reads_the_cache_and_its_own_token():
    decode = costs(step=replace(STEP, phase="decode"))
    operations, moved = decode.attention()
    assert decode.tokens == 8
    assert operations == 4 * 8 * 129 * LLAMA.query_width
    assert moved == (2 * 8 * LLAMA.query_width + 2 * 8 * 129 * LLAMA.kv_width) * 2


def test_unfused_attention_moves_its_scores_as_well():
    flash, unfused = costs().attention(), costs(attention="unfused").attention()
    assert unfused[0] == flash[0]
    assert unfused[1] - flash[1] == 4 * (8 * 128) * 128 * LLAMA.heads * 2


def test_vocabularies_are_padded_and_tied_tables_held_once():
    odd = replace(LLAMA, vocabulary=1001)
    assert [costs(odd, tensor=n).products["logits"].outputs for n in (1, 2, 4)] == [1001, 501, 251]
    tied = costs(replace(LLAMA, tied=True))
    assert tied.exit(shared=False) - tied.exit(shared=True) == tied.table
    assert costs(replace(LLAMA, tied=False)).exit(shared=True) == tied.exit(shared=False)


STATES = [
    # tensor, pipeline, data; GiB of states under no ZeRO, 1, 2, 3: 16 bytes a parameter of 1.008e12
    # on 1,024 ranks. 160 heads cannot be split over 64 ranks or more; stages share the layers then.
    (1, 1, 1024, (15021, 3766, 1890, 14.7)),
    (8, 1, 128, (1878, 480, 247.5, 14.7)),
    (16, 1, 64, (939, 246, 130.2, 14.7)),
    (32, 1, 32, (469, 128, 71.5, 14.7)),
    (32, 2, 16, (235, 69.7, 42.2, 14.7)),
    (32, 4, 8, (117, 40.3, 27.5, 14.7)),
    (32, 32, 1, (14.7, 14.7, 14.7, 14.7)),
]


@pytest.mark.parametrize(("tensor", "pipeline", "data", "gibibytes"), STATES)
def test_states_of_a_trillion_parameters_under_zero(tensor, pipeline, data, gibibytes):
    for zero, expected in enumerate(gibibytes):
        made = transformer_job(
            "transformer-1t", tensor=tensor, pipeline=pipeline, data=data, zero=zero, batch=data
        )
        held = [rank_memory(made.costs, stage) for stage in range(pipeline)]
        states = sum(one.weights + one.gradients + one.optimizer for one in held) / pipeline
        assert states / 2**30 == pytest.approx(expected, rel=7e-3)


@pytest.mark.parametrize(
    ("plan", "factor"),
    [
        ({}, lambda s, h, a, t: 34 + 5 * a * s / h),
        ({"tensor": 4}, lambda s, h, a, t: 10 + 24 / t + 5 * a * s / (h * t)),
        ({"tensor": 4, "sequence_parallel": True}, lambda s, h, a, t: 34 / t + 5 * a * s / (h * t)),
        ({"tensor": 4, "sequence_parallel": True, "recompute": "selective"},
         lambda s, h, a, t: 34 / t),
    ],
)  # fmt: skip
def test_activations_of_a_layer_are_those_of_korthikanti(plan, factor):
    """Table 2 of Korthikanti et al. 2022, in units of sbh bytes."""
    made = small(GPT, attention="unfused", **plan)
    s, h, a = 128, GPT.hidden, GPT.heads
    expected = 8 * s * h * factor(s, h, a, plan.get("tensor", 1))
    assert layer_activations(made.costs) == expected


def test_full_recompute_keeps_the_input_of_each_layer():
    made = small(LLAMA, recompute="full", micro_batches=4, pipeline=2)
    stream = 2 * 128 * LLAMA.hidden * 2
    held = made.summary()["memory"][0]["activations"]
    assert held == 2 * 2 * stream + layer_activations(made.costs)  # 2 layers, 2 in flight


def test_1f1b_keeps_fewer_micro_batches_than_gpipe():
    flying = {"1f1b": (4, 3, 2, 1), "gpipe": (8, 8, 8, 8)}
    for schedule, counts in flying.items():
        made = small(LLAMA, pipeline=4, micro_batches=8, schedule=schedule)
        for stage, count in enumerate(counts[:3]):
            held = made.summary()["memory"][stage]["activations"]
            assert held == count * layer_activations(made.costs)


def test_virtual_stages_keep_more_and_zb_h1_on_no_stage_more_than_1f1b_on_the_first():
    plan = {"pipeline": 2, "micro_batches": 4}
    whole = [held["activations"] for held in small(LLAMA, **plan).summary()["memory"]]
    several = small(LLAMA, **plan, virtual_stages=2).summary()["memory"][0]["activations"]
    assert several == whole[0] * (1 + 1 / (2 * 2))
    made = small(LLAMA, **plan, schedule="zb-h1")
    head = whole[1] - 2 * layer_activations(made.costs)  # one micro-batch of last norm and logits
    split = [held["activations"] for held in made.summary()["memory"]]
    assert split == [whole[0], whole[0] + 2 * head]


@pytest.mark.parametrize("shape", [GPT, LLAMA, MIXTURE])
@pytest.mark.parametrize(
    "plan", [{}, {"tensor": 4}, {"pipeline": 4}, {"tensor": 2, "pipeline": 2, "data": 4}]
)
def test_ranks_together_hold_every_parameter(shape, plan):
    """Up to what is on several ranks: norms, biases of sums, positions, routers, tied tables."""
    tensor, pipeline = plan.get("tensor", 1), plan.get("pipeline", 1)
    made = small(shape, **plan)
    held = tensor * sum(sum(rank_parameters(made.costs, stage)) for stage in range(pipeline))
    sums = 2 * shape.hidden if shape.biases == "all" else 0
    again = shape.layers * (2 * shape.norm_parameters + shape.router_parameters + sums)
    again += shape.norm_parameters + shape.positions * shape.hidden
    tied = shape.vocabulary * shape.hidden if shape.tied and pipeline > 1 else 0
    assert held == shape.parameters + (tensor - 1) * again + tied


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        # multiply-accumulates of one image: torchvision's metadata ("_ops"), DiT's table 4
        ("vit-b16", 17.564), ("vit-l16", 61.555), ("vit-h14", 167.295),
        ("dit-s-2", 6.06), ("dit-b-2", 23.01), ("dit-l-2", 80.71), ("dit-xl-2", 118.64),
    ],
)  # fmt: skip
def test_a_forward_pass_takes_the_published_operations(name, billions):
    found = transformer_job(name, phase="inference").summary()["matrix_flops"] / 2
    assert found / 1e9 == pytest.approx(billions, rel=2e-3)


@pytest.mark.parametrize("shape", [VIT, DIT])
def test_the_backward_pass_takes_twice_the_forward_pass_but_for_the_gradients_of_inputs(shape):
    """Neither pixels nor the time step have gradients."""
    forward = small(shape, phase="inference").summary()["matrix_flops"]
    assert shape.image is not None
    inputs = 8 * shape.image.patches * shape.image.patch_numbers
    inputs += 8 * 256 if shape.norm == "adaptive" else 0
    training = small(shape).summary()["matrix_flops"]
    assert training == 3 * forward - 2 * inputs * shape.hidden


@pytest.mark.parametrize("shape", [VIT, DIT])
@pytest.mark.parametrize(
    "plan",
    [
        {"data": 2}, {"pipeline": 4, "micro_batches": 4}, {"data": 2, "zero": 3},
        {"pipeline": 2, "virtual_stages": 2, "micro_batches": 2},
        {"pipeline": 2, "schedule": "zb-h1", "micro_batches": 2}, {"tensor": 4},
    ],
)  # fmt: skip
def test_splitting_changes_no_matrix_operation(shape, plan):
    whole, split = small(shape), small(shape, **plan)
    replicated = 0
    if "tensor" in plan:  # embeddings are the same on all tensor ranks
        costs = whole.costs
        patches = costs.product(costs.products["patches"])[0]
        replicated = 3 * (2 * patches)
        if costs.condition_bytes:
            replicated += 3 * (costs.condition()[0] + costs.condition_back()[0])
    assert split.summary()["matrix_flops"] == whole.summary()["matrix_flops"] + replicated


@pytest.mark.parametrize("shape", [VIT, DIT])
@pytest.mark.parametrize("pipeline", [1, 4])
def test_stages_together_hold_every_parameter(shape, pipeline):
    costs = small(shape, pipeline=pipeline).costs
    held = sum(sum(rank_parameters(costs, stage)) for stage in range(pipeline))
    assert held == shape.parameters


def test_stages_of_a_diffusion_transformer_pass_the_condition_on():
    image = 64 * DIT.hidden * 2
    made = small(DIT, pipeline=2, micro_batches=4)
    assert sizes(made, "send") == [2 * (image + DIT.hidden * 2)] * 4
    assert sizes(small(VIT, pipeline=2), "send") == [8 * 65 * VIT.hidden * 2]


def test_tensor_ranks_gather_scales_and_shifts_and_sum_the_gradient_of_the_condition():
    made = small(DIT, tensor=2)
    vector = 8 * DIT.hidden * 2
    gathered = sizes(made, "gather_modulation")
    assert gathered == [6 * vector // 2] * DIT.layers + [2 * vector // 2]
    assert sizes(made, "sum_modulation") == [vector] * (DIT.layers + 1)
    assert sizes(made, "loss_max", "loss_sum") == [8 * 64 * 4]  # a squared error has no maximum
    assert sizes(small(VIT, tensor=2), "loss_max", "loss_sum") == [8 * 4] * 2


@pytest.mark.parametrize(
    ("shape", "settings", "sentence"),
    [
        (VIT, {"phase": "decode"}, "has no KV cache for decode; the phases are training and"),
        (DIT, {"sequence": 128}, "an image has 64 tokens, not 128; leave sequence out"),
        (VIT, {"causal": "half"}, "attention of images is not causal"),
        (VIT, {"context": 2}, "65 tokens of a sequence cannot be split evenly over 2 context"),
        (DIT, {"phase": "inference", "zero": 1}, "inference has no optimizer"),
    ],
)
def test_steps_that_images_do_not_have_are_refused(shape, settings, sentence):
    with pytest.raises(ConfigError, match=sentence):
        small(shape, **settings)
