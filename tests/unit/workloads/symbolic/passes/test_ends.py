"""What stands before and after the layers: embeddings, output layer, loss, next token."""

from dataclasses import replace
from typing import Any

import pytest
from symbolic_jobs import DIT, GPT, VIT, small
from written_programs import costs, messages, needs

from layerdag.traces import Trace
from layerdag.workloads.symbolic import ModelShape

TOKENS = 8 * 128
STREAM = TOKENS * 256 * 2


def program(shape: ModelShape = GPT, **settings: Any) -> Trace:
    """Return the program of the one stage of a model of one layer, 512 words, 256 wide."""
    return small(replace(shape, layers=1), **settings).stages[0]


def before(trace: Trace) -> list[str]:
    """The nodes before the layer."""
    names = trace.names()
    return names[: next(place for place, name in enumerate(names) if ".0.F0" in name)]


def after(trace: Trace, last: str = "mm.down.0.F0") -> list[str]:
    """The nodes of the forward pass behind the layer."""
    names = trace.names()
    rest = names[names.index(last) + 1 :]
    return [name for name in rest if name.endswith(".F0")]


# ---- before ----


def test_tokens_are_looked_up_and_summed_over_ranks_that_share_the_table() -> None:
    assert before(program()) == ["embedding.F0"]
    assert costs(program())["embedding.F0"] == (TOKENS * 256, 2 * TOKENS * 256 * 2)
    split = program(tensor=2)
    assert before(split) == ["embedding.F0", "sum.embedding.F0"]
    assert messages(split)["sum.embedding.F0"] == STREAM


def test_patches_are_multiplied_and_not_summed() -> None:
    """64 patches of 8 x 8 pixels of three channels; the class token is none of them."""
    trace = program(VIT)
    assert before(trace) == ["mm.patches.F0"]
    assert costs(trace)["mm.patches.F0"][0] == 2 * (8 * 64) * 192 * 256
    assert "sum.embedding.F0" not in messages(program(VIT, tensor=2))


def test_a_diffusion_transformer_embeds_time_step_and_label_first() -> None:
    trace = program(DIT)
    assert before(trace)[:2] == ["mm.condition.F0", "mm.patches.F0"]
    assert costs(trace)["mm.condition.F0"][0] == 2 * 8 * (256 * 256 + 256 * 256)
    # Both weights have gradients, the input of the second layer only.
    assert costs(trace)["mm.condition.B0.dw"][0] == 2 * 8 * 3 * 256 * 256


def test_pixels_and_tokens_have_no_gradient() -> None:
    assert not {"mm.patches.B0.dx", "mm.condition.B0.dx"} & set(program(DIT).names())
    assert "mm.patches.B0.dw" in program(VIT).names()


# ---- after ----


def test_one_rank_ends_with_norm_output_layer_and_loss() -> None:
    trace = program()
    assert after(trace) == ["norm.F0", "mm.logits.F0", "loss.F0"]
    of = costs(trace)
    assert of["mm.logits.F0"][0] == 2 * TOKENS * 256 * 512
    assert of["loss.F0"] == (5 * TOKENS * 512, 2 * TOKENS * 512 * 2)


def test_a_split_vocabulary_takes_three_sums_of_a_number_for_each_token() -> None:
    trace = program(tensor=4)
    expected = [
        "norm.F0",
        "mm.logits.F0",
        "loss_max.F0",
        "loss_target.F0",
        "loss.F0",
        "loss_sum.F0",
    ]
    assert after(trace, "sum2.0.F0") == expected
    sums = [size for name, size in messages(trace).items() if name.startswith("loss_")]
    assert sums == [TOKENS * 4] * 3
    assert costs(trace)["loss.F0"][0] == 5 * TOKENS * 512 // 4


def test_split_tokens_are_gathered_for_the_output_layer_and_for_its_gradient() -> None:
    trace = program(tensor=2, sequence_parallel=True)
    sizes = messages(trace)
    assert sizes["gather.head.F0"] == sizes["gather_again.head.B0"] == STREAM // 2
    assert needs(trace, "mm.logits.F0") == {"gather.head.F0"}
    assert needs(trace, "mm.logits.B0.dw") == {"loss.B0", "gather_again.head.B0"}
    assert needs(trace, "mm.logits.B0.dx") == {"loss.B0"}


def test_the_gradient_of_the_last_norm_is_a_sum_over_the_vocabulary() -> None:
    trace = program(tensor=2)
    assert messages(trace)["sum_dx.head.B0"] == STREAM
    assert needs(trace, "norm.B0") == {"sum_dx.head.B0"}
    assert needs(program(), "norm.B0") == {"mm.logits.B0.dx"}


def test_the_backward_pass_begins_when_the_loss_is_there() -> None:
    assert needs(program(), "loss.B0") == {"loss.F0"}
    assert needs(program(tensor=2), "loss.B0") == {"loss_sum.F0"}


# ---- inference ----


@pytest.mark.parametrize("phase", ["prefill", "inference"])
def test_of_a_prompt_the_next_token_only_is_computed(phase: str) -> None:
    trace = program(phase=phase)
    assert after(trace) == ["norm.F0", "mm.logits.F0", "sample.F0"]
    assert costs(trace)["mm.logits.F0"][0] == 2 * 8 * 256 * 512  # eight sequences
    assert costs(trace)["sample.F0"] == (5 * 8 * 512, 8 * 512 * 2)


def test_ranks_that_share_the_vocabulary_gather_it_to_choose_a_token() -> None:
    """501 words are padded to 2 x 251."""
    trace = small(replace(GPT, layers=1, vocabulary=501), phase="prefill", tensor=2).stages[0]
    assert messages(trace)["gather_logits.F0"] == 8 * 251 * 2
    assert costs(trace)["sample.F0"][0] == 5 * 8 * 502


def test_images_have_classes_and_no_next_token() -> None:
    trace = program(VIT, phase="inference")
    assert after(trace) == ["norm.F0", "mm.logits.F0"]
    assert costs(trace)["mm.logits.F0"][0] == 2 * 8 * 256 * 100
    noise = program(DIT, phase="inference")
    assert costs(noise)["mm.logits.F0"][0] == 2 * (8 * 64) * 256 * 32  # of every patch
