"""STAGE's flags and what it cannot do."""

import pytest

from layerdag.errors import ConfigError
from layerdag.workloads.stage import StageFlags


def test_the_defaults_are_those_of_stage() -> None:
    flags = StageFlags()
    assert (flags.num_stacks, flags.dmodel, flags.dff, flags.head) == (80, 8192, 28672, 64)
    assert flags.micro_batches == 1
    assert flags.ranks == 1


def test_only_mixtures_have_expert_ranks() -> None:
    assert StageFlags(tp=2, ep=4).degrees == {"dp": 1, "tp": 8, "cp": 1}
    mixture = StageFlags(model_type="moe", tp=2, ep=4)
    assert mixture.degrees == {"dp": 1, "tp": 2, "cp": 1, "ep": 4}


@pytest.mark.parametrize(
    ("model", "mixed", "gated"),
    [
        ("llama", False, False),  # STAGE builds the gpt graph then
        ("llama", True, True),
        ("dense", True, True),
        ("gpt", True, False),
        ("moe", True, False),
    ],
)
def test_mixed_precision_chooses_the_gated_model(model: str, mixed: bool, gated: bool) -> None:
    assert StageFlags(model_type=model, mixed_precision=mixed).is_gated is gated


def test_early_stages_take_the_remainder_and_the_output_may_lie_elsewhere() -> None:
    flags = StageFlags(num_stacks=6, pp=4)
    assert flags.stage_of_layer == (0, 0, 1, 1, 2, 3)
    assert flags.stage_of_output == 1
    assert StageFlags(num_stacks=6, pp=4, mixed_precision=True).stage_of_output == 3


def test_the_output_alone_may_be_a_stage() -> None:
    assert StageFlags(num_stacks=3, pp=4, mixed_precision=True).stage_of_layer == (0, 1, 2)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"model_type": "gtp"}, "none of STAGE's: dense, gpt, llama, moe"),
        ({"dp": 0}, "--dp 0 must be at least 1"),
        ({"micro_batch": 0}, "--micro_batch 0 must be at least 1"),
        ({"batch": 8, "micro_batch": 3}, "cannot be cut into micro-batches of 3"),
        ({"model_type": "moe", "tpsp": False}, "moe needs --tpsp true"),
        ({"model_type": "moe", "ep": 3}, "--experts 8 cannot be spread evenly over --ep 3"),
        ({"num_stacks": 3, "pp": 4}, "leaves stage 3 without a layer"),
        ({"num_stacks": 2, "pp": 4, "mixed_precision": True}, "leaves stage 2 without a layer"),
    ],
)
def test_what_stage_cannot_do_is_told(settings: dict[str, object], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        StageFlags(**settings)
