"""PyTorch's operators: what each of them does, costs and goes with. A new one is one new row.

``OPERATORS`` has a row for each by its exact name without namespace and overload; no part of a name
counts. ``is_composite`` knows those that call others and have no kernel of their own.

A multiply-add counts as two operations, as in ``torch.utils.flop_counter``. Matrix products,
convolutions and attention follow their textbook formulas; every other kernel is charged one
operation for each element of its largest tensor, which is right for element-wise work and for
reductions, and an order of magnitude for the rest.

Sizes decide how fast a kernel runs. A matrix product has ``batch`` products of m x k by k x n; a
convolution is the product of its positions (m) by its filters (n), with k weights each, once for
each group (batch). Attention has ``batch, heads, kv_heads, sequence, kv_sequence, head_dim``.
Normalizations, softmax, embeddings and reductions have m rows of n numbers.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, Flag, StrEnum, auto
from functools import cache, partial
from importlib import resources
from typing import Any, Protocol, runtime_checkable


class OperatorKind(StrEnum):
    """What an operator does.

    Attributes:
        PRODUCT: A product of matrices.
        ATTENTION: Attention as one operator.
        CONVOLUTION: A convolution.
        REDUCTION: Norms, softmax, sums, losses, pooling.
        MOVEMENT: Look-ups, copies, concatenations.
        OPTIMIZER: Works on all weights at once.
        ELEMENTWISE: Works on each element alone.
    """

    PRODUCT = "product"
    ATTENTION = "attention"
    CONVOLUTION = "convolution"
    REDUCTION = "reduction"
    MOVEMENT = "movement"
    OPTIMIZER = "optimizer"
    ELEMENTWISE = "elementwise"


MATRIX = (OperatorKind.PRODUCT, OperatorKind.ATTENTION, OperatorKind.CONVOLUTION)
"""Kinds whose work is products of matrices."""


class Trait(Flag):
    """What else is true of an operator; most traits serve the rules of whole training steps.

    Attributes:
        NORM: Normalizes and has a backward operator of the same name with "_backward".
        ATTENTION: Fused attention, likewise.
        ACTIVATION: An activation with a backward operator of the same name with "_backward".
        SOFTMAX: A softmax: one result of as many elements as it is charged operations for.
        SOFTMAX_BACKWARD: Its backward operator, likewise.
        PRODUCT: A product whose shapes follow from its costs.
        ARITHMETIC: One result of as many elements as it is charged operations for.
        GRADIENT: The same, in a backward pass.
        COPY: The same, a copy.
        SHAPE_KEEPING: One result of exactly the shape of the only tensor that is no parameter.
        SUM: Its operations count the elements of its input.
        PARAMETRIC: Makes numbers of parameters.
        PART: What a view of a part leaves in a trace: its backward, or what joins several of them.
        STEPPING: Steps every parameter once.
        FUSED: Steps every parameter as a whole optimizer.
        UPDATE: Another kernel of an optimizer.
        SIZES_OF_ARGUMENTS: Each size of a result is one of an argument, or 1, whatever they are.
        SAME_EVERYWHERE: Makes tensors of equal shapes and strides on every device.
        HIDDEN_VIEW: A view that its schema does not show, or another owner of a tensor.
        OVERWRITES: Does not read what it writes over.
    """

    NORM = auto()
    ATTENTION = auto()
    ACTIVATION = auto()
    SOFTMAX = auto()
    SOFTMAX_BACKWARD = auto()
    PRODUCT = auto()
    ARITHMETIC = auto()
    GRADIENT = auto()
    COPY = auto()
    SHAPE_KEEPING = auto()
    SUM = auto()
    PARAMETRIC = auto()
    PART = auto()
    STEPPING = auto()
    FUSED = auto()
    UPDATE = auto()
    SIZES_OF_ARGUMENTS = auto()
    SAME_EVERYWHERE = auto()
    HIDDEN_VIEW = auto()
    OVERWRITES = auto()


NO_TRAITS = Trait(0)


class Systolic(Enum):
    """How the sizes of an operator on a systolic array are found.

    Attributes:
        FACTORS: From the shapes of its two factors.
        FILTERS: From the shapes of its filters and its result.
        COSTS: From its operations and bytes alone.
    """

    FACTORS = "factors"
    FILTERS = "filters"
    COSTS = "costs"


@runtime_checkable
class TensorShape(Protocol):
    """A tensor as a rule sees it."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Its sizes."""

    @property
    def num_elements(self) -> int:
        """Number of elements."""


