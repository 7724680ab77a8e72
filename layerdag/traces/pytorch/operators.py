"""Operators of PyTorch: schemas, FLOPs, collectives, tensors.

Communication operators of PyTorch: which argument is sent, received, group, peer and tag.

Several families appear in host traces, whatever the backend: ``c10d::*`` (the C++ process group;
the group is an opaque object), ``_c10d_functional::*`` (functional collectives; the group's name is
an argument), ``c10d_functional::*`` (those of PyTorch 2.1 and 2.2, with the list of the group's
ranks), ``symm_mem::*`` (symmetric memory, with the group's name) and ``_C_custom_ar::*`` (vLLM,
without a group). The size of a message follows ASTRA-sim: all-reduce, reduce-scatter and all-to-all
count the whole buffer of a rank, all-gather the shard that a rank gives.

Which ATen operators are composite, so that an importer looks for work in their children.

A `CompositeImplicitAutograd` operator is written in terms of other operators and has no kernel of
its own: the dispatcher always descends through it. The names were read from the dispatcher of
PyTorch 2.13 (operators with a CompositeImplicitAutograd kernel and none for CPU, CUDA or
CompositeExplicitAutograd); a test compares them with the installed PyTorch. They are kept as text
because file tools must not import torch.

Floating-point operations of one operator from the shapes of its tensors.

A multiply-add counts as two operations, as in ``torch.utils.flop_counter``. Matrix products,
convolutions and attention follow their textbook formulas; every other kernel is charged one
operation for each element of its largest tensor, which is right for element-wise work and for
reductions, and an order of magnitude for the rest.

What a PyTorch operator does to its tensors, read from its schema: reads, writes, views, nothing.

The alias annotations of a schema say it all (PyTorch, aten/src/ATen/native/README.md):
``Tensor(a!)`` is written, a result ``Tensor(a)`` without ``!`` is a view, a plain result is new.
"""

import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from layerdag.errors import TraceError
from layerdag.hardware.dtypes import SPELLINGS, UNKNOWN_DTYPE
from layerdag.traces.pytorch.host_trace import HostBlock
from layerdag.traces.trace import CollectiveType, NodeType


@dataclass(frozen=True, slots=True)
class CommunicationOperator:
    """How to read the arguments of one communication operator.

    Attributes:
        name: Public name, such as "c10d::all_reduce", the same for both families.
        type: COMM_COLL, COMM_SEND or COMM_RECV.
        collective: Collective type; INVALID for send and receive.
        sent: Position of the tensors that the rank gives, -1 for none.
        received: Position of the tensors that are written, -1 if the results are.
        group: Position of the group's name or of its list of ranks, -1 where the group is an opaque
            object.
        peer: Position of the peer of a message, -1 for none; the tag follows it.
    """

    name: str
    type: NodeType
    collective: CollectiveType
    sent: int
    received: int
    group: int = -1
    peer: int = -1


def _coll(kind: CollectiveType, sent: int, received: int, group: int = -1) -> CommunicationOperator:
    name = f"c10d::{kind.name.lower()}"
    return CommunicationOperator(name, NodeType.COMM_COLL, kind, sent, received, group)


def _message(name: str, kind: NodeType, sent: int, received: int) -> CommunicationOperator:
    """Return a send or receive, whose peer and tag are arguments 2 and 3."""
    return CommunicationOperator(
        name, kind, CollectiveType.INVALID, sent, received, group=-1, peer=2
    )


_K = CollectiveType

