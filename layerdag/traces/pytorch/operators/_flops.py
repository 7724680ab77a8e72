"""Floating-point operations of one operator from the shapes of its tensors.

A multiply-add counts as two operations, as in ``torch.utils.flop_counter``. Matrix products,
convolutions and attention follow their textbook formulas; every other kernel is charged one
operation for each element of its largest tensor, which is right for element-wise work and for
reductions, and an order of magnitude for the rest.
"""

from collections.abc import Callable, Sequence

from layerdag.traces.pytorch.operators._tensors import TensorView

Tensors = Sequence[TensorView]


def operation_count(name: str, reads: Tensors, writes: Tensors) -> int:
    """Return the floating-point operations of one call.

    Args:
        name: Operator, such as "aten::addmm".
        reads: Its tensor arguments in order.
        writes: Its tensor results in order (arguments written in place, if there are none).
    """
    formula = _FORMULAS.get(name.removeprefix("aten::"))
    if formula is not None:
        count = formula(reads, writes)
        if count is not None:
            return count
    if name.startswith("aten::_foreach_") or name.startswith("aten::_fused_"):
        return sum(tensor.num_elements for tensor in (writes or reads))
    return max((tensor.num_elements for tensor in (*reads, *writes)), default=0)


def _product(first: int, second: int) -> Callable[[Tensors, Tensors], int | None]:
    """Return the formula 2 (batch) m k n of the matrix product of arguments first and second."""

    def formula(reads: Tensors, writes: Tensors) -> int | None:
        del writes
        if len(reads) <= max(first, second) or not reads[first].shape or not reads[second].shape:
            return None
        left, right = reads[first], reads[second]
        columns = right.shape[-1] if len(right.shape) > 1 else 1
        return 2 * left.num_elements * columns

    return formula


def _convolution(reads: Tensors, writes: Tensors) -> int | None:
    """Each element of the result takes one multiply-add for each weight of its filter."""
    if len(reads) < 2 or not writes or not any(reads[1].shape[:1]):
        return None
    per_output = reads[1].num_elements // reads[1].shape[0]
    return 2 * writes[0].num_elements * per_output


def _convolution_backward(reads: Tensors, writes: Tensors) -> int | None:
    """Two products of the forward's size: for the input's and for the weight's gradient."""
    if len(reads) < 3 or not any(reads[2].shape[:1]):
        return None
    per_output = reads[2].num_elements // reads[2].shape[0]
    gradients = sum(1 for tensor in writes if len(tensor.shape) > 2)
    return 2 * max(gradients, 1) * reads[0].num_elements * per_output


def _attention(first: int, products: int) -> Callable[[Tensors, Tensors], int | None]:
    """Return the formula of fused attention: ``products`` products of queries by keys."""

    def formula(reads: Tensors, writes: Tensors) -> int | None:
        del writes
        if len(reads) < first + 2 or len(reads[first + 1].shape) < 2:
            return None
        keys = reads[first + 1].shape[-2]
        return 2 * products * reads[first].num_elements * keys

    return formula


_FORMULAS: dict[str, Callable[[Tensors, Tensors], int | None]] = {
    "mm": _product(0, 1),
    "bmm": _product(0, 1),
    "mv": _product(0, 1),
    "dot": _product(0, 1),
    "_int_mm": _product(0, 1),
    "_scaled_mm": _product(0, 1),
    "addmm": _product(1, 2),
    "_addmm_activation": _product(1, 2),
    "addmm_": _product(1, 2),
    "baddbmm": _product(1, 2),
    "baddbmm_": _product(1, 2),
    "addmv": _product(1, 2),
    "convolution": _convolution,
    "convolution_overrideable": _convolution,
    "cudnn_convolution": _convolution,
    "miopen_convolution": _convolution,
    "mkldnn_convolution": _convolution,
    "convolution_backward": _convolution_backward,
    "_scaled_dot_product_flash_attention": _attention(0, 2),
    "_scaled_dot_product_flash_attention_for_cpu": _attention(0, 2),
    "_scaled_dot_product_efficient_attention": _attention(0, 2),
    "_scaled_dot_product_cudnn_attention": _attention(0, 2),
    "_flash_attention_forward": _attention(0, 2),
    "_efficient_attention_forward": _attention(0, 2),
    "_scaled_dot_product_flash_attention_backward": _attention(1, 5),
    "_scaled_dot_product_flash_attention_for_cpu_backward": _attention(1, 5),
    "_scaled_dot_product_efficient_attention_backward": _attention(1, 5),
    "_scaled_dot_product_cudnn_attention_backward": _attention(1, 5),
    "_flash_attention_backward": _attention(1, 5),
    "_efficient_attention_backward": _attention(1, 5),
}
