"""Vision and diffusion transformers: published operations, splits, memory, refusals."""

from typing import Any

import pytest
from symbolic_jobs import DIT, LLAMA, VIT, sizes, small

from layerdag.errors import ConfigError
from layerdag.workloads.exploration import read_study
from layerdag.workloads.exploration._points import points_of
from layerdag.workloads.symbolic import ModelShape, job
from layerdag.workloads.symbolic.costs import condition, condition_back, rank_parameters


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        # multiply-accumulates of one image: torchvision's metadata ("_ops"), DiT's table 4
        ("vit-b16", 17.564), ("vit-l16", 61.555), ("vit-h14", 167.295),
        ("dit-s-2", 6.06), ("dit-b-2", 23.01), ("dit-l-2", 80.71), ("dit-xl-2", 118.64),
    ],
)  # fmt: skip
def test_a_forward_pass_takes_the_published_operations(name: str, billions: float) -> None:
    found = job(name, phase="inference").summary()["matrix_flops"] / 2
    assert found / 1e9 == pytest.approx(billions, rel=2e-3)


@pytest.mark.parametrize("shape", [VIT, DIT])
def test_the_backward_pass_takes_twice_the_forward_pass_but_for_the_gradients_of_inputs(
    shape: ModelShape,
) -> None:
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
def test_splitting_changes_no_matrix_operation(shape: ModelShape, plan: dict[str, Any]) -> None:
    whole, split = small(shape), small(shape, **plan)
    replicated = 0
    if "tensor" in plan:  # embeddings are the same on all tensor ranks
        costs = whole.costs
        patches = costs.linear(costs.patches, costs.own_patches)[0]
        replicated = 3 * (2 * patches)
        if costs.condition_bytes:
            replicated += 3 * (condition(costs)[0] + condition_back(costs)[0])
    assert split.summary()["matrix_flops"] == whole.summary()["matrix_flops"] + replicated


@pytest.mark.parametrize("shape", [VIT, DIT])
@pytest.mark.parametrize("pipeline", [1, 4])
def test_stages_together_hold_every_parameter(shape: ModelShape, pipeline: int) -> None:
    costs = small(shape, pipeline=pipeline).costs
    held = sum(sum(rank_parameters(costs, stage)) for stage in range(pipeline))
    assert held == shape.parameters


def test_stages_of_a_diffusion_transformer_pass_the_condition_on() -> None:
    image = 64 * DIT.hidden * 2
    made = small(DIT, pipeline=2, micro_batches=4)
    assert sizes(made, "send") == [2 * (image + DIT.hidden * 2)] * 4
    assert sizes(small(VIT, pipeline=2), "send") == [8 * 65 * VIT.hidden * 2]


def test_tensor_ranks_gather_scales_and_shifts_and_sum_the_gradient_of_the_condition() -> None:
    made = small(DIT, tensor=2)
    vector = 8 * DIT.hidden * 2
    gathered = sizes(made, "gather_modulation")
    assert gathered == [6 * vector // 2] * DIT.layers + [2 * vector // 2]
    assert sizes(made, "sum_modulation") == [vector] * (DIT.layers + 1)
    assert sizes(made, "loss_max", "loss_sum") == [8 * 64 * 4]  # a squared error has no maximum
    assert sizes(small(VIT, tensor=2), "loss_max", "loss_sum") == [8 * 4] * 2


def test_inference_has_no_cache_and_no_gradients() -> None:
    for shape in (VIT, DIT, LLAMA):
        held = small(shape, phase="inference").summary()["memory"][0]
        assert (held["kv_cache"], held["gradients"], held["optimizer"]) == (0, 0, 0)


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
def test_steps_that_images_do_not_have_are_refused(
    shape: ModelShape, settings: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ConfigError, match=sentence):
        small(shape, **settings)


def test_a_study_names_models_of_images_and_schedules() -> None:
    network = [{"topology": "Ring", "ranks": 4, "gb_per_s": 100.0}]
    study = read_study({
        "model": ["dit-xl-2", "vit-b16"],
        "step": {"batch": 8},
        "plans": {"pipeline": 2, "micro_batches": 2, "virtual_stages": [1, 2],
                  "schedule": ["1f1b", "zb-h1"]},
        "clusters": {"one": {"device": "h100", "network": network}},
    })  # fmt: skip
    found = points_of(study)
    assert {point.job.step.sequence for point in found.possible} == {256, 197}
    assert len(found.possible) == 2 * 3
    (reason,) = found.left_out
    assert "zb-h1 has one virtual stage only" in reason
