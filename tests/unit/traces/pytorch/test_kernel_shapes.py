"""Sizes of kernels from the shapes of tensors."""

import math

import pytest
import torch
from hypothesis import given, strategies as st
from torch.nn import functional

from layerdag.hardware.operators import kernel_sizes
from layerdag.traces.pytorch.kernel_shapes import shown_results
from layerdag.traces.pytorch.operators import TensorView


def tensors(*shapes: tuple[int, ...]) -> list[TensorView]:
    sizes = [4 * math.prod(shape) for shape in shapes]
    pairs = zip(shapes, sizes, strict=True)
    return [TensorView(0, 0, size, size, shape, "float32", "cuda") for shape, size in pairs]


@pytest.mark.parametrize(
    ("name", "reads", "writes", "sizes"),
    [
        ("aten::mm", [(2, 3), (3, 5)], [(2, 5)], (1, 2, 5, 3)),
        ("aten::addmm", [(5,), (2, 3), (3, 5)], [(2, 5)], (1, 2, 5, 3)),
        ("aten::bmm", [(7, 2, 3), (7, 3, 5)], [(7, 2, 5)], (7, 2, 5, 3)),
        ("aten::_grouped_mm", [(40, 3), (4, 3, 5), (4,)], [(40, 5)], (4, 10, 5, 3)),
        ("aten::convolution", [(2, 6, 8, 8), (9, 2, 3, 3)], [(2, 9, 8, 8)], (3, 128, 3, 18)),
        (
            "aten::convolution_backward",
            [(2, 9, 8, 8), (2, 6, 8, 8), (9, 2, 3, 3)],
            [(2, 6, 8, 8), (9, 2, 3, 3)],
            (3, 128, 3, 18),
        ),
    ],
)
def test_products_have_a_batch_of_m_by_k_by_n(name, reads, writes, sizes):
    found = kernel_sizes(name, tensors(*reads), tensors(*writes))
    assert tuple(found[axis] for axis in ("batch", "m", "n", "k")) == sizes


@given(
    side=st.integers(5, 40), kernel=st.integers(1, 5), stride=st.integers(1, 3),
    padding=st.integers(0, 2), groups=st.sampled_from([1, 3]), cudnn=st.booleans(),
)  # fmt: skip
def test_convolutions_of_a_profile_have_pytorch_s_shapes(
    side, kernel, stride, padding, groups, cudnn
):
    image, weight = (2, 6, side, side + 3), (9, 6 // groups, kernel, kernel)
    made = functional.conv2d(
        *(torch.empty(shape, device="meta") for shape in (image, weight)),
        stride=stride, padding=padding, groups=groups,
    )  # fmt: skip
    one, other = f"[{stride}, {stride}]", f"[{padding}, {padding}]"
    texts = ["", "", other, one, "[1, 1]", f"{groups}", "False", "False", "False"]
    if not cudnn:
        texts = ["", "", "", one, other, "[1, 1]", "False", "[0, 0]", f"{groups}"]
    name = "aten::cudnn_convolution" if cudnn else "aten::convolution"
    (found,) = shown_results(name, {"Concrete Inputs": texts}, tensors(image, weight))
    assert (found.shape, found.num_bytes) == (made.shape, 4 * made.numel())


@pytest.mark.parametrize(
    "texts",
    [
        None,
        ["", "", "", "[1, 1]", "[0, 0]", "[9, 9]", "False"],
        [""] * 3,
        [""] * 9,
        ["", "", "", "[2]", "[0]", "[1]", ""],
    ],
)
def test_results_that_do_not_follow_from_a_profile_are_unknown(texts):
    reads = tensors((2, 6, 8, 8), (9, 6, 3, 3))
    assert shown_results("aten::convolution", {"Concrete Inputs": texts}, reads) == []
    assert shown_results("aten::relu", {}, reads) == []


def test_products_of_a_profile_have_results():
    (found,) = shown_results("aten::addmm", {}, tensors((5,), (2, 3), (3, 5)))
    assert found.num_bytes == 4 * 10


def test_attention_rows_and_what_is_not_known():
    query, key = (2, 8, 16, 64), (2, 4, 32, 64)
    backward = "aten::_scaled_dot_product_flash_attention_backward"
    found = kernel_sizes(backward, tensors(query, query, key, key), [])
    assert found == {
        "batch": 2, "heads": 8, "kv_heads": 4, "sequence": 16, "kv_sequence": 32, "head_dim": 64,
    }  # fmt: skip
    embedded = kernel_sizes("aten::embedding", tensors((100, 8), (3, 4)), tensors((3, 4, 8)))
    assert embedded == {"m": 12, "n": 8}
    assert kernel_sizes("aten::relu", tensors((4, 4)), tensors((4, 4))) == {}
    assert kernel_sizes("aten::mm", tensors((0, 3), (3, 5)), tensors((0, 5))) == {}
