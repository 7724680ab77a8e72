"""Tensors in the arguments of traced operators: where they lie in memory, their type and shape."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from layerdag.traces.pytorch_et import Values

# Names of PyTorch's C++ scalar types as they occur in "Tensor(<name>)", and their public names.
DTYPES = {
    "float": "float32",
    "double": "float64",
    "c10::Half": "float16",
    "c10::BFloat16": "bfloat16",
    "long int": "int64",
    "long": "int64",
    "int": "int32",
    "short int": "int16",
    "short": "int16",
    "signed char": "int8",
    "unsigned char": "uint8",
    "bool": "bool",
    "c10::complex<float>": "complex64",
    "c10::complex<double>": "complex128",
    "c10::Float8_e4m3fn": "float8_e4m3fn",
    "c10::Float8_e5m2": "float8_e5m2",
}
UNKNOWN_DTYPE = "unknown"

WHOLE = 1 << 62
"""End of an access whose extent is not known: the whole storage."""

_NUMBER_DTYPES = frozenset({"float64", "int64", "bool", "complex128"})
# What PyTorch makes of Python numbers (c10/core/ScalarType.h, wrapped numbers).

_DTYPE = re.compile(r"Tensor\(([^()]*)\)")


@dataclass(frozen=True, slots=True)
class Access:
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


def tensors_at(held: Values, position: int) -> list[Access]:
    """Return the tensors (those of a list in order) at one position; empty ones are left out."""
    if position >= len(held.values):
        return []
    strides = held.strides[position] if position < len(held.strides) else None
    leaves = list(_leaves(held.values[position], held.shapes[position], strides))
    dtypes = _DTYPE.findall(held.types[position])
    if len(dtypes) < len(leaves):
        dtypes += dtypes[-1:] * (len(leaves) - len(dtypes)) or [""] * len(leaves)
    return [
        _access(value, shape, stride, dtype)
        for (value, shape, stride), dtype in zip(leaves, dtypes, strict=False)
        if value[3]
    ]


def _leaves(value: Any, shape: Any, strides: Any) -> Iterator[tuple[list[Any], Any, Any]]:
    """Yield (value, shape, strides) of each tensor in a nested list."""
    if not isinstance(value, list) or not value:
        return
    if len(value) == 6 and isinstance(value[5], str) and isinstance(value[1], int):
        yield value, shape, strides
        return
    if not isinstance(value[0], list | str) or not isinstance(shape, list):
        return
    for index, item in enumerate(value):
        if isinstance(item, list) and index < len(shape):
            inner = strides[index] if strides and index < len(strides) else None
            yield from _leaves(item, shape[index], inner)


def _access(value: list[Any], shape: Any, strides: Any, dtype: str) -> Access:
    """Return one tensor as an access."""
    _, storage, offset, count, width, device = value
    begin = offset * width
    end = begin + _extent(count, shape, strides) * width
    return Access(
        storage,
        begin,
        min(end, WHOLE),
        count * width,
        tuple(shape),
        DTYPES.get(dtype, UNKNOWN_DTYPE),
        device.partition(":")[0],
    )


def _extent(count: int, shape: Any, strides: Any) -> int:
    """Return the elements between a tensor's first and last one; without strides, everything."""
    if not strides:
        return count if not shape else WHOLE
    reach = 1
    for size, stride in zip(shape, strides, strict=False):
        reach += (size - 1) * stride
    return max(reach, 1)
