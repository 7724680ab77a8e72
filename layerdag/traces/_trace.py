"""Execution traces as columns: one Trace a rank, one Workload a job. numpy only, no torch.

The format facts are those of MLCommons Chakra's ``et_def.proto`` (schema 0.0.4 = 1.0.0).
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np

from layerdag.errors import TraceError


class NodeType(IntEnum):
    """Chakra ``NodeType``."""

    INVALID = 0
    METADATA = 1
    MEM_LOAD = 2
    MEM_STORE = 3
    COMP = 4
    COMM_SEND = 5
    COMM_RECV = 6
    COMM_COLL = 7


class CollectiveType(IntEnum):
    """Chakra ``CollectiveCommType``; 0 is a real value, so absence must be kept apart."""

    ALL_REDUCE = 0
    REDUCE = 1
    ALL_GATHER = 2
    GATHER = 3
    SCATTER = 4
    BROADCAST = 5
    ALL_TO_ALL = 6
    REDUCE_SCATTER = 7
    REDUCE_SCATTER_BLOCK = 8
    BARRIER = 9
    INVALID = 99


class Wire(IntEnum):
    """Field number of each alternative of ``AttributeProto.value``; its list is that plus one."""

    UNSET = 0
    DOUBLE = 3
    FLOAT = 5
    INT32 = 7
    INT64 = 9
    UINT32 = 11
    UINT64 = 13
    SINT32 = 15
    SINT64 = 17
    FIXED32 = 19
    FIXED64 = 21
    SFIXED32 = 23
    SFIXED64 = 25
    BOOL = 27
    STRING = 29
    BYTES = 31


def wire_name(wire: int) -> str:
    """Return the field's name in ``et_def.proto``, such as ``int64_val`` or ``bool_list``."""
    if wire == Wire.UNSET:
        return "unset"
    listed = wire % 2 == 0
    return f"{Wire(wire - listed).name.lower()}_{'list' if listed else 'val'}"


@dataclass(frozen=True, eq=False)
class Ragged:
    """A list of integers for each node: those of node i are ``values[ptr_N1[i]:ptr_N1[i+1]]``."""

    ptr_N1: np.ndarray
    values: np.ndarray

    def of(self, row: int) -> np.ndarray:
        """Return the list of node ``row``."""
        return self.values[self.ptr_N1[row] : self.ptr_N1[row + 1]]


@dataclass(frozen=True, eq=False)
class AttributeTable:
    """The attributes of all nodes in one flat table, in file order, without loss.

    Attributes:
        ptr_N1: int64; attributes of node i are rows ``ptr_N1[i]:ptr_N1[i+1]``.
        name_A: int32 index into the trace's ``strings``.
        wire_A: uint8, a ``Wire`` value, plus one for the list form.
        word_A: uint64. For numbers and bools the value's bits (two's complement for signed kinds,
            IEEE bits for floats, in the low bits for 32-bit kinds); for strings an index into
            ``strings``; for bytes and for every list an index into ``blobs``.
        blobs: Payload bytes; for a list the serialized list message.
        doc_A: int32 index into ``strings`` of each attribute's doc string, -1 for none.
    """

    ptr_N1: np.ndarray
    name_A: np.ndarray
    wire_A: np.ndarray
    word_A: np.ndarray
    doc_A: np.ndarray
    blobs: tuple[bytes, ...]


@dataclass(frozen=True)
class Attribute:
    """One attribute outside the flat table (file metadata), or one to be written.

    Attributes:
        name: Attribute name.
        wire: A ``Wire`` value, plus one for the list form.
        value: int, float, bool, str, bytes, a tuple of these for a list, or None for ``UNSET``.
        doc: Doc string, "" for none.
    """

    name: str
    wire: int
    value: object
    doc: str = ""


