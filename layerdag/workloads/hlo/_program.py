"""A compiled program as plain data: operations in program order, with their costs."""

import math
import re
from dataclasses import dataclass, field

_BITS = re.compile(r"[a-z]+?(\d+)")


@dataclass(frozen=True)
class Tensor:
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
class Program:
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
