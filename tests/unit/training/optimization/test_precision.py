import pytest
import torch

from layerdag.training.optimization._precision import has_bfloat16, matrix_precision

CPU = torch.device("cpu")


def product_type(precision: str) -> torch.dtype:
    with matrix_precision(precision, CPU):
        return torch.nn.functional.linear(torch.ones(2, 3), torch.ones(4, 3)).dtype


def test_a_named_precision_is_that_of_matrix_products():
    assert product_type("float32") == torch.float32
    assert product_type("bfloat16") == torch.bfloat16


@pytest.mark.parametrize(
    ("capabilities", "expected"),
    [
        ({"avx512_bf16": True}, torch.bfloat16),
        ({"amx_bf16": True, "avx512_bf16": False}, torch.bfloat16),
        ({"avx512_f": True, "avx512_bf16": False}, torch.float32),
        ({}, torch.float32),
    ],
)
def test_auto_takes_bfloat16_where_the_processor_has_instructions_for_it(
    monkeypatch: pytest.MonkeyPatch, capabilities: dict[str, bool], expected: torch.dtype
):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities, raising=False)
    assert product_type("auto") == expected


def test_a_torch_that_cannot_tell_gets_single_precision(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delattr(torch.cpu, "get_capabilities", raising=False)
    assert not has_bfloat16(CPU)


@pytest.mark.parametrize("supported", [True, False])
def test_a_gpu_is_asked_whether_it_really_has_bfloat16(
    monkeypatch: pytest.MonkeyPatch, supported: bool
):
    asked = []

    def is_supported(including_emulation: bool) -> bool:
        asked.append(including_emulation)
        return supported

    monkeypatch.setattr(torch.cuda, "is_bf16_supported", is_supported)
    assert has_bfloat16(torch.device("cuda")) is supported
    assert asked == [False]
