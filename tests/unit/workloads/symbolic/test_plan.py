"""Plans and steps that cannot be, each with a sentence."""

from typing import Any

import pytest
from symbolic_jobs import LLAMA, MIXTURE, small

import layerdag as ld
from layerdag.errors import UsageError
from layerdag.workloads.symbolic import ModelShape, job


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
        (LLAMA, {"precision": "bf17"}, "no precision 'bf17'. Did you mean 'bf16'"),
        (LLAMA, {"phase": "decode", "context": 2}, "one token a sequence, which cannot be split"),
        (LLAMA, {"phase": "prefill", "zero": 1}, "prefill has no optimizer"),
        (LLAMA, {"tensr": 2}, "no setting 'tensr'. Did you mean 'tensor'"),
    ],
)
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
