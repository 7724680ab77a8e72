"""A compiled program with its costs, and peak rates of devices."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from layerdag.errors import ConfigError
from layerdag.runtime.reading import read_whole
from layerdag.runtime.settings import did_you_mean

_BITS = re.compile(r"[a-z]+?(\d+)")


@dataclass(frozen=True)
class ValueType:
    """Shape and element type of a value.

    Attributes:
        shape: Sizes.
        element: Name of the element type as MLIR writes it: "f32", "bf16", "i1", "complex<f32>".
    """

    shape: tuple[int, ...]
    element: str

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def element_bits(self) -> int:
        """Bits of an element; a Boolean takes a byte, as in memory."""
        if self.element.startswith("complex"):
            return 128 if "f64" in self.element else 64
        found = _BITS.match(self.element.lower())
        bits = int(found[1]) if found else 32
        return 8 if bits == 1 else bits

    @property
    def num_bytes(self) -> int:
        """Bytes of the whole value."""
        return -(-self.size * self.element_bits // 8)


@dataclass(frozen=True)
class Computation:
    """One operation that computes or moves data inside a device.

    Attributes:
        name: Without its dialect: "dot_general".
        flops: Floating-point (or integer) operations.
        mem_bytes: Bytes read and written.
        element: The widest element type of operands and results; "" where there is none.
        parents: Indices of the items of the program whose values it takes.
        matrix: Whether it is a matrix product or convolution, which runs on matrix units.
    """

    name: str
    flops: int
    mem_bytes: int
    element: str
    parents: tuple[int, ...]
    matrix: bool = False


@dataclass(frozen=True)
class Collective:
    """One communication operation.

    Attributes:
        name: Without its dialect: "all_reduce", "collective_permute".
        num_bytes: What one device gives: its operands.
        groups: Ranks of each group; empty means all devices.
        pairs: (source, target) of a permutation; empty for other kinds.
        parents: As of ``Computation``.
    """

    name: str
    num_bytes: int
    groups: tuple[tuple[int, ...], ...]
    pairs: tuple[tuple[int, int], ...]
    parents: tuple[int, ...]


@dataclass(frozen=True)
class CompiledProgram:
    """What one device runs; every device runs the same.

    Attributes:
        name: Of the module.
        devices: Replicas times partitions.
        items: Operations in program order, calls inlined, loops unrolled.
        notes: What a reader should know: operators without a rule of costs, annotations that were
            not applied.
    """

    name: str
    devices: int
    items: tuple[Computation | Collective, ...]
    notes: tuple[str, ...] = field(default=())


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


def flops_of(
    name: str, inputs: Sequence[ValueType], outputs: Sequence[ValueType], reduced: int
) -> int:
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


def bytes_of(name: str, inputs: Sequence[ValueType], outputs: Sequence[ValueType]) -> int:
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


_MAX_BYTES = 1 << 20
_KEYS = ("peak_flops", "per_datatype_flops", "memory_bandwidth", "name")


@dataclass(frozen=True)
class Hardware:
    """A device.

    Attributes:
        peak_flops: Operations per second of element types that are not listed.
        memory_bandwidth: Bytes per second.
        per_datatype_flops: Operations per second by element type; "tf32" is taken for matrix
            products and convolutions of f32.
        name: For messages.
    """

    peak_flops: float
    memory_bandwidth: float
    per_datatype_flops: Mapping[str, float] = field(default_factory=dict)
    name: str = ""

    def __post_init__(self) -> None:
        rates = {"peak_flops": self.peak_flops, "memory_bandwidth": self.memory_bandwidth}
        rates |= {f"per_datatype_flops.{name}": v for name, v in self.per_datatype_flops.items()}
        for name, rate in rates.items():
            if not 0 < rate < math.inf:
                raise ConfigError(f"{name} is {rate}; it must be a positive number, per second.")

    @classmethod
    def from_name(cls, text: str) -> "Hardware":
        """Return a preset by its name, or what a JSON file says.

        Raises:
            ConfigError: If it is neither, or a value is missing or no rate.
        """
        if text in HARDWARE:
            return HARDWARE[text]
        if not Path(text).is_file():
            raise ConfigError(
                f"There is no hardware '{text}'.{did_you_mean(text, HARDWARE)} Known: "
                f"{', '.join(HARDWARE)}, or a JSON file with peak_flops and memory_bandwidth."
            )
        return cls.from_file(text)

    @classmethod
    def from_file(cls, path: str | Path) -> "Hardware":
        """Read ``{"peak_flops": ..., "memory_bandwidth": ..., "per_datatype_flops": {...}}``.

        Raises:
            ConfigError: If the file cannot be read, or a value is missing or no rate.
        """
        try:
            data = json.loads(read_whole(path, _MAX_BYTES, ConfigError))
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{path}: is no JSON ({error!s:.100}).") from None
        if not isinstance(data, dict):
            raise ConfigError(f"{path}: holds no JSON object; write one with peak_flops.")
        unknown = [key for key in data if key not in _KEYS]
        if unknown:
            raise ConfigError(
                f"{path}: unknown key '{unknown[0]}'.{did_you_mean(unknown[0], _KEYS)} Known: "
                f"{', '.join(_KEYS)}."
            )
        listed = data.get("per_datatype_flops", {})
        if not isinstance(listed, dict):
            raise ConfigError(f"{path}: per_datatype_flops must be an object of rates by type.")
        try:
            return cls(
                _rate(data, "peak_flops"),
                _rate(data, "memory_bandwidth"),
                {name: _rate(listed, name) for name in listed},
                str(data.get("name", Path(path).stem)),
            )
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from None

    def seconds(self, operation: Computation) -> float:
        """Return the time of an operation: the larger of its operations and its bytes."""
        listed = self.per_datatype_flops
        peak = listed.get(operation.element, self.peak_flops)
        if operation.matrix and operation.element == "f32":
            peak = listed.get("tf32", peak)
        return max(operation.flops / peak, operation.mem_bytes / self.memory_bandwidth)


def _rate(data: Mapping[str, object], name: str) -> float:
    """Return a number of a mapping."""
    value = data.get(name)
    if value is None:
        raise ConfigError(f"'{name}' is missing; state it per second.")
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"'{name}' is {value!r:.40}; it must be a number, per second.")
    return float(value)


def _a100(name: str, memory_bandwidth: float) -> Hardware:
    wide = dict.fromkeys(("f64", "f32", "i32", "si32", "ui32"), 19.5e12)
    narrow = {"tf32": 156e12, "bf16": 312e12, "f16": 312e12, "i8": 624e12, "i1": 624e12}
    return Hardware(9.7e12, memory_bandwidth, {**wide, **narrow}, name)


HARDWARE = {
    hardware.name: hardware
    for hardware in (
        _a100("a100-40", 1555e9),
        _a100("a100-80", 2039e9),
        Hardware(63.3e12, 429.2e9, {}, "tpu-v3"),
    )
}
"""Presets: the rates that Hespas ships for these devices."""