COMMUNICATION_OPERATORS: dict[str, CommunicationOperator] = {
    "c10d::allreduce_": _coll(_K.ALL_REDUCE, 0, 0),
    "c10d::allreduce_coalesced_": _coll(_K.ALL_REDUCE, 0, 0),
    "c10d::broadcast_": _coll(_K.BROADCAST, 0, 0),
    "c10d::reduce_": _coll(_K.REDUCE, 0, 0),
    "c10d::allgather_": _coll(_K.ALL_GATHER, 1, 0),
    "c10d::_allgather_base_": _coll(_K.ALL_GATHER, 1, 0),
    "c10d::allgather_coalesced_": _coll(_K.ALL_GATHER, 1, 0),
    "c10d::allgather_into_tensor_coalesced_": _coll(_K.ALL_GATHER, 1, 0),
    "c10d::reduce_scatter_": _coll(_K.REDUCE_SCATTER, 1, 0),
    "c10d::_reduce_scatter_base_": _coll(_K.REDUCE_SCATTER, 1, 0),
    "c10d::reduce_scatter_tensor_coalesced_": _coll(_K.REDUCE_SCATTER, 1, 0),
    "c10d::alltoall_": _coll(_K.ALL_TO_ALL, 1, 0),
    "c10d::alltoall_base_": _coll(_K.ALL_TO_ALL, 1, 0),
    "c10d::gather_": _coll(_K.GATHER, 1, 0),
    "c10d::scatter_": _coll(_K.SCATTER, 1, 0),
    "c10d::barrier": _coll(_K.BARRIER, 0, -1),
    "c10d::send": _message("c10d::send", NodeType.COMM_SEND, 0, -1),
    "c10d::recv_": _message("c10d::recv", NodeType.COMM_RECV, -1, 0),
    "c10d::recv_any_source_": _message("c10d::recv", NodeType.COMM_RECV, -1, 0),
    "_c10d_functional::all_reduce": _coll(_K.ALL_REDUCE, 0, -1, 2),
    "_c10d_functional::all_reduce_": _coll(_K.ALL_REDUCE, 0, 0, 2),
    "_c10d_functional::all_reduce_coalesced": _coll(_K.ALL_REDUCE, 0, -1, 2),
    "_c10d_functional::all_gather_into_tensor": _coll(_K.ALL_GATHER, 0, -1, 2),
    "_c10d_functional::all_gather_into_tensor_out": _coll(_K.ALL_GATHER, 0, 3, 2),
    "_c10d_functional::all_gather_into_tensor_coalesced": _coll(_K.ALL_GATHER, 0, -1, 2),
    "_c10d_functional::reduce_scatter_tensor": _coll(_K.REDUCE_SCATTER, 0, -1, 3),
    "_c10d_functional::reduce_scatter_tensor_coalesced": _coll(_K.REDUCE_SCATTER, 0, -1, 3),
    "_c10d_functional::all_to_all_single": _coll(_K.ALL_TO_ALL, 0, -1, 3),
    "_c10d_functional::broadcast": _coll(_K.BROADCAST, 0, -1, 2),
    "_c10d_functional::broadcast_": _coll(_K.BROADCAST, 0, 0, 2),
    "_c10d_functional::all_reduce_coalesced_": _coll(_K.ALL_REDUCE, 0, 0, 2),
    "c10d_functional::all_reduce": _coll(_K.ALL_REDUCE, 0, -1, 3),
    "c10d_functional::all_reduce_coalesced": _coll(_K.ALL_REDUCE, 0, -1, 3),
    "c10d_functional::broadcast": _coll(_K.BROADCAST, 0, -1, 3),
    "c10d_functional::all_gather_into_tensor": _coll(_K.ALL_GATHER, 0, -1, 2),
    "c10d_functional::all_gather_into_tensor_coalesced": _coll(_K.ALL_GATHER, 0, -1, 2),
    "c10d_functional::reduce_scatter_tensor": _coll(_K.REDUCE_SCATTER, 0, -1, 3),
    "c10d_functional::reduce_scatter_tensor_coalesced": _coll(_K.REDUCE_SCATTER, 0, -1, 3),
    "c10d_functional::all_to_all_single": _coll(_K.ALL_TO_ALL, 0, -1, 4),
    "_c10d_functional::reduce_scatter_tensor_out": _coll(_K.REDUCE_SCATTER, 0, 4, 3),
    "symm_mem::multimem_all_reduce_": _coll(_K.ALL_REDUCE, 0, 0, 2),
    "symm_mem::multimem_one_shot_all_reduce": _coll(_K.ALL_REDUCE, 0, -1, 2),
    "symm_mem::multimem_one_shot_all_reduce_out": _coll(_K.ALL_REDUCE, 0, 3, 2),
    "symm_mem::multimem_one_shot_reduce_out": _coll(_K.REDUCE, 0, 4, 3),
    "symm_mem::multimem_all_gather_out": _coll(_K.ALL_GATHER, 0, 2, 1),
    "symm_mem::one_shot_all_reduce": _coll(_K.ALL_REDUCE, 0, -1, 2),
    "symm_mem::one_shot_all_reduce_out": _coll(_K.ALL_REDUCE, 0, 3, 2),
    "symm_mem::one_shot_all_reduce_copy": _coll(_K.ALL_REDUCE, 1, -1, 3),
    "symm_mem::one_shot_all_reduce_copy_out": _coll(_K.ALL_REDUCE, 1, 4, 3),
    "symm_mem::two_shot_all_reduce_": _coll(_K.ALL_REDUCE, 0, 0, 2),
    "symm_mem::two_shot_all_reduce_out": _coll(_K.ALL_REDUCE, 0, 3, 2),
    "symm_mem::reduce_scatter_out": _coll(_K.REDUCE_SCATTER, 0, 3, 1),
    "symm_mem::_low_contention_all_gather": _coll(_K.ALL_GATHER, 0, -1, 1),
    "symm_mem::_low_contention_reduce_scatter": _coll(_K.REDUCE_SCATTER, 0, -1, 2),
    "symm_mem::nvshmem_broadcast": _coll(_K.BROADCAST, 0, 0, 2),
    "symm_mem::nvshmem_all_to_all": _coll(_K.ALL_TO_ALL, 0, 1, 2),
    "symm_mem::all_to_all_vdev": _coll(_K.ALL_TO_ALL, 0, 1, 4),
    "symm_mem::all_to_all_vdev_2d": _coll(_K.ALL_TO_ALL, 0, 1, 4),
    "symm_mem::all_to_all_vdev_2d_offset": _coll(_K.ALL_TO_ALL, 0, 1, 4),
    "_C_custom_ar::all_reduce": _coll(_K.ALL_REDUCE, 1, 2),
    "_C_custom_ar::all_reduce_reg": _coll(_K.ALL_REDUCE, 1, 2),
}
"""Every communication operator by the name it has in a host trace."""

