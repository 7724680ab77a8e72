"""What an operator does, by what its node states or by its exact name: no part of a name counts.

A node states its kind (`op_type`) where a trace of ours is made: ``layerdag workload``, and STAGE.
Elsewhere the name is looked up in a table of PyTorch's operators. An operator that is in neither
is of no kind, and whoever needs one says so.
"""

from enum import StrEnum

import numpy as np

from layerdag.traces.trace import OPERATOR, Trace


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

_OF_ATEN = {
    OperatorKind.PRODUCT: """
        mm addmm addmm_ bmm baddbmm baddbmm_ matmul matmul_backward linear linear_backward mv addmv
        addmv_ dot vdot addbmm addbmm_ einsum tensordot chain_matmul linalg_matmul linalg_multi_dot
        linalg_vecdot _int_mm _scaled_mm _scaled_mm_v2 _grouped_mm _scaled_grouped_mm
        _scaled_grouped_mm_v2 _addmm_activation _sparse_mm _sparse_addmm _sparse_sparse_matmul
        _sparse_semi_structured_mm _sparse_semi_structured_addmm _sparse_semi_structured_linear
        _cslt_sparse_mm sspaddmm smm hspmm sparse_sampled_addmm _weight_int4pack_mm
        _weight_int4pack_mm_for_cpu _weight_int4pack_mm_with_scales_and_zeros _weight_int8pack_mm
        _dyn_quant_matmul_4bit _mixed_dtypes_linear mkldnn_linear mkldnn_linear_backward
        mkldnn_linear_backward_input mkldnn_linear_backward_weights fbgemm_linear_fp16_weight
        fbgemm_linear_fp16_weight_fp32_activation fbgemm_linear_int8_weight
        fbgemm_linear_int8_weight_fp32_activation bilinear _trilinear lstm lstm_cell gru gru_cell
        rnn_tanh rnn_tanh_cell rnn_relu rnn_relu_cell _cudnn_rnn _cudnn_rnn_backward miopen_rnn
        miopen_rnn_backward mkldnn_rnn_layer mkldnn_rnn_layer_backward _foreach_mm""",
    OperatorKind.ATTENTION: """
        scaled_dot_product_attention _scaled_dot_product_attention_math
        _scaled_dot_product_attention _scaled_dot_product_flash_attention
        _scaled_dot_product_flash_attention_backward _scaled_dot_product_flash_attention_for_cpu
        _scaled_dot_product_flash_attention_for_cpu_backward _scaled_dot_product_efficient_attention
        _scaled_dot_product_efficient_attention_backward _scaled_dot_product_cudnn_attention
        _scaled_dot_product_cudnn_attention_backward
        _scaled_dot_product_fused_attention_overrideable
        _scaled_dot_product_fused_attention_overrideable_backward _flash_attention_forward
        _flash_attention_forward_no_dropout_inplace _flash_attention_backward
        _efficient_attention_forward _efficient_attention_backward _cudnn_attention_forward
        _cudnn_attention_backward _native_multi_head_attention _triton_multi_head_attention
        _triton_scaled_dot_attention""",
    OperatorKind.CONVOLUTION: """
        convolution convolution_backward _convolution _convolution_mode conv1d conv2d conv3d
        conv_tbc conv_tbc_backward conv_transpose1d conv_transpose2d conv_transpose3d
        convolution_overrideable convolution_backward_overrideable _convolution_double_backward
        cudnn_convolution cudnn_convolution_add_relu cudnn_convolution_relu
        cudnn_convolution_transpose miopen_convolution miopen_convolution_add_relu
        miopen_convolution_relu miopen_convolution_transpose miopen_depthwise_convolution
        mkldnn_convolution _nnpack_spatial_convolution thnn_conv2d _slow_conv2d_forward
        _slow_conv2d_backward slow_conv3d slow_conv3d_forward slow_conv_dilated2d
        slow_conv_dilated3d slow_conv_transpose2d slow_conv_transpose3d _conv_depthwise2d
        conv_depthwise3d""",
    OperatorKind.REDUCTION: """
        native_layer_norm native_layer_norm_backward layer_norm native_group_norm
        native_group_norm_backward group_norm native_batch_norm native_batch_norm_backward
        batch_norm batch_norm_backward _native_batch_norm_legit _native_batch_norm_legit_functional
        _native_batch_norm_legit_no_training _batch_norm_with_update
        _batch_norm_with_update_functional _batch_norm_no_update cudnn_batch_norm
        cudnn_batch_norm_backward miopen_batch_norm miopen_batch_norm_backward batch_norm_stats
        batch_norm_elemt batch_norm_gather_stats batch_norm_gather_stats_with_counts
        batch_norm_backward_reduce batch_norm_backward_elemt instance_norm rms_norm _fused_rms_norm
        _fused_rms_norm_backward linalg_vector_norm norm softmax _softmax _softmax_backward_data
        log_softmax _log_softmax _log_softmax_backward_data logsumexp sum nansum mean var std
        var_mean std_mean max min amax amin argmax argmin prod any all nll_loss nll_loss_forward
        nll_loss_backward nll_loss2d_forward nll_loss2d_backward cross_entropy_loss mse_loss
        mse_loss_backward l1_loss smooth_l1_loss smooth_l1_loss_backward huber_loss
        huber_loss_backward binary_cross_entropy binary_cross_entropy_backward
        binary_cross_entropy_with_logits kl_div ctc_loss _ctc_loss _ctc_loss_backward max_pool1d
        max_pool2d max_pool2d_with_indices max_pool2d_with_indices_backward max_pool3d_with_indices
        max_pool3d_with_indices_backward avg_pool1d avg_pool2d avg_pool2d_backward avg_pool3d
        avg_pool3d_backward adaptive_avg_pool1d adaptive_avg_pool2d _adaptive_avg_pool2d
        _adaptive_avg_pool2d_backward _adaptive_avg_pool3d adaptive_max_pool2d
        adaptive_max_pool2d_backward cumsum cumsum_ cumprod _chunk_grad_outputs_efficient_attention
        topk sort""",
    OperatorKind.MOVEMENT: """
        embedding embedding_dense_backward _embedding_bag _embedding_bag_forward_only
        _embedding_bag_dense_backward _embedding_bag_backward embedding_bag index index_put
        index_put_ _index_put_impl_ index_select index_add index_add_ index_copy index_copy_
        index_fill index_fill_ gather gather_backward scatter scatter_ scatter_add scatter_add_
        scatter_reduce scatter_reduce_ cat concat stack copy copy_ clone contiguous _to_copy to
        select_backward slice_backward select_scatter slice_scatter masked_select masked_scatter
        masked_scatter_ repeat repeat_interleave roll flip split_with_sizes_copy split_copy
        _chunk_cat constant_pad_nd take put put_ nonzero fill fill_ zero_ zeros_like ones_like
        unfold_backward im2col col2im""",
    OperatorKind.OPTIMIZER: """
        _fused_adam _fused_adam_ _fused_adamw _fused_adamw_ _fused_sgd _fused_sgd_ _fused_adagrad
        _fused_adagrad_""",
}
# Operators on lists of tensors, which optimizers call with all weights; each has a form with "_".
_FOREACH = """
    abs acos add addcdiv addcmul asin atan ceil clamp_max clamp_min clone copy cos cosh div erf erfc
    exp expm1 floor frac lerp lgamma log log10 log1p log2 max maximum minimum mul neg norm pow
    powsum reciprocal round rsqrt sigmoid sign sin sinh sqrt sub tan tanh trunc zero"""
