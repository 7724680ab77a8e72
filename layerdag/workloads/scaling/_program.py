"""The program of a class of ranks, with the numbers that rules change."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.sparse import csr_array

from layerdag.traces import (
    DATA,
    CollectiveType,
    NodeType,
    Trace,
    dependency_edges,
)
from layerdag.traces.analysis import group_names
from layerdag.traces.chakra import normalize

ITEM_BYTES = {
    "float64": 8, "int64": 8, "float32": 4, "int32": 4, "float16": 2, "bfloat16": 2,
    "float8_e4m3fn": 1, "float8_e5m2": 1, "int8": 1, "uint8": 1,
}  # fmt: skip
_MATRIX = (
    "mm", "bmm", "addmm", "baddbmm", "matmul", "linear", "attention", "convolution", "conv", "gemm",
)  # fmt: skip
_INTENSE = 4  # operations for each byte that only products of matrices have


@dataclass(frozen=True, eq=False)
class Program:
    """What all ranks of a class run.

    Attributes:
        trace: Of the first rank, as Chakra's readers take it.
        ranks: All ranks of the class, ascending.
        ops_N: Floating-point operations, 0 where absent, int64 (N,).
        bytes_N: Bytes read and written.
        comm_N: Bytes of a message or collective.
    """

    trace: Trace
    ranks: tuple[int, ...]
    ops_N: np.ndarray
    bytes_N: np.ndarray
    comm_N: np.ndarray

    @classmethod
    def of(cls, trace: Trace, ranks: Sequence[int]) -> "Program":
        """Return the program of a trace. Raises TraceError if consumers could not read it."""
        trace = normalize(trace)
        numbers = (trace.integers(name)[0] for name in _NUMBERS)
        return cls(trace, tuple(ranks), *numbers)

    @property
    def num_nodes(self) -> int:
        """Number of nodes (N)."""
        return self.trace.num_nodes

    @cached_property
    def names(self) -> list[str]:
        """Name of each node."""
        return self.trace.names()

    @cached_property
    def group_N(self) -> list[str]:
        """Group of each collective, "" elsewhere."""
        found, _ = group_names(self.trace)
        kinds = (self.trace.type_N == NodeType.COMM_COLL).tolist()
        return [group if joins else "" for group, joins in zip(found, kinds, strict=True)]

    @cached_property
    def collective_N(self) -> np.ndarray:
        """``CollectiveType`` of each collective, INVALID elsewhere, int64 (N,)."""
        kind_N, _ = self.trace.integers("comm_type", int(CollectiveType.INVALID))
        joins_N = self.trace.type_N == NodeType.COMM_COLL
        return np.where(joins_N, kind_N, int(CollectiveType.INVALID))

    @cached_property
    def item_N(self) -> np.ndarray:
        """Bytes of an element of each node by its stated format, 4 where unknown, int64 (N,)."""
        return np.array([ITEM_BYTES.get(name, 4) for name in self.trace.dtypes()], dtype=np.int64)

    @cached_property
    def data_edges_2E(self) -> np.ndarray:
        """Data dependencies as rows, int64 (2, E)."""
        edges_2E, kind_E = dependency_edges(self.trace)
        return edges_2E[:, kind_E == DATA]

    @cached_property
    def computes_N(self) -> np.ndarray:
        """Which nodes are operators, bool (N,)."""
        return self.trace.type_N == NodeType.COMP

    @cached_property
    def matrix_N(self) -> np.ndarray:
        """Which operators are products of matrices, by name or by operations per byte."""
        named_S = np.array([_is_matrix(text) for text in self.trace.strings], dtype=bool)
        intense_N = (self.bytes_N > 0) & (self.ops_N > _INTENSE * self.bytes_N)
        return self.computes_N & (named_S[self.trace.name_N] | intense_N)

    @property
    def talks(self) -> bool:
        """Whether the program sends or receives messages."""
        kinds = (NodeType.COMM_SEND, NodeType.COMM_RECV)
        return bool(np.isin(self.trace.type_N, kinds).any())

    def descendants(self, from_N: np.ndarray) -> np.ndarray:
        """Return which nodes depend on the given ones by data, bool (N,)."""
        return _reached(self.data_edges_2E, from_N)

    def ancestors(self, to_N: np.ndarray) -> np.ndarray:
        """Return which nodes the given ones depend on by data, bool (N,)."""
        return _reached(self.data_edges_2E[::-1], to_N)

    def parents(self, row: int) -> list[int]:
        """Return the rows on which a node depends by data."""
        source_E, target_E = self.data_edges_2E
        found: list[int] = source_E[target_E == row].tolist()
        return found

    def children(self, row: int) -> list[int]:
        """Return the rows that depend on a node by data."""
        source_E, target_E = self.data_edges_2E
        found: list[int] = target_E[source_E == row].tolist()
        return found


_NUMBERS = {"num_ops": "ops_N", "tensor_size": "bytes_N", "comm_size": "comm_N"}


def _is_matrix(name: str) -> bool:
    """Return whether a name says that matrices are multiplied."""
    parts = name.lower().replace(":", " ").replace(".", " ").replace("_", " ").split()
    return any(part in _MATRIX or part.startswith(("gemm", "conv", "attention")) for part in parts)


def _reached(edges_2E: np.ndarray, from_N: np.ndarray) -> np.ndarray:
    """Return what can be reached along edges, bool (N,)."""
    size = len(from_N)
    ones_E = np.ones(edges_2E.shape[1], dtype=np.int32)
    step_NN = csr_array((ones_E, (edges_2E[1], edges_2E[0])), shape=(size, size))
    reached_N = np.zeros(size, dtype=bool)
    front_N = from_N
    while front_N.any():
        front_N = ((step_NN @ front_N.astype(np.int32)) > 0) & ~reached_N
        reached_N |= front_N
    return reached_N


def written(program: Program, before: Program, regrouped_N: np.ndarray) -> Trace:
    """Return the trace of a program whose numbers a rule has changed.

    Durations of operators follow their costs: the larger of the ratios of operations and bytes.
    Measured times of collectives on other ranks or of other sizes are dropped, and so are the
    shapes of changed operators.

    Args:
        program: With new numbers.
        before: The same nodes as they were.
        regrouped_N: Collectives of groups that have other members, bool (N,).
    """
    changed_N = program.ops_N != before.ops_N
    changed_N |= (program.bytes_N != before.bytes_N) | (program.comm_N != before.comm_N)
    stale_N = regrouped_N | (changed_N & ~program.computes_N)
    if not (changed_N | stale_N).any():
        return program.trace
    trace = program.trace
    values = {name: getattr(program, column) for name, column in _NUMBERS.items()}
    ratio_N = np.maximum(
        _ratio(program.ops_N, before.ops_N), _ratio(program.bytes_N, before.bytes_N)
    )
    ratio_N = np.where((before.ops_N > 0) | (before.bytes_N > 0), ratio_N, 1.0)
    ratio_N = np.where(program.computes_N & changed_N, ratio_N, np.where(stale_N, 0.0, 1.0))
    nanoseconds_N, _ = trace.integers("duration_ns")
    values["duration_ns"] = np.rint(nanoseconds_N * ratio_N).astype(np.int64)
    io_N6 = np.where(changed_N[:, None], np.int32(-1), trace.io_N6)
    duration_N = np.rint(trace.duration_us_N * ratio_N).astype(np.uint64)
    return replace(with_words(trace, values), duration_us_N=duration_N, io_N6=io_N6)


def numbers_written(program: Program) -> Trace:
    """Return the trace of a program with its operations, bytes and messages as they are now."""
    values = {name: getattr(program, column) for name, column in _NUMBERS.items()}
    return with_words(program.trace, values)


def _ratio(after_N: np.ndarray, before_N: np.ndarray) -> np.ndarray:
    """Return by what numbers grew, 0 where there was none."""
    return np.divide(after_N, before_N, out=np.zeros(len(after_N)), where=before_N > 0)


def with_words(trace: Trace, value_N: Mapping[str, np.ndarray]) -> Trace:
    """Return the trace with other values of integer attributes, where nodes have them."""
    table = trace.attributes
    word_A = table.word_A.copy()
    node_A = np.repeat(np.arange(trace.num_nodes), np.diff(table.ptr_N1))
    for name, values in value_N.items():
        if name in trace.strings:
            of_name_A = table.name_A == trace.strings.index(name)
            word_A[of_name_A] = values[node_A[of_name_A]].astype(np.int64).view(np.uint64)
    return replace(trace, attributes=replace(table, word_A=word_A))
