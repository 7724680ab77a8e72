"""Operators of PyTorch in traces: what they do to their tensors.

What an operator reads and writes is read from the alias annotations of its schema (PyTorch,
aten/src/ATen/native/README.md):
``Tensor(a!)`` is written, a result ``Tensor(a)`` without ``!`` is a view, a plain result is new.
"""

import functools
import math
import re
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from layerdag.errors import TraceError
from layerdag.hardware.collectives import COMMUNICATION_OPERATORS, WAITS, is_unknown_communication
from layerdag.hardware.dtypes import SPELLINGS, UNKNOWN_DTYPE
from layerdag.hardware.operators import Trait, find_operator, is_composite
from layerdag.traces.pytorch.host_trace import HostBlock

BARRIER_BYTES = 4
"""A barrier is an all-reduce of one float: so NCCL's process group does it
(``ProcessGroupNCCL::barrier``), and ASTRA-sim knows no barrier."""

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
        return math.prod(self.shape)

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
        dtype = SPELLINGS.get(self._words[self._dtype[row]])
        return TensorView(
            self.storage[row],
            self._begin[row],
            self._end[row],
            self._bytes[row],
            tuple(self._sizes[first : first + self._dims[row]]),
            UNKNOWN_DTYPE if dtype is None else dtype.name,
            self._words[self._device[row]],
        )


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
# FSDP2 resizes the storages of unsharded parameters, unseen, before it copies into them.
_REALLOCATED = frozenset({"fsdp::split_with_sizes_copy"})
_WRAPS = "_c10d_functional::_wrap_tensor_autograd"
"""Only gives a tensor another owner."""
_ALIAS = re.compile(r"Tensor(\[\])?\([a-z]")


@functools.lru_cache(maxsize=8192)
def signature(name: str, schema: str, triton: bool = False) -> Signature:
    """Return the signature of an operator, whose schema is "" for scopes and autograd nodes.

    ``triton`` marks a compiled Triton kernel, which has no schema.

    Raises:
        TraceError: If the schema is not one that PyTorch writes.
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


def _has(name: str, trait: Trait) -> bool:
    row = find_operator(name) if name.startswith("aten::") else None
    return row is not None and trait in row.traits


def _from_schema(name: str, schema: str) -> Signature:
    arguments, results = _split(schema)
    written = frozenset(i for i, text in enumerate(arguments) if "!" in text.partition(")")[0])
    if (
        name in WAITS
        or name == _WRAPS
        or _has(name, Trait.HIDDEN_VIEW)
        or (not written and _ALIAS.search(results))
    ):
        return Signature(OpRole.VIEW)
    if name.startswith(_ALLOCATIONS):
        return Signature(OpRole.ALLOCATION, written)
    if not written and "Tensor" not in results:
        return Signature(OpRole.SCOPE)
    if _has(name, Trait.OVERWRITES):
        return Signature(OpRole.COMPUTE, written, written)
    # Such an argument is written as "Tensor(a!) out" or "Tensor(a!) out=None".
    names = {at: arguments[at].partition("=")[0].split()[-1] for at in written}
    outs = frozenset(at for at, argument in names.items() if argument.startswith("out"))
    return Signature(OpRole.COMPUTE, written, outs, outs if name in _REALLOCATED else frozenset())


def _split(schema: str) -> tuple[list[str], str]:
    """Return the arguments and the result part of a schema; "*" is not an argument."""
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
