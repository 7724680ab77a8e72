import pytest

from layerdag.traces.pytorch.operators import TensorView, operation_count


def access(*shape: int) -> TensorView:
    return TensorView(1, 0, 4, 4, shape, "float32", "cpu")


@pytest.mark.parametrize(
    ("name", "reads", "writes", "expected"),
    [
        ("aten::mm", [(3, 5), (5, 7)], [(3, 7)], 2 * 3 * 5 * 7),
        ("aten::addmm", [(7,), (3, 5), (5, 7)], [(3, 7)], 2 * 3 * 5 * 7),
        ("aten::bmm", [(2, 3, 5), (2, 5, 7)], [(2, 3, 7)], 2 * 2 * 3 * 5 * 7),
        ("aten::convolution", [(1, 3, 8, 8), (4, 3, 3, 3)], [(1, 4, 6, 6)], 2 * 4 * 36 * 27),
        ("aten::add", [(3, 5), (5,)], [(3, 5)], 15),
        ("aten::sum", [(3, 5)], [()], 15),
        ("aten::_foreach_add_", [(3,), (4,)], [(3,), (4,)], 7),
        ("aten::mm", [(3, 5)], [(3, 7)], 21),
    ],
)
def test_counts(name, reads, writes, expected):
    got = operation_count(name, [access(*s) for s in reads], [access(*s) for s in writes])
    assert got == expected


def test_products_agree_with_torchs_flop_counter():
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    x, w = torch.zeros(2, 3, 8, 8), torch.zeros(4, 3, 3, 3)
    with FlopCounterMode(display=False) as counter:
        y = torch.nn.functional.conv2d(x, w)
    ours = operation_count("aten::convolution", [access(*x.shape), access(*w.shape)],
                           [access(*y.shape)])  # fmt: skip
    assert ours == counter.get_total_flops()


QKV = [(2, 4, 16, 8), (2, 4, 32, 8), (2, 4, 32, 8)]  # batch, heads, positions, width


@pytest.mark.parametrize(
    ("name", "reads", "writes", "expected"),
    [
        ("aten::mv", [(3, 5), (5,)], [(3,)], 2 * 15),
        ("aten::dot", [(5,), (5,)], [()], 2 * 5),
        ("aten::addmv", [(3,), (3, 5), (5,)], [(3,)], 2 * 15),
        ("aten::baddbmm", [(2, 3, 7), (2, 3, 5), (2, 5, 7)], [(2, 3, 7)], 2 * 2 * 3 * 5 * 7),
        # Gradients of input and weight cost a forward each: 2 * 144 outputs * 27 weights.
        ("aten::convolution_backward", [(1, 4, 6, 6), (1, 3, 8, 8), (4, 3, 3, 3)],
         [(1, 3, 8, 8), (4, 3, 3, 3), (4,)], 2 * 2 * 144 * 27),
        ("aten::convolution_backward", [(1, 4, 6, 6), (1, 3, 8, 8), (4, 3, 3, 3)],
         [(4, 3, 3, 3), (4,)], 2 * 144 * 27),
        ("aten::convolution_backward", [(1, 4, 6, 6), (1, 3, 8, 8), (4, 3, 3, 3)],
         [(4,)], 2 * 144 * 27),
        # Two products of 16 queries by 32 keys over 8 heads of width 8.
        ("aten::_flash_attention_forward", QKV, [QKV[0]], 2 * 2 * (2 * 4) * 16 * 32 * 8),
        ("aten::_flash_attention_backward", [QKV[0], *QKV], [QKV[0]],
         5 * 2 * (2 * 4) * 16 * 32 * 8),
        ("aten::_fused_adamw_", [(3,), (4,), (3,), (4,)], [(3,), (4,)], 7),
        ("aten::_foreach_norm", [(3,), (4,)], [], 7),
        ("aten::arange", [], [(6,)], 6),
        ("aten::nothing", [], [], 0),
    ],
)  # fmt: skip
def test_formulas_of_the_textbook(name, reads, writes, expected):
    got = operation_count(name, [access(*s) for s in reads], [access(*s) for s in writes])
    assert got == expected


@pytest.mark.parametrize(
    ("name", "reads", "writes"),
    [
        ("aten::mm", [(), (2, 7)], [(4, 4)]),
        ("aten::mm", [(4, 4)], []),
        ("aten::addmm", [(4, 4), (2, 2)], []),
        ("aten::convolution", [(4, 4), ()], [(2,)]),
        ("aten::convolution", [(4, 4), (2, 2)], []),
        ("aten::convolution", [(4, 4)], [(2,)]),
        ("aten::convolution_backward", [(4, 4), (2,), ()], [(2,)]),
        ("aten::convolution_backward", [(4, 4), (2,)], [(2,)]),
        ("aten::_flash_attention_forward", [(4, 4), (2,)], [(2,)]),
        ("aten::_flash_attention_forward", [(4, 4)], []),
        ("aten::_flash_attention_backward", [(2,), (4, 4)], []),
    ],
)
def test_arguments_that_no_formula_fits_count_the_elements_of_the_largest(name, reads, writes):
    got = operation_count(name, [access(*s) for s in reads], [access(*s) for s in writes])
    assert got == 16


def test_attention_agrees_with_torchs_own_counts():
    from torch.utils.flop_counter import sdpa_backward_flop_count, sdpa_flop_count

    tensors = [access(*s) for s in QKV]
    forward = operation_count("aten::_scaled_dot_product_flash_attention_for_cpu", tensors, [])
    assert forward == sdpa_flop_count(*QKV)
    name = "aten::_scaled_dot_product_flash_attention_backward"
    backward = operation_count(name, [tensors[0], *tensors], [])
    assert backward == sdpa_backward_flop_count(QKV[0], *QKV)


def test_gradients_of_a_convolution_agree_with_torchs_flop_counter():
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    x, w = (torch.zeros(s, requires_grad=True) for s in ((2, 3, 8, 8), (4, 3, 3, 3)))
    y = torch.nn.functional.conv2d(x, w)
    with FlopCounterMode(display=False) as counter:
        y.sum().backward()
    reads = [access(*t.shape) for t in (y, x, w)]
    writes = [access(*x.shape), access(*w.shape)]
    got = operation_count("aten::convolution_backward", reads, writes)
    assert got == counter.get_total_flops()