BARRIER_BYTES = 4
"""A barrier is an all-reduce of one float: so NCCL's process group does it
(``ProcessGroupNCCL::barrier``), and ASTRA-sim knows no barrier."""

WAITS = frozenset(
    {
        *("_c10d_functional::wait_tensor", "c10d_functional::wait_tensor"),
        "c10d::monitored_barrier_",
    }
)
"""Operators that wait for a communication that was started before."""

_FAMILIES = ("c10d::", "_c10d_functional", "c10d_functional::", "symm_mem::", "_dtensor::")
# Operators of these families that move no tensor: they wait, signal, check, or make handles.
_SILENT = WAITS | {
    *("_c10d_functional::_wrap_tensor_autograd", "_dtensor::mesh_get_process_group"),
    *("c10d::check_for_nan", "symm_mem::_async_input_mm", "symm_mem::_rendezvous"),
    *("symm_mem::get_remote_tensors", "symm_mem::memset32_", "symm_mem::stream_write_value32_"),
    *("symm_mem::nccl_put_signal", "symm_mem::nccl_wait_for_signal", "symm_mem::nccl_wait_signal"),
    "symm_mem::nvshmem_wait_for_signal",
}


def is_unknown_communication(name: str) -> bool:
    """Return whether an operator is of a family of communication, but none that is known."""
    return name.startswith(_FAMILIES) and not (name in COMMUNICATION_OPERATORS or name in _SILENT)