_OF_NAME = {f"aten::{name}": kind for kind, names in _OF_ATEN.items() for name in names.split()} | {
    f"aten::_foreach_{name}{end}": OperatorKind.OPTIMIZER
    for name in _FOREACH.split()
    for end in ("", "_")
}

OPTIMIZERS = frozenset(name for name, kind in _OF_NAME.items() if kind is OperatorKind.OPTIMIZER)
"""PyTorch's operators on all weights at once."""

_LISTS = {"adam": 4, "adamw": 4, "sgd": 3, "adagrad": 3}
_LISTS_OF = {f"aten::_fused_{rule}{end}": n for rule, n in _LISTS.items() for end in ("", "_")}


def lists_of(name: str) -> int:
    """Return how many tensors for each weight an optimizer's operator takes: states, too."""
    return _LISTS_OF.get(name, 1)


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
        name: As in the trace.
        stated: Its ``op_type``, if the node has one.
    """
    return _OF_STATED.get(stated) or _OF_NAME.get(name)


def operator_kinds(trace: Trace) -> list[OperatorKind | None]:
    """Return the kind of each node, whatever its type."""
    stated_N, _ = trace.texts(OPERATOR)
    found = {pair: operator_kind(*pair) for pair in set(zip(trace.names(), stated_N, strict=True))}
    return [found[pair] for pair in zip(trace.names(), stated_N, strict=True)]


def of_kinds(trace: Trace, kinds: tuple[OperatorKind, ...]) -> np.ndarray:
    """Return which nodes are of one of some kinds, bool (N,)."""
    return np.array([kind in kinds for kind in operator_kinds(trace)], dtype=bool)
