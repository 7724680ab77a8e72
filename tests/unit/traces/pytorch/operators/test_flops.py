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
