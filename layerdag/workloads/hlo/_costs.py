"""FLOPs and bytes of one StableHLO operation, the rules of Hespas' roofline estimator."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from layerdag.workloads.hlo._program import Tensor

FREE = frozenset(
    (
        *("constant", "iota", "return", "tuple", "get_tuple_element", "optimization_barrier"),
        *("real", "imag", "complex", "after_all", "replica_id", "partition_id"),
        *("get_dimension_size", "sharding_constraint", "create_token"),
    )
)
"""Operations that take no time."""
MOVES = frozenset(
    (
        *("transpose", "reshape", "broadcast_in_dim", "broadcast", "dynamic_broadcast_in_dim"),
        *("dynamic_reshape", "pad", "dynamic_pad", "concatenate", "slice", "dynamic_slice"),
        *("real_dynamic_slice", "dynamic_update_slice", "gather", "dynamic_gather", "scatter"),
        *("sort", "reverse", "select_and_scatter", "custom_call", "bitcast_convert", "copy"),
        *("dynamic_iota", "rng", "rng_bit_generator", "bitcast"),
    )
)
"""Operations that move data and compute nothing that counts."""
ELEMENTWISE = frozenset(
    (
        *("abs", "add", "and", "atan2", "cbrt", "ceil", "clamp", "compare", "convert", "cosine"),
        *("count_leading_zeros", "divide", "exponential", "exponential_minus_one", "floor"),
        *("is_finite", "log", "log_plus_one", "logistic", "map", "maximum", "minimum", "multiply"),
        *("negate", "not", "or", "popcnt", "power", "reduce_precision", "remainder"),
        *("round_nearest_afz", "round_nearest_even", "rsqrt", "select", "shift_left"),
        *("shift_right_arithmetic", "shift_right_logical", "sign", "sine", "sqrt", "subtract"),
        *("tan", "tanh", "uniform_dequantize", "uniform_quantize", "xor", "erf", "acos", "acosh"),
        *("asin", "asinh", "atan", "atanh", "cosh", "sinh", "erfc", "erf_inv", "lgamma"),
        *("digamma", "next_after", "polygamma", "zeta", "square", "topk"),
    )
)
"""Operations that count once for each element of their result."""
MATRIX = frozenset(("dot_general", "dot", "convolution", "dynamic_conv"))
_SORTED = frozenset(("sort",))
_PARTS = frozenset(("slice", "dynamic_slice", "real_dynamic_slice"))


@dataclass(frozen=True)
class Cost:
    """What an operation takes, however fast the device is."""

    flops: int
    mem_bytes: int


def flops_of(name: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor], reduced: int) -> int:
    """Return the operations of an operation.

    Args:
        name: Without its dialect.
        inputs: Operands.
        outputs: Results.
        reduced: Elements that make one of the result: of the contracted dimensions, the kernel and
            its input features, the window; 1 for others.
    """
    if name in FREE or name in MOVES or not outputs:
        return 0
    size = outputs[0].size
    if name in MATRIX:
        return 2 * size * reduced
    if name in ("reduce", "reduce_window"):
        return max(reduced - 1, 0) * size
    return size if name in ELEMENTWISE else 0


def bytes_of(name: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> int:
    """Return the bytes that an operation reads and writes.

    A slice reads only what it returns. A sort reads and writes once for each bit of a key. Initial
    values of a reduction are not counted.
    """
    if name in FREE:
        return 0
    written = sum(tensor.num_bytes for tensor in outputs)
    if name in _PARTS:
        return 2 * written
    if name == "reduce":
        inputs = inputs[: len(inputs) // 2]
    moved = written + sum(tensor.num_bytes for tensor in inputs)
    return moved * math.ceil(inputs[0].element_bits / 8) if name in _SORTED and inputs else moved
