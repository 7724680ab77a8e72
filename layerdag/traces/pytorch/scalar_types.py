"""Scalar types of PyTorch by every name that its files give them, with the bits of an element.

The types are those of ``c10/core/ScalarType.h`` (``AT_FORALL_SCALAR_TYPES_WITH_COMPLEX_AND_QINTS``
and the sub-byte and packed types after them). Three spellings occur: the enumeration's name that
NCCL's arguments carry ("Float8_e4m3fn", "Char"), the C++ name of the type as the compiler prints it
("c10::Float8_e4m3fn", "signed char"; gcc, clang and MSVC differ in integers: "long int", "long",
"__int64"), and Python's ("float8_e4m3fn", "int8").
"""

from collections.abc import Iterator
from dataclasses import dataclass

UNKNOWN_DTYPE = "unknown"


@dataclass(frozen=True, slots=True)
class ScalarType:
    """One scalar type.

    Attributes:
        name: Public name, such as "float32".
        bits: Of an element; of a packed type, of its packed element.
    """

    name: str
    bits: int


_SIZED: dict[str, tuple[int, str]] = {
    # public name: (bits, other spellings)
    "uint8": (8, "Byte|unsigned char"),
    "int8": (8, "Char|signed char|char"),
    "int16": (16, "Short|short|short int"),
    "int32": (32, "Int|int"),
    "int64": (64, "Long|long|long int|long long|long long int|__int64"),
    "float16": (16, "Half|c10::Half"),
    "float32": (32, "Float|float"),
    "float64": (64, "Double|double"),
    "complex32": (32, "ComplexHalf|c10::complex<c10::Half>"),
    "complex64": (64, "ComplexFloat|c10::complex<float>"),
    "complex128": (128, "ComplexDouble|c10::complex<double>"),
    "bool": (8, "Bool|bool"),
    "qint8": (8, "QInt8|c10::qint8"),
    "quint8": (8, "QUInt8|c10::quint8"),
    "qint32": (32, "QInt32|c10::qint32"),
    "bfloat16": (16, "BFloat16|c10::BFloat16"),
    "quint4x2": (8, "QUInt4x2|c10::quint4x2"),
    "quint2x4": (8, "QUInt2x4|c10::quint2x4"),
    "bits1x8": (8, "Bits1x8|c10::bits1x8"),
    "bits2x4": (8, "Bits2x4|c10::bits2x4"),
    "bits4x2": (8, "Bits4x2|c10::bits4x2"),
    "bits8": (8, "Bits8|c10::bits8"),
    "bits16": (16, "Bits16|c10::bits16"),
    "float8_e5m2": (8, "Float8_e5m2|c10::Float8_e5m2"),
    "float8_e4m3fn": (8, "Float8_e4m3fn|c10::Float8_e4m3fn"),
    "float8_e5m2fnuz": (8, "Float8_e5m2fnuz|c10::Float8_e5m2fnuz"),
    "float8_e4m3fnuz": (8, "Float8_e4m3fnuz|c10::Float8_e4m3fnuz"),
    "float8_e8m0fnu": (8, "Float8_e8m0fnu|c10::Float8_e8m0fnu"),
    "float4_e2m1fn_x2": (8, "Float4_e2m1fn_x2|c10::Float4_e2m1fn_x2"),
    "uint16": (16, "UInt16|unsigned short|short unsigned int|unsigned short int"),
    "uint32": (32, "UInt32|unsigned int|unsigned"),
    "uint64": (64, "UInt64|unsigned long|long unsigned int|unsigned long int|unsigned long long"
        "|long long unsigned int|unsigned __int64"),
}  # fmt: skip


def _all_types() -> Iterator[tuple[str, ScalarType]]:
    """Yield every spelling with its type; types of 1 to 7 bits take a byte for each element."""
    for name, (bits, spellings) in _SIZED.items():
        for spelling in (name, *spellings.split("|")):
            yield spelling, ScalarType(name, bits)
    for width in range(1, 8):
        for kind in ("int", "uint"):
            name = f"{kind}{width}"
            title = name.replace("uint", "UInt").replace("int", "Int")
            for spelling in (name, title, f"c10::dummy_{kind}1_7_t<{width}>"):
                yield spelling, ScalarType(name, 8)


_SPELLED = dict(_all_types())
_TYPES = {spelling.lower(): kind for spelling, kind in _SPELLED.items()}

DTYPES = {spelling: kind.name for spelling, kind in _SPELLED.items()}
"""Public name of each spelling."""


def scalar_type(word: str) -> ScalarType | None:
    """Return the scalar type of a word, such as "c10::Half" or "Tensor(float)"; None if unknown."""
    inner = word.strip().lower()
    if inner.startswith("tensor(") and inner.endswith(")"):
        inner = inner[len("tensor(") : -1]
    return _TYPES.get(inner)
