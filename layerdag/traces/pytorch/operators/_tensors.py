"""Tensors in the arguments of traced operators: where they lie in memory, their type and shape."""

from typing import NamedTuple

from layerdag.traces.pytorch.host import HostBlock

# Names of PyTorch's C++ scalar types as they occur in "Tensor(<name>)", and their public names.
DTYPES: dict[str, str] = {
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
            DTYPES.get(self._words[self._dtype[row]], UNKNOWN_DTYPE),
            self._words[self._device[row]],
        )