Tensors = Sequence[TensorShape]
Sizes = dict[str, int]
CountRule = Callable[[Tensors, Tensors], int | None]
SizeRule = Callable[[Tensors, Tensors], Sizes | None]


@dataclass(frozen=True, slots=True)
class Operator:
    """A row of the table.

    Attributes:
        name: Without namespace and overload, such as "addmm".
        kind: What it does; None for operators on each element and others.
        family: Operators whose kernels cost alike share one; None: by the words of its name.
        count: Operations from the tensors that it reads and writes; None: those of one element.
        sizes: Its kernel's sizes from the same.
        systolic: How a systolic array computes it; None if it is no product.
        factors: Places of the two factors of a product among its tensors.
        lists: Tensors for each weight that an optimizer's operator takes, states among them.
        backward_of: Forward operators whose backward operator it is.
        traits: What else is true of it.
    """

    name: str
    kind: OperatorKind | None = None
    family: str | None = None
    count: CountRule | None = None
    sizes: SizeRule | None = None
    systolic: Systolic | None = None
    factors: tuple[int, int] | None = None
    lists: int = 1
    backward_of: tuple[str, ...] = ()
    traits: Trait = NO_TRAITS


# --- rules ---------------------------------------------------------------------------------------


def _product_count(first: int, reads: Tensors, _: Tensors) -> int | None:
    """Return 2 (batch) m k n of the matrix product of argument ``first`` and the next one."""
    if len(reads) <= first + 1 or not reads[first].shape or not reads[first + 1].shape:
        return None
    right = reads[first + 1].shape
    return 2 * reads[first].num_elements * (right[-1] if len(right) > 1 else 1)


def _convolution_count(reads: Tensors, writes: Tensors) -> int | None:
    if len(reads) < 2 or not writes or not any(reads[1].shape[:1]):
        return None
    per_output = reads[1].num_elements // reads[1].shape[0]
    return 2 * writes[0].num_elements * per_output


def _convolution_backward_count(reads: Tensors, writes: Tensors) -> int | None:
    if len(reads) < 3 or not any(reads[2].shape[:1]):
        return None
    per_output = reads[2].num_elements // reads[2].shape[0]
    gradients = sum(1 for tensor in writes if len(tensor.shape) > 2)
    return 2 * max(gradients, 1) * reads[0].num_elements * per_output


def _attention_count(first: int, products: int, reads: Tensors, _: Tensors) -> int | None:
    if len(reads) < first + 2 or len(reads[first + 1].shape) < 2:
        return None
    return 2 * products * reads[first].num_elements * reads[first + 1].shape[-2]


def _product_sizes(first: int, reads: Tensors, _: Tensors) -> Sizes | None:
    if len(reads) < first + 2:
        return None
    left, right = reads[first].shape, reads[first + 1].shape
    if len(left) < 2 or len(right) < 2:
        return None
    return {"batch": math.prod(left[:-2]), "m": left[-2], "n": right[-1], "k": left[-1]}


