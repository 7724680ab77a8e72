"""Sizes of kernels from the shapes of tensors."""

import pytest

from layerdag.traces.pytorch.kernel_shapes import kernel_sizes
from layerdag.traces.pytorch.operators import TensorView


def tensors(*shapes: tuple[int, ...]) -> list[TensorView]:
    return [TensorView(0, 0, 0, 0, shape, "float32", "cuda") for shape in shapes]


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
