"""Memory of a rank against published formulas."""

import pytest
from symbolic_jobs import GPT, LLAMA, MIXTURE, small

from layerdag.workloads.symbolic import ModelShape, job
from layerdag.workloads.symbolic.costs import layer_activations, rank_memory, rank_parameters

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
def test_states_of_a_trillion_parameters_under_zero(
    tensor: int, pipeline: int, data: int, gibibytes: tuple[float, ...]
) -> None:
    for zero, expected in enumerate(gibibytes):
        made = job(
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
def test_activations_of_a_layer_are_those_of_korthikanti(plan, factor) -> None:
    """Table 2 of Korthikanti et al. 2022, in units of sbh bytes."""
    made = small(GPT, attention="unfused", **plan)
    s, h, a = 128, GPT.hidden, GPT.heads
    expected = 8 * s * h * factor(s, h, a, plan.get("tensor", 1))
    assert layer_activations(made.costs) == expected


def test_full_recompute_keeps_the_input_of_each_layer() -> None:
    made = small(LLAMA, recompute="full", micro_batches=4, pipeline=2)
    stream = 2 * 128 * LLAMA.hidden * 2
    held = made.summary()["memory"][0]["activations"]
    assert held == 2 * 2 * stream + layer_activations(made.costs)  # 2 layers, 2 in flight


def test_1f1b_keeps_fewer_micro_batches_than_gpipe() -> None:
    flying = {"1f1b": (4, 3, 2, 1), "gpipe": (8, 8, 8, 8)}
    for schedule, counts in flying.items():
        made = small(LLAMA, pipeline=4, micro_batches=8, schedule=schedule)
        for stage, count in enumerate(counts[:3]):
            held = made.summary()["memory"][stage]["activations"]
            assert held == count * layer_activations(made.costs)


def test_virtual_stages_keep_more_and_zb_h1_on_no_stage_more_than_1f1b_on_the_first() -> None:
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
def test_ranks_together_hold_every_parameter(shape: ModelShape, plan: dict[str, int]) -> None:
    """Up to what is on several ranks: norms, biases of sums, positions, routers, tied tables."""
    tensor, pipeline = plan.get("tensor", 1), plan.get("pipeline", 1)
    made = small(shape, **plan)
    held = tensor * sum(sum(rank_parameters(made.costs, stage)) for stage in range(pipeline))
    sums = 2 * shape.hidden if shape.biases == "all" else 0
    again = shape.layers * (2 * shape.norm_parameters + shape.router_parameters + sums)
    again += shape.norm_parameters + shape.positions * shape.hidden
    tied = shape.vocabulary * shape.hidden if shape.tied and pipeline > 1 else 0
    assert held == shape.parameters + (tensor - 1) * again + tied
