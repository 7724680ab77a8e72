"""Operators without a kernel of their own, against the dispatcher that is installed."""

import pytest
import torch

from layerdag.traces.pytorch.operators import is_composite

HAS = torch._C._dispatch_has_kernel_for_dispatch_key


@pytest.mark.parametrize(
    ("operator", "expected"),
    [
        ("aten::linear", True),
        ("aten::matmul", True),
        ("aten::to.dtype", True),  # every overload
        ("aten::max.other", True),
        ("aten::max", False),  # this overload only has a kernel
        ("aten::max.dim", False),
        ("aten::softmax.int", True),
        ("aten::_softmax", False),
        ("mylib::linear", False),
        ("linear", False),
    ],
)
def test_overloads_are_told_apart(operator, expected):
    assert is_composite(operator) is expected


def test_no_operator_with_a_kernel_of_its_own_is_taken_for_a_composite():
    """Kernels that a processor registers for itself would be lost with their time."""
    wrong = [
        name
        for name in torch._C._dispatch_get_all_op_names()
        if is_composite(name) and HAS(name, "CPU") and not HAS(name, "CompositeImplicitAutograd")
    ]
    assert wrong == []
