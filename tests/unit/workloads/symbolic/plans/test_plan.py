"""Plans and steps that cannot be, each with a sentence."""

from typing import Any

import pytest
from symbolic_jobs import GPT, LLAMA, MIXTURE, small

import layerdag as ld
from layerdag.errors import ConfigError, UsageError
from layerdag.workloads.symbolic import PRECISIONS, ModelShape, Plan, Step, job
from layerdag.workloads.symbolic.plans._plan import (
    Attention,
    Causal,
    Phase,
    Recompute,
    Schedule,
    _known,
)


@pytest.mark.parametrize(
    ("shape", "settings", "sentence"),
    [
        (LLAMA, {"tensor": 0}, "tensor is 0; it must be a whole number, at least 1"),
        (LLAMA, {"tensor": 3}, "8 query heads cannot be split evenly over 3 tensor ranks"),
        (LLAMA, {"tensor": 8}, "4 key heads cannot be split evenly over 8 tensor ranks"),
        (LLAMA, {"data": 3}, "8 sequences cannot be split evenly over 3 data ranks"),
        (LLAMA, {"micro_batches": 3}, "8 sequences cannot be split"),
        (LLAMA, {"context": 3}, "128 tokens of a sequence cannot be split evenly over 3"),
        (LLAMA, {"pipeline": 5}, "4 layers do not fill 5 pipeline stages"),
        (LLAMA, {"data": 2, "expert": 2}, "has no experts to be split"),
        (MIXTURE, {"data": 2, "expert": 4}, "4 expert ranks do not divide data x context = 2"),
        (LLAMA, {"zero": 4}, "ZeRO stages are 0"),
        (LLAMA, {"zero": True}, "zero is True; ZeRO stages are 0"),
        (LLAMA, {"data": True}, "data is True; it must be a whole number"),
        (LLAMA, {"batch": 0}, "batch is 0; it must be a whole number, at least 1"),
        (LLAMA, {"tokens": -1}, "tokens is -1; it must be a whole number"),
        (MIXTURE, {"data": 8, "expert": 8}, "4 experts cannot be split evenly over 8 expert ranks"),
        (GPT, {"tensor": 8, "sequence": 100, "sequence_parallel": True},
         "100 tokens of a sequence cannot be split evenly over 8 context ranks"),
        (LLAMA, {"phase": "inference", "recompute": "full"}, "inference has no optimizer and no"),
        (LLAMA, {"phase": "decode", "tensor": 2, "sequence_parallel": True},
         "leave context and sequence_parallel out"),
        (LLAMA, {"precision": "bf17"}, "no precision 'bf17'. Did you mean 'bf16'"),
        (LLAMA, {"phase": "decode", "context": 2}, "one token a sequence, which cannot be split"),
        (LLAMA, {"phase": "prefill", "zero": 1}, "prefill has no optimizer"),
        (LLAMA, {"tensr": 2}, "no setting 'tensr'. Did you mean 'tensor'"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(
    shape: ModelShape, settings: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(UsageError, match=sentence):
        small(shape, **settings)


def test_the_front_door_makes_a_workload() -> None:
    workload = ld.workload(LLAMA, tensor=2, data=2, batch=4, sequence=64)
    assert workload.num_ranks == 4
    assert ld.workload("gpt2", sequence=128).num_ranks == 1


def test_a_micro_batch_has_one_sequence_unless_told_otherwise() -> None:
    made = job(LLAMA, data=2, micro_batches=3, sequence=64)
    assert (made.step.batch, made.tokens) == (6, 6 * 64)


def test_the_ranks_of_a_plan_are_the_product_of_its_degrees_but_for_experts() -> None:
    plan = Plan(data=4, tensor=2, pipeline=3, context=5, expert=10)
    assert plan.ranks == 4 * 2 * 3 * 5
    assert plan.replicas == 4 * 5  # contexts hold the same weights as well
    assert plan.expert_replicas == 20 // 10


def test_only_the_zero_bubble_schedule_splits_the_backward_pass() -> None:
    splits = {
        name: Plan(pipeline=2, schedule=name, virtual_stages=virtual).splits_backward
        for name, virtual in (("1f1b", 1), ("interleaved", 2), ("gpipe", 1), ("zb-h1", 1))
    }
    assert splits == {"1f1b": False, "interleaved": False, "gpipe": False, "zb-h1": True}


def test_every_precision_of_two_bytes_keeps_a_copy_of_four_and_both_moments() -> None:
    """ZeRO's 16 bytes per parameter; 18 with gradients of four bytes."""
    held = {name: p.weights + p.gradients + p.optimizer for name, p in PRECISIONS.items()}
    assert held == {"bf16": 16, "fp16": 16, "bf16-fp32-gradients": 18, "fp32": 16}
    assert Step(precision="fp32").numbers is PRECISIONS["fp32"]


@pytest.mark.parametrize("phase", ["training", "prefill", "decode", "inference"])
def test_only_training_trains(phase: Any) -> None:
    assert Step(phase=phase).training is (phase == "training")


@pytest.mark.parametrize(
    ("where", "name", "word", "words", "nearest"),
    [
        ("step", "phase", "trainin", Phase, "training"),
        ("step", "causal", "hal", Causal, "half"),
        ("plan", "schedule", "1f1", Schedule, "1f1b"),
        ("plan", "recompute", "ful", Recompute, "full"),
        ("plan", "attention", "flsh", Attention, "flash"),
    ],
)
def test_an_unknown_word_is_told_with_the_nearest_one_and_all_that_are_known(
    where: str, name: str, word: str, words: Any, nearest: str
) -> None:
    """Plans of the command line hold words of any kind, which types do not refuse there."""
    sentence = rf"{where}: {name} is '{word}'\. Did you mean '{nearest}'\? Known: .*{nearest}"
    with pytest.raises(ConfigError, match=sentence):
        _known(where, name, word, words)
    _known(where, name, nearest, words)