_WHOLE = """
__and__ __iand__ __ior__ __ixor__ __or__ __xor__ _add_batch_dim _autocast_to_full_precision
_autocast_to_reduced_precision _backward _batch_norm_impl_index _batch_norm_impl_index_backward
_cast_Byte _cast_Char _cast_Double _cast_Float _cast_Half _cast_Int _cast_Long _cast_Short
_choose_qparams_per_tensor _convolution_double_backward _convolution_mode _cufft_clear_plan_cache
_cufft_get_plan_cache_max_size _cufft_get_plan_cache_size _cufft_set_plan_cache_max_size
_debug_has_internal_overlap _dim_arange _embedding_bag_sparse_backward _fused_rms_norm
_gather_sparse_backward _has_compatible_shallow_copy_type _is_zerotensor _lu_with_info
_nnpack_available _pack_padded_sequence_backward _pad_circular _pad_enum _pad_packed_sequence
_propagate_xla_data _remove_batch_dim _reshape_from_tensor _rowwise_prune _saturate_weight_to_fp16
_scaled_dot_product_attention_math _shape_as_tensor _sobol_engine_draw _sobol_engine_ff_
_sobol_engine_initialize_state_ _sobol_engine_scramble_ _sparse_bsc_tensor_unsafe
_sparse_bsr_tensor_unsafe _sparse_compressed_tensor_unsafe _sparse_coo_tensor_unsafe
_sparse_csc_tensor_unsafe _sparse_csr_tensor_unsafe _sparse_mm
_thnn_differentiable_gru_cell_backward _thnn_differentiable_lstm_cell_backward
_thnn_fused_lstm_cell_backward _to_cpu _unpack_dual _use_cudnn_rnn_flatten_weight
_validate_sparse_bsc_tensor_args _validate_sparse_bsr_tensor_args
_validate_sparse_compressed_tensor_args _validate_sparse_coo_tensor_args
_validate_sparse_csc_tensor_args _validate_sparse_csr_tensor_args _version _weight_norm
_weight_norm_differentiable_backward _wrapped_linear_prepack _wrapped_quantized_linear_prepacked
absolute absolute_ adaptive_max_pool1d adjoint affine_grid_generator_backward alpha_dropout
alpha_dropout_ arccos arccos_ arccosh arccosh_ arcsin arcsin_ arcsinh arcsinh_ arctan arctan2
arctan2_ arctan_ arctanh arctanh_ argsort argwhere atleast_1d atleast_2d atleast_3d batch_norm
bilinear broadcast_tensors broadcast_to can_cast cartesian_prod cdist chain_matmul chalf
choose_qparams_optimized chunk clip clip_ coalesce column_stack combinations concat concatenate conj
contiguous conv1d conv2d conv3d conv_tbc_backward conv_transpose1d conv_transpose2d conv_transpose3d
corrcoef cosine_embedding_loss cosine_similarity cov cross cross_entropy_loss ctc_loss
cudnn_is_acceptable cummaxmin_backward cumprod_backward cumulative_trapezoid data det diag diagflat
diff dim divide divide_ dropout dropout_ dsplit dstack einsum embedding_backward embedding_bag
embedding_sparse_backward expand_as fake_quantize_per_channel_affine
fake_quantize_per_channel_affine_cachemask_backward fake_quantize_per_tensor_affine
fake_quantize_per_tensor_affine_cachemask_backward fbgemm_linear_fp16_weight
fbgemm_linear_fp16_weight_fp32_activation fbgemm_linear_int8_weight
fbgemm_linear_int8_weight_fp32_activation fbgemm_linear_quantize_weight fbgemm_pack_gemm_matrix_fp16
fbgemm_pack_quantized_matrix feature_alpha_dropout feature_alpha_dropout_ feature_dropout
feature_dropout_ fft_fft fft_fft2 fft_fftn fft_fftshift fft_hfft fft_hfft2 fft_hfftn fft_ifft
fft_ifft2 fft_ifftn fft_ifftshift fft_ihfft fft_ihfft2 fft_ihfftn fft_irfft fft_irfft2 fft_irfftn
fft_rfft fft_rfft2 fft_rfftn fill_diagonal_ fix fix_ flatten flatten_dense_tensors fliplr flipud
float_power float_power_ frobenius_norm fused_moving_avg_obs_fake_quant gather_backward ger
get_device get_gradients gradient greater greater_ greater_equal greater_equal_ grid_sampler
group_norm gru gru_cell hinge_embedding_loss histogramdd hsplit hstack imag index_select_backward
infinitely_differentiable_gelu_backward inner instance_norm inverse is_complex is_conj is_contiguous
is_distributed is_floating_point is_inference is_leaf is_neg is_nonzero is_signed
is_vulkan_available isclose isfinite isreal istft item kl_div kron l1_loss layer_norm less less_
less_equal less_equal_ linalg_cholesky linalg_cond linalg_det linalg_diagonal linalg_eigh
linalg_eigvalsh linalg_inv linalg_ldl_factor linalg_lu_factor linalg_matmul linalg_matrix_norm
linalg_matrix_power linalg_matrix_rank linalg_multi_dot linalg_norm linalg_slogdet linalg_solve
linalg_solve_ex linalg_svd linalg_svdvals linalg_tensorinv linalg_tensorsolve linalg_vander
linalg_vecdot log_sigmoid logdet lstm lstm_cell lu_solve mH mT margin_ranking_loss
masked_select_backward matmul matrix_H matrix_exp matrix_exp_backward matrix_power max_pool1d
max_pool1d_with_indices max_pool2d max_pool3d meshgrid moveaxis movedim msort multilabel_margin_loss
multiply multiply_ nanmean nanquantile narrow negative negative_ nested_to_padded_tensor nll_loss
nll_loss2d nll_loss_nd nonzero_numpy norm_except_dim not_equal not_equal_ nuclear_norm numel numpy_T
one_hot orgqr outer output_nr pad pad_sequence pairwise_distance pdist pin_memory pinverse
poisson_nll_loss positive prelu promote_types qr quantile quantized_gru_cell quantized_lstm_cell
quantized_rnn_relu_cell quantized_rnn_tanh_cell ravel real relu6 relu6_ requires_grad_ reshape
reshape_as resolve_conj resolve_neg result_type retain_grad retains_grad rms_norm rnn_relu
rnn_relu_cell rnn_tanh rnn_tanh_cell row_stack rrelu rrelu_ scaled_dot_product_attention selu selu_
set_data size slogdet slow_conv3d smm sparse_bsc_tensor sparse_bsr_tensor sparse_csc_tensor
sparse_csr_tensor special_digamma special_erf special_erfc special_erfinv special_exp2 special_expit
special_expm1 special_gammainc special_gammaincc special_gammaln special_i0 special_log1p
special_log_softmax special_logit special_logsumexp special_multigammaln special_ndtr
special_polygamma special_psi special_round special_sinc special_softmax special_xlogy square
square_ stft storage_offset stride subtract subtract_ sum_to_size svd swapaxes swapaxes_ swapdims
swapdims_ sym_is_contiguous sym_numel sym_size sym_storage_offset sym_stride take_along_dim
tensor_split tensordot thnn_conv2d tile to to_dense to_dense_backward to_mkldnn_backward to_sparse
to_sparse_bsc to_sparse_bsr to_sparse_csc to_sparse_csr trace_backward trapezoid trapz
triplet_margin_loss true_divide true_divide_ type_as unflatten unflatten_dense_tensors unsafe_chunk
value_selecting_reduction_backward vander view_as vsplit vstack
"""