@dataclass(frozen=True, eq=False)
class Trace:
    """The execution trace of one rank.

    Row order is file order. Strings are pooled: a column of int32 indexes points into ``strings``,
    -1 for an absent field.

    Attributes:
        id_N: uint64 node ids, unique.
        name_N: int32 index into ``strings``.
        type_N: uint8, ``NodeType``.
        start_us_N: uint64 ``start_time_micros``.
        duration_us_N: uint64 ``duration_micros``.
        data_deps: Ids (uint64) that must finish before the node starts.
        ctrl_deps: Ids (uint64) of the control dependencies.
        io_N6: int32 (N, 6) indexes of inputs.values/shapes/types, outputs.values/shapes/types.
        attributes: Every attribute of every node.
        strings: The string pool.
        version: ``GlobalMetadata.version``, "" if unset.
        metadata: ``GlobalMetadata.attr``.
        source: File name for messages.
    """

    id_N: np.ndarray
    name_N: np.ndarray
    type_N: np.ndarray
    start_us_N: np.ndarray
    duration_us_N: np.ndarray
    data_deps: Ragged
    ctrl_deps: Ragged
    io_N6: np.ndarray
    attributes: AttributeTable
    strings: tuple[str, ...]
    version: str = ""
    metadata: tuple[Attribute, ...] = ()
    source: str = "<memory>"

    @property
    def num_nodes(self) -> int:
        """Number of nodes (N)."""
        return len(self.id_N)

    def names(self) -> list[str]:
        """Return the name of each node."""
        return ["" if index < 0 else self.strings[index] for index in self.name_N.tolist()]

    def _rows(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Return (attribute rows, node rows) at which attribute ``name`` occurs."""
        try:
            index = self.strings.index(name)
        except ValueError:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        found_A = np.flatnonzero(self.attributes.name_A == index)
        node_A = np.searchsorted(self.attributes.ptr_N1, found_A, side="right") - 1
        return found_A, node_A

    def integers(self, name: str, default: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Return (value_N int64, present_N bool) of an integer or bool attribute of any wire type.

        Raises:
            TraceError: If some node carries the attribute as a float, string or list, or twice
                with different values: readers of Chakra traces do not agree on which counts.
        """
        value_N = np.full(self.num_nodes, default, dtype=np.int64)
        present_N = np.zeros(self.num_nodes, dtype=bool)
        row_A, node_A = self._rows(name)
        wire_A = self.attributes.wire_A[row_A]
        wrong_A = (wire_A % 2 == 0) | (wire_A < Wire.INT32) | (wire_A > Wire.BOOL)
        if wrong_A.any():
            bad = int(self.id_N[node_A[np.argmax(wrong_A)]])
            raise TraceError(
                f"{self.source}: node {bad} carries attribute '{name}' as "
                f"{wire_name(int(wire_A[np.argmax(wrong_A)]))}; an integer type such as int64_val "
                "is needed."
            )
        self._refuse_contradictions(name, row_A, node_A)
        value_N[node_A] = self.attributes.word_A[row_A].view(np.int64)
        present_N[node_A] = True
        return value_N, present_N

    def texts(self, name: str) -> tuple[list[str], np.ndarray]:
        """Return (value of each node or "", present_N) of a string attribute.

        Raises:
            TraceError: If some node carries the attribute with a type other than string_val, or
                twice with different values.
        """
        row_A, node_A = self._rows(name)
        wire_A, word_A = self.attributes.wire_A[row_A], self.attributes.word_A[row_A]
        other_A = np.flatnonzero(wire_A != Wire.STRING)
        if other_A.size:
            first = int(other_A[0])
            raise TraceError(
                f"{self.source}: node {int(self.id_N[node_A[first]])} carries attribute '{name}' "
                f"as {wire_name(int(wire_A[first]))}; string_val is needed."
            )
        value_N = np.full(self.num_nodes, "", dtype=object)
        value_N[node_A] = np.array(self.strings, dtype=object)[word_A.astype(np.int64)]
        present_N = np.zeros(self.num_nodes, dtype=bool)
        present_N[node_A] = True
        self._refuse_contradictions(name, row_A, node_A)
        return value_N.tolist(), present_N

    def dtypes(self) -> list[str]:
        """Return the number format of each node: its ``dtype``, else that of the metadata, or "".

        Raises:
            TraceError: As ``texts``.
        """
        names, stated_N = self.texts("dtype")
        common = next((str(a.value) for a in self.metadata if a.name == "dtype"), "")
        if not common:
            return names
        return [name if stated else common for name, stated in zip(names, stated_N, strict=True)]

    def _refuse_contradictions(self, name: str, row_A: np.ndarray, node_A: np.ndarray) -> None:
        """Raise TraceError where a node carries the attribute of these rows twice, differently."""
        repeated_A = node_A[1:] == node_A[:-1]
        if not repeated_A.any():
            return
        word_A = self.attributes.word_A[row_A]
        differs_A = repeated_A & (word_A[1:] != word_A[:-1])
        if differs_A.any():
            bad = int(self.id_N[node_A[1:][np.argmax(differs_A)]])
            raise TraceError(
                f"{self.source}: node {bad} carries attribute '{name}' twice, with different "
                "values; keep one."
            )


class LazyTraces(Sequence[Trace], ABC):
    """Traces of so many ranks that each is made when it is first asked for.

    They share their large columns.
    """

    @abstractmethod
    def files(self) -> Iterator[tuple[int, bytes]]:
        """Yield each rank with the bytes of its file, the last rank first.

        They are those of ``encode_trace(normalize(self[rank]))``, made faster.
        """


@dataclass(frozen=True, eq=False)
class Workload:
    """The traces of all ranks of one job, with its communicator groups.

    Ranks that run the same program may share one ``Trace`` object. A job of very many ranks may
    hold ``LazyTraces``.

    Attributes:
        traces: Trace of each rank, rank i at position i.
        groups: Ranks of each communicator group, by the group's integer name (as a string).
        source: Prefix or folder for messages.
    """

    traces: Sequence[Trace]
    groups: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    source: str = "<memory>"

    @property
    def num_ranks(self) -> int:
        """Number of ranks."""
        return len(self.traces)
