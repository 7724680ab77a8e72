"""What stands before and after the layers: embeddings, output layer, loss, next token."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from symbolic_jobs import DIT, GPT, LLAMA, MIXTURE, VIT, small
from written_programs import costs, messages, needs, roles

from layerdag.traces.trace import Trace
from layerdag.workloads.transformer.costs import rank_parameters
from layerdag.workloads.transformer.job import SymbolicJob
from layerdag.workloads.transformer.shapes import ModelShape

TOKENS = 8 * 128
STREAM = TOKENS * 256 * 2


def program(shape: ModelShape = GPT, **settings: Any) -> Trace:
    """Return the program of the one stage of a model of one layer, 512 words, 256 wide."""
    return small(replace(shape, layers=1), **settings).stages[0]


def before(trace: Trace) -> list[str]:
    names = trace.names()
    return names[: next(place for place, name in enumerate(names) if ".0.F0" in name)]


def after(trace: Trace, last: str = "mm.down.0.F0") -> list[str]:
    """The nodes of the forward pass behind the layer."""
    names = trace.names()
    rest = names[names.index(last) + 1 :]
    return [name for name in rest if name.endswith(".F0")]


def test_tokens_are_looked_up_and_summed_over_ranks_that_share_the_table():
    assert before(program()) == ["embedding.F0"]
    assert costs(program())["embedding.F0"] == (TOKENS * 256, 2 * TOKENS * 256 * 2)
    split = program(tensor=2)
    assert before(split) == ["embedding.F0", "sum.embedding.F0"]
    assert messages(split)["sum.embedding.F0"] == STREAM


def test_patches_are_multiplied_and_not_summed_and_have_no_gradient():
    """64 patches of 8 x 8 pixels of three channels; the class token is none of them."""
    trace = program(VIT)
    assert before(trace) == ["mm.patches.F0"]
    assert costs(trace)["mm.patches.F0"][0] == 2 * (8 * 64) * 192 * 256
    assert "sum.embedding.F0" not in messages(program(VIT, tensor=2))
    assert not {"mm.patches.B0.dx", "mm.condition.B0.dx"} & set(program(DIT).names())
    assert "mm.patches.B0.dw" in program(VIT).names()


def test_a_diffusion_transformer_embeds_time_step_and_label_first():
    trace = program(DIT)
    assert before(trace)[:2] == ["mm.condition.F0", "mm.patches.F0"]
    assert costs(trace)["mm.condition.F0"][0] == 2 * 8 * (256 * 256 + 256 * 256)
    # Both weights have gradients, the input of the second layer only.
    assert costs(trace)["mm.condition.B0.dw"][0] == 2 * 8 * 3 * 256 * 256


def test_one_rank_ends_with_norm_output_layer_and_loss():
    trace = program()
    assert after(trace) == ["norm.F0", "mm.logits.F0", "loss.F0"]
    of = costs(trace)
    assert of["mm.logits.F0"][0] == 2 * TOKENS * 256 * 512
    assert of["loss.F0"] == (5 * TOKENS * 512, 2 * TOKENS * 512 * 2)


def test_a_split_vocabulary_takes_three_sums_of_a_number_for_each_token():
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


def test_split_tokens_are_gathered_for_the_output_layer_and_for_its_gradient():
    trace = program(tensor=2, sequence_parallel=True)
    sizes = messages(trace)
    assert sizes["gather.head.F0"] == sizes["gather_again.head.B0"] == STREAM // 2
    assert needs(trace, "mm.logits.F0") == {"gather.head.F0"}
    assert needs(trace, "mm.logits.B0.dw") == {"loss.B0", "gather_again.head.B0"}
    assert needs(trace, "mm.logits.B0.dx") == {"loss.B0"}


def test_the_backward_pass_begins_with_the_loss_and_sums_the_last_norm():
    trace = program(tensor=2)
    assert messages(trace)["sum_dx.head.B0"] == STREAM
    assert needs(trace, "norm.B0") == {"sum_dx.head.B0"}
    assert needs(program(), "norm.B0") == {"mm.logits.B0.dx"}
    assert needs(program(), "loss.B0") == {"loss.F0"}
    assert needs(program(tensor=2), "loss.B0") == {"loss_sum.F0"}


@pytest.mark.parametrize("phase", ["prefill", "inference"])
def test_of_a_prompt_the_next_token_only_is_computed(phase):
    trace = program(phase=phase)
    assert after(trace) == ["norm.F0", "mm.logits.F0", "sample.F0"]
    assert costs(trace)["mm.logits.F0"][0] == 2 * 8 * 256 * 512  # eight sequences
    assert costs(trace)["sample.F0"] == (5 * 8 * 512, 8 * 512 * 2)


def test_ranks_that_share_the_vocabulary_gather_it_to_choose_a_token():
    """501 words are padded to 2 x 251."""
    trace = small(replace(GPT, layers=1, vocabulary=501), phase="prefill", tensor=2).stages[0]
    assert messages(trace)["gather_logits.F0"] == 8 * 251 * 2
    assert costs(trace)["sample.F0"][0] == 5 * 8 * 502


def test_images_have_classes_and_no_next_token():
    trace = program(VIT, phase="inference")
    assert after(trace) == ["norm.F0", "mm.logits.F0"]
    assert costs(trace)["mm.logits.F0"][0] == 2 * 8 * 256 * 100
    noise = program(DIT, phase="inference")
    assert costs(noise)["mm.logits.F0"][0] == 2 * (8 * 64) * 256 * 32  # of every patch


def beginning(trace: Trace, word: str) -> dict[str, int]:
    """The bytes of all messages whose names begin with a word."""
    return {name: size for name, size in messages(trace).items() if name.startswith(word)}


def layers(trace: Trace) -> set[int]:
    return {int(name.split(".")[1]) for name in trace.names() if name.startswith("norm1.")}


def test_stages_share_layers_and_ends_and_virtual_ones_take_turns():
    stages = small(GPT, pipeline=2, micro_batches=2).stages
    assert [layers(trace) for trace in stages] == [{0, 1}, {2, 3}]
    first, last = (set(trace.names()) for trace in stages)
    assert {"embedding.F0", "embedding.B0"} <= first - last
    assert {"mm.logits.F0", "loss.F0"} <= last - first
    stages = small(GPT, pipeline=2, virtual_stages=2, micro_batches=2).stages
    assert [layers(trace) for trace in stages] == [{0, 2}, {1, 3}]


def test_micro_batches_pass_once_each_way_and_take_turns_under_1f1b():
    trace = small(LLAMA, micro_batches=4).stages[0]
    passes = Counter(name.split(".")[-1] for name in trace.names() if name.startswith("norm1."))
    assert passes == {f"{way}{part}": 4 for way in "FB" for part in range(4)}
    names = small(GPT, pipeline=2, micro_batches=4).stages[0].names()
    order = [name.split(".")[-1] for name in names if name.startswith("norm1.0.")]
    assert order == ["F0", "F1", "B0", "F2", "B1", "F3", "B2", "B3"]


@pytest.mark.parametrize("pipeline", [1, 2, 4])
def test_replicas_sum_the_gradient_of_every_parameter_once(pipeline):
    made = small(LLAMA, data=2, pipeline=pipeline, micro_batches=4)
    total = sum(sum(beginning(trace, "gradients").values()) for trace in made.stages)
    assert total == 2 * LLAMA.parameters
    assert {roles(t)[name] for t in made.stages for name in beginning(t, "gradients")} == {"data"}


def test_the_optimizer_updates_every_parameter_of_the_stage():
    made = small(GPT, pipeline=2)
    for stage, trace in enumerate(made.stages):
        held = sum(rank_parameters(made.costs, stage))
        assert costs(trace)["adam"][0] == 12 * held


@pytest.mark.parametrize("zero", [1, 2, 3])
def test_under_zero_a_rank_updates_its_share(zero):
    """Rounded up bucket by bucket: six of them."""
    whole = costs(small(LLAMA, data=4).stages[0])["adam"][0] // 12
    share = costs(small(LLAMA, data=4, zero=zero).stages[0])["adam"][0] // 12
    assert 0 <= share - whole / 4 < 6


@pytest.mark.parametrize("zero", [1, 2])
def test_zero_gathers_updated_weights_behind_the_optimizer(zero):
    trace = small(LLAMA, data=4, zero=zero).stages[0]
    gathered = beginning(trace, "weights")
    assert list(gathered) == ["weights.L0", "weights.L1", "weights.L2", "weights.L3",
        "weights.embedding", "weights.head"]  # fmt: skip
    assert all(needs(trace, name) == {"adam"} for name in gathered)
    assert sum(gathered.values()) * 4 == pytest.approx(2 * LLAMA.parameters, rel=1e-4)


def test_zero_3_gathers_weights_for_each_pass_while_the_layer_before_is_computed():
    trace = small(LLAMA, data=4, zero=3).stages[0]
    gathered = Counter(name.split(".")[1] for name in beginning(trace, "weights"))
    twice = dict.fromkeys(["L0", "L1", "L2", "L3", "head"], 2)
    assert gathered == {**twice, "embedding": 1}  # tokens need no table to go backward
    assert "weights.L2.F0" in needs(trace, "norm1.2.F0")
    assert needs(trace, "weights.L2.F0") == needs(trace, "norm1.1.F0") - {"weights.L1.F0"}


@pytest.mark.parametrize(("zero", "sums"), [(0, 1), (1, 1), (2, 4), (3, 4)])
def test_ranks_that_keep_shards_of_gradients_sum_those_of_each_micro_batch(zero, sums):
    trace = small(LLAMA, data=2, micro_batches=4, zero=zero).stages[0]
    found = [name for name in beginning(trace, "gradients") if ".L1." in name]
    assert found == [f"gradients.L1.B{part}" for part in range(4 - sums, 4)]


def test_experts_are_summed_over_the_ranks_that_hold_the_same_ones():
    trace = small(MIXTURE, data=4, expert=2).stages[0]
    of = roles(trace)
    assert of["gradients.L0.B0"] == "data"
    assert of["gradients.L0.experts.B0"] == "expert_data"
    assert messages(trace)["gradients.L0.experts.B0"] == 2 * 2 * MIXTURE.expert_parameters


def test_a_tied_table_is_summed_over_both_ends_of_the_pipeline():
    """512 words of 256 numbers; with one stage there is one table only."""
    stages = small(GPT, pipeline=4, micro_batches=4).stages
    found = [beginning(trace, "gradients.tied") for trace in stages]
    assert found == [{"gradients.tied": 512 * 256 * 2}, {}, {}, {"gradients.tied": 512 * 256 * 2}]
    assert roles(stages[0])["gradients.tied"] == "embedding"
    assert beginning(small(GPT).stages[0], "gradients") == {}
    assert beginning(small(LLAMA, pipeline=2).stages[0], "gradients") == {}


def test_norms_are_summed_over_tensor_ranks_that_split_the_tokens():
    """Weight and bias of two norms per layer, and of the last one; 256 numbers each."""
    trace = small(GPT, tensor=2, sequence_parallel=True).stages[0]
    assert messages(trace)["gradients.norms"] == (2 * 4 + 1) * 2 * 256 * 2
    assert roles(trace)["gradients.norms"] == "tensor"
    assert "gradients.norms" not in messages(small(GPT, tensor=2).stages[0])
    first, last = small(GPT, tensor=2, sequence_parallel=True, pipeline=2).stages
    assert messages(first)["gradients.norms"] == 2 * 2 * 2 * 256 * 2
    assert messages(last)["gradients.norms"] == (2 * 2 + 1) * 2 * 256 * 2


def test_inference_has_no_gradients_and_no_optimizer():
    for shape, phase in ((GPT, "prefill"), (GPT, "decode"), (VIT, "inference")):
        trace = small(shape, phase=phase, data=2).stages[0]
        assert "adam" not in trace.names()
        assert messages(trace) == {}


def decode(**plan: Any) -> SymbolicJob:
    return small(LLAMA, phase="decode", tokens=3, **plan)


def test_tokens_go_from_the_last_stage_to_the_first_and_one_stage_sends_nothing():
    """Four sequences of a micro-batch, a token of eight bytes each."""
    first, last = decode(pipeline=2, micro_batches=2).stages
    assert list(beginning(last, "send_token").values()) == [4 * 8] * (2 * 2)
    assert list(beginning(first, "recv_token").values()) == [4 * 8] * (2 * 2)
    assert needs(first, "embedding.F1.T1") == {"recv_token.F1.T1"}
    (trace,) = decode().stages
    assert messages(trace) == {}
    assert needs(trace, "embedding.F0.T2") == {"sample.F0.T1"}


def test_the_cache_grows_by_the_tokens_made():
    of = costs(decode().stages[0])
    spans = [of[f"attention.0.F0.T{token}"][0] // (4 * 8 * 256) for token in range(3)]
    assert spans == [128 + 1, 128 + 2, 128 + 3]