# Operators of which only some overloads are composite: "name.overload" ("name." for the default).
_SINGLE = """
_convolution.deprecated _sparse_log_softmax.int _sparse_softmax.int _sparse_sum.
_sparse_sum.dim_dtype _sparse_sum.dtype _upsample_bicubic2d_aa.vec _upsample_bilinear2d_aa.vec
_upsample_lanczos2d_aa.vec _upsample_nearest_exact1d.vec _upsample_nearest_exact2d.vec
_upsample_nearest_exact3d.vec adaptive_avg_pool1d. adaptive_avg_pool2d. adaptive_avg_pool3d.
avg_pool1d. conj_physical. empty.out linalg_eigvals. linalg_pinv. linalg_pinv.atol_rtol_float
linalg_pinv.atol_rtol_float_out linalg_pinv.out linalg_pinv.out_rcond_tensor
linalg_pinv.rcond_tensor linear. log_softmax.int max.other max.out min.other min.out
rand.generator_out randn.generator_out randn.out repeat_interleave.self_Tensor
repeat_interleave.self_int set_.source_Tensor_storage_offset softmax.int sparse_coo_tensor.indices
sparse_coo_tensor.indices_size split.sizes sspaddmm. std. std.dim std.out std_mean. std_mean.dim
upsample_bicubic2d.vec upsample_bilinear2d.vec upsample_linear1d.vec upsample_nearest1d.vec
upsample_nearest2d.vec upsample_nearest3d.vec upsample_trilinear3d.vec var. var.dim var.out
var_mean. var_mean.dim where. where.Scalar where.ScalarOther where.ScalarSelf
"""

