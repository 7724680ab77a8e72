"""Number formats: how tools spell them, how many bits they take, at which peak rate they run.

Formats of tensors are those of PyTorch (``c10/core/ScalarType.h``). Three spellings of these occur
in traces: the enumeration's name that NCCL's arguments carry ("Float8_e4m3fn", "Char"), the C++
name of the type as the compiler prints it ("c10::Float8_e4m3fn", "signed char"; gcc, clang and MSVC
differ in integers: "long int", "long", "__int64"), and Python's ("float8_e4m3fn", "int8").
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

UNKNOWN_DTYPE = "unknown"


@dataclass(frozen=True, slots=True)
class DType:
    """A format of the numbers of a tensor.

    Attributes:
        name: Public name, such as "float32".
        bits: Of an element in memory; of a packed type, of its packed element.
        number_class: Which peak rate of a device counts: "f64", "f32", "bf16" (and f16), "i8",
            "f8" or "f4"; wide integers run at the rate of single precision. None where it is not
            known.
        spellings: Other names.
        code: In the enumeration of PyTorch, which appears among arguments; None if it has none.
        in_programs: Whether tensors of a forward program may have it.
    """

    name: str
    bits: int
    number_class: str | None
    spellings: tuple[str, ...] = ()
    code: int | None = None
    in_programs: bool = False

    @property
    def is_float(self) -> bool:
        """Whether it is a floating-point format of PyTorch."""
        return "float" in self.name


def _dtype(
    name: str,
    bits: int,
    number_class: str | None,
    spellings: str,
    code: int | None = None,
    in_programs: bool = False,
) -> DType:
    return DType(name, bits, number_class, tuple(spellings.split("|")), code, in_programs)


DTYPES: Mapping[str, DType] = {
    dtype.name: dtype
    for dtype in (
        _dtype("uint8", 8, "i8", "Byte|unsigned char", 0, True),
        _dtype("int8", 8, "i8", "Char|signed char|char", 1, True),
        _dtype("int16", 16, "f32", "Short|short|short int", 2, True),
        _dtype("int32", 32, "f32", "Int|int", 3, True),
        _dtype("int64", 64, "f32", "Long|long|long int|long long|long long int|__int64", 4, True),
        _dtype("float16", 16, "bf16", "Half|c10::Half|fp16", 5, True),
        _dtype("float32", 32, "f32", "Float|float|fp32", 6, True),
        _dtype("float64", 64, "f64", "Double|double", 7, True),
        _dtype("complex32", 32, "f32", "ComplexHalf|c10::complex<c10::Half>", 8),
        _dtype(
            "complex64", 64, "f32", "ComplexFloat|complex<float>|c10::complex<float>", 9, True
        ),
        _dtype(
            "complex128", 128, "f32", "ComplexDouble|complex<double>|c10::complex<double>", 10, True
        ),
        _dtype("bool", 8, "i8", "Bool", 11, True),
        _dtype("qint8", 8, None, "QInt8|c10::qint8", 12),
        _dtype("quint8", 8, None, "QUInt8|c10::quint8", 13),
        _dtype("qint32", 32, None, "QInt32|c10::qint32", 14),
        _dtype("bfloat16", 16, "bf16", "BFloat16|c10::BFloat16|bf16", 15, True),
        _dtype("quint4x2", 8, None, "QUInt4x2|c10::quint4x2", 16),
        _dtype("quint2x4", 8, None, "QUInt2x4|c10::quint2x4", 17),
        _dtype("bits1x8", 8, None, "Bits1x8|c10::bits1x8", 18),
        _dtype("bits2x4", 8, None, "Bits2x4|c10::bits2x4", 19),
        _dtype("bits4x2", 8, None, "Bits4x2|c10::bits4x2", 20),
        _dtype("bits8", 8, None, "Bits8|c10::bits8", 21),
        _dtype("bits16", 16, None, "Bits16|c10::bits16", 22),
        _dtype("float8_e5m2", 8, "f8", "c10::Float8_e5m2", 23, True),
        _dtype("float8_e4m3fn", 8, "f8", "c10::Float8_e4m3fn", 24, True),
        _dtype("float8_e5m2fnuz", 8, "f8", "c10::Float8_e5m2fnuz", 25),
        _dtype("float8_e4m3fnuz", 8, "f8", "c10::Float8_e4m3fnuz", 26),
        _dtype(
            "uint16", 16, "f32", "UInt16|unsigned short|short unsigned int|unsigned short int", 27
        ),
        _dtype("uint32", 32, "f32", "UInt32|unsigned int|unsigned", 28),
        _dtype(
            "uint64", 64, "f32", "UInt64|unsigned long|long unsigned int|unsigned long int"
            "|unsigned long long|long long unsigned int|unsigned __int64", 29,
        ),
        *(
            _dtype(
                f"{kind}{width}", 8, None, f"{title}{width}|c10::dummy_{kind}1_7_t<{width}>",
                first + width,
            )
            for kind, title, first in (("uint", "UInt", 29), ("int", "Int", 36))
            for width in range(1, 8)
        ),  # of 1 to 7 bits, which take a byte for each element
        _dtype("float8_e8m0fnu", 8, "f8", "c10::Float8_e8m0fnu", 44),
        _dtype("float4_e2m1fn_x2", 8, None, "c10::Float4_e2m1fn_x2", 45),
        # Products of steps in these formats have one operand cast to them and are no tensors.
        DType("fp8", 8, "f8"),
        DType("mxfp8", 8, "f8"),
        DType("nvfp4", 8, "f4"),
    )
}  # fmt: skip
"""Formats by public name. They are those of PyTorch and, at the end, those that products of
``layerdag workload`` cast their operands to, whose scales ``WEIGHT_FORMATS`` counts."""

SPELLINGS: Mapping[str, DType] = {
    spelling: dtype for dtype in DTYPES.values() for spelling in (dtype.name, *dtype.spellings)
}
"""Formats by every spelling, in the case of its source."""

_LOWER = {spelling.lower(): dtype for spelling, dtype in SPELLINGS.items()}

DTYPE_BY_CODE = {dtype.code: dtype for dtype in DTYPES.values() if dtype.code is not None}
"""Formats by their code in PyTorch's enumeration."""