def _grouped_sizes(reads: Tensors, writes: Tensors) -> Sizes | None:
    """One product for each expert, of an equal share of the rows; or of the sum, backward."""
    if len(reads) < 2 or not writes:
        return None
    left, right, result = reads[0].shape, reads[1].shape, writes[0].shape
    if len(left) == 2 and len(right) == 3:
        groups = max(right[0], 1)
        return {"batch": groups, "m": -(-left[0] // groups), "n": right[2], "k": left[1]}
    if len(left) == 2 and len(right) == 2 and len(result) == 3:
        groups = max(result[0], 1)
        return {"batch": groups, "m": left[0], "n": right[1], "k": -(-left[1] // groups)}
    return _product_sizes(0, reads, writes)


def _convolution_sizes(image: int, weight: int, reads: Tensors, writes: Tensors) -> Sizes | None:
    """Return the sizes of a convolution; the result is written, or the other one that is read."""
    results = reads if image else writes
    if len(reads) <= weight or not results:
        return None
    image_shape, weight_shape, result = (t.shape for t in (reads[image], reads[weight], results[0]))
    if min(len(image_shape), len(weight_shape), len(result)) < 3 or not all(weight_shape[:2]):
        return None
    groups = max(image_shape[1] // weight_shape[1], 1)
    positions, per_filter = result[0] * math.prod(result[2:]), math.prod(weight_shape[1:])
    return {"batch": groups, "m": positions, "n": weight_shape[0] // groups, "k": per_filter}


def _attention_sizes(first: int, reads: Tensors, _: Tensors) -> Sizes | None:
    if len(reads) < first + 2:
        return None
    query, key = reads[first].shape, reads[first + 1].shape
    if len(query) != 4 or len(key) != 4:
        return None
    heads = {"batch": query[0], "heads": query[1], "kv_heads": key[1]}
    return heads | {"sequence": query[2], "kv_sequence": key[2], "head_dim": query[3]}


def _encoder_layer_sizes(reads: Tensors, _: Tensors) -> Sizes | None:
    if len(reads[0].shape) != 3:
        return None
    batch, sequence, width = reads[0].shape
    return {"batch": 1, "m": batch * sequence, "n": 4 * width, "k": width}


def _channel_sizes(first: int, reads: Tensors, _: Tensors) -> Sizes | None:
    if len(reads) <= first or len(reads[first].shape) < 2:
        return None
    shape = reads[first].shape
    return {"m": shape[0] * math.prod(shape[2:]), "n": shape[1]}


def _row_sizes(reads: Tensors, _: Tensors) -> Sizes | None:
    shape = reads[0].shape
    return {"m": math.prod(shape[:-1]), "n": shape[-1]} if shape else None


def _look_up_sizes(reads: Tensors, _: Tensors) -> Sizes | None:
    if len(reads) < 2 or not reads[0].shape:
        return None
    return {"m": reads[1].num_elements, "n": reads[0].shape[-1]}


def _sum_sizes(reads: Tensors, writes: Tensors) -> Sizes | None:
    if not writes or not writes[0].num_elements:
        return None
    rows = writes[0].num_elements
    return {"m": rows, "n": max(reads[0].num_elements // rows, 1)}


# --- the table -----------------------------------------------------------------------------------

OPERATORS: dict[str, Operator] = {}
"""Every operator of which more is known than its schema, by name."""


def _add(
    names: str, kind: OperatorKind | None = None, traits: Trait = NO_TRAITS, **columns: Any
) -> None:
    """Add a row for each of some names that are separated by blanks."""
    for name in names.split():
        if name in OPERATORS:
            raise ValueError(f"operator {name} has two rows")
        OPERATORS[name] = Operator(name, kind, traits=traits, **columns)


# fmt: off
_K, _T = OperatorKind, Trait
_KEEPS = _T.SIZES_OF_ARGUMENTS

# Products
_FIRST: dict[str, Any] = {
    "count": partial(_product_count, 0), "systolic": Systolic.FACTORS, "factors": (0, 1),
}
_SECOND: dict[str, Any] = {
    "count": partial(_product_count, 1), "systolic": Systolic.FACTORS, "factors": (1, 2),
}
_add(
    "mm", _K.PRODUCT, _T.PRODUCT | _T.PARAMETRIC | _KEEPS | _T.SAME_EVERYWHERE, family="product",
    sizes=partial(_product_sizes, 0), **_FIRST,
)
_add(
    "addmm", _K.PRODUCT, _T.PRODUCT | _T.PARAMETRIC | _KEEPS | _T.SAME_EVERYWHERE,
    family="product", sizes=partial(_product_sizes, 1), **_SECOND,
)
_add(
    "bmm", _K.PRODUCT, _T.PRODUCT | _T.PARAMETRIC | _KEEPS | _T.SAME_EVERYWHERE, family="product",
    sizes=partial(_product_sizes, 0), **_FIRST,
)
_add(
    "baddbmm", _K.PRODUCT, _KEEPS, family="product", sizes=partial(_product_sizes, 1), **_SECOND,
)
_add(
    "matmul linear", _K.PRODUCT, family="product", sizes=partial(_product_sizes, 0),
    systolic=Systolic.FACTORS, factors=(0, 1),
)
_add("_int_mm _scaled_mm", _K.PRODUCT, sizes=partial(_product_sizes, 0), **_FIRST)
_add("_addmm_activation", _K.PRODUCT, sizes=partial(_product_sizes, 1), **_SECOND)
_add("addmm_ baddbmm_", _K.PRODUCT, **_SECOND)
_add("mv dot", _K.PRODUCT, count=partial(_product_count, 0), systolic=Systolic.COSTS)
_add("addmv", _K.PRODUCT, count=partial(_product_count, 1), systolic=Systolic.COSTS)
_add(
    "_grouped_mm _scaled_grouped_mm", _K.PRODUCT, family="grouped_product",
    count=partial(_product_count, 0), sizes=_grouped_sizes,
)
_add(
    """
    matmul_backward linear_backward addmv_ vdot addbmm addbmm_ einsum tensordot chain_matmul
    linalg_matmul linalg_multi_dot linalg_vecdot _scaled_mm_v2 _scaled_grouped_mm_v2 _sparse_mm
    _sparse_addmm _sparse_sparse_matmul _sparse_semi_structured_mm _sparse_semi_structured_addmm
    _sparse_semi_structured_linear _cslt_sparse_mm sspaddmm smm hspmm sparse_sampled_addmm
    _weight_int4pack_mm _weight_int4pack_mm_for_cpu _weight_int4pack_mm_with_scales_and_zeros
    _weight_int8pack_mm _dyn_quant_matmul_4bit _mixed_dtypes_linear mkldnn_linear
    mkldnn_linear_backward mkldnn_linear_backward_input mkldnn_linear_backward_weights
    fbgemm_linear_fp16_weight fbgemm_linear_fp16_weight_fp32_activation fbgemm_linear_int8_weight
    fbgemm_linear_int8_weight_fp32_activation bilinear _trilinear lstm lstm_cell gru gru_cell
    rnn_tanh rnn_tanh_cell rnn_relu rnn_relu_cell _cudnn_rnn _cudnn_rnn_backward miopen_rnn
    miopen_rnn_backward mkldnn_rnn_layer mkldnn_rnn_layer_backward _foreach_mm""",
    _K.PRODUCT,
)

# Attention
_add(
    """
    _scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_flash_attention
    _scaled_dot_product_efficient_attention _scaled_dot_product_cudnn_attention""",
    _K.ATTENTION, _T.ATTENTION, count=partial(_attention_count, 0, 2),
    sizes=partial(_attention_sizes, 0), systolic=Systolic.COSTS,
)
_add(
    "_scaled_dot_product_fused_attention_overrideable", _K.ATTENTION, _T.ATTENTION,
    sizes=partial(_attention_sizes, 0), systolic=Systolic.COSTS,
)
for _name in [name for name, row in OPERATORS.items() if _T.ATTENTION in row.traits]:
    _add(
        f"{_name}_backward", _K.ATTENTION, sizes=partial(_attention_sizes, 1),
        count=partial(_attention_count, 1, 5) if OPERATORS[_name].count else None,
        systolic=Systolic.COSTS, backward_of=(_name,),
    )
_add(
    "_scaled_dot_product_attention_math", _K.ATTENTION, sizes=partial(_attention_sizes, 0),
    systolic=Systolic.COSTS,
)
_add(
    "_flash_attention_forward _efficient_attention_forward", _K.ATTENTION,
    count=partial(_attention_count, 0, 2), systolic=Systolic.COSTS,
)
_add(
    "_flash_attention_backward _efficient_attention_backward", _K.ATTENTION,
    count=partial(_attention_count, 1, 5), systolic=Systolic.COSTS,
)
_add(
    "_scaled_dot_product_attention _flash_attention_forward_no_dropout_inplace", _K.ATTENTION,
    systolic=Systolic.COSTS,
)
_add("_scaled_dot_product_attention_math_for_mps", systolic=Systolic.COSTS)
_add(
    "_native_multi_head_attention", _K.ATTENTION, family="encoder_attention",
    sizes=_encoder_layer_sizes,
)
_add(
    """
    scaled_dot_product_attention _cudnn_attention_forward _cudnn_attention_backward
    _triton_multi_head_attention _triton_scaled_dot_attention""",
    _K.ATTENTION,
)

# Convolutions
_add(
    "convolution", _K.CONVOLUTION, _T.PARAMETRIC, family="convolution", count=_convolution_count,
    sizes=partial(_convolution_sizes, 0, 1), systolic=Systolic.FILTERS,
)
_add(
    "cudnn_convolution", _K.CONVOLUTION, family="convolution", count=_convolution_count,
    sizes=partial(_convolution_sizes, 0, 1), systolic=Systolic.FILTERS,
)
_add(
    "convolution_overrideable miopen_convolution mkldnn_convolution", _K.CONVOLUTION,
    count=_convolution_count, systolic=Systolic.FILTERS,
)
_add(
    "convolution_backward", _K.CONVOLUTION, family="convolution_backward",
    count=_convolution_backward_count, sizes=partial(_convolution_sizes, 1, 2),
    systolic=Systolic.COSTS, backward_of=("convolution",),
)
_add("_convolution", _K.CONVOLUTION, sizes=partial(_convolution_sizes, 0, 1))
_add(
    """
    _convolution_mode conv1d conv2d conv3d conv_tbc conv_tbc_backward conv_transpose1d
    conv_transpose2d conv_transpose3d convolution_backward_overrideable
    _convolution_double_backward cudnn_convolution_add_relu cudnn_convolution_relu
    cudnn_convolution_transpose miopen_convolution_add_relu miopen_convolution_relu
    miopen_convolution_transpose miopen_depthwise_convolution _nnpack_spatial_convolution
    thnn_conv2d _slow_conv2d_forward _slow_conv2d_backward slow_conv3d slow_conv3d_forward
    slow_conv_dilated2d slow_conv_dilated3d slow_conv_transpose2d slow_conv_transpose3d
    _conv_depthwise2d conv_depthwise3d""",
    _K.CONVOLUTION,
)

# Norms
_NORM = _T.NORM | _T.PARAMETRIC
_add("native_layer_norm", _K.REDUCTION, _NORM, family="native_layer_norm", sizes=_row_sizes)
_add(
    "native_batch_norm", _K.REDUCTION, _NORM, family="native_batch_norm",
    sizes=partial(_channel_sizes, 0),
)
_add("native_group_norm", _K.REDUCTION, _NORM, sizes=partial(_channel_sizes, 0))
_add("_fused_rms_norm", _K.REDUCTION, _NORM, sizes=_row_sizes)
_add("_native_batch_norm_legit", _K.REDUCTION, _NORM)
_add(
    "cudnn_batch_norm", _K.REDUCTION, _NORM, family="cudnn_batch_norm",
    sizes=partial(_channel_sizes, 0),
)
_add(
    "native_layer_norm_backward", _K.REDUCTION, family="native_layer_norm_backward",
    sizes=_row_sizes, backward_of=("native_layer_norm",),
)
_add(
    "native_batch_norm_backward", _K.REDUCTION, family="native_batch_norm_backward",
    sizes=partial(_channel_sizes, 1), backward_of=("native_batch_norm",),
)
_add(
    "native_group_norm_backward", _K.REDUCTION, sizes=partial(_channel_sizes, 1),
    backward_of=("native_group_norm",),
)
_add(
    "_fused_rms_norm_backward", _K.REDUCTION, sizes=_row_sizes, backward_of=("_fused_rms_norm",)
)
_add("_native_batch_norm_legit_backward", backward_of=("_native_batch_norm_legit",))
_add(
    "cudnn_batch_norm_backward", _K.REDUCTION, family="cudnn_batch_norm_backward",
    sizes=partial(_channel_sizes, 1), backward_of=("cudnn_batch_norm",),
)
_add(
    "_native_batch_norm_legit_no_training _batch_norm_no_update", _K.REDUCTION,
    family="batch_norm_inference",
)
_add(
    """
    layer_norm group_norm batch_norm batch_norm_backward _native_batch_norm_legit_functional
    _batch_norm_with_update _batch_norm_with_update_functional miopen_batch_norm
    miopen_batch_norm_backward batch_norm_stats batch_norm_elemt batch_norm_gather_stats
    batch_norm_gather_stats_with_counts batch_norm_backward_reduce batch_norm_backward_elemt
    instance_norm rms_norm""",
    _K.REDUCTION,
)

# Softmax, losses, sums, pooling
_SOFTMAX = _T.SOFTMAX | _T.SHAPE_KEEPING
_add("_softmax", _K.REDUCTION, _SOFTMAX | _KEEPS, sizes=_row_sizes)
_add(
    "_log_softmax", _K.REDUCTION, _SOFTMAX | _KEEPS | _T.SAME_EVERYWHERE, family="_log_softmax",
    sizes=_row_sizes,
)
_add("_safe_softmax", None, _SOFTMAX, sizes=_row_sizes)
_add(
    "_softmax_backward_data", _K.REDUCTION, _T.SOFTMAX_BACKWARD | _KEEPS, sizes=_row_sizes,
    backward_of=("_softmax", "_safe_softmax"),
)
_add(
    "_log_softmax_backward_data", _K.REDUCTION, _T.SOFTMAX_BACKWARD | _KEEPS,
    family="_log_softmax_backward_data", sizes=_row_sizes, backward_of=("_log_softmax",),
)
_add(
    "nll_loss_forward", _K.REDUCTION, _KEEPS | _T.SAME_EVERYWHERE, family="nll_loss_forward"
)
_add(
    "nll_loss_backward", _K.REDUCTION, _KEEPS, family="nll_loss_backward",
    backward_of=("nll_loss_forward",),
)
_add("nll_loss2d_backward", _K.REDUCTION, backward_of=("nll_loss2d_forward",))
_add("mse_loss_backward", _K.REDUCTION, backward_of=("mse_loss",))
_add("max_pool2d_with_indices_backward", _K.REDUCTION, backward_of=("max_pool2d_with_indices",))
_add("avg_pool2d_backward", _K.REDUCTION, backward_of=("avg_pool2d",))
_add("_adaptive_avg_pool2d_backward", _K.REDUCTION, backward_of=("_adaptive_avg_pool2d",))
_add(
    "sum", _K.REDUCTION, _T.SUM | _KEEPS | _T.SAME_EVERYWHERE, family="sum", sizes=_sum_sizes
)
_add("mean", _K.REDUCTION, _T.SUM | _KEEPS, family="mean", sizes=_sum_sizes)
_add("var_mean", _K.REDUCTION, _KEEPS)
_add("amax norm linalg_vector_norm", _K.REDUCTION, sizes=_sum_sizes)
_add("sort", _K.REDUCTION, family="sort", sizes=_row_sizes)
_add("topk", _K.REDUCTION, family="topk", sizes=_row_sizes)
_add(
    """
    softmax log_softmax logsumexp nansum var std std_mean max min amin argmax argmin prod any all
    nll_loss nll_loss2d_forward cross_entropy_loss mse_loss l1_loss smooth_l1_loss
    smooth_l1_loss_backward huber_loss huber_loss_backward binary_cross_entropy
    binary_cross_entropy_backward binary_cross_entropy_with_logits kl_div ctc_loss _ctc_loss
    _ctc_loss_backward max_pool1d max_pool2d max_pool2d_with_indices max_pool3d_with_indices
    max_pool3d_with_indices_backward avg_pool1d avg_pool2d avg_pool3d avg_pool3d_backward
    adaptive_avg_pool1d adaptive_avg_pool2d _adaptive_avg_pool2d _adaptive_avg_pool3d
    adaptive_max_pool2d adaptive_max_pool2d_backward cumsum cumsum_ cumprod
    _chunk_grad_outputs_efficient_attention""",
    _K.REDUCTION,
)

# Movement
_add("embedding", _K.MOVEMENT, _T.PARAMETRIC, family="embedding", sizes=_look_up_sizes)
_add("_embedding_bag", _K.MOVEMENT, _T.PARAMETRIC, family="embedding", sizes=_look_up_sizes)
_add(
    "embedding_dense_backward", _K.MOVEMENT, family="embedding_dense_backward", sizes=_row_sizes,
    backward_of=("embedding",),
)
_add(
    "_embedding_bag_backward", _K.MOVEMENT, family="_embedding_bag_backward", sizes=_look_up_sizes,
    backward_of=("_embedding_bag",),
)
_add("clone", _K.MOVEMENT, _T.COPY | _T.SAME_EVERYWHERE, family="copy")
_add("copy_", _K.MOVEMENT, _T.COPY | _KEEPS | _T.OVERWRITES, family="copy")
_add("_to_copy", _K.MOVEMENT, _T.COPY | _KEEPS, family="copy")
_add("contiguous", _K.MOVEMENT, family="copy")
_add("cat", _K.MOVEMENT, _T.COPY | _T.PART, family="cat")
_add("stack", _K.MOVEMENT, _T.COPY | _T.PART, family="stack")
_add("slice_backward select_backward", _K.MOVEMENT, _T.COPY | _T.PART)
_add(
    "index index_select unfold_backward constant_pad_nd _index_put_impl_ index_put", _K.MOVEMENT,
    _T.PART,
)
_add("split_with_sizes_copy", _K.MOVEMENT, _T.PARAMETRIC)
_add("fill_ zero_", _K.MOVEMENT, _T.OVERWRITES)
_add("zeros_like ones_like", _K.MOVEMENT, _KEEPS)
_add(
    """
    _embedding_bag_forward_only _embedding_bag_dense_backward embedding_bag index_put_ index_add
    index_add_ index_copy index_copy_ index_fill index_fill_ gather gather_backward scatter scatter_
    scatter_add scatter_add_ scatter_reduce scatter_reduce_ concat copy to select_scatter
    slice_scatter masked_select masked_scatter masked_scatter_ repeat repeat_interleave roll flip
    split_copy _chunk_cat take put put_ nonzero fill im2col col2im""",
    _K.MOVEMENT,
)

# On each element
_add(
    """
    add sub mul div add_ sub_ mul_ div_ neg pow sqrt rsqrt exp cos sin reciprocal masked_fill where
    clamp abs log square""",
    None, _T.ARITHMETIC,
)
_add("relu relu_", None, _T.ARITHMETIC | _T.SHAPE_KEEPING)
_ACTIVATIONS = """
    gelu silu tanh sigmoid elu leaky_relu softplus hardswish hardtanh hardsigmoid mish
    log_sigmoid_forward"""
for _name in _ACTIVATIONS.split():
    _add(_name, None, _T.ACTIVATION | _T.ARITHMETIC | _T.SHAPE_KEEPING)
    _add(f"{_name}_", None, _T.ARITHMETIC | _T.SHAPE_KEEPING)
    _add(f"{_name}_backward", None, _T.GRADIENT, backward_of=(_name, f"{_name}_"))
_add(
    "threshold_backward", None, _T.GRADIENT,
    backward_of=("relu", "relu_", "threshold", "threshold_"),
)
_add("native_dropout", None, _T.SHAPE_KEEPING)
_add("native_dropout_backward", backward_of=("native_dropout",))
_add("lerp_ addcmul_ addcdiv_", None, _T.STEPPING)
_add("t transpose permute detach alias empty_like full_like", None, _KEEPS)
_add("_unsafe_view", None, _T.SAME_EVERYWHERE | _T.HIDDEN_VIEW)
_add("_reshape_alias lift", None, _T.HIDDEN_VIEW)
_add("set_", None, _T.HIDDEN_VIEW | _T.OVERWRITES)
_add("normal_ uniform_ random_ bernoulli_ exponential_", None, _T.OVERWRITES)

# Optimizers: fused ones, and those on lists of tensors that are called with all weights
for _name, _lists in (("adamw", 4), ("adam", 4), ("adagrad", 3), ("sgd", 3)):
    _add(f"_fused_{_name}", _K.OPTIMIZER, lists=_lists)
    _add(
        f"_fused_{_name}_", _K.OPTIMIZER, _T.UPDATE if _name == "sgd" else _T.FUSED, lists=_lists
    )
_FOREACH = {
    "lerp_ addcmul_ addcdiv_ sqrt div_": _T.STEPPING,
    "add_ sub_ mul_": _T.UPDATE,
    "copy_ zero_": _T.OVERWRITES,
    """
    abs abs_ acos acos_ add addcdiv addcmul asin asin_ atan atan_ ceil ceil_ clamp_max clamp_max_
    clamp_min clamp_min_ clone clone_ copy cos cos_ cosh cosh_ div erf erf_ erfc erfc_ exp exp_
    expm1 expm1_ floor floor_ frac frac_ lerp lgamma lgamma_ log log_ log10 log10_ log1p log1p_ log2
    log2_ max max_ maximum maximum_ minimum minimum_ mul neg neg_ norm norm_ pow pow_ powsum powsum_
    reciprocal reciprocal_ round round_ rsqrt rsqrt_ sigmoid sigmoid_ sign sign_ sin sin_ sinh sinh_
    sqrt_ sub tan tan_ tanh tanh_ trunc trunc_ zero""": NO_TRAITS,
}
for _names, _traits in _FOREACH.items():
    _add(" ".join(f"_foreach_{name}" for name in _names.split()), _K.OPTIMIZER, _traits)


# fmt: on
def with_trait(trait: Trait) -> tuple[str, ...]:
    """Return the operators that have one of some traits, in the order of the table."""
    return tuple(name for name, row in OPERATORS.items() if trait & row.traits)


NORMS, ATTENTION = with_trait(Trait.NORM), with_trait(Trait.ATTENTION)
ACTIVATIONS, SOFTMAXES = with_trait(Trait.ACTIVATION), with_trait(Trait.SOFTMAX)
PRODUCTS, SUMS, PARTS = (with_trait(t) for t in (Trait.PRODUCT, Trait.SUM, Trait.PART))
COPIES, PARAMETRIC = with_trait(Trait.COPY), with_trait(Trait.PARAMETRIC)
ARITHMETIC, ELEMENTWISE_BACKWARD = with_trait(Trait.ARITHMETIC), with_trait(Trait.GRADIENT)
SHAPE_KEEPING, STEPPING = with_trait(Trait.SHAPE_KEEPING), with_trait(Trait.STEPPING)
UPDATES = with_trait(Trait.STEPPING | Trait.FUSED | Trait.UPDATE)
WHOLE = with_trait(
    Trait.ARITHMETIC | Trait.GRADIENT | Trait.COPY | Trait.SOFTMAX | Trait.SOFTMAX_BACKWARD
)
"""Operators with one result, of as many elements as they are charged operations for."""
FUSED = {name: OPERATORS[name].lists for name in with_trait(Trait.FUSED)}
"""Tensors that a fused optimizer works on for each parameter."""
BACKWARD_OF = {name: row.backward_of for name, row in OPERATORS.items() if row.backward_of}
"""Backward operators, and forward operators of which each of them is the backward one."""

OPTIMIZERS = frozenset(
    f"aten::{name}" for name, row in OPERATORS.items() if row.kind is OperatorKind.OPTIMIZER
)
"""PyTorch's operators on all weights at once."""


# --- look-ups ------------------------------------------------------------------------------------


def base_name(name: str) -> str:
    """Return the name of an operator without namespace, overload and number of the call.

    Names are written "aten::add.Tensor" in traces, "aten.add.Tensor" in programs.
    """
    name = name.partition("(")[0].rpartition("::")[2]
    return name.removeprefix("aten.").removeprefix("torchvision.").partition(".")[0]


def find_operator(name: str) -> Operator | None:
    """Return the row of an operator of PyTorch such as "aten::add.Tensor"; None if it has none."""
    return OPERATORS.get(name.removeprefix("aten::").partition(".")[0])


# What nodes of `layerdag workload` and of STAGE state.
_STATED = {
    OperatorKind.PRODUCT: "mm M",
    OperatorKind.ATTENTION: "attention",
    OperatorKind.REDUCTION: "norm norm1 norm2 norm_latent loss sample R",
    OperatorKind.MOVEMENT: "embedding look_up B SLICE",
    OperatorKind.OPTIMIZER: "adam update_rows",
    OperatorKind.ELEMENTWISE: "act shared_act mix modulation router A E E2",
}
_OF_STATED = {word: kind for kind, words in _STATED.items() for word in words.split()}


def operator_kind(name: str, stated: str = "") -> OperatorKind | None:
    """Return the kind of an operator; None if it is not known.

    Args:
        name: As in the trace; of PyTorch's operators exactly "aten::" and the name.
        stated: Its ``op_type``, if the node has one.
    """
    if stated in _OF_STATED:
        return _OF_STATED[stated]
    row = OPERATORS.get(name[6:]) if name.startswith("aten::") else None
    return None if row is None else row.kind


def operator_family(name: str) -> str:
    """Return the family of an operator such as "aten::mm"; "pointwise" if it has no other.

    Kernels of others, whose names nobody can list, have the family that a word of theirs says.
    """
    word = name.rpartition("::")[2]
    row = OPERATORS.get(word)
    if row is not None and row.family is not None:
        return row.family
    if "scaled_dot_product" in word:
        return "attention_backward" if "backward" in word else "attention"
    for part, family in (("softmax", "softmax"), ("_foreach", "foreach"), ("_fused_", "fused")):
        if part in word:
            return family
    return "pointwise"


def operation_count(name: str, reads: Tensors, writes: Tensors) -> int:
    """Return the floating-point operations of one call of an operator such as "aten::addmm".

    It reads tensor arguments and writes results, or arguments in place if there are none.
    """
    row = OPERATORS.get(name.removeprefix("aten::"))
    if row is not None and row.count is not None:
        count = row.count(reads, writes)
        if count is not None:
            return count
    if name.startswith(("aten::_foreach_", "aten::_fused_")):
        return sum(tensor.num_elements for tensor in (writes or reads))
    return max((tensor.num_elements for tensor in (*reads, *writes)), default=0)


def kernel_sizes(name: str, reads: Tensors, writes: Tensors) -> Sizes:
    """Return the sizes of one call by name; empty where they are not known."""
    row = OPERATORS.get(name.removeprefix("aten::"))
    found = row.sizes(reads, writes) if row is not None and row.sizes and reads else None
    if found is None or not all(0 < size < 2**31 for size in found.values()):
        return {}
    return found


# --- composite operators -------------------------------------------------------------------------


@cache
def _composite() -> frozenset[str]:
    text = resources.files("layerdag.hardware").joinpath("composite_operators.txt")
    return frozenset(text.read_text("utf-8").split())


def is_composite(operator: str) -> bool:
    """Return whether ``operator``, such as "aten::max.other", has no kernel of its own.

    A `CompositeImplicitAutograd` operator is written in terms of other operators: the dispatcher
    always descends through it. The names in ``composite_operators.txt`` were read from the
    dispatcher of PyTorch 2.13 (operators with a CompositeImplicitAutograd kernel and none for CPU,
    CUDA or CompositeExplicitAutograd), with overloads where only some are composite; a test
    compares them with the installed PyTorch. File tools read them because they must not import
    torch.
    """
    if not operator.startswith("aten::"):
        return False
    name, _, overload = operator.removeprefix("aten::").partition(".")
    return name in _composite() or f"{name}.{overload}" in _composite()