COMPOSITE_OPERATORS = frozenset(_WHOLE.split())
COMPOSITE_OVERLOADS = frozenset(_SINGLE.split())


def is_composite(operator: str) -> bool:
    """Return whether ``operator``, such as "aten::max.other", has no kernel of its own."""
    if not operator.startswith("aten::"):
        return False
    name, _, overload = operator.removeprefix("aten::").partition(".")
    return name in COMPOSITE_OPERATORS or f"{name}.{overload}" in COMPOSITE_OVERLOADS


WHOLE = 1 << 62
"""End of a view whose extent is not known: the whole storage."""

_NUMBER_DTYPES = frozenset({"float64", "int64", "bool", "complex128"})
# What PyTorch makes of Python numbers (c10/core/ScalarType.h, wrapped numbers).


class TensorView(NamedTuple):
    """A tensor as one operator sees it.

    Attributes:
        storage: Storage id; a name in time, freed memory reuses it.
        begin: First byte inside the storage.
        end: One past the last byte.
        num_bytes: Bytes that the tensor's elements occupy.
        shape: Sizes.
        dtype: Public name such as "float32".
        device: "cpu", "cuda", ..., without an index.
    """

    storage: int
    begin: int
    end: int
    num_bytes: int
    shape: tuple[int, ...]
    dtype: str
    device: str

    @property
    def num_elements(self) -> int:
        """Number of elements."""
        count = 1
        for size in self.shape:
            count *= size
        return count

    @property
    def is_number(self) -> bool:
        """Whether this may be a Python number: no shape, and of a type that numbers become."""
        return not self.shape and self.dtype in _NUMBER_DTYPES


class BlockTensors:
    """The tensors of one block of a host trace, by their row.

    Tensors without elements are not among them.
    """

    def __init__(self, block: HostBlock) -> None:
        tensors_T = block.tensors_T
        self.position: list[int] = tensors_T["position"].tolist()
        self.storage: list[int] = tensors_T["storage"].tolist()
        self._begin = tensors_T["begin"].tolist()
        self._end = tensors_T["end"].tolist()
        self._bytes = tensors_T["bytes"].tolist()
        self._shape = tensors_T["shape"].tolist()
        self._dims = tensors_T["dims"].tolist()
        self._dtype = tensors_T["dtype"].tolist()
        self._device = tensors_T["device"].tolist()
        self._sizes = block.size_S.tolist()
        self._words = block.words

    def view(self, row: int) -> TensorView:
        """Return one tensor."""
        first = self._shape[row]
        return TensorView(
            self.storage[row],
            self._begin[row],
            self._end[row],
            self._bytes[row],
            tuple(self._sizes[first : first + self._dims[row]]),
            _dtype_name(self._words[self._dtype[row]]),
            self._words[self._device[row]],
        )


def _dtype_name(word: str) -> str:
    found = SPELLINGS.get(word)
    return UNKNOWN_DTYPE if found is None else found.name


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
    if len(reads) < 2 or not writes or not any(reads[1].shape[:1]):
        return None
    per_output = reads[1].num_elements // reads[1].shape[0]
    return 2 * writes[0].num_elements * per_output


def _convolution_backward(reads: Tensors, writes: Tensors) -> int | None:
    if len(reads) < 3 or not any(reads[2].shape[:1]):
        return None
    per_output = reads[2].num_elements // reads[2].shape[0]
    gradients = sum(1 for tensor in writes if len(tensor.shape) > 2)
    return 2 * max(gradients, 1) * reads[0].num_elements * per_output


def _attention(first: int, products: int) -> Callable[[Tensors, Tensors], int | None]:
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
    "_grouped_mm": _product(0, 1),
    "_scaled_grouped_mm": _product(0, 1),
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


class OpRole(IntEnum):
    """What a node of a host trace means for the data-flow graph."""

    SCOPE = 0
    """Has no kernel of its own (scope, autograd wrapper, composite): its children count."""
    VIEW = 1
    """Moves no data: folded away together with its children."""
    ALLOCATION = 2
    """Returns new, unwritten memory."""
    COMPUTE = 3
    """Runs a kernel; its children are part of it."""
    COMMUNICATION = 4
    """Sends or receives; its children are part of it."""
    GROUP = 5
    """Declares process groups."""