def find_dtype(word: str) -> DType | None:
    """Return the format of a word, such as "c10::Half" or "Tensor(float)"; None if unknown."""
    inner = word.strip().lower()
    if inner.startswith("tensor(") and inner.endswith(")"):
        inner = inner[len("tensor(") : -1]
    return _LOWER.get(inner) or _LOWER.get(inner.removeprefix("c10::").removeprefix("torch."))


def number_class(dtype: str) -> str | None:
    """Return the class of number of a format, None for an unknown one.

    A node that states no format counts as single precision, the default of PyTorch.
    """
    found = find_dtype(dtype)
    if found is None:
        return None if dtype else "f32"
    return found.number_class


def item_bytes(dtype: str) -> int | None:
    """Return the bytes of a number of a format; None where its class of number is not known."""
    found = find_dtype(dtype or "float32")
    return None if found is None or found.number_class is None else found.bits // 8


def nearest_class(number: str, known: Collection[str]) -> str:
    """Return the class whose rate a device has: without such units that of the wider format."""
    wider = {"f4": "f8", "f8": "bf16"}
    while number in wider and number not in known:
        number = wider[number]
    return number


_MLIR_BITS = re.compile(r"[a-z]+?(\d+)")
_MLIR_QUANTIZED = re.compile(r"!quant\.uniform<[iu](\d+)")


def mlir_bits(element: str) -> int:
    """Return the bits of an element type of MLIR, 0 if unknown; a Boolean takes a byte.

    MLIR has integers of any width and derived types, whose names say their bits: "f32", "ui8",
    "f8E4M3FN", "complex<f32>", "!quant.uniform<i8:f32>".
    """
    if element.startswith("complex"):
        return 128 if "f64" in element else 64
    if element == "index":
        return 64
    found = _MLIR_QUANTIZED.match(element) or _MLIR_BITS.match(element.lower())
    bits = int(found[1]) if found else 0
    return 8 if bits == 1 else bits


@dataclass(frozen=True, slots=True)
class WeightFormat:
    """How a serving engine stores weights and multiplies by them.

    Attributes:
        name: As tables of measured kernels and ``layerdag serving`` name it.
        item_bytes: Bytes of a weight with its share of scales.
        number_class: Class of number that its products run in.
        activation_bytes: Bytes of an activation.
        served: Whether ``layerdag serving`` may be asked for it.
    """

    name: str
    item_bytes: float
    number_class: str
    activation_bytes: float
    served: bool = False


WEIGHT_FORMATS: Mapping[str, WeightFormat] = {
    each.name: each
    for each in (
        WeightFormat("bf16", 2.0, "bf16", 2.0, served=True),
        WeightFormat("fp8", 1.0, "f8", 1.0, served=True),
        WeightFormat("fp8_block", 1.0, "f8", 1.0),
        WeightFormat("int8", 1.0, "i8", 1.0),
        WeightFormat("int8_wo", 1.0, "bf16", 2.0),
        WeightFormat("sq", 1.0, "i8", 1.0),
        WeightFormat("nvfp4", 0.5625, "f4", 0.5625, served=True),
        WeightFormat("int4_wo", 0.53, "bf16", 2.0, served=True),
        WeightFormat("w4a16_mxfp4", 0.53, "bf16", 2.0),
        WeightFormat("w4a8_mxfp4_mxfp8", 0.53, "f8", 0.53),
    )
}

USUAL_WEIGHTS = {"bf16": "bf16", "f8": "fp8", "f4": "nvfp4"}
"""The usual format of weights by class of number."""
