"""Operations of StableHLO and HLO: what each of them costs; custom calls of XLA's libraries.

``HLO_OPERATORS`` has the kind of every operation of the dialects (mhlo and chlo among them) that
``layerdag`` has a rule for, without the dialect's name. XLA's compiler for NVIDIA's devices
replaces matrix products, convolutions and attention by custom calls of cuBLAS and cuDNN
(xla/service/gpu/cublas_cudnn.cc); ``LIBRARY_CALLS`` says which of these a target is.
"""

from enum import Enum


class HloKind(Enum):
    """What an operation costs.

    Attributes:
        FREE: It takes no time.
        MOVEMENT: It moves data and computes nothing that counts.
        ELEMENTWISE: It counts once for each element of its result.
        MATRIX: A matrix product or convolution.
        REDUCTION: It counts once for each element that goes into a result.
    """

    FREE = "free"
    MOVEMENT = "movement"
    ELEMENTWISE = "elementwise"
    MATRIX = "matrix"
    REDUCTION = "reduction"


_NAMES = {
    HloKind.FREE: """
        constant iota return tuple get_tuple_element optimization_barrier real imag complex
        after_all replica_id partition_id get_dimension_size sharding_constraint create_token
        async_done async_update add_dependency domain""",
    HloKind.MOVEMENT: """
        transpose reshape broadcast_in_dim broadcast dynamic_broadcast_in_dim dynamic_reshape pad
        dynamic_pad concatenate slice dynamic_slice real_dynamic_slice dynamic_update_slice gather
        dynamic_gather scatter sort reverse select_and_scatter bitcast_convert copy dynamic_iota rng
        rng_bit_generator bitcast""",
    HloKind.ELEMENTWISE: """
        abs add and atan2 cbrt ceil clamp compare convert cosine count_leading_zeros divide
        exponential exponential_minus_one floor is_finite log log_plus_one logistic map maximum
        minimum multiply negate not or popcnt power reduce_precision remainder round_nearest_afz
        round_nearest_even rsqrt select shift_left shift_right_arithmetic shift_right_logical sign
        sine sqrt subtract tan tanh uniform_dequantize uniform_quantize xor erf acos acosh asin
        asinh atan atanh cosh sinh erfc erf_inv lgamma digamma next_after polygamma zeta square
        topk""",
    HloKind.MATRIX: "dot_general dot convolution dynamic_conv",
    HloKind.REDUCTION: "reduce reduce_window",
}

HLO_OPERATORS: dict[str, HloKind] = {
    name: kind for kind, names in _NAMES.items() for name in names.split()
}

ANNOTATIONS = frozenset(
    [
        "Sharding",
        "SPMDFullToShardShape",
        "SPMDShardToFullShape",
        "LayoutConstraint",
        "annotate_device_placement",
        "AssumeGatherIndicesInBound",
        "NopCustomCall",
        "AllocateBuffer",
        "CreateBuffer",
        "Pin",
        "Unpin",
        "shape_assertion",
    ]
)
"""Targets of custom calls that only tell something to the compiler, and take no time."""

_CONVOLUTIONS = (
    *("Forward", "ForwardGraph", "BiasActivationForward", "BackwardInput", "BackwardFilter"),
)
_ATTENTIONS = (
    "BmmBmm",
    *(f"{scale}Softmax{drop}"
      for scale in ("", "ScaleBias", "ScaleMask", "ScaleBiasMask") for drop in ("", "Dropout")),
)  # fmt: skip

# Others of the same libraries, such as __cudnn$convReorderFilter and __cudnn$norm, are none.
LIBRARY_CALLS: dict[str, str] = {
    **dict.fromkeys(
        [
            "__cublas$gemm",
            "__triton_gemm",
            "__cublas$lt$matmul",
            "__cublas$lt$matmul$f8",
            "__cublas$lt$matmul$mx",
        ],
        "product",
    ),
    **{f"__cudnn$conv{kind}": f"convolution {kind}" for kind in _CONVOLUTIONS},
    **{f"__cudnn$fmha{form}{width}": "attention" for form in _ATTENTIONS for width in ("", "F8")},
    **{
        f"__cudnn$fmha{form}Backward{width}": "attention backward"
        for form in _ATTENTIONS
        for width in ("", "F8")
    },
}
"""Targets of custom calls that are products of matrices, convolutions (with their direction) or
attention."""

LIBRARIES = ("__cublas$", "__cudnn$")
"""How targets of these libraries begin."""