@dataclass(frozen=True, slots=True)
class Signature:
    """What the importer must know of an operator.

    Attributes:
        role: The operator's role.
        written: Positions of the arguments that are written.
        overwritten: Those among them whose old content is not read.
        reallocated: Those among them whose memory was allocated just before without an operator.
    """

    role: OpRole
    written: frozenset[int] = frozenset()
    overwritten: frozenset[int] = frozenset()
    reallocated: frozenset[int] = frozenset()


PROCESS_GROUP_INIT = "## process_group:init ##"

_ALLOCATIONS = ("aten::empty", "aten::new_empty", "aten::_empty_", "aten::resize_")
# Views that the alias annotations do not show, and functions that only give tensors another owner.
_HIDDEN_VIEWS = frozenset(
    {
        "aten::_unsafe_view",
        "aten::_reshape_alias",
        "aten::lift",
        "aten::set_",
        "_c10d_functional::_wrap_tensor_autograd",
    }
)
# In-place operators that do not read what they write over.
_OVERWRITES = frozenset(
    f"aten::{name}_"
    for name in (
        *("copy", "fill", "zero", "normal", "uniform", "random", "bernoulli", "exponential", "set"),
        *("_foreach_copy", "_foreach_zero"),
    )
)
# FSDP2 resizes the storages of unsharded parameters, unseen, before it copies into them.
_REALLOCATED = frozenset({"fsdp::split_with_sizes_copy"})
_ALIAS = re.compile(r"Tensor(\[\])?\([a-z]")


@functools.lru_cache(maxsize=8192)
def signature(name: str, schema: str, triton: bool = False) -> Signature:
    """Return the signature of an operator.

    Args:
        name: Node name, such as "aten::add_".
        schema: Its schema, "" for scopes and autograd nodes.
        triton: Whether the node is a compiled Triton kernel, which has no schema.

    Raises:
        TraceError: If the schema is none that PyTorch writes.
    """
    if name in COMMUNICATION_OPERATORS:
        return Signature(OpRole.COMMUNICATION)
    if name == PROCESS_GROUP_INIT:
        return Signature(OpRole.GROUP)
    if triton:
        return Signature(OpRole.COMPUTE)
    qualified = schema.partition("(")[0]
    if is_unknown_communication(name):
        return Signature(OpRole.COMPUTE)
    if not schema or is_composite(qualified) or name.startswith(("profiler::", "c10d::")):
        return Signature(OpRole.SCOPE)
    try:
        return _from_schema(name, schema)
    except (ValueError, IndexError):
        raise TraceError(
            f"operator '{name[:80]}' has the schema '{schema[:80]}', which is none that PyTorch "
            "writes; collect the trace again."
        ) from None


def _from_schema(name: str, schema: str) -> Signature:
    arguments, results = _split(schema)
    written = frozenset(i for i, text in enumerate(arguments) if "!" in text.partition(")")[0])
    if name in WAITS or name in _HIDDEN_VIEWS or (not written and _ALIAS.search(results)):
        return Signature(OpRole.VIEW)
    if name.startswith(_ALLOCATIONS):
        return Signature(OpRole.ALLOCATION, written)
    if not written and "Tensor" not in results:
        return Signature(OpRole.SCOPE)
    if name in _OVERWRITES:
        return Signature(OpRole.COMPUTE, written, written)
    outs = frozenset(i for i in written if _argument_name(arguments[i]).startswith("out"))
    return Signature(OpRole.COMPUTE, written, outs, outs if name in _REALLOCATED else frozenset())


def _split(schema: str) -> tuple[list[str], str]:
    """Return the arguments and the result part of a schema; "*" is no argument."""
    depth = 0
    arguments: list[str] = []
    begin = schema.index("(") + 1
    for at in range(begin, len(schema)):
        letter = schema[at]
        if letter in "([":
            depth += 1
        elif letter in ")]" and depth:
            depth -= 1
        elif letter in ",)" and not depth:
            arguments.append(schema[begin:at].strip())
            begin = at + 1
            if letter == ")":
                break
    return [text for text in arguments if text not in ("", "*")], schema[begin:]


def _argument_name(text: str) -> str:
    """Return the name in "Tensor(a!) self" or "int dim=0"."""
    return text.partition("=")[0].split()[-1]
