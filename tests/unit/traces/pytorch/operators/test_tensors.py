"""Views of tensors as operators see them."""

import pytest
from hypothesis import given, strategies as st
from laws import tried

from layerdag.traces.pytorch.operators import DTYPES, UNKNOWN_DTYPE, BlockTensors, TensorView
from tests.unit.traces.host_json import MM, host_blocks, node, tensor


def view(shape: tuple[int, ...], dtype: str = "float32") -> TensorView:
    return TensorView(1, 0, 4, 4, shape, dtype, "cpu")


def held(argument: dict) -> TensorView:
    (block,) = host_blocks(node(3, "aten::mm", MM, (argument,)))
    return BlockTensors(block).view(0)


@pytest.mark.parametrize(("shape", "count"), [((), 1), ((3,), 3), ((2, 3, 4), 24), ((2, 0), 0)])
def test_elements_are_the_product_of_the_sizes(shape, count):
    assert view(shape).num_elements == count


@pytest.mark.parametrize(
    ("shape", "dtype", "expected"),
    [
        ((), "float64", True),
        ((), "int64", True),
        ((), "bool", True),
        ((), "complex128", True),
        ((), "float32", False),  # a Python number becomes a double
        ((1,), "float64", False),
    ],
)
def test_only_a_tensor_without_shape_of_a_type_of_numbers_may_be_a_number(shape, dtype, expected):
    assert view(shape, dtype).is_number is expected


@pytest.mark.parametrize("word", sorted(DTYPES))
def test_c_types_have_the_public_name_that_torch_gives_them(word):
    import torch

    assert held(tensor(1) | {"type": f"Tensor({word})"}).dtype == DTYPES[word]
    assert isinstance(getattr(torch, DTYPES[word]), torch.dtype)


@pytest.mark.parametrize(
    "kind", ["Tensor(c10::QInt8)", "Tensor()", "Tensor(nullptr (uninitialized))"]
)
def test_other_types_are_unknown(kind):
    assert held(tensor(1) | {"type": kind}).dtype == UNKNOWN_DTYPE


@tried(25)
@given(st.lists(st.integers(1, 5), max_size=4), st.integers(0, 7))
def test_a_contiguous_tensor_reaches_over_all_its_elements(shape, offset):
    found = held(tensor(9, tuple(shape), offset=offset))
    count = 1
    for size in shape:
        count *= size
    assert found.shape == tuple(shape)
    assert (found.begin, found.end) == (4 * offset, 4 * (offset + count))
    assert (found.num_bytes, found.num_elements) == (4 * count, count)


def test_tensors_of_one_block_keep_their_order_and_their_shapes_apart():
    arguments = (tensor(1, (2,)), tensor(2, (3, 4)), tensor(3, ()))
    (block,) = host_blocks(node(3, "aten::mm", MM, arguments, (tensor(4, (5,)),)))
    tensors = BlockTensors(block)
    assert [tensors.view(at).shape for at in range(4)] == [(2,), (3, 4), (), (5,)]
    assert tensors.storage == [1, 2, 3, 4]
    assert tensors.position == [0, 1, 2, 0]
